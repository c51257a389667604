package sampleadapter

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

// An apiError is an unsuccessful response.
type apiError int

func (e apiError) Error() string   { return fmt.Sprintf("answer %d", int(e)) }
func (e apiError) StatusCode() int { return int(e) }

// A fakeFleet stores one resource and the reports on it.
type fakeFleet struct {
	mu       sync.Mutex
	resource v1.Resource
	statuses map[string]v1.AdapterStatus
	reports  []v1.Report
	asked    []string // collection/id of each Get

	getErr, statusesErr, reportErr error
	discard                        bool
	slow                           time.Duration // that a Report takes, whatever its context says
}

func newFakeFleet() *fakeFleet {
	return &fakeFleet{resource: v1.Resource{ID: "r1", Generation: 1}, statuses: map[string]v1.AdapterStatus{}}
}

func (f *fakeFleet) Get(_ context.Context, collection, id string) (v1.Resource, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.asked = append(f.asked, collection+"/"+id)
	return f.resource, f.getErr
}

func (f *fakeFleet) Statuses(context.Context, string, string) ([]v1.AdapterStatus, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var list []v1.AdapterStatus
	for _, s := range f.statuses {
		list = append(list, s)
	}
	return list, f.statusesErr
}

func (f *fakeFleet) Report(ctx context.Context, _, _ string, r v1.Report) (bool, error) {
	// A server takes its time whether or not the caller is still there.
	_ = backoff.Sleep(context.WithoutCancel(ctx), f.slow)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.reportErr != nil || f.discard {
		return false, f.reportErr
	}
	f.reports = append(f.reports, r)
	s := v1.AdapterStatus{Adapter: r.Adapter, ObservedGeneration: r.ObservedGeneration, LastReportTime: *r.ObservedTime}
	for _, c := range r.Conditions {
		s.Conditions = append(s.Conditions, v1.AdapterCondition{ReportCondition: c})
	}
	f.statuses[r.Adapter] = s
	return true, nil
}

func (f *fakeFleet) set(change func(*fakeFleet)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// last returns the last report and the number of reports.
func (f *fakeFleet) last() (v1.Report, int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.reports) == 0 {
		return v1.Report{}, 0
	}
	return f.reports[len(f.reports)-1], len(f.reports)
}

// A fakeBroker has one queue per subscription. It returns an event to its queue a second after its
// handle failed. Each Consume handles spread events concurrently.
type fakeBroker struct {
	spread int

	mu     sync.Mutex
	queues map[string]chan cloudevent.Event
	acked  int
	failed int
	err    error
}

func newFakeBroker() *fakeBroker {
	return &fakeBroker{spread: 20, queues: map[string]chan cloudevent.Event{}}
}

func (b *fakeBroker) queue(subscription string) chan cloudevent.Event {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.queues[subscription] == nil {
		b.queues[subscription] = make(chan cloudevent.Event, 1000)
	}
	return b.queues[subscription]
}

func (b *fakeBroker) Consume(ctx context.Context, subscription string, handle func(context.Context, cloudevent.Event) error) error {
	b.mu.Lock()
	err := b.err
	b.mu.Unlock()
	if err != nil {
		return err
	}
	queue := b.queue(subscription)
	var wg sync.WaitGroup
	for range b.spread {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case e := <-queue:
					b.settle(queue, e, handle(ctx, e))
				}
			}
		})
	}
	wg.Wait()
	return nil
}

func (b *fakeBroker) settle(queue chan cloudevent.Event, e cloudevent.Event, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil || adapter.IsPermanent(err) { // the queue has no dead-letter exchange
		b.acked++
		return
	}
	b.failed++
	time.AfterFunc(time.Second, func() { queue <- e })
}

func (b *fakeBroker) counts() (acked, failed int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.acked, b.failed
}

// newAdapter returns an adapter, and start, which runs it until the test ends or stop is called.
func newAdapter(t *testing.T, cfg Config, deps Deps) *Adapter {
	t.Helper()
	a, err := New(cfg, deps)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func start(t *testing.T, a *Adapter) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- a.Run(ctx) }()
	return func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// lastEvent is the number of the last event.
var lastEvent atomic.Int64

// event returns an event with an id of its own.
func event(kind, data string) cloudevent.Event {
	return cloudevent.Event{ID: fmt.Sprintf("e%d", lastEvent.Add(1)), Type: "com.redhat.hyperfleet." + kind + ".reconcile", Data: []byte(data)}
}
