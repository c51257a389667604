package clusterworker

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"net/url"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// A fixture is what a test has to itself: a database, a project in the garden, and
// workers between them, each with a gate.
type fixture struct {
	*testing.T
	seed      uint64 // of all dice
	book      *book
	bed       *gardenbed.Bed
	namespace string
	shoots    dynamic.ResourceInterface
	way       *way
	url       string
	owner     *pgxpool.Pool // whom row-level security does not bind
	dice      *rand.Rand    // names clusters
	serial    int           // of clusters
	workers   []*worker
	timing    timing // of the workers that are to come
}

// newFixture makes a fixture with a database of its own on the server of the tests.
func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureOn(t, pgtest.NewMigratedDatabaseURL(t), uint64(time.Now().UnixNano()))
}

// newFixtureOn makes a fixture with a database.
func newFixtureOn(t *testing.T, database string, seed uint64) *fixture {
	t.Helper()
	bed, err := shared.garden()
	if err != nil {
		t.Fatal(err)
	}
	namespace, err := bed.ApplyProjectAndWait(t.Context(), fmt.Sprintf("cw%d", shared.projects.Add(1)))
	if err != nil {
		t.Fatal(err)
	}
	client, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := &fixture{
		T: t, seed: seed, book: newBook(), bed: bed, namespace: namespace, url: database, timing: shortTiming(),
		shoots: client.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}).Namespace(namespace),
		dice:   rand.New(rand.NewPCG(seed, 0)),
	}
	r.way = newWay(t, bed.Config(), r.book)
	cfg, err := pgxpool.ParseConfig(database)
	if err != nil {
		t.Fatal(err)
	}
	// What is done to the rights of others is not done to the owner's.
	cfg.ConnConfig.RuntimeParams["default_transaction_read_only"] = "off"
	cfg.ConnConfig.RuntimeParams["application_name"] = "owner"
	if r.owner, err = pgxpool.NewWithConfig(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.owner.Close)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("what happened to all:\n%s", r.book.history("", ""))
		}
	})
	return r
}

// gardenlet has Gardener at work on the Shoots until the test ends.
func (r *fixture) gardenlet(step time.Duration) {
	r.Helper()
	kubebedtest.StartGardenlet(r.T, r.bed, gardenbed.GardenletOptions{Namespace: r.namespace, Step: step})
}

// exec runs a statement as the owner.
func (r *fixture) exec(sql string, args ...any) {
	r.Helper()
	if _, err := r.owner.Exec(r.Context(), sql, args...); err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
}

// ask gives the only value of a query.
func ask[T any](r *fixture, sql string, args ...any) T {
	r.Helper()
	rows, err := r.owner.Query(r.Context(), sql, args...)
	if err != nil {
		r.Fatal(err)
	}
	v, err := pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
	if err != nil {
		r.Fatalf("%s: %v", sql, err)
	}
	return v
}

// await waits until check gives no error.
func (r *fixture) await(what string, check func() error) {
	r.Helper()
	if err := poll(r.Context(), check); err != nil {
		r.Fatalf("%s: %v", what, err)
	}
}

// A worker is the place of one worker. Its lives come one after another.
type worker struct {
	fixture *fixture
	name    string
	gate    *gate
	home    string
	env     map[string]string
	// busy is held by whoever does something to it.
	busy sync.Mutex

	mu    sync.Mutex
	lives []*process
	stops []stop
	kills map[sender]time.Time
}

// A stop is a time in which a life did nothing.
type stop struct {
	by       sender
	from, to time.Time
}

// A timing is how workers are set up in time.
type timing struct {
	lease, callTimeout time.Duration
	// env are the settings in which workers differ from the defaults.
	env map[string]string
}

// shortTiming is shorter than an operator would want it, so that much happens in a
// short time.
func shortTiming() timing {
	return timing{lease: 4 * time.Second, callTimeout: 1500 * time.Millisecond, env: map[string]string{
		"GARDENER_QPS":                        "1000",
		"GARDENER_BURST":                      "1000",
		"CLUSTER_WORKER_LEASE_DURATION":       "4s",
		"CLUSTER_WORKER_CALL_TIMEOUT":         "1500ms",
		"CLUSTER_WORKER_MAX_CONCURRENT_SYNCS": "8",
		"POLL_INTERVAL":                       "1s",
	}}
}

// defaultTiming is that of the shipped binary: no setting differs from its default.
func defaultTiming(t *testing.T) timing {
	t.Helper()
	var cfg clusterworker.Config
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		t.Fatal(err)
	}
	return timing{lease: cfg.Lease, callTimeout: cfg.CallTimeout}
}

