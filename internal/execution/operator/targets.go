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
const maxFollowed = 64

// targets follows the objects that conditions are about, for as long as some
// execution waits for them to hold: one watch for each object, which says that
// something changed and not what. That is why a condition is looked at at once
// and not when its timer ends.
type targets struct {
	client metadata.Interface
	wake   func(types.NamespacedName)
	log    *slog.Logger

	mu       sync.Mutex
	ctx      context.Context //nolint:containedctx // the watches live as long as the operator and not as whoever asked for them
	followed map[v1alpha1.Target]*followed
	running  sync.WaitGroup
}

type followed struct {
	waiting map[types.NamespacedName]bool
	stop    context.CancelFunc
}

// Start lets targets be followed until ctx ends, and waits for the last.
func (f *targets) Start(ctx context.Context) error {
	f.mu.Lock()
	f.ctx = ctx
	f.mu.Unlock()
	<-ctx.Done()
	f.running.Wait()
	return nil
}

// follow has an execution looked at whenever a target changes.
func (f *targets) follow(name types.NamespacedName, t v1alpha1.Target) {
	t.UID, t.ResourceVersion = "", ""
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.followed[t]
	if one != nil {
		one.waiting[name] = true
		return
	}
	if f.ctx == nil || f.ctx.Err() != nil || len(f.followed) >= maxFollowed {
		return
	}
	resource, known := action.ResourceOf(t.APIVersion, t.Kind)
	if !known {
		return
	}
	ctx, stop := context.WithCancel(f.ctx)
	f.followed[t] = &followed{waiting: map[types.NamespacedName]bool{name: true}, stop: stop}
	f.running.Go(func() {
		defer f.drop(t)
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
				f.changed(t)
			}
		}
	})
}

// leave says that an execution waits no more.
func (f *targets) leave(name types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.followed {
		delete(one.waiting, name)
		if len(one.waiting) == 0 {
			one.stop()
		}
	}
}

func (f *targets) drop(t v1alpha1.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.followed, t)
}

func (f *targets) changed(t v1alpha1.Target) {
	f.mu.Lock()
	defer f.mu.Unlock()
	one := f.followed[t]
	if one == nil {
		return
	}
	for name := range one.waiting {
		f.wake(name)
	}
}
