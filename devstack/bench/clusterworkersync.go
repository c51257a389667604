package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
)

const (
	syncRows  = 10_000
	syncTurns = 5

	// syncSlots limits the number of claimed rows. The default of 32 is for a Gardener with slow
	// calls; with instant calls the bench would measure round trips for few rows each.
	syncSlots = 200
	// syncBatch is the number of rows that the bare statements take at once. The worker takes as
	// many: it claims again when half of its slots are free.
	syncBatch = syncSlots / 2

	// lockers is the number of workers in the design that holds locks.
	lockers = 8
)

// workerSyncBench measures how fast clusters are synced to an instant garden. It compares the worker with
// the same statements without a worker, and with the usual design of one row per transaction. The
// clusters are already known, and each was changed.
func workerSyncBench() bench {
	const bare, rows = "clusterworker.sync_vs_sql", "clusterworker.sync_vs_row_per_tx"
	return bench{names: []string{bare, rows}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSyncDatabaseBed(ctx, syncRows)
		if err != nil {
			return nil, err
		}
		overBare, overRows, err := bed.compareSyncRates(ctx, progress)
		if err = errors.Join(err, bed.stopBed()); err != nil {
			return nil, err
		}
		return []line{
			{kind: "ratio", name: bare, value: overBare, op: ">=", want: 0.6},
			{kind: "ratio", name: rows, value: overRows, op: ">=", want: 3},
		}, nil
	}}
}

// A benchVariant processes all due rows and returns the rows per second.
type benchVariant struct {
	name string
	run  func(context.Context) (perSecond float64, err error)
	seen []float64
}

// newTimedVariant returns a way whose function returns the number of rows.
func newTimedVariant(name string, wantRows int, run func(context.Context) (rows int, err error)) *benchVariant {
	return &benchVariant{name: name, run: func(ctx context.Context) (float64, error) {
		begin := time.Now()
		rows, err := run(ctx)
		took := time.Since(begin)
		if err == nil && rows != wantRows {
			err = fmt.Errorf("%s: %d rows, want %d", name, rows, wantRows)
		}
		return float64(rows) / took.Seconds(), err
	}}
}

// measureAlternately runs variants alternately, in reverse order in every second turn. It calls prepare before
// each, to give all the same start. The first turn does not count, because it warms caches and
// connections.
func measureAlternately(
	ctx context.Context, turns int, progress io.Writer, prepare func(context.Context) error, variants ...*benchVariant,
) error {
	for turn := range turns + 1 {
		for _, w := range variants {
			if err := prepare(ctx); err != nil {
				return err
			}
			perSecond, err := w.run(ctx)
			if err != nil {
				return fmt.Errorf("%s: %w", w.name, err)
			}
			if turn > 0 {
				w.seen = append(w.seen, perSecond)
			}
		}
		slices.Reverse(variants)
	}
	for _, w := range variants {
		_, _ = fmt.Fprintf(progress, "%s: %.0f a second\n", w.name, w.seen)
	}
	return nil
}

// medianRatio returns the median of the ratios of two variants' turns.
func medianRatio(a, b *benchVariant) float64 {
	ratios := make([]float64, len(a.seen))
	for i := range ratios {
		ratios[i] = a.seen[i] / b.seen[i]
	}
	return computeMedian(ratios)
}

