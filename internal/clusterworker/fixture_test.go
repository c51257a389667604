package clusterworker

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/processtest"
)

// A fixture is a worker with all its dependencies, within a bubble.
type fixture struct {
	t        *testing.T
	store    *fakeStore
	garden   *fakeGarden
	maker    *fakeMaker
	waker    *fakeWaker
	recorder *fakeRecorder
	log      *processtest.Buffer
	registry *prometheus.Registry
	worker   *Worker
	cancel   context.CancelFunc
	done     chan error
}

// bubble runs a test with a worker that has not started.
func bubble(t *testing.T, change func(*Config), test func(r *fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := newFixture(t, newFakeStore(), newFakeGarden(), change)
		test(r)
		if r.done != nil {
			r.stop()
		}
		r.garden.wantSound(t, r.worker.limiter.maxConcurrentCalls())
	})
}

func newFixture(t *testing.T, store *fakeStore, garden *fakeGarden, change func(*Config)) *fixture {
	t.Helper()
	r := &fixture{
		t: t, store: store, garden: garden, maker: &fakeMaker{}, waker: newFakeWaker(),
		recorder: &fakeRecorder{}, log: &processtest.Buffer{}, registry: prometheus.NewRegistry(),
	}
	store.notify = r.waker.wake
	var cfg Config
	if change != nil {
		change(&cfg)
	}
	w, err := New(cfg, Deps{
		Store: store, Garden: garden, Maker: r.maker, Recorder: r.recorder, Waker: r.waker, Outages: store, Owner: fmt.Sprintf("worker-%p", r),
		Installation: "inst",
		Log:          slog.New(slog.NewTextHandler(r.log, nil)), Registerer: r.registry,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.worker = w
	return r
}

func (r *fixture) start() {
	ctx, cancel := context.WithCancel(r.t.Context())
	r.cancel, r.done = cancel, make(chan error, 1)
	go func() { r.done <- r.worker.Run(ctx) }()
	synctest.Wait()
}

// stop stops the worker, and returns how long that took.
func (r *fixture) stop() time.Duration {
	r.t.Helper()
	begin := time.Now()
	r.cancel()
	if err := <-r.done; err != nil {
		r.t.Errorf("run: %v", err)
	}
	r.done = nil
	return time.Since(begin)
}

// add creates clusters, and returns their ids.
func (r *fixture) add(n int) (ids []string) {
	for i := range n {
		id := fmt.Sprintf("cluster-%04d", i)
		r.store.edit(id, nil)
		ids = append(ids, id)
	}
	return ids
}

// hang sleeps within a bubble; outside it would take real time.
func hang(d time.Duration) { time.Sleep(d) }

// pass lets time pass.
func (r *fixture) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// wantSynced checks that everything is synced without violations.
func (r *fixture) wantSynced() {
	r.t.Helper()
	wantAgreement(r.t, r.store, r.garden)
}

// metric returns the value of a counter or gauge, summed over its series.
func (r *fixture) metric(name string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	found := false
	for _, f := range families {
		if f.GetName() != metricsPrefix+name {
			continue
		}
		found = true
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	if !found {
		r.t.Fatalf("no metric %s", name)
	}
	return sum
}

func (r *fixture) wantMetric(name string, want float64) {
	r.t.Helper()
	if got := r.metric(name); got != want {
		r.t.Errorf("%s is %v, want %v", name, got, want)
	}
}

func TestMetricsPassTheLinter(t *testing.T) {
	bubble(t, nil, func(r *fixture) {
		problems, err := testutil.GatherAndLint(r.registry)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range problems {
			t.Errorf("%s: %s", p.Metric, p.Text)
		}
	})
}
