package adaptertest

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A fakeFleet is a fleet API and a broker in memory. It outlives the adapter's processes.
type fakeFleet struct {
	collection, eventType string

	mu        sync.Mutex
	changed   chan struct{} // closed and replaced at each change
	resources map[string]v1.Resource
	statuses  map[string]map[string]v1.AdapterStatus
	reports   map[string][]v1.Report // that were stored, by resource
	lose      func(v1.Report) bool   // reports whether a report is lost on its way
	events    int
	queue     []adapter.Event
	answers   map[string]error // nil if the event was acknowledged, or why it was dead-lettered
}

func newFakeFleet(collection string) *fakeFleet {
	types := map[string]string{
		v1.CollectionClusters: "cluster", v1.CollectionNodePools: "nodepool",
		v1.CollectionManifests: "manifest", v1.CollectionWorkloads: "workload",
	}
	return &fakeFleet{
		collection: collection, eventType: "com.redhat.hyperfleet." + types[collection] + ".reconcile",
		changed:   make(chan struct{}),
		resources: map[string]v1.Resource{}, statuses: map[string]map[string]v1.AdapterStatus{}, reports: map[string][]v1.Report{},
		lose:    func(v1.Report) bool { return false },
		answers: map[string]error{},
	}
}

// changeAndNotify changes the fleet and wakes all calls of await.
func (w *fakeFleet) changeAndNotify(f func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	f()
	close(w.changed)
	w.changed = make(chan struct{})
}

// await waits until cond, which is called with the lock held, returns nil.
func (w *fakeFleet) await(ctx context.Context, condUnderLock func() error) error {
	for {
		w.mu.Lock()
		err, changed := condUnderLock(), w.changed
		w.mu.Unlock()
		if err == nil {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return err
		}
	}
}

// errNotFound is the response for an unknown resource.
var errNotFound = statusError(http.StatusNotFound)

// A statusError is an unsuccessful response.
type statusError int

// Error implements error.
func (e statusError) Error() string { return fmt.Sprintf("status %d", int(e)) }

// StatusCode returns the HTTP status.
func (e statusError) StatusCode() int { return int(e) }

// Get implements adapter.Fleet.
func (w *fakeFleet) Get(_ context.Context, _, id string) (v1.Resource, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	r, ok := w.resources[id]
	if !ok {
		return v1.Resource{}, errNotFound
	}
	return r, nil
}

// Statuses implements adapter.Fleet.
func (w *fakeFleet) Statuses(_ context.Context, _, id string) ([]v1.AdapterStatus, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var list []v1.AdapterStatus
	for _, s := range w.statuses[id] {
		list = append(list, s)
	}
	return list, nil
}

// errLost is the error of a report that the test loses.
var errLost = errors.New("connection reset")

// Report implements adapter.Fleet. It stores and discards reports as the fleet API does.
func (w *fakeFleet) Report(_ context.Context, _, id string, r v1.Report) (stored bool, err error) {
	w.changeAndNotify(func() {
		resource, ok := w.resources[id]
		last := w.statuses[id][r.Adapter]
		switch {
		case !ok:
			err = errNotFound
		case w.lose(r):
			err = errLost
		case r.ObservedGeneration < 1 || r.ObservedTime == nil:
			err = statusError(http.StatusBadRequest)
		default:
			stored = r.ObservedGeneration <= resource.Generation && r.ObservedGeneration >= last.ObservedGeneration &&
				(r.ObservedGeneration > last.ObservedGeneration || !r.ObservedTime.Before(last.LastReportTime))
		}
		if !stored {
			return
		}
		w.reports[id] = append(w.reports[id], r)
		if w.statuses[id] == nil {
			w.statuses[id] = map[string]v1.AdapterStatus{}
		}
		s := v1.AdapterStatus{Adapter: r.Adapter, ObservedGeneration: r.ObservedGeneration, LastReportTime: *r.ObservedTime, Data: r.Data}
		for _, c := range r.Conditions {
			s.Conditions = append(s.Conditions, v1.AdapterCondition{ReportCondition: c})
		}
		w.statuses[id][r.Adapter] = s
	})
	return stored, err
}

// publish queues an event about a resource.
func (w *fakeFleet) publish(id string) adapter.Event {
	var e adapter.Event
	w.changeAndNotify(func() {
		w.events++
		e = adapter.Event{
			ID: fmt.Sprintf("%s-%d", id, w.events), Type: w.eventType,
			Data: fmt.Appendf(nil, `{"resource_id":%q,"generation":%d}`, id, w.resources[id].Generation),
		}
		w.queue = append(w.queue, e)
	})
	return e
}

// redeliver queues an event again.
func (w *fakeFleet) redeliver(e adapter.Event) {
	w.changeAndNotify(func() {
		delete(w.answers, e.ID)
		w.queue = append(w.queue, e)
	})
}

// Consume implements adapter.Consumer.
func (w *fakeFleet) Consume(ctx context.Context, _ string, handle func(context.Context, adapter.Event) error) error {
	var work sync.WaitGroup
	defer work.Wait()
	for {
		var e adapter.Event
		err := w.await(ctx, func() error {
			if len(w.queue) == 0 || ctx.Err() != nil {
				return errors.New("nothing to deliver")
			}
			e, w.queue = w.queue[0], w.queue[1:]
			return nil
		})
		if err != nil {
			return nil // told to stop
		}
		work.Go(func() { w.deliverUntilAnswered(ctx, e, handle) })
	}
}

// deliverUntilAnswered delivers an event until it is answered. An event that the adapter returns when it stops
// goes back to the queue.
func (w *fakeFleet) deliverUntilAnswered(ctx context.Context, e adapter.Event, handle func(context.Context, adapter.Event) error) {
	for {
		err := handle(ctx, e)
		if err == nil || adapter.IsPermanent(err) {
			w.changeAndNotify(func() { w.answers[e.ID] = err })
			return
		}
		pause := time.NewTimer(10 * time.Millisecond)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			w.changeAndNotify(func() { w.queue = append(w.queue, e) })
			return
		}
	}
}
