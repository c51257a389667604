package operator_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// withLeases connects the replicas through the bed.
func (h *host) withLeases(_ *operator.Config, d *operator.Deps) {
	d.Leases = func(group string) (shard.LeaseStore, func(), error) {
		l, err := shard.NewKubeLeases(h.account, h.namespace, group)
		if err != nil {
			return nil, nil, err
		}
		return l, l.Close, nil
	}
}

// TestReplicas has two operators share an object: each has its part of the
// fleet and its entry in the status, and all is one's when the other leaves.
func TestReplicas(t *testing.T) {
	t.Parallel()
	h := newHost(t)
	for i := range 50 {
		h.fleet.Add(fmt.Sprint("c-", i))
	}
	h.apply(t, spec("one", func(s *v1alpha1.SentinelConfigSpec) {
		s.Sharding = &v1alpha1.Sharding{Mode: v1alpha1.ShardingAuto}
	}))
	first, second := h.start(t, "one", "replica-a", h.withLeases), h.start(t, "one", "replica-b", h.withLeases)
	eventually(t, func() error {
		s := h.get(t, "one").Status
		if len(s.Replicas) != 2 || s.ResourcesWatched != 53 || s.EventsPublished < 53 {
			return fmt.Errorf("status is %+v, want 53 clusters divided among two", s)
		}
		for _, r := range s.Replicas {
			if r.ResourcesOwned == 0 || r.ResourcesOwned == 53 {
				return fmt.Errorf("%s has %d clusters, want some", r.Name, r.ResourcesOwned)
			}
		}
		return nil
	})
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
	eventually(t, first.Ready)
	eventually(t, second.Ready)
	first.stop(t)
	eventually(t, func() error {
		s := h.get(t, "one").Status
		if len(s.Replicas) != 1 || s.Replicas[0].Name != "replica-b" || s.Replicas[0].ResourcesOwned != 53 || s.ResourcesWatched != 53 {
			return fmt.Errorf("status is %+v, want all of it to be the second's", s)
		}
		return nil
	})
	h.wantCondition(t, "one", v1alpha1.ConditionReady, metav1.ConditionTrue, "generation 1")
}
