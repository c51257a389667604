package operator_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// eachSeries visits the series of the counters and gauges of a run.
func (r *run) eachSeries(t *testing.T, visit func(name string, labels map[string]string, value float64)) {
	t.Helper()
	families, err := r.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			visit(f.GetName(), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue())
		}
	}
}

// wantConfigs waits until the metrics contain the given counts of objects.
func (r *run) wantConfigs(t *testing.T, served, unserved float64) {
	t.Helper()
	eventually(t, func() error {
		got := map[string]float64{}
		r.eachSeries(t, func(name string, labels map[string]string, value float64) {
			if name != "hyperfleet_sentinel_configs" {
				return
			}
			if labels["shard"] == "" || labels["resource_type"] == "" {
				t.Errorf("labels are %v, want the shard and the resource type of all metrics", labels)
			}
			got[labels["state"]] += value
		})
		if len(got) != 2 || got["running"] != served || got["not_running"] != unserved {
			return fmt.Errorf("hyperfleet_sentinel_configs is %v, want %v served and %v unserved", got, served, unserved)
		}
		return nil
	})
}

// TestConfigsAreCounted checks that an object without a sentinel is in the metrics, although it has
// no separate series.
func TestConfigsAreCounted(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	one, all := h.start(t, "one", "us"), h.start(t, "", "them")
	one.wantConfigs(t, 0, 1)
	all.wantConfigs(t, 0, 0)

	nonsense := func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}
	h.apply(t, spec("one"))
	h.apply(t, spec("two", nonsense))
	one.wantConfigs(t, 1, 0)
	all.wantConfigs(t, 1, 1)

	h.apply(t, spec("one", nonsense))
	h.apply(t, spec("two"))
	all.wantConfigs(t, 2, 0) // what was configured before goes on
	h.kubectl(t, "delete", "sentinelconfigs", "one", "two")
	one.wantConfigs(t, 0, 1)
	all.wantConfigs(t, 0, 0)
}

// TestConfigSeries makes loading a configuration fail and succeed, and reads
// the counters of both. They go on counting when another sentinel runs.
func TestConfigSeries(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	r := h.start(t, "one", "us")
	want := func(when string, reloads, successful, failures float64) {
		t.Helper()
		eventually(t, func() error {
			got := r.configSeries(t)
			if got["config_reloads_total"] != reloads || got["config_last_reload_successful"] != successful || (failures == 0) != (got["config_load"] == 0) {
				return fmt.Errorf("%s: series are %v, want %v reloads, %v for the last, and failures: %t", when, got, reloads, successful, failures > 0)
			}
			return nil
		})
	}
	every := func(d v1alpha1.Duration) func(*v1alpha1.SentinelConfigSpec) {
		return func(s *v1alpha1.SentinelConfigSpec) { s.PollInterval = d }
	}
	h.apply(t, spec("one", every("7s")))
	want("loaded at first", 0, 1, 0)
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Decision = &v1alpha1.Decision{Profile: "expression", Result: "resource.generation +"}
	}))
	want("a rule that does not compile", 0, 0, 1)
	h.apply(t, spec("one", every("8s")))
	want("mended", 1, 1, 1)
	h.apply(t, spec("one", every("9s")))
	want("changed again", 2, 1, 1)
}

// configSeries returns the metrics of loading the configuration; config_load stands for the errors
// of that operation.
func (r *run) configSeries(t *testing.T) map[string]float64 {
	t.Helper()
	got := map[string]float64{}
	r.eachSeries(t, func(name string, labels map[string]string, value float64) {
		switch name = strings.TrimPrefix(name, "hyperfleet_sentinel_"); name {
		case "config_reloads_total", "config_last_reload_successful":
			got[name] += value
		case "api_errors_total":
			got[labels["operation"]] += value
		}
	})
	return got
}

// TestGroupsAreNamed: what a group says has the name of its SentinelConfig, or
// alerts would take all groups of a cluster for one.
func TestGroupsAreNamed(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	one, all := h.start(t, "one", "us", h.withLeases), h.start(t, "", "them", h.withLeases)
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Sharding = &v1alpha1.Sharding{Mode: v1alpha1.ShardingAuto}
	}))
	for _, r := range []*run{one, all} {
		eventually(t, func() error {
			got := map[string]string{}
			r.eachSeries(t, func(name string, labels map[string]string, value float64) {
				if config, ok := labels[operator.LabelConfig]; ok {
					got[name] = fmt.Sprint(config, " ", value)
				}
			})
			if got["hyperfleet_sentinel_shard_members"] != "one 2" || got["hyperfleet_sentinel_shard_fenced"] != "one 0" {
				return fmt.Errorf("metrics of the group are %v, want two members of one, and none fenced", got)
			}
			return nil
		})
	}
}
