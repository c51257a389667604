package sentinel_test

import (
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestSelector(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		west := cluster("west", "", 1, 0)
		west.Labels = map[string]string{"region": "us-west", "cluster-type": "hypershift"}
		east := cluster("east", "", 1, 0)
		east.Labels = map[string]string{"region": "us-east", "cluster-type": "hypershift"}
		api := newAPI(west, east, cluster("plain", "", 1, 0))
		api.ignoreLabels = true
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.ResourceSelector = []selector.Pair{{Label: "region", Value: "us-east"}}
			c.LabelSelector = "cluster-type in (hypershift)"
		})
		b.run(t)
		synctest.Wait()
		got := b.broker.got()
		if len(got) != 1 || got[0].Subject != "east" {
			t.Errorf("got %v", got)
		}
		q, err := url.ParseQuery(strings.TrimPrefix(api.calls()[0].query, "clusters?"))
		if err != nil {
			t.Fatal(err)
		}
		shard := q.Get("labels")
		if !strings.Contains(shard, "region=us-east") || !strings.Contains(shard, "cluster-type") {
			t.Errorf("labels %q", shard)
		}
		b.wantMetric(t, 1, "pending_resources", "shard", shard)
		b.wantMetric(t, 2, "selector_mismatches_total")
		wantCount(t, "warnings of a server that does not select", b.log.lines(`level=WARN msg="api returned a resource that does not match the selector"`), 2)
	})
}

func TestOddResources(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		soon := time.Now().Add(48 * time.Hour).Format(time.RFC3339)
		api.body = func(url.Values) string {
			return `{"items":[null,7,{"generation":1},{"id":7},{"id":"text","generation":"1"},
				{"id":"bare"},{"id":"fresh","generation":1},
				{"id":"ahead","generation":1,"status":{"phase":"Ready","observed_generation":2}},
				{"id":"future","generation":1,"status":{"phase":"Ready","observed_generation":1,"last_updated_time":"` + soon + `"}},
				{"id":"badtime","generation":1,"status":{"observed_generation":1,"last_updated_time":"yesterday"}},
				{"id":"fresh","generation":1},{"id":"quo\"te\n<>","generation":1}]}`
		}
		b := newFixture(t, api)
		b.run(t)
		synctest.Wait()
		for id, want := range map[string]int{"bare": 1, "fresh": 1, "ahead": 0, "future": 1, "badtime": 1} {
			wantCount(t, id, b.broker.of(id), want)
		}
		// Its id cannot be the subject of an event; the others are not affected.
		wantCount(t, "events", b.broker.got(), 4)
		b.wantMetric(t, 2, "decode_errors_total", "reason", "not_an_object")
		b.wantMetric(t, 1, "decode_errors_total", "reason", "missing_id")
		b.wantMetric(t, 2, "decode_errors_total", "reason", "wrong_type")
		b.wantMetric(t, 1, "decode_errors_total", "reason", "invalid_time")
		b.wantMetric(t, 1, "duplicate_resources_total")
		b.wantMetric(t, 1, "resource_warnings_total", "warning", "status time in the future - potential clock issue")
		wantCount(t, "warning", b.log.lines(`level=WARN msg="observed_generation ahead of generation - potential API issue" resource_type=clusters selector="" resource_id=ahead`), 1)
		// A time from the future is neither waited for nor announced in every
		// round; what has no time at all is looked at when it has been known
		// for its age.
		time.Sleep(31 * time.Minute)
		wantCount(t, "future", b.broker.of("future"), 2)
		wantCount(t, "ahead", b.broker.of("ahead"), 1)
	})
}

// TestNotUnicode: half a surrogate pair in one resource is no reason to lose
// the others, nor that resource.
func TestNotUnicode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api := newAPI()
		api.body = func(url.Values) string {
			return `{"items":[{"id":"a","generation":1},{"id":"b","generation":1,"name":"x\ud800y"},{"id":"c","generation":1,"name":"` + "\xff" + `"}]}`
		}
		b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) {
			c.MessageData = settings.OrderedMap{{Key: "name", Value: ".name"}}
		})
		b.run(t)
		synctest.Wait()
		for id, want := range map[string]string{"a": `{"name":""}`, "b": `{"name":"x\ufffdy"}`, "c": `{"name":"\ufffd"}`} {
			got := b.broker.of(id)
			if want = strings.ReplaceAll(want, `\ufffd`, "\ufffd"); len(got) != 1 || string(got[0].Data) != want {
				t.Errorf("%s: got %v, want %s", id, got, want)
			}
		}
	})
}

