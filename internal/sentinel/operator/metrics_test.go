package operator_test

import (
	"fmt"
	"testing"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// wantConfigs waits until the metrics count so many objects.
func (r *run) wantConfigs(t *testing.T, served, unserved float64) {
	t.Helper()
	eventually(t, func() error {
		families, err := r.metrics.Gather()
		if err != nil {
			return err
		}
		got := map[string]float64{}
		for _, f := range families {
			if f.GetName() != "hyperfleet_sentinel_configs" {
				continue
			}
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
		if len(got) != 2 || got["served"] != served || got["unserved"] != unserved {
			return fmt.Errorf("hyperfleet_sentinel_configs is %v, want %v served and %v unserved", got, served, unserved)
		}
		return nil
	})
}

// TestConfigsAreCounted: an object without a sentinel shows in the metrics,
// though it has no series of its own.
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
			families, err := r.metrics.Gather()
			if err != nil {
				return err
			}
			got := map[string]string{}
			for _, f := range families {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if l.GetName() == operator.LabelConfig {
							got[f.GetName()] = fmt.Sprint(l.GetValue(), " ", m.GetGauge().GetValue())
						}
					}
				}
			}
			if got["hyperfleet_sentinel_shard_members"] != "one 2" || got["hyperfleet_sentinel_shard_fenced"] != "one 0" {
				return fmt.Errorf("metrics of the group are %v, want two members of one, and none fenced", got)
			}
			return nil
		})
	}
}
