package sentinel_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// TestHistory runs the sentinel through histories of patches, reports, faults
// and restarts, and holds what it promises: a generation that no adapter has
// observed is published in the round after it is there, no generation sees two
// events within its interval unless the sentinel was restarted, and then they
// have one id if they fall into one interval.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
			return step{
				after: time.Duration(rapid.IntRange(1, 4000).Draw(t, "ms"))*time.Millisecond + time.Microsecond,
				what:  rapid.IntRange(0, 6).Draw(t, "what"),
				which: fmt.Sprint(rapid.IntRange(0, 2).Draw(t, "which")),
			}
		}), 1, 40).Draw(rt, "steps")
		synctest.Test(t, func(t *testing.T) { play(t, steps) })
	})
}

type step struct {
	after time.Duration
	what  int
	which string
}

func play(t *testing.T, steps []step) {
	t.Helper()
	const interval = 10 * time.Second
	api := newAPI(cluster("0", "Ready", 1, 1), cluster("1", "Provisioning", 1, 1), cluster("2", "Provisioning", 2, 1))
	broker := &fakeBroker{}
	begin := func() (stop func() time.Duration) {
		b := newFixture(t, api, func(c *sentinel.Config, d *sentinel.Deps) {
			c.MessageData = settings.OrderedMap{{Key: "generation", Value: ".generation"}}
			c.PollInterval, c.MaxAgeReady, c.MaxAgeNotReady = time.Second, interval, interval
			d.Publisher = broker
		})
		return b.run(t)
	}
	stop := begin()
	defer func() { stop() }()
	ahead := map[string]v1.Resource{} // by what was there a round ago
	restarts := []time.Time{time.Now()}
	for _, s := range steps {
		time.Sleep(s.after)
		switch s.what {
		case 0, 1:
			api.patch(s.which)
		case 2, 3:
			api.answer(s.which)
		case 4: // a report of an adapter that is behind
			api.change(s.which, func(r *v1.Resource) { r.Status.LastUpdatedTime = time.Now() })
		case 5:
			stop()
			stop = begin()
			restarts = append(restarts, time.Now())
		case 6:
			api.change(s.which, func(r *v1.Resource) { r.Status.Phase = "Ready" })
		}
		for id := range api.resources {
			api.change(id, func(r *v1.Resource) { ahead[id] = *r })
		}
		time.Sleep(time.Second + time.Microsecond)
		synctest.Wait()
		for id, r := range ahead {
			if r.Generation > r.Status.ObservedGeneration && !announced(broker, id, r.Generation) {
				t.Fatalf("generation %d of %s stays unpublished", r.Generation, id)
			}
		}
	}
	wantSparse(t, broker.got(), interval, restarts)
}

func announced(b *fakeBroker, id string, generation int64) bool {
	for _, e := range b.of(id) {
		if generationOf(e) == generation {
			return true
		}
	}
	return false
}

func generationOf(e published) int64 {
	var data struct {
		Generation int64 `json:"generation,string"`
	}
	if err := json.Unmarshal(e.Data, &data); err != nil {
		panic(err)
	}
	return data.Generation
}

func wantSparse(t *testing.T, events []published, interval time.Duration, restarts []time.Time) {
	t.Helper()
	last := map[string]published{}
	for _, e := range events {
		key := fmt.Sprint(e.Subject, "/", generationOf(e))
		before, ok := last[key]
		last[key] = e
		if !ok || e.at.Sub(before.at) >= interval || e.ID == before.ID {
			continue
		}
		excused := false
		for _, r := range restarts {
			excused = excused || r.After(before.at) && !r.After(e.at)
		}
		if !excused {
			t.Fatalf("two events about %s within %s", key, e.at.Sub(before.at))
		}
	}
}
