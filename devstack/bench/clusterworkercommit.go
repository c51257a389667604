package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	fleetpgstore "github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	taxWriters = 32
	taxRows    = 250 * taxWriters
	taxTurns   = 5
)

// triggerCostBench measures the cost of the sync for clients that change clusters. It compares
// concurrent transactions of the fleet API, each of which changes the spec of one cluster, with the
// same transactions without the triggers. A worker's listener is connected in both cases. It also
// prints the figures for single statements, which are the smallest possible transactions.
func triggerCostBench() bench {
	const name = "clusterworker.commit_tax"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSyncDatabaseBed(ctx, taxRows)
		if err != nil {
			return nil, err
		}
		ratio, err := (&commitCost{bed: bed}).compareRateWithoutTriggers(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: ">=", want: 0.97}}, errors.Join(err, bed.stopBed())
	}}
}

// commitCost runs writers.
type commitCost struct {
	bed     *syncBed
	api     *fleetpgstore.Store
	writers []*clusterOwner
	turn    int
}

func (x *commitCost) compareRateWithoutTriggers(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	for range taxWriters {
		w, err := openClusterOwner(ctx, x.bed.db.server.DatabaseURL())
		if err != nil {
			return 0, err
		}
		defer func() { _ = w.Close(ctx) }()
		x.writers = append(x.writers, w)
	}
	cfg := x.bed.db.cfg
	cfg.MaxConns = taxWriters
	pool, err := postgres.New(cfg, slog.New(slog.DiscardHandler)) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return 0, err
	}
	defer pool.Close()
	x.api = fleetpgstore.New(pool)

	all := x.newVariant("changes by the fleet API", x.changeClusterInStoreTx, true, true)
	free := x.newVariant("changes by the fleet API without the triggers", x.changeClusterInStoreTx, false, true)
	bareAll := x.newVariant("changes by one statement", x.updateCluster, true, true)
	bareSilent := x.newVariant("changes by one statement without notifications", x.updateCluster, true, false)
	bareFree := x.newVariant("changes by one statement without the triggers", x.updateCluster, false, true)
	before := x.bed.listener.CountNotifications()
	// All rows are marked as synced before each turn, as if a worker had kept up.
	if err := measureAlternately(ctx, taxTurns, progress, x.bed.owner.MarkAllSynced, all, free, bareAll, bareSilent, bareFree); err != nil {
		return 0, err
	}
	_, _ = fmt.Fprintf(
		progress,
		"%d notifications for %d changes\n",
		x.bed.listener.CountNotifications()-before,
		2*(taxTurns+1)*taxRows,
	)
	_, _ = fmt.Fprintf(
		progress,
		"of single statements the triggers leave %.2f, and %.2f without notifications\n",
		medianRatio(bareAll, bareFree),
		medianRatio(bareSilent, bareFree),
	)
	return medianRatio(all, free), nil
}

// newVariant changes every cluster once, with or without triggers and notifications.
func (x *commitCost) newVariant(
	name string, change func(ctx context.Context, writer, i int) error, triggers, notifications bool,
) *benchVariant {
	return &benchVariant{name: name, run: func(ctx context.Context) (float64, error) {
		err := errors.Join(x.bed.owner.SetTriggers(ctx, triggers), x.bed.owner.SetNotifications(ctx, notifications))
		if err != nil {
			return 0, err
		}
		x.turn++
		begin := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for n := range x.writers {
			g.Go(func() error {
				for i := n; i < taxRows; i += taxWriters {
					if err := change(ctx, n, i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		err = g.Wait()
		return taxRows / time.Since(begin).Seconds(), err
	}}
}

// updateCluster changes a cluster with one statement.
func (x *commitCost) updateCluster(ctx context.Context, writer, i int) error {
	return x.writers[writer].EditCluster(ctx, i, x.turn)
}

// changeClusterInStoreTx changes a cluster as the fleet API does for a request.
func (x *commitCost) changeClusterInStoreTx(ctx context.Context, _, i int) error {
	return x.api.RunInTx(ctx, fleetapi.Scope{All: true}, func(ctx context.Context, tx fleetapi.Tx) error {
		l, err := tx.LockAndReadResource(ctx, fleetapi.Key{Kind: v1.KindCluster, ID: clusterID(i).String()})
		if err != nil {
			return err
		}
		r := l.Record
		r.Spec = fmt.Appendf(nil, `{"region":"local","version":"1.34.2","network":{"type":"calico"},"edit":%d}`, x.turn)
		r.Generation++
		r.UpdatedTime = l.Now
		return tx.SaveLockedResource(ctx, &r, nil)
	})
}

const (
	wakeRows    = 1000
	wakeChanges = 400
	wakeWarmUp  = 20
)

// commitToCallLatencyBench measures the time from the commit of a change to the resulting call of
// Gardener. The worker has no other work.
func commitToCallLatencyBench() bench {
	const name = "clusterworker.commit_to_call_p99_ms"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSyncDatabaseBed(ctx, wakeRows)
		if err != nil {
			return nil, err
		}
		p99, err := bed.measureCommitToCall(ctx, progress)
		err = errors.Join(err, bed.stopBed())
		return []line{{kind: "value", name: name, value: float64(p99) / float64(time.Millisecond), unit: "ms", op: "<=", want: 30}}, err
	}}
}

func (b *syncBed) measureCommitToCall(ctx context.Context, progress io.Writer) (p99 time.Duration, err error) {
	garden := &watchedGarden{Garden: memory.New(memory.Options{}), begun: make(chan time.Time, wakeRows)}
	stop, err := b.startWorker(ctx, gardenSlots, b.store, garden, manifest.Config{})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	if err := b.awaitZeroCount(ctx, b.owner.CountUnsynced); err != nil {
		return 0, err
	}
	garden.tells.Store(true)
	var committed, sent []time.Duration
	for i := range wakeWarmUp + wakeChanges {
		// The delay ends sometimes within the time after a notification in which the worker polls,
		// and sometimes after it, but never in step with the polls.
		if err := backoff.Sleep(ctx, 100*time.Millisecond+rand.N(200*time.Millisecond)); err != nil { //nolint:gosec // no secret
			return 0, err
		}
		if i%20 == 0 {
			if err := backoff.Sleep(ctx, 1100*time.Millisecond); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		if err := b.owner.EditCluster(ctx, i*7919%wakeRows, i); err != nil {
			return 0, err
		}
		commit := time.Now()
		select {
		case at := <-garden.begun:
			if i >= wakeWarmUp {
				// The response to the commit may arrive later than the call that it causes.
				committed, sent = append(committed, max(0, at.Sub(commit))), append(sent, at.Sub(begin))
			}
		case <-ctx.Done():
			return 0, fmt.Errorf("no call for change %d: %w", i, context.Cause(ctx))
		}
	}
	printDelays(progress, "from when the change was sent", sent)
	return printDelays(progress, "from when its commit was answered", committed), nil
}

// printDelays prints delays, and returns the 99th percentile.
func printDelays(progress io.Writer, from string, took []time.Duration) (p99 time.Duration) {
	slices.Sort(took)
	p99 = took[len(took)*99/100]
	_, _ = fmt.Fprintf(progress, "%d changes, %s to the call: median %s, 90th percentile %s, 99th %s, longest %s\n",
		len(took), from, took[len(took)/2], took[len(took)*9/10], p99, took[len(took)-1])
	return p99
}

// awaitZeroCount waits until a count is zero.
func (*syncBed) awaitZeroCount(ctx context.Context, count func(context.Context) (int, error)) error {
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

// A watchedGarden reports the start of calls.
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