// newWorker makes a place for a worker, with more settings than those of all
// workers. Nothing runs there yet.
func (r *fixture) newWorker(env map[string]string) *worker {
	r.Helper()
	w := &worker{fixture: r, name: fmt.Sprintf("worker-%d", len(r.workers)+1), home: r.TempDir()}
	w.gate = newGate(r.T, r.way, w.name)
	w.env = map[string]string{
		"DATABASE_URL":                      r.url,
		"GARDENER_MODE":                     "real",
		"GARDENER_KUBECONFIG":               w.gate.kubeconfig(r.T),
		"GARDENER_NAMESPACE":                r.namespace,
		"GARDENER_CREDENTIALS_BINDING_NAME": "local",
		"HEALTH_PROBE_BIND_ADDRESS":         "127.0.0.1:0",
		"METRICS_BIND_ADDRESS":              "127.0.0.1:0",
		"LOG_LEVEL":                         "debug",
	}
	maps.Copy(w.env, r.timing.env)
	maps.Copy(w.env, env)
	r.workers = append(r.workers, w)
	r.Cleanup(func() {
		for _, p := range w.processes() {
			p.kill()
			if r.Failed() {
				r.Logf("%s said last:\n%s", p.name, p.tail())
			}
		}
	})
	return w
}

// start begins another life.
func (w *worker) start() error {
	path, err := shared.binary()
	if err != nil {
		return err
	}
	life := w.gate.life.Add(1)
	p, err := launch(path, sender{w.name, life}.String(), w.home, w.env)
	if err != nil {
		return err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lives = append(w.lives, p)
	w.fixture.book.note("", "%s begins", p.name)
	return nil
}

// begin is start for a test's own goroutine, and waits until the worker is ready.
func (w *worker) begin() {
	w.fixture.Helper()
	if err := w.start(); err != nil {
		w.fixture.Fatal(err)
	}
	w.now().wantHealth(w.fixture.T, "/readyz", 200)
}

// now is the present life, or the last.
func (w *worker) now() *process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.lives[len(w.lives)-1]
}

func (w *worker) processes() []*process {
	w.mu.Lock()
	defer w.mu.Unlock()
	return append([]*process(nil), w.lives...)
}

// kill ends the present life as a power failure would.
func (w *worker) kill() {
	w.mu.Lock()
	if w.kills == nil {
		w.kills = map[sender]time.Time{}
	}
	w.kills[sender{w.name, w.gate.life.Load()}] = time.Now()
	w.mu.Unlock()
	w.now().kill()
	w.fixture.book.note("", "%s is killed", w.now().name)
}

// halt stops the present life, and gives what lets it go on.
func (w *worker) halt() (goOn func() error, err error) {
	p := w.now()
	if err := p.signal(syscall.SIGSTOP); err != nil {
		return nil, err
	}
	s := stop{by: sender{w.name, w.gate.life.Load()}, from: time.Now()}
	w.fixture.book.note("", "%s is stopped", p.name)
	return func() error {
		s.to = time.Now()
		w.mu.Lock()
		w.stops = append(w.stops, s)
		w.mu.Unlock()
		w.fixture.book.note("", "%s goes on", p.name)
		return p.signal(syscall.SIGCONT)
	}, nil
}

// wasStopped is whether a life did nothing for some time within the lease before
// a moment.
func (w *worker) wasStopped(by sender, at time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, s := range w.stops {
		if s.by == by && s.from.Before(at) && s.to.After(at.Add(-w.fixture.timing.lease)) {
			return true
		}
	}
	return false
}

// inCall is until when the sender of a request was inside the call that the request
// is part of. A sender that lived on ended the call when it gave the request up.
// One that was killed holds the lease for the rest of its time.
func (r *fixture) inCall(p passage) time.Time {
	if p.left.IsZero() {
		return p.to
	}
	for _, w := range r.workers {
		w.mu.Lock()
		killed, ok := w.kills[p.by]
		w.mu.Unlock()
		if ok && !p.left.Before(killed) {
			return p.to
		}
	}
	return p.left
}

// quiet is a logger for what says too much.
func quiet() *slog.Logger { return slog.New(slog.DiscardHandler) }

// retrying does something until it is done.
func retrying(ctx context.Context, do func(context.Context) error) error {
	for {
		err := do(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if pause(ctx, 50*time.Millisecond) != nil {
			return err
		}
	}
}

// urlOf is the URL of another database on the same server.
func urlOf(t *testing.T, server, database string) string {
	t.Helper()
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	u.Path = "/" + database
	return u.String()
}
