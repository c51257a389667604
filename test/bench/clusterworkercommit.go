package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/pgbench"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	taxWriters = 32
	taxRows    = 320 * taxWriters
	taxTurns   = 5
)

// commitTaxBench measures what the sync takes from those who change clusters:
// transactions that change one cluster each, from many connections, against the
// same without the triggers. A worker's listener is there on both sides.
func commitTaxBench() bench {
	const name = "clusterworker.commit_tax"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSync(ctx, taxRows)
		if err != nil {
			return nil, err
		}
		ratio, err := (&taxed{bed: bed}).measure(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: ">=", want: 0.85}}, errors.Join(err, bed.stop())
	}}
}

// taxed are writers.
type taxed struct {
	bed     *syncBed
	writers []*pgbench.Owner
	turn    int
}

func (x *taxed) measure(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	for range taxWriters {
		w, err := pgbench.Open(ctx, x.bed.db.server.URL())
		if err != nil {
			return 0, err
		}
		defer func() { _ = w.Close(ctx) }()
		x.writers = append(x.writers, w)
	}
	owner := x.bed.owner
	synced := x.way("changes of synced clusters", owner.Triggers, owner.Notifications)
	free := x.way("changes without the triggers", func(ctx context.Context, _ bool) error { return owner.Triggers(ctx, false) }, owner.Notifications)
	silent := x.way("changes that nobody is notified of", owner.Triggers, func(ctx context.Context, _ bool) error { return owner.Notifications(ctx, false) })
	prepare := func(ctx context.Context) error { // as if a worker had kept up
		return owner.Sync(ctx)
	}
	before := x.bed.listener.Notifications()
	if err := alternate(ctx, taxTurns, progress, prepare, synced, free, silent); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(progress, "%d changes that could be told of were told by %d notifications\n", (taxTurns+1)*taxRows, x.bed.listener.Notifications()-before)
	_, _ = fmt.Fprintf(progress, "of which the notifications alone leave %.2f\n", over(synced, silent))
	return over(synced, free), nil
}

// way changes every cluster once, after the triggers have been set.
func (x *taxed) way(name string, set ...func(ctx context.Context, on bool) error) *way {
	return &way{name: name, run: func(ctx context.Context) (float64, error) {
		for _, s := range set {
			if err := s(ctx, true); err != nil {
				return 0, err
			}
		}
		x.turn++
		begin := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for n, w := range x.writers {
			g.Go(func() error {
				for i := n; i < taxRows; i += taxWriters {
					if err := w.Edit(ctx, i, x.turn); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err := g.Wait()
		return taxRows / time.Since(begin).Seconds(), err
	}}
}

const (
	wakeRows    = 1000
	wakeChanges = 400
	wakeWarmUp  = 20
)

// commitToCallBench measures how long after the commit of a change the call of
// Gardener about it begins, with nothing else to do.
func commitToCallBench() bench {
	const name = "clusterworker.commit_to_call_p99_ms"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSync(ctx, wakeRows)
		if err != nil {
			return nil, err
		}
		p99, err := bed.measureWake(ctx, progress)
		err = errors.Join(err, bed.stop())
		return []line{{kind: "value", name: name, value: float64(p99) / float64(time.Millisecond), unit: "ms", op: "<=", want: 30}}, err
	}}
}

func (b *syncBed) measureWake(ctx context.Context, progress io.Writer) (p99 time.Duration, err error) {
	garden := &watchedGarden{Garden: memory.New(memory.Options{}), begun: make(chan time.Time, wakeRows)}
	stop, err := b.start(ctx, gardenSlots, b.store, garden, manifest.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.awaitNone(ctx, b.owner.Unsynced); err != nil {
		return 0, err
	}
	garden.tells.Store(true)
	var committed, sent []time.Duration
	for i := range wakeWarmUp + wakeChanges {
		// Now within the time after a notification in which the worker looks by itself, now
		// after it; and never in step with that.
		if err := backoff.Sleep(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond)); err != nil { //nolint:gosec // no secret
			return 0, err
		}
		if i%20 == 0 {
			if err := backoff.Sleep(ctx, 1100*time.Millisecond); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		if err := b.owner.Edit(ctx, i*7919%wakeRows, i); err != nil {
			return 0, err
		}
		commit := time.Now()
		select {
		case at := <-garden.begun:
			if i >= wakeWarmUp {
				// The answer to the commit can come later than the call it leads to.
				committed, sent = append(committed, max(0, at.Sub(commit))), append(sent, at.Sub(begin))
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("no call for change %d: %w", i, context.Cause(ctx))
		}
	}
	tellWake(progress, "from when the change was sent", sent)
	return tellWake(progress, "from when its commit was answered", committed), nil
}

// tellWake tells of delays, and gives the 99th percentile.
func tellWake(progress io.Writer, from string, took []time.Duration) time.Duration {
	slices.Sort(took)
	p99 := took[len(took)*99/100]
	_, _ = fmt.Fprintf(progress, "%d changes, %s to the call: median %s, 90th percentile %s, 99th %s, longest %s\n",
		len(took), from, took[len(took)/2], took[len(took)*9/10], p99, took[len(took)-1])
	return p99
}

// awaitNone waits until a count is zero.
func (*syncBed) awaitNone(ctx context.Context, count func(context.Context) (int, error)) error {
	for {
		n, err := count(ctx)
		if n == 0 || err != nil {
			return err
		}
		if err := backoff.Sleep(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("%d clusters are left: %w", n, err)
		}
	}
}

// A watchedGarden tells when calls begin.
type watchedGarden struct {
	clusterworker.Garden
	tells atomic.Bool
	begun chan time.Time
}

// ApplyShoot applies a manifest.
func (g *watchedGarden) ApplyShoot(ctx context.Context, m shoot.Manifest, seen bool) (shoot.Applied, error) {
	if g.tells.Load() {
		g.begun <- time.Now()
	}
	return g.Garden.ApplyShoot(ctx, m, seen)
}
