package poller_test

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// A journal keeps recorded changes.
type journal struct {
	mu  sync.Mutex
	all []clusterworker.Change
}

func (j *journal) Record(_ context.Context, c clusterworker.Change) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.all = append(j.all, c)
}

// of returns the recorded actions of the nth cluster.
func (j *journal) of(n int) (actions []clusterworker.Action) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, c := range j.all {
		if c.ClusterID == idOf(n) {
			actions = append(actions, c.Action)
		}
	}
	return actions
}

// A fixture is a database, a garden and observers.
type fixture struct {
	db      *database
	garden  *garden
	journal *journal
	wrote   chan struct{}
	logs    processtest.Buffer
}

func newFixture() *fixture {
	return &fixture{db: newDatabase(), garden: newGarden(), journal: &journal{}, wrote: make(chan struct{}, 1)}
}

// A worker is one process that observes while it leads.
type worker struct {
	*poller.Poller
	process *process
	reg     *prometheus.Registry
	stop    func()
}

// start starts a process. It is stopped at the end of the test.
func (r *fixture) start(t *testing.T, owner string, change ...func(*poller.Config)) *worker {
	t.Helper()
	cfg := poller.Config{Owner: owner}
	for _, f := range change {
		f(&cfg)
	}
	w := &worker{process: &process{database: r.db}, reg: prometheus.NewPedanticRegistry()}
	p, err := poller.New(cfg, poller.Deps{
		Store: w.process, Viewer: r.garden, Remover: r.garden, Recorder: r.journal, Registerer: w.reg,
		Log: slog.New(slog.NewTextHandler(&r.logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Wrote: func() {
			select {
			case r.wrote <- struct{}{}:
			default:
			}
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.Poller = p
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	w.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run gave %v", err)
		}
	})
	t.Cleanup(w.stop)
	return w
}

// crash stops a process without a resignation.
func (w *worker) crash() {
	w.process.set(func(d *database) { d.err = errDatabase })
	w.stop()
	w.process.set(func(d *database) { d.err = nil })
}

func (w *worker) metric(t *testing.T, name string, labels ...string) float64 {
	t.Helper()
	families, err := w.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() != "fleetloop_clusterworker_"+name {
			continue
		}
		for _, m := range f.GetMetric() {
			var have []string
			for _, l := range m.GetLabel() {
				have = append(have, l.GetName(), l.GetValue())
			}
			if !slices.Equal(have, labels) {
				continue
			}
			switch {
			case m.GetCounter() != nil:
				return m.GetCounter().GetValue()
			case m.GetGauge() != nil:
				return m.GetGauge().GetValue()
			case m.GetHistogram() != nil:
				return float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("there is no metric %s %v", name, labels)
	return 0
}

// hang sleeps within a bubble; outside it would take real time.
func hang(d time.Duration) { time.Sleep(d) }

// after lets time pass until all its effects have settled.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// soon is long enough for work that is due at once.
const soon = 100 * time.Millisecond

func want[T any](t *testing.T, reason string, got, want T) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", reason, diff)
	}
}

func TestMetricsAreInOrder(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	if _, err := poller.New(poller.Config{Owner: "a"}, poller.Deps{Store: &process{database: newDatabase()}, Viewer: newGarden(), Registerer: reg}); err != nil {
		t.Fatal(err)
	}
	problems, err := testutil.GatherAndLint(reg)
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}
