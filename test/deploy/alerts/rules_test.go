// Package alerts_test tries the alert rules on series, by Prometheus's own
// engine.
package alerts_test

import (
	"context"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/promslog"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

const rulesFiles = "../../../deploy/prometheus/*.rules.yaml"

// A scenario is what Prometheus has scraped, and which alerts of one name
// fire when. Rules are evaluated every minute.
type scenario struct {
	reason string
	series string          // promqltest's notation, a sample a minute from minute 0 on
	want   map[int][]alert // by minute; an empty list: none fires then
}

// An alert is one that fires.
type alert struct {
	labels  map[string]string // beside alertname and severity
	summary string
}

// newRules loads the rules on top of series, each by its alert's name, in a
// group that evaluates it alone.
func newRules(t *testing.T, series string) map[string]rule {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n"+strings.TrimLeft(series, "\n"))
	t.Cleanup(func() { _ = storage.Close() })
	engine := promqltest.NewTestEngine(t, false, 0, promqltest.DefaultMaxSamplesPerQuery)
	options := &rules.ManagerOptions{
		Context: t.Context(), Appendable: storage, Queryable: storage,
		QueryFunc:   rules.EngineQueryFunc(engine, storage),
		NotifyFunc:  func(context.Context, string, ...*rules.Alert) {},
		Logger:      promslog.NewNopLogger(),
		GroupLoader: loader,
	}
	manager := rules.NewManager(options)
	files, err := filepath.Glob(rulesFiles)
	if err != nil || len(files) == 0 {
		t.Fatalf("there are no rules: %v", err)
	}
	groups, errs := manager.LoadGroups(time.Minute, labels.EmptyLabels(), "", nil, false, files...)
	for _, err := range errs {
		t.Fatal(err)
	}
	list := map[string]rule{}
	for _, group := range groups {
		wantIndependent(t, group)
		for _, r := range group.AlertingRules() {
			if _, ok := list[r.Name()]; ok {
				t.Errorf("there are two alerts %s", r.Name())
			}
			list[r.Name()] = rule{AlertingRule: r, group: rules.NewGroup(rules.GroupOptions{
				Name: group.Name(), File: group.File(), Interval: group.Interval(), Limit: group.Limit(),
				Rules: []rules.Rule{r}, Opts: options,
			})}
		}
	}
	return list
}

// wantIndependent fails if a rule of the group reads what another one writes. A scenario evaluates
// one rule only.
func wantIndependent(t *testing.T, group *rules.Group) {
	t.Helper()
	for _, r := range group.Rules() {
		alerting, ok := r.(*rules.AlertingRule)
		if !ok {
			t.Fatalf("%s records a series: evaluate it before the alerts that read it", r.Name())
		}
		if strings.Contains(alerting.Query().String(), "ALERTS") {
			t.Fatalf("%s reads other alerts: evaluate those before it", r.Name())
		}
	}
	if offset := group.QueryOffset(); offset != 0 {
		t.Fatalf("the group %s has the query offset %s: pass it to the groups of single rules", group.Name(), offset)
	}
}

type rule struct {
	*rules.AlertingRule
	group *rules.Group // of this rule only
}

// firing gives the alerts of r that fire, in the order of their summaries.
func (r rule) firing(t *testing.T) []alert {
	t.Helper()
	if err := r.LastError(); err != nil {
		t.Fatal(err)
	}
	var list []alert
	for _, a := range r.ActiveAlerts() {
		if a.State != rules.StateFiring {
			continue
		}
		got := a.Labels.Map()
		delete(got, "alertname")
		delete(got, "severity")
		list = append(list, alert{labels: got, summary: a.Annotations.Get("summary")})
	}
	slices.SortFunc(list, func(a, b alert) int {
		if a.summary < b.summary {
			return -1
		}
		return 1
	})
	return list
}

// TestAlerts: each alert fires when it should, says what it should, and is
// silent when it should be.
func TestAlerts(t *testing.T) {
	t.Parallel()
	for name, list := range scenarios() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var fires, silent bool
			for _, s := range list {
				t.Run(s.reason, func(t *testing.T) {
					t.Parallel()
					s.try(t, name)
				})
				for _, want := range s.want {
					fires = fires || len(want) > 0
					silent = silent || len(want) == 0
				}
			}
			if !fires || !silent {
				t.Errorf("tried to fire: %t; tried to be silent: %t; want both", fires, silent)
			}
		})
	}
}

func (s scenario) try(t *testing.T, name string) {
	t.Helper()
	r, ok := newRules(t, s.series)[name]
	if !ok {
		t.Fatalf("there is no alert %s", name)
	}
	for minute := range slices.Max(slices.Collect(maps.Keys(s.want))) + 1 {
		r.group.Eval(t.Context(), time.Unix(0, 0).Add(time.Duration(minute)*time.Minute))
		want, ok := s.want[minute]
		if !ok {
			continue
		}
		got := r.firing(t)
		if !slices.EqualFunc(got, want, func(a, b alert) bool { return a.summary == b.summary && maps.Equal(a.labels, b.labels) }) {
			t.Errorf("minute %d: fires\n  %+v\nwant\n  %+v", minute, got, want)
		}
	}
}

// TestEveryAlertIsTried holds the scenarios against the rules.
func TestEveryAlertIsTried(t *testing.T) {
	tried := scenarios()
	for name := range newRules(t, "  up 1\n") {
		if _, ok := tried[name]; !ok {
			t.Errorf("no scenario tries %s", name)
		}
	}
}
