package operator

import (
	"context"
	"log/slog"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// maxFollowed is how many targets are followed at a time. What comes after is
// looked at by its timer alone.
const maxWatched = 64

// targetWatches follows the objects that conditions are about, for as long as some
// execution waits for them to hold: one watch for each object, which says that
// something changed and not what. That is why a condition is looked at at once
// and not when its timer ends.
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
	waiting map[types.NamespacedName]bool
	stop    context.CancelFunc
}

// Start lets targets be followed until ctx ends, and waits for the last.
func (f *targetWatches) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	<-ctx.Done()
	f.running.Wait()
	return nil
}

// watchTarget has an execution looked at whenever a target changes.
func (f *targetWatches) watchTarget(name types.NamespacedName, t v1alpha1.Target) {
	t.UID, t.ResourceVersion = "", ""
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.watched[t]
	if one != nil {
		one.waiting[name] = true
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
		w, err := f.client.Resource(resource).Namespace(t.Namespace).Watch(ctx, metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.Name).String(),
		})
		if err != nil {
			f.log.DebugContext(ctx, "target watch failed, conditions are polled instead", "target", targetOf(t), "err", err)
			return
		}
		defer w.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case _, open := <-w.ResultChan():
				if !open {
					return // whoever still waits asks again
				}
				f.wakeWaiting(t)
			}
		}
	})
}

// stopWaiting says that an execution waits no more.
func (f *targetWatches) stopWaiting(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.watched {
		delete(one.waiting, name)
		if len(one.waiting) == 0 {
			one.stop()
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
	one := f.watched[t]
	if one == nil {
		return
	}
	for name := range one.waiting {
		f.wake(name)
	}
}
