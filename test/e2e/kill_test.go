package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// A history is when each generation of each cluster came to be.
type history struct {
	mu    sync.Mutex
	times map[string]map[int64]time.Time
}

func (h *history) note(r v1.Resource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.times[r.ID] == nil {
		h.times[r.ID] = map[int64]time.Time{}
	}
	h.times[r.ID][r.Generation] = r.UpdatedTime
}

// patchOn changes specs without pause until ctx ends.
func (h *history) patchOn(ctx context.Context, f *fleet, ids []string) error {
	for n := 0; ctx.Err() == nil; n++ {
		// Not by ctx: what is cut short may have happened.
		r, err := f.api.Clusters().Patch(context.WithoutCancel(ctx), ids[rand.IntN(len(ids))], v1.PatchRequest{Spec: json.RawMessage(fmt.Sprintf(`{"n":%d}`, n))})
		if err != nil {
			return err
		}
		h.note(r)
		_ = poll(ctx, time.Duration(rand.IntN(20))*time.Millisecond, func() error { return errors.New("a pause") })
	}
	return nil
}

// TestKilledSentinel kills the sentinel again and again, at random points,
// while specs change: no change goes unannounced in the end, and whatever was
// said twice has the same id, which follows from the API's fields alone. Half
// of the clusters have an adapter that answers.
func TestKilledSentinel(t *testing.T) {
	t.Parallel()
	const kills, clusters = 25, 24
	f := newFleet(t, oneAdapter())
	exchange := exchangeOf(t)
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchange, queue: exchange + "-test"})
	config := writeConfig(t, f.url, `
resource_type: clusters
poll_interval: 50ms
max_age_not_ready: 10m # so that all nudges of a generation are of the first interval
hyperfleet_api: {endpoint: API}
message_data: {resource_id: .id, generation: .generation, reason: 'cel:reason'}
`)
	h := &history{times: map[string]map[int64]time.Time{}}
	var ids []string
	answered := map[string]bool{}
	for i := range clusters {
		c := f.create(t, fmt.Sprintf("cluster-%d", i), "")
		h.note(c)
		ids = append(ids, c.ID)
		answered[c.ID] = i%2 == 0
	}
	adapters(t, f.url, exchange, func(e cloudevent.Event) bool { return answered[e.Subject] }, sampleadapter.Config{Name: sampleadapter.DNS})

	ctx, cancel := context.WithCancel(t.Context())
	var patching sync.WaitGroup
	for range 3 {
		patching.Go(func() {
			if err := h.patchOn(ctx, f, ids); err != nil {
				t.Error(err)
			}
		})
	}
	env := sentinelEnv(rabbitEnv(rabbit(t).Addr(), exchange))
	for range kills {
		s := start(t, "sentinel", env, "--config", config)
		life := time.Duration(rand.Int64N(int64(600 * time.Millisecond)))
		_ = poll(t.Context(), life, func() error { return errors.New("it lives") })
		s.kill(t)
	}
	cancel()
	patching.Wait()
	start(t, "sentinel", env, "--config", config)

	for _, id := range ids {
		last := f.get(t, id).Generation
		if answered[id] { // perhaps on an event about the generation before, which is as good
			(&loop{fleet: f}).wantObserved(t, id, last)
		} else {
			wantGeneration(t, q, id, last)
		}
	}
	wantSameIDs(t, q.all(), h)
}

// wantSameIDs checks that each generation of a resource was announced under
// one id, and that it is the one that the API's fields give.
func wantSameIDs(t *testing.T, events []received, h *history) {
	t.Helper()
	distinct := map[string]bool{}
	for _, e := range events {
		distinct[e.ID] = true
		var generation int64
		if _, err := fmt.Sscan(e.str("generation"), &generation); err != nil {
			t.Fatalf("event %s: %v", e.Data, err)
		}
		since, ok := h.times[e.Subject][generation]
		if !ok {
			t.Errorf("event about generation %d of %s, which there never was", generation, e.Subject)
			continue
		}
		want := decision.DeriveEventID(e.Subject, generation, decision.Verdict{
			Reason: decision.ReasonGenerationChanged, Since: since, Next: since, Interval: 10 * time.Minute,
		}, e.Time)
		if e.ID != want || e.str("reason") != reasonGeneration {
			t.Errorf("generation %d of %s was announced as %s because %q; want %s", generation, e.Subject, e.ID, e.str("reason"), want)
		}
	}
	t.Logf("%d events, %d of them different", len(events), len(distinct))
	if len(distinct) == len(events) {
		t.Error("nothing was said twice: the kills came at no interesting point")
	}
}
