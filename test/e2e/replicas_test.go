package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// TestOperatorReplicas has two sentinels divide a fleet among themselves, then
// three; one is killed. Everything that changes is announced, and nothing by two of them
// but what was on its way, under the same id.
func TestOperatorReplicas(t *testing.T) {
	t.Parallel()
	f := newFleetOnKube(t, newHostCluster(t))
	f.apply(t, f.config(t, "divided", "  sharding: {mode: auto}\n  messageData: {generation: .generation}\n"))
	account := f.account(t, operator.SentinelRoles{Sharding: true})
	var replicas []*process
	join := func() {
		replicas = append(replicas, f.operator(t, account, "--config=divided"))
		f.wantMembers(t, replicas)
	}
	join()
	join()
	var ids []string
	for i := range 30 {
		ids = append(ids, f.create(t, fmt.Sprintf("cluster-%d", i), "").ID)
	}
	f.wantAnnounced(t, ids)
	f.wantDivided(t, replicas, float64(len(ids)))

	join()
	f.respecifyAll(t, ids)
	f.wantAnnounced(t, ids)
	f.wantDivided(t, replicas, float64(len(ids)))

	replicas[0].kill(t)
	begin := time.Now()
	f.respecifyAll(t, ids)
	f.wantAnnounced(t, ids)
	t.Logf("everything announced %s after a replica was killed", time.Since(begin).Round(time.Millisecond))
	replicas = replicas[1:]
	f.wantMembers(t, replicas)
	f.respecifyAll(t, ids)
	f.wantAnnounced(t, ids)
	f.wantDivided(t, replicas, float64(len(ids)))

	about := map[string]string{}
	repeated := 0
	for _, e := range f.queue.all() {
		what := e.Subject + " " + e.str("generation")
		if id, ok := about[what]; ok {
			repeated++
			if id != e.ID {
				t.Errorf("%s was announced as %s and as %s", what, id, e.ID)
			}
		}
		about[what] = e.ID
	}
	// Whoever gains a resource does not know when it was last announced.
	if most := 3 * len(ids); repeated > most {
		t.Errorf("%d repeats, want no more than one for each hand-over of %d clusters", repeated, len(ids))
	}
}

// wantMembers waits until each of some replicas knows of all of them.
func (f *fleetOnKube) wantMembers(t *testing.T, replicas []*process) {
	t.Helper()
	for _, r := range replicas {
		wantExactly(t, r, "hyperfleet_sentinel_shard_members", float64(len(replicas)))
	}
}

// wantExactly waits until a metric has a value.
func wantExactly(t *testing.T, p *process, name string, want float64) {
	t.Helper()
	eventually(t, patience, func() error {
		p.wantRunning(t)
		if got := p.metrics(t).sum(name); got != want {
			return fmt.Errorf("%s of %s is %g, want %g", name, p.name, got, want)
		}
		return nil
	})
}

// wantDivided waits until the replicas count all clusters, each once, and
// each has some.
func (f *fleetOnKube) wantDivided(t *testing.T, replicas []*process, want float64) {
	t.Helper()
	eventually(t, patience, func() error {
		var parts []float64
		sum := 0.0
		for _, r := range replicas {
			n := r.metrics(t).sum("hyperfleet_sentinel_pending_resources")
			parts = append(parts, n)
			sum += n
		}
		if sum != want || slices.Min(parts) == 0 {
			return fmt.Errorf("the replicas have %v resources, want %g in all and none without", parts, want)
		}
		return nil
	})
}

// wantAnnounced waits for an event about the generation that each of some
// clusters has.
func (f *fleetOnKube) wantAnnounced(t *testing.T, ids []string) {
	t.Helper()
	for _, id := range ids {
		wantGeneration(t, f.queue, id, f.get(t, id).Generation)
	}
}

func (f *fleetOnKube) respecifyAll(t *testing.T, ids []string) {
	t.Helper()
	for i, id := range ids {
		f.respecify(t, id, int(time.Now().UnixNano()%1_000_000)+i)
	}
}
