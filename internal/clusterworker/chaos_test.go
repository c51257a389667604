package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// chance is a source of faults for many goroutines. When it is off, it injects none.
type chance struct {
	mu  sync.Mutex
	rnd *rand.Rand
	off bool
}

// of returns true with the given probability.
func (c *chance) of(p float64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.off && c.rnd.Float64() < p
}

func (c *chance) upTo(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.rnd.IntN(n)
}

func (c *chance) wait(ctx context.Context, most time.Duration) {
	_ = backoff.Sleep(ctx, time.Duration(c.upTo(int(most))))
}

func (c *chance) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off = true
}

// database fails before or after requests, and is slow.
func (c *chance) database(ctx context.Context, _ requestKind) error {
	if c.of(0.1) {
		c.wait(ctx, 20*time.Second)
	}
	if c.of(0.1) {
		return errDown
	}
	return nil
}

// gardener is slow, fails in all ways, panics and hangs.
func (c *chance) gardener(ctx context.Context, _ verb, _ string) error {
	c.wait(ctx, 2*time.Second)
	switch {
	case ctx.Err() != nil, c.of(0.02):
		<-ctx.Done()
		return context.Cause(ctx)
	case c.of(0.05):
		panic("chance")
	case c.of(0.2):
		class := shoot.ListClasses()[c.upTo(len(shoot.ListClasses()))]
		return &shoot.Error{Class: class, RetryAfter: time.Duration(c.upTo(int(20 * time.Second))), Err: errors.New("by chance")}
	}
	return nil
}

func (c *chance) probe(ctx context.Context) error {
	if c.of(0.1) {
		<-ctx.Done()
	}
	if c.of(0.4) {
		return errDown
	}
	return nil
}

// TestWhateverGoesWrong injects all kinds of faults for some minutes, in an order that
// depends on the seed. Afterwards everything is synced at its last generation, no row
// was ever processed twice at a time, and no older generation was sent after a newer
// one.
func TestWhateverGoesWrong(t *testing.T) {
	seeds := 20
	if testing.Short() {
		seeds = 5
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { goWrong(t, uint64(seed)) })
		})
	}
}

func goWrong(t *testing.T, seed uint64) {
	t.Helper()
	c := &chance{rnd: rand.New(rand.NewPCG(seed, 42))}
	store, garden := newFakeStore(), newFakeGarden()
	garden.on, garden.probed = c.gardener, c.probe
	garden.answer = func(verb, string) error {
		if c.of(0.1) {
			return shoot.NewClassErrorf(shoot.ClassUnavailable, "the answer is lost")
		}
		return nil
	}
	store.fault, store.wrote = c.database, c.database
	launch := func() *fixture {
		r := newFixture(t, store, garden, func(cfg *Config) {
			cfg.Slots = 1 + c.upTo(8)
			cfg.StopTimeout = time.Duration(1+c.upTo(10)) * time.Second
			if c.of(0.3) {
				cfg.Listen = ListenOff
			}
		})
		r.maker.name = func(claim Claim, n int) string { return fmt.Sprintf("%s-%d", claim.ClusterID[:4], n) }
		r.start()
		return r
	}
	rigs := []*fixture{launch(), launch(), launch()}
	store.notify = func() {
		for _, r := range rigs {
			if !c.of(0.3) {
				r.waker.wake()
			}
		}
	}
	for i := range 300 {
		time.Sleep(time.Duration(c.upTo(int(2 * time.Second))))
		id := fmt.Sprintf("c%03d", c.upTo(40))
		switch c.upTo(20) {
		case 0:
			store.delete(id)
		case 1:
			which := c.upTo(len(rigs))
			rigs[which].stop()
			rigs[which] = launch()
		case 2:
			rigs[c.upTo(len(rigs))].waker.set(errDown)
		case 3:
			rigs[c.upTo(len(rigs))].waker.set(nil)
		default:
			store.edit(id, func(r *fakeRow) {
				r.spec = []string{"{}", "{}", "{}", "bad", "panic"}[c.upTo(5)]
			})
		}
		if i == 150 {
			time.Sleep(20 * time.Minute) // the longest delays occur
		}
	}
	c.end()
	for _, id := range store.unsynced() {
		store.mu.Lock()
		store.rows[id].spec = "{}" // corrected without a notification
		store.mu.Unlock()
	}
	time.Sleep(17 * time.Minute)
	synctest.Wait()
	wantAgreement(t, store, garden)
	for _, r := range rigs {
		if s := r.worker.CollectStats(); s.InFlight != 0 || s.Unwritten != 0 {
			t.Errorf("not at rest: %+v", s)
		}
		if err := errors.Join(r.worker.CheckLive(), r.worker.claims.checkClaimHealth()); err != nil {
			t.Error(err)
		}
		r.stop()
	}
	garden.wantSound(t, 3*newCallLimiter(8).maxConcurrentCalls())
}
