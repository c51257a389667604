// Package clusterworker holds the cluster-worker against faults, as it is
// shipped: its binary, several at a time, on a real PostgreSQL and the real API
// server of Gardener.
//
// Between each worker and the garden stands a gate, which can answer in the
// garden's place, lose a request or its answer, or be late with it. It also
// takes down every request that writes, and who sent it. A storm makes random
// changes of clusters through a fleet API while at random gates misbehave, processes
// are killed and stopped, and database and garden go away and come back; when it is
// over, database and garden must agree. One storm has workers with the default
// settings, another has short times. Scenarios show the same faults one by one.
//
// The seed of a storm settles what is changed, what goes wrong and in which
// order. How all of that meets is the machine's, so that a seed makes a failure
// likely again, and not certain:
//
//	SEED=7 go test -run '^TestStormAtDefaultTimes$' ./test/clusterworker
package clusterworker

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// patience is how long anything may take that happens soon.
const patience = 2 * time.Minute

func TestMain(m *testing.M) { pgtest.Main(closing{m}) }

// closing closes what the tests share when they are done, and before anybody
// looks for what they left.
type closing struct{ *testing.M }

func (c closing) Run() int {
	defer shared.close()
	return c.M.Run()
}

// shared is what the tests of this run share.
var shared = newSharedBed()

type sharedBed struct {
	binary   func() (path string, err error)
	garden   func() (*gardenbed.Bed, error)
	projects atomic.Int64

	mu      sync.Mutex
	closers []func()
}

func newSharedBed() *sharedBed {
	b := &sharedBed{}
	b.binary = sync.OnceValues(b.build)
	b.garden = sync.OnceValues(func() (*gardenbed.Bed, error) {
		// A first build takes minutes, which should not look like a hang.
		log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		bed, err := gardenbed.Start(context.Background(), gardenbed.Options{Kube: kubebed.Options{Log: log}})
		if err != nil {
			return nil, err
		}
		b.later(func() { _ = bed.Stop() })
		return bed, nil
	})
	return b
}

// build builds the binary as it is shipped.
func (b *sharedBed) build() (string, error) {
	dir, err := os.MkdirTemp("", "fleetloop-clusterworker-")
	if err != nil {
		return "", err
	}
	b.later(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "cluster-worker"), binaries.Build(context.Background(), dir, "cluster-worker")
}

func (b *sharedBed) later(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, f)
}

func (b *sharedBed) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range b.closers {
		f()
	}
}

// errNotInTime is about what has not happened yet.
var errNotInTime = fmt.Errorf("not within %s", patience)

// poll calls check until it gives no error.
func poll(ctx context.Context, check func() error) error { return pollFor(ctx, patience, check) }

// pollFor calls check until it gives no error, for some time.
func pollFor(ctx context.Context, most time.Duration, check func() error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, most, fmt.Errorf("not within %s", most))
	defer cancel()
	for {
		err := check()
		if err == nil {
			return nil
		}
		if pause(ctx, 20*time.Millisecond) != nil {
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
	}
}

// pause waits, and gives an error if ctx ends before.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
