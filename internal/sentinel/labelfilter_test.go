package sentinel_test

import (
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// TestLabelsNotReturned holds when a resource without labels counts as selected
// by the API: as long as none has the field.
func TestLabelsNotReturned(t *testing.T) {
	const warning = `level=WARN msg="api filters by labels but does not return them`
	const mine = `{"id":"mine","generation":1,"labels":{"region":"eu"}}`
	cases := map[string]struct {
		reason   string
		rounds   []string // the last goes on
		want     map[string]int
		warnings int
	}{
		"None":        {reason: "there is nothing to check by", rounds: []string{`[{"id":"a","generation":1},{"id":"b","generation":1,"spec":{"labels":{"region":"us"}}}]`}, want: map[string]int{"a": 1, "b": 1}, warnings: 1},
		"Enveloped":   {reason: "the same in an envelope, with other metadata", rounds: []string{`{"items":[{"id":"a","generation":1,"metadata":{"name":"x"}}],"total":1}`}, want: map[string]int{"a": 1}, warnings: 1},
		"Mixed":       {reason: "one that has some shows that the API returns them", rounds: []string{`[{"id":"a","generation":1},` + mine + `]`}, want: map[string]int{"a": 0, "mine": 1}},
		"MixedBefore": {reason: "wherever it stands", rounds: []string{`[` + mine + `,{"id":"a","generation":1}]`}, want: map[string]int{"a": 0, "mine": 1}},
		"Empty":       {reason: "an empty field is a field", rounds: []string{`[{"id":"a","generation":1},{"id":"b","generation":1,"labels":{}}]`}, want: map[string]int{"a": 0, "b": 0}},
		"Null":        {reason: "and so is null", rounds: []string{`[{"id":"a","generation":1},{"id":"b","generation":1,"labels":null}]`}, want: map[string]int{"a": 0, "b": 0}},
		"Metadata":    {reason: "below metadata too", rounds: []string{`[{"id":"a","generation":1},{"id":"b","generation":1,"metadata":{"labels":{"region":"eu"}}}]`}, want: map[string]int{"a": 0, "b": 1}},
		"Broken":      {reason: "a page that is cut off shows nothing", rounds: []string{`{"items":[{"id":"a","generation":1}`}, want: map[string]int{"a": 0}},
		"NoMoreLabels": {
			reason: "an API that ceases to return labels is trusted after a list without any",
			rounds: []string{`[` + mine + `]`, `[{"id":"a","generation":1}]`, `[{"id":"a","generation":1},{"id":"mine","generation":2}]`},
			want:   map[string]int{"a": 1, "mine": 2}, warnings: 1,
		},
		"LabelsAfterAll": {
			reason: "an API that begins to return labels is checked from then on",
			rounds: []string{`[{"id":"a","generation":1}]`, `[` + mine + `,{"id":"a","generation":2}]`, `[{"id":"a","generation":3},` + mine + `]`},
			want:   map[string]int{"a": 1, "mine": 1}, warnings: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api, round := newAPI(), -1
				api.body = func(url.Values) string {
					round++
					return tc.rounds[min(round, len(tc.rounds)-1)]
				}
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
					c.ResourceSelector = []selector.Pair{{Label: "region", Value: "eu"}}
					c.MaxAgeNotReady = time.Hour
				})
				b.run(t)
				time.Sleep(time.Minute)
				synctest.Wait()
				for id, want := range tc.want {
					wantCount(t, tc.reason+": "+id, b.broker.of(id), want)
				}
				wantCount(t, tc.reason+": warnings", b.log.lines(warning), tc.warnings)
			})
		})
	}
}

// TestLabelsOnALaterPage checks that resources that were trusted on an earlier page are checked
// from the next list on.
func TestLabelsOnALaterPage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, generation := newAPI(), 0
		api.body = func(q url.Values) string {
			if q.Has("continue") {
				return `{"items":[{"id":"b","generation":1,"labels":{"region":"eu"}}]}`
			}
			generation++
			return `{"items":[{"id":"a","generation":` + string(rune('0'+generation)) + `}],"continue":"x"}`
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.ResourceSelector = []selector.Pair{{Label: "region", Value: "eu"}}
			c.MaxAgeNotReady = time.Hour
		})
		b.run(t)
		time.Sleep(17 * time.Second)
		wantCount(t, "events about the one on the first page", b.broker.of("a"), 1)
		wantCount(t, "events about the one on the second", b.broker.of("b"), 1)
		b.wantMetric(t, 3, "selector_mismatches_total")
	})
}
