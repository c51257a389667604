package operator

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// maxWatched limits the watched targets. Conditions of further targets are only polled.
const maxWatched = 64

// targetWatches watches the objects of conditions for as long as an execution waits for them. Each
// object has one watch, which only signals that something changed. With it, conditions are
// evaluated immediately and not at the next poll.
type targetWatches struct {
	client metadata.Interface
	wake   func(types.NamespacedName)
	log    *slog.Logger

	mu      sync.Mutex
	ctx     context.Context //nolint:containedctx // the watches live as long as the operator and not as whoever asked for them
	watched map[v1alpha1.Target]*targetWatch
	running sync.WaitGroup
}

type targetWatch struct {
	waiting map[types.NamespacedName]bool // executions to wake
	stop    context.CancelFunc
}

// Start enables watches until ctx ends and waits for all of them to stop.
func (f *targetWatches) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	<-ctx.Done()
	f.running.Wait()
	return nil
}

// watchTarget wakes an execution whenever the target changes, until stopWaiting. If the target cannot be
// watched, the conditions of the execution are only polled.
func (f *targetWatches) watchTarget(name types.NamespacedName, t v1alpha1.Target) {
	t.UID, t.ResourceVersion = "", "" // executions that name different versions share the watch
	f.mu.Lock()
	defer f.mu.Unlock()
	if watch := f.watched[t]; watch != nil {
		watch.waiting[name] = true
		return
	}
	if f.ctx == nil || f.ctx.Err() != nil || len(f.watched) >= maxWatched {
		return
	}
	resource, known := action.ResourceOf(t.APIVersion, t.Kind)
	if !known {
		return
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.watched[t] = &targetWatch{waiting: map[types.NamespacedName]bool{name: true}, stop: stop}
	f.running.Go(func() {
		defer f.removeWatch(t)
		defer stop()
		f.runWatch(ctx, resource, t)
	})
}

// runWatch wakes the waiting executions at each change of a target, until ctx or the watch ends.
func (f *targetWatches) runWatch(ctx context.Context, resource schema.GroupVersionResource, t v1alpha1.Target) {
	watch, err := f.client.Resource(resource).Namespace(t.Namespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.Name).String(),
	})
	if err != nil {
		f.log.DebugContext(ctx, "target watch failed, conditions are polled instead", "target", formatTarget(t), "err", err)
		return
	}
	defer watch.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case _, open := <-watch.ResultChan():
			if !open {
				return // executions that still wait watch the target again
			}
			f.wakeWaiting(t)
		}
	}
}

// stopWaiting removes an execution from all watches.
func (f *targetWatches) stopWaiting(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, watch := range f.watched {
		delete(watch.waiting, name)
		if len(watch.waiting) == 0 {
			watch.stop()
		}
	}
}

func (f *targetWatches) removeWatch(t v1alpha1.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.watched, t)
}

func (f *targetWatches) wakeWaiting(t v1alpha1.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	watch := f.watched[t]
	if watch == nil {
		return
	}
	for name := range watch.waiting {
		f.wake(name)
	}
}
