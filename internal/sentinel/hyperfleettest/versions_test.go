package hyperfleettest_test

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

	api "github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
)

// TestVersions plays what other versions of the API do otherwise.
func TestVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		show := func(cfg api.Config, query string) (list, resource) {
			s := api.New(cfg)
			ids := fleet(s, 3)
			s.ReportAllConditionsTrue("clusters", ids[0], "validation", 1)
			s.ReportAllConditionsTrue("clusters", ids[0], "dns", 1)
			s.PatchSpec("clusters", ids[0], `{"x":1}`)
			return get[list](t, s, "/clusters?"+query), get[resource](t, s, "/clusters/"+ids[0])
		}
		if l, _ := show(api.Config{OldParameters: true}, "pageSize=2&orderBy=id&order=asc"); !slices.Equal(l.names(), []string{"c-00", "c-01"}) {
			t.Errorf("old parameters: %v", l.names())
		}
		if l, _ := show(api.Config{OldParameters: true}, "size=2&order=id"); !slices.Equal(l.names(), []string{"c-02", "c-01", "c-00"}) {
			t.Errorf("new parameters, unknown then: %v", l.names())
		}
		if l, _ := show(api.Config{Labels: true}, "labels=region=eu"); !slices.Equal(l.names(), []string{"c-01"}) {
			t.Errorf("labels: %v", l.names())
		}
		if l, _ := show(api.Config{IgnoreSearch: true, IgnoreOrder: true}, "order=id&search=junk)("); l.Total != 3 || l.names()[0] != "c-02" {
			t.Errorf("ignored: %v", l.names())
		}
		types := func(r resource) []string {
			found := map[string]bool{}
			for _, c := range r.Status.Conditions {
				found[c.Type] = true
			}
			return slices.Sorted(maps.Keys(found))
		}
		_, r := show(api.Config{Era: api.Third}, "")
		if c := r.condition("Ready"); c.Status != "False" || c.ObservedGeneration != 1 || !slices.Equal(types(r), []string{"Available", "Ready"}) {
			t.Errorf("third era: %+v", r.Status)
		}
		_, r = show(api.Config{Era: api.Second}, "")
		if r.Status.Phase != "NotReady" || r.Status.ObservedGeneration != 1 || r.Status.LastUpdatedTime.IsZero() || len(r.Status.Conditions) == 0 {
			t.Errorf("second era: %+v", r.Status)
		}
		_, r = show(api.Config{Era: api.Earliest}, "")
		if r.Status.Phase != "NotReady" || r.Status.UpdatedAt.IsZero() || len(r.Status.Conditions) != 0 {
			t.Errorf("earliest era: %+v", r.Status)
		}
	})
}