func TestMalformedPage(t *testing.T) {
	for name, body := range map[string]string{"cut": `{"items":[{"id":"a","generation":1},`, "html": `<html>`, "no list": `{"code":"E"}`, "empty": ``} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				api.body = func(url.Values) string { return body }
				b := newFixture(t, api)
				b.run(t)
				time.Sleep(6 * time.Second)
				b.wantMetric(t, 2, "api_errors_total", "operation", "fetch_resources")
				wantCount(t, "lines that name the page", b.log.lines("list clusters: read the first page: "), 2)
			})
		})
	}
}

func TestExpression(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		broken := cluster("broken", "Ready", 1, 1)
		broken.Labels = nil
		b := newFixture(t, newAPI(cluster("due", "Ready", 1, 1), broken), func(c *sentinel.Config, _ *sentinel.Deps) {
			c.Decision = sentinel.Decision{
				Profile: sentinel.ProfileExpression,
				Params:  []decision.ExpressionParam{{Name: "region", Expr: `resource.labels.region`}},
				Result:  `region == "us-east"`,
			}
			c.LogEvents = sentinel.LogEventsDebug
		})
		b.run(t)
		time.Sleep(6 * time.Second)
		wantCount(t, "events", b.broker.got(), 2)
		b.wantMetric(t, 1, "decisions_total", "reason", "message decision matched")
		b.wantMetric(t, 1, "decisions_total", "reason", "message decision failed")
		wantCount(t, "warnings", b.log.lines(`msg="decision expression failed, resource treated as due" resource_type=clusters selector="" resource_id=broken err="evaluate param`), 2)
		wantCount(t, "info lines of events", b.log.lines(`level=INFO msg="event published"`), 0)
		wantCount(t, "debug lines of events", b.log.lines(`level=DEBUG msg="event published"`), 2)
	})
}

func TestTransitionAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := cluster("a", "Provisioning", 5, 1)
		r.Status.LastTransitionTime = time.Now()
		b := newFixture(t, newAPI(r), func(c *sentinel.Config, _ *sentinel.Deps) {
			c.Decision.Profile, c.PayloadKeys = sentinel.ProfileTransitionAge, "camel"
		})
		b.run(t)
		time.Sleep(9 * time.Second)
		wantCount(t, "events before", b.broker.got(), 0)
		time.Sleep(2 * time.Second)
		got := b.broker.got()
		wantCount(t, "events after", got, 1)
		if want := `{"resourceType":"clusters","resourceId":"a","reason":"backoff-expired"}`; string(got[0].Data) != want {
			t.Errorf("got %s, want %s", got[0].Data, want)
		}
		b.api.change("a", func(r *v1.Resource) { r.Status.LastTransitionTime = time.Now() })
		time.Sleep(9 * time.Second)
		wantCount(t, "silence after the change", b.broker.got(), 1)
		time.Sleep(6 * time.Second)
		wantCount(t, "and then the next", b.broker.got(), 2)
	})
}

// TestNoGenerationsToObserve: where neither the rules nor the API know of
// observed generations, no generation is waited for, and nothing is remembered
// of resources that are not due.
func TestNoGenerationsToObserve(t *testing.T) {
	cases := map[string]struct {
		reason   string
		decision sentinel.Decision
		observed string
		want     float64 // resources that wait
	}{
		"TransitionAge": {
			reason:   "the phase is all there is",
			decision: sentinel.Decision{Profile: sentinel.ProfileTransitionAge},
		},
		"Expression": {
			reason:   "conditions have generations of their own",
			decision: sentinel.Decision{Profile: sentinel.ProfileExpression, Result: "false"},
		},
		"Observed": {
			reason:   "the API knows of them",
			decision: sentinel.Decision{Profile: sentinel.ProfileTransitionAge},
			observed: `"observed_generation":1,`, want: 1,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				api := newAPI()
				created := time.Now().Add(-time.Hour).Format(time.RFC3339)
				moved := time.Now().Add(-time.Minute).Format(time.RFC3339)
				api.body = func(url.Values) string {
					return `{"items":[{"id":"a","generation":2,"created_time":"` + created + `",
						"status":{` + tc.observed + `"phase":"Ready","last_transition_time":"` + moved + `"}}]}`
				}
				b := newFixture(t, api, func(c *sentinel.Config, _ *sentinel.Deps) { c.Decision = tc.decision })
				b.run(t)
				synctest.Wait()
				wantCount(t, tc.reason+": events", b.broker.got(), 0)
				b.wantMetric(t, tc.want, "published_cache_entries")
				if oldest := b.metric(t, "oldest_unreconciled_generation_seconds"); (oldest > 0) != (tc.want > 0) {
					t.Errorf("%s: the oldest waits for %v s", tc.reason, oldest)
				}
			})
		})
	}
}
