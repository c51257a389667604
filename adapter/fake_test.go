package adapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

func TestMain(m *testing.M) {
	if runAsAdapter() {
		return
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreTopFunction("go.opencensus.io/stats/view.(*worker).start"),                             // started by an init function of the Pub/Sub client
		goleak.IgnoreTopFunction("cloud.google.com/go/pubsub/v2.(*messageIterator).streamKeepAliveHandler"), // ends with its next tick, 30 s away at most
	)
}

// An apiError is an unsuccessful response.
type apiError int

func (e apiError) Error() string   { return fmt.Sprintf("answer %d", int(e)) }
func (e apiError) StatusCode() int { return int(e) }

// A fakeFleet has every resource that is asked for, and stores the reports.
type fakeFleet struct {
	mu         sync.Mutex
	generation int64
	deleted    bool
	reports    map[string][]v1.Report // by id
	statuses   []v1.AdapterStatus
	err        func(call string) error // nil means none
	discard    bool
	calls      []context.Context
	reported   chan struct{} // gets an element for each report, if not nil
}

func newFakeFleet() *fakeFleet { return &fakeFleet{generation: 1, reports: map[string][]v1.Report{}} }

func (f *fakeFleet) errorOf(call string) error {
	if f.err == nil {
		return nil
	}
	return f.err(call)
}

func (f *fakeFleet) Get(ctx context.Context, _, id string) (v1.Resource, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, ctx)
	return f.resource(id), f.errorOf("get")
}

func (f *fakeFleet) resource(id string) v1.Resource {
	r := v1.Resource{ID: id, Name: "name-of-" + id, Generation: f.generation}
	if f.deleted {
		r.DeletedTime = &time.Time{}
	}
	return r
}

func (f *fakeFleet) Statuses(context.Context, string, string) ([]v1.AdapterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.statuses, f.errorOf("statuses")
}

func (f *fakeFleet) Report(ctx context.Context, _, id string, r v1.Report) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.errorOf("report"); err != nil || ctx.Err() != nil || f.discard {
		return false, errors.Join(err, ctx.Err())
	}
	f.reports[id] = append(f.reports[id], r)
	if f.reported != nil {
		f.reported <- struct{}{}
	}
	return true, nil
}

// ListDeleting lists r1 to r3, of which r2 disappears.
func (f *fakeFleet) ListDeleting(_ context.Context, collection string) iter.Seq2[v1.Resource, error] {
	return func(yield func(v1.Resource, error) bool) {
		if err := f.errorOf("list " + collection); err != nil {
			yield(v1.Resource{}, err)
			return
		}
		for _, id := range []string{"r1", "r2", "r3"} {
			if !yield(f.resource(id), nil) {
				return
			}
		}
	}
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// of returns the reports on a resource.
func (f *fakeFleet) of(id string) []v1.Report {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.reports[id])
}

// A fakeBroker delivers the events of a queue, each in its own goroutine, and again after the
// delay that the error asks for.
type fakeBroker struct {
	queue chan Event

	mu     sync.Mutex
	acked  []string
	dead   []string
	delays []time.Duration // of the events that were returned
	ready  error
}

func newFakeBroker() *fakeBroker { return &fakeBroker{queue: make(chan Event, 1000)} }

func (b *fakeBroker) Ready() error { return b.ready }

func (b *fakeBroker) Consume(ctx context.Context, _ string, handle func(context.Context, Event) error) error {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		select {
		case <-ctx.Done():
			return nil
		case e := <-b.queue:
			work.Go(func() { b.settle(e, handle(ctx, e)) })
		}
	}
}

func (b *fakeBroker) settle(e Event, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case err == nil:
		b.acked = append(b.acked, e.ID)
	case IsPermanent(err):
		b.dead = append(b.dead, e.ID)
	default:
		delay, _ := backoff.RetryAfter(err)
		b.delays = append(b.delays, delay)
		time.AfterFunc(delay, func() { b.queue <- e })
	}
}

func (b *fakeBroker) counts() (acked, dead, returned int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.acked), len(b.dead), len(b.delays)
}

// event returns an event about the cluster id.
func event(eventID, id string) Event {
	return Event{ID: eventID, Type: "com.redhat.hyperfleet.cluster.reconcile", Data: fmt.Appendf(nil, `{"resource_id":%q}`, id)}
}

func newAdapter(t *testing.T, cfg Config, r ReconcilerFunc, deps Deps) *Adapter {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "dns"
	}
	a, err := New(cfg, r, deps)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// start runs a until the test ends or stop is called.
func start(t *testing.T, a *Adapter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run() = %v, want nil", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

func available(context.Context, Resource) (Report, error) { return Available("done"), nil }

// statusOfCondition returns the status and the reason of a condition of a report.
func statusOfCondition(r v1.Report, condition string) string {
	for _, c := range r.Conditions {
		if c.Type == condition {
			return string(c.Status) + " " + c.Reason
		}
	}
	return ""
}

var errDown = apiError(http.StatusServiceUnavailable)
