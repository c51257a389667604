// Package e2e runs the binaries as a user would, several at a time, on a real
// PostgreSQL, a real RabbitMQ and the other brokers, and looks only at what
// comes out: cloud events, answers, metrics, log lines, exit codes.
//
// The binaries are built once per run. Everything that is started ends with
// the test process, however that ends.
package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/broker/brokertest/rabbitmq"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// patience is how long anything may take that happens soon. Tests say less
// where time is what they are about.
const patience = time.Minute

func TestMain(m *testing.M) {
	pgtest.Main(closing{m},
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),                             // of the Pub/Sub library, begins with the process
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"), // likewise, ends with its next tick
	)
}

// closing closes what the tests share when they are done, and before anybody
// looks for what they left.
type closing struct{ *testing.M }

func (c closing) Run() int {
	defer bed.close()
	return c.M.Run()
}

// bed is what the tests of this run share.
var bed = newSharedBed()

type sharedBed struct {
	binaries func() (dir string, err error)
	rabbit   func() (*rabbitmq.Server, error)
	kube     func() (*kubebed.Bed, error)
	garden   func() (*gardenbed.Bed, error)

	mu      sync.Mutex
	closers []func()
}

func newSharedBed() *sharedBed {
	b := &sharedBed{}
	b.binaries = sync.OnceValues(b.build)
	b.rabbit = sync.OnceValues(func() (*rabbitmq.Server, error) {
		server, err := rabbitmq.Start(context.Background(), rabbitmq.Options{})
		if err != nil {
			return nil, err
		}
		b.later(server.Stop)
		return server, nil
	})
	b.kube = sync.OnceValues(func() (*kubebed.Bed, error) {
		server, err := kubebed.Start(context.Background(), kubebed.Options{CRDs: []string{crds}})
		if err != nil {
			return nil, err
		}
		b.later(func() { _ = server.Stop() })
		return server, nil
	})
	b.garden = sync.OnceValues(func() (*gardenbed.Bed, error) {
		host, err := b.kube()
		if err != nil {
			return nil, err
		}
		server, err := gardenbed.Start(context.Background(), gardenbed.Options{On: host})
		if err != nil {
			return nil, err
		}
		b.later(func() { _ = server.Stop() })
		return server, nil
	})
	return b
}

// build builds the binaries as they are shipped.
func (b *sharedBed) build() (string, error) {
	dir, err := os.MkdirTemp("", "fleetloop-e2e-")
	if err != nil {
		return "", err
	}
	b.later(func() { _ = os.RemoveAll(dir) })
	return dir, binaries.Build(context.Background(), dir, "cluster-worker", "fleet-api", "sentinel", "fleetloop", "fleetloop-up")
}

func (b *sharedBed) later(f func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closers = append(b.closers, f)
}

func (b *sharedBed) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, f := range slices.Backward(b.closers) { // what is used by others was there before them
		f()
	}
}

// binary is the path of one of the binaries.
func binary(t *testing.T, name string) string {
	t.Helper()
	dir, err := bed.binaries()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

// rabbit is the RabbitMQ that all tests share; each has exchanges of its own.
func rabbit(t *testing.T) *rabbitmq.Server {
	t.Helper()
	server, err := bed.rabbit()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// eventually calls check until it gives no error.
func eventually(t *testing.T, within time.Duration, check func() error) {
	t.Helper()
	if err := poll(t.Context(), within, check); err != nil {
		t.Fatal(err)
	}
}

// errNotInTime is why poll gave up.
var errNotInTime = errors.New("not in time")

// poll is eventually for goroutines other than the test's own.
func poll(ctx context.Context, within time.Duration, check func() error) error {
	const every = 20 * time.Millisecond
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%w (%s)", errNotInTime, within))
	defer cancel()
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", context.Cause(ctx), err)
		case <-ticker.C:
		}
	}
}