func (b *syncBed) compareSyncRates(ctx context.Context, progress io.Writer) (vsBareStatements, vsRowPerTx float64, err error) {
	garden := memory.New(memory.Options{})
	worker := &benchVariant{name: fmt.Sprintf("worker with %d slots", syncSlots), run: func(ctx context.Context) (float64, error) {
		return b.measureDrain(ctx, syncRows, syncSlots, garden, manifest.Config{})
	}}
	first, err := worker.run(ctx)
	if err != nil {
		return 0, 0, err
	}
	_, _ = fmt.Fprintf(progress, "%d clusters that are new, which are given names first: %.0f a second\n", syncRows, first)

	one, err := connectBareWorker(ctx, b.cfg, 1)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, one.Close(ctx)) }()
	many, err := connectBareWorker(ctx, b.cfg, lockers)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, many.Close(ctx)) }()
	bare := newTimedVariant(
		fmt.Sprintf("the bare statements for %d rows at a time", syncBatch),
		syncRows,
		func(ctx context.Context) (int, error) { return one.CompleteAllDueRows(ctx, syncBatch) },
	)
	rows := newTimedVariant("a transaction for each row", syncRows, func(ctx context.Context) (int, error) {
		return many.ProcessDueRowsOneByOne(ctx, syncRows, func(context.Context) error { return nil })
	})
	if err := measureAlternately(ctx, syncTurns, progress, b.owner.MarkAllUnsynced, worker, bare, rows); err != nil {
		return 0, 0, err
	}
	return medianRatio(worker, bare), medianRatio(worker, rows), nil
}

const (
	slowCall      = 50 * time.Millisecond
	slowRows      = 10_000
	slowTurns     = 3
	slowLockRows  = 600
	slowCallSlots = 200
)

// slowCallBench measures how many clusters are synced per database connection, for a garden with
// slow calls. It compares the worker with the design that holds a row locked during the call.
func slowCallBench() bench {
	const name = "clusterworker.slow_call_50ms_per_connection"
	return bench{names: []string{name}, run: func(ctx context.Context, progress io.Writer) ([]line, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		bed, err := startSyncDatabaseBed(ctx, slowRows)
		if err != nil {
			return nil, err
		}
		ratio, err := bed.compareSlowCallsWithLocking(ctx, progress)
		return []line{{kind: "ratio", name: name, value: ratio, op: ">=", want: 20}}, errors.Join(err, bed.stopBed())
	}}
}

func (b *syncBed) compareSlowCallsWithLocking(ctx context.Context, progress io.Writer) (ratio float64, err error) {
	garden := memory.New(memory.Options{Latency: slowCall})
	cfg := b.cfg
	cfg.ApplicationName = "measured locks"
	many, err := connectBareWorker(ctx, cfg, lockers)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, many.Close(ctx)) }()
	// A slot costs a goroutine, but no connection, so that their number is limited only by
	// Gardener.
	worker := &benchVariant{
		name: fmt.Sprintf("worker with %d slots, for each connection", slowCallSlots),
		run: func(ctx context.Context) (float64, error) {
			perSecond, err := b.measureDrain(ctx, slowRows, slowCallSlots, garden, manifest.Config{})
			return b.divideByConnections(ctx, perSecond, workerName, progress, err)
		},
	}
	locked := newTimedVariant("", slowLockRows, func(ctx context.Context) (int, error) {
		return many.ProcessDueRowsOneByOne(ctx, slowLockRows, func(ctx context.Context) error { return backoff.Sleep(ctx, slowCall) })
	})
	locks := &benchVariant{name: "a lock during each call, for each connection", run: func(ctx context.Context) (float64, error) {
		perSecond, err := locked.run(ctx)
		return b.divideByConnections(ctx, perSecond, cfg.ApplicationName, progress, err)
	}}
	if err := measureAlternately(ctx, slowTurns, progress, b.owner.MarkAllUnsynced, worker, locks); err != nil {
		return 0, err
	}
	return medianRatio(worker, locks), nil
}

// divideByConnections returns a rate divided by the number of an application's connections. All of them
// stay open for minutes after their use.
func (b *syncBed) divideByConnections(
	ctx context.Context,
	perSecond float64,
	application string,
	progress io.Writer,
	err error,
) (float64, error) {
	if err != nil {
		return 0, err
	}
	n, err := b.owner.CountConnections(ctx, application)
	if err != nil || n == 0 {
		return 0, errors.Join(err, fmt.Errorf("%q has %d connections", application, n))
	}
	_, _ = fmt.Fprintf(progress, "%s: %.0f clusters a second over %d connections\n", application, perSecond, n)
	return perSecond / float64(n), nil
}
