package main

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// clusterworkerBenches returns the benches of the cluster-worker.
func clusterworkerBenches() []bench {
	return []bench{
		workerSyncBench(),
		slowCallBench(),
		shootCreationBench(),
		triggerCostBench(),
		commitToCallLatencyBench(),
		workerIdleQueriesBench(),
	}
}

const (
	// workerName is the name of a worker's connections in the database.
	workerName = "measured worker"
	// workerConns is the number of connections of one worker in addition to its listener: claims
	// and results run concurrently.
	workerConns = 2
)

// A syncBed is a database with synchronous commits, and the dependencies of workers.
type syncBed struct {
	db    *database
	cfg   postgres.Config // with a worker's settings
	owner *clusterOwner

	store        *pgstore.Store
	listener     *pgstore.Listener
	installation string

	end []func() error // in the order of calls
}

// startSyncDatabaseBed starts a bed with some clusters.
func startSyncDatabaseBed(ctx context.Context, clusters int) (b *syncBed, err error) {
	b = &syncBed{}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.stopBed())
		}
	}()
	dir, remove, err := tempDir()
	if err != nil {
		return b, err
	}
	b.onStop(func() error { remove(); return nil })
	if b.db, err = startMigratedDatabase(ctx, dir, true); err != nil {
		return b, err
	}
	b.onStop(b.db.stopServer)
	if b.owner, err = openClusterOwner(ctx, b.db.server.DatabaseURL()); err != nil {
		return b, err
	}
	b.onStop(func() error { return b.owner.Close(ctx) })
	if err = b.owner.InsertClustersWithPools(ctx, 0, clusters); err != nil {
		return b, err
	}
	b.cfg = b.db.cfg
	b.cfg.Role, b.cfg.MaxConns, b.cfg.ApplicationName = postgres.RoleClusterWorker, workerConns, workerName
	return b, b.startStoreAndListener(ctx)
}

// startStoreAndListener opens the connections that the workers share, as their process would.
func (b *syncBed) startStoreAndListener(ctx context.Context) error {
	log := slog.New(slog.DiscardHandler)
	pool, err := postgres.New(b.cfg, log) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return err
	}
	b.store, b.listener = pgstore.New(pool), pgstore.NewListener(b.cfg, log)
	running, cancel := context.WithCancel(ctx)
	var loops sync.WaitGroup
	loops.Go(func() { _ = pool.Run(running) })
	loops.Go(func() { _ = b.listener.Run(running) })
	b.onStop(func() error { cancel(); loops.Wait(); return nil })
	b.installation, err = b.store.GetInstallationID(ctx)
	return err
}

func (b *syncBed) onStop(end func() error) { b.end = append([]func() error{end}, b.end...) }

func (b *syncBed) stopBed() error {
	var errs []error
	for _, end := range b.end {
		errs = append(errs, end())
	}
	return errors.Join(errs...)
}

// startWorker starts a worker. stop waits until it has stopped.
func (b *syncBed) startWorker(
	ctx context.Context, slots int, store clusterworker.Store, garden clusterworker.Garden, shoots manifest.Config,
) (stop func() error, err error) {
	maker, err := manifest.New(shoots, b.installation, memory.DefaultProject, 21)
	if err != nil {
		return nil, err
	}
	worker, err := clusterworker.New(clusterworker.Config{Slots: slots}, clusterworker.Deps{
		Store: store, Garden: garden, Maker: maker, Owner: workerName, Waker: b.listener,
		Installation: b.installation,
	})
	if err != nil {
		return nil, err
	}
	running, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- worker.Run(running) }()
	return func() error {
		cancel()
		return <-done
	}, nil
}

// measureDrain lets a new worker sync the rows that are due, whose number must be rows. It returns
// the rows per second, from its first claim until all results are written.
func (b *syncBed) measureDrain(
	ctx context.Context, rows, slots int, garden clusterworker.Garden, shoots manifest.Config,
) (perSecond float64, err error) {
	store := &countedStore{Store: b.store, want: int64(rows), done: make(chan struct{})}
	stop, err := b.startWorker(ctx, slots, store, garden, shoots)
	if err != nil {
		return 0, err
	}
	var end time.Time
	select {
	case <-store.done:
		end = time.Now()
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	return float64(rows) / end.Sub(*store.began.Load()).Seconds(), errors.Join(err, stop())
}

// A countedStore records when the first claim began and when a number of clusters were synced.
type countedStore struct {
	*pgstore.Store
	want, synced int64
	began        atomic.Pointer[time.Time]
	claims       atomic.Int64
	done         chan struct{}
}

// ClaimRows claims rows.
func (s *countedStore) ClaimRows(
	ctx context.Context, owner string, limits clusterworker.ClaimLimits, lease time.Duration,
) (claims []clusterworker.Claim, err error) {
	now := time.Now()
	s.began.CompareAndSwap(nil, &now)
	s.claims.Add(1)
	return s.Store.ClaimRows(ctx, owner, limits, lease)
}

// WriteResults writes results. Only one goroutine of a worker calls it.
func (s *countedStore) WriteResults(ctx context.Context, results []clusterworker.Result) ([]string, error) {
	lost, err := s.Store.WriteResults(ctx, results)
	if err != nil {
		return lost, err
	}
	before := s.synced
	for i := range results {
		if results[i].Err == nil {
			s.synced++
		}
	}
	if s.synced -= int64(len(lost)); before < s.want && s.synced >= s.want {
		close(s.done)
	}
	return lost, nil
}
