package operator

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// maxDeleted limits the deleted executions in memory to as many as the cache held while they
// existed.
const maxDeleted = 10000

// deletedCache holds deleted executions whose audit is not yet complete. An execution without
// effects has no finalizer, so that its deletion is not delayed; its last state is only here. The
// zero value is empty and ready to use.
type deletedCache struct {
	mu     sync.Mutex
	byName map[types.NamespacedName][]deletedExecution // executions of a name in the order of their deletion
	count  int
}

// deletedExecution is the last known state of a deleted execution.
type deletedExecution struct {
	ke     *v1alpha1.KubernetesExecution
	at     time.Time // when the deletion was noticed
	unseen bool      // the deletion was inferred, not observed
}

// addExecution stores an execution. It returns false if the cache is full.
func (d *deletedCache) addExecution(g deletedExecution) (stored bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count >= maxDeleted {
		return false
	}
	if d.byName == nil {
		d.byName = map[types.NamespacedName][]deletedExecution{}
	}
	name := nameOf(g.ke)
	d.byName[name] = append(d.byName[name], g)
	d.count++
	return true
}

// firstDeleted returns the execution of a name that was deleted first.
func (d *deletedCache) firstDeleted(name types.NamespacedName) (first deletedExecution, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if list := d.byName[name]; len(list) > 0 {
		return list[0], true
	}
	return deletedExecution{}, false
}

// removeFirstDeleted removes the execution of a name that was deleted first.
func (d *deletedCache) removeFirstDeleted(name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count--
	if d.byName[name] = d.byName[name][1:]; len(d.byName[name]) == 0 {
		delete(d.byName, name)
	}
}

// hasExecution reports whether the cache holds an execution.
func (d *deletedCache) hasExecution(name types.NamespacedName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.byName[name] {
		if g.ke.UID == uid {
			return true
		}
	}
	return false
}

// newHandler returns a handler that stores deleted executions and enqueues them. If a watch was
// interrupted, a deletion and a recreation under the same name arrive as one update with another
// UID.
func (d *deletedCache) newHandler(log *slog.Logger, now func() time.Time) handler.EventHandler {
	went := func(ctx context.Context, o client.Object, unseen bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		ke, ok := o.(*v1alpha1.KubernetesExecution)
		if !ok {
			return
		}
		if !d.addExecution(deletedExecution{ke: ke, at: now(), unseen: unseen}) {
			log.WarnContext(ctx, "too many deleted executions await their audit records, final status of this one is not recorded", "execution", logKey(ke))
			return
		}
		q.Add(reconcile.Request{NamespacedName: nameOf(ke)})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				went(ctx, e.ObjectOld, true, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			went(ctx, e.Object, e.DeleteStateUnknown, q)
		},
	}
}
