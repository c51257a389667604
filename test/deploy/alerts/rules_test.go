// Package alerts_test tries the alert rules on series, by Prometheus's own
// engine.
package alerts_test

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const rulesFile = "../../../deploy/prometheus/fleetloop.rules.yaml"

// newGroups loads the rules on top of series in promqltest's notation.
func newGroups(t *testing.T, series string) map[string]*rules.Group {
	t.Helper()
	storage := promqltest.LoadedStorage(t, series)
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	manager := rules.NewManager(&rules.ManagerOptions{
		Context: t.Context(), Appendable: storage, Queryable: storage,
		QueryFunc:  rules.EngineQueryFunc(engine, storage),
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     promslog.NewNopLogger(),
	})
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, rulesFile)
	for _, err := range errs {
		t.Error(err)
	}
	return groups
}

// TestMissing holds that nothing scraped is told after five minutes, and not
// before.
func TestMissing(t *testing.T) {
	groups := newGroups(t, "load 1m\n  up 1\n")
	group, ok := groups[rules.GroupKey(rulesFile, "sentinel")]
	if !ok {
		t.Fatalf("no group sentinel among %v", groups)
	}
	firing := func() (names []string) {
		for _, alert := range group.AlertingRules() {
			if alert.State() == rules.StateFiring {
				names = append(names, alert.Name())
			}
		}
		return names
	}
	for minute := range 5 {
		group.Eval(t.Context(), time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
		if names := firing(); len(names) > 0 {
			t.Errorf("after %d minutes: %v", minute, names)
		}
	}
	group.Eval(t.Context(), time.Unix(0, 0).Add(5*time.Minute))
	if names := firing(); len(names) != 1 || names[0] != "SentinelMissing" {
		t.Errorf("after five minutes: %v, want SentinelMissing", names)
	}
}
