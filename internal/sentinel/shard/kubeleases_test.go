package shard_test

import (
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

func TestMain(m *testing.M) { kubebedtest.Main(m, kubebed.Options{}) }

func newLeases(t *testing.T, namespace, group string) *shard.KubeLeases {
	t.Helper()
	l, err := shard.NewKubeLeases(kubebedtest.Bed(t).Config(), namespace, group)
	if err != nil {
		t.Fatalf("New() = %v", err)
	}
	t.Cleanup(l.Close)
	return l
}

func TestLeases(t *testing.T) {
	runLeaseStoreSuite(t, func(t *testing.T) func() shard.LeaseStore {
		t.Helper()
		namespace := kubebedtest.Namespace(t)
		return func() shard.LeaseStore { return newLeases(t, namespace, "clusters of all regions") }
	})
}

func TestGroupsApart(t *testing.T) {
	namespace := kubebedtest.Namespace(t)
	long := strings.Repeat("a-very-long-name-", 12)
	for _, group := range []string{"a", "b", long + "a", long + "b", "a b", "ü"} {
		l := newLeases(t, namespace, group)
		name := "r-" + strings.Repeat("x", len(group)) + "-" + group[len(group)-1:]
		if group == "ü" {
			name = "umlaut"
		}
		if _, err := l.Put(t.Context(), shard.Record{Name: strings.ReplaceAll(name, " ", ""), Epoch: 1, State: shard.Joining}); err != nil {
			t.Fatalf("Put() of group %q = %v", group, err)
		}
		var first shard.LeaseChange
		done := t.Context()
		stop := make(chan struct{})
		go func() {
			defer close(stop)
			_ = l.Watch(done, func(c shard.LeaseChange) {
				if c.All {
					first = c
					stop <- struct{}{}
				}
			})
		}()
		<-stop
		if len(first.Records) != 1 {
			t.Errorf("group %q has %d members, want its own alone", group, len(first.Records))
		}
	}
}
