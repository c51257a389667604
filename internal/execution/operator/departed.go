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

// mostDeparted bounds how many executions are remembered that are gone: as many
// as were in the cache while they were there.
const mostDeparted = 10000

// departed are executions that are gone and not yet in the audit to their end.
// What does nothing bears no finalizer, so that nobody who deletes it waits for
// us; what is known of it then stands here alone. The zero value has none.
type departed struct {
	mu    sync.Mutex
	named map[types.NamespacedName][]gone // of one name, in the order in which they went
	count int
}

// gone is an execution as it was at last.
type gone struct {
	ke     *v1alpha1.KubernetesExecution
	at     time.Time // when that was noticed
	unseen bool      // its end was not told, but found
}

// add remembers one, unless there are too many.
func (d *departed) add(g gone) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count >= mostDeparted {
		return false
	}
	if d.named == nil {
		d.named = map[types.NamespacedName][]gone{}
	}
	name := nameOf(g.ke)
	d.named[name] = append(d.named[name], g)
	d.count++
	return true
}

// next is the one of a name that went first.
func (d *departed) next(name types.NamespacedName) (gone, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if list := d.named[name]; len(list) > 0 {
		return list[0], true
	}
	return gone{}, false
}

// forget forgets the one of a name that went first.
func (d *departed) forget(name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count--
	if d.named[name] = d.named[name][1:]; len(d.named[name]) == 0 {
		delete(d.named, name)
	}
}

// has says whether an execution is remembered.
func (d *departed) has(name types.NamespacedName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.named[name] {
		if g.ke.UID == uid {
			return true
		}
	}
	return false
}

// handler remembers what goes, and has it looked at. One that another of its name
// follows while nobody listens is not told to go: what is told is that it is another.
func (d *departed) handler(log *slog.Logger, now func() time.Time) handler.EventHandler {
	went := func(ctx context.Context, o client.Object, unseen bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		ke, ok := o.(*v1alpha1.KubernetesExecution)
		if !ok {
			return
		}
		if !d.add(gone{ke: ke, at: now(), unseen: unseen}) {
			log.WarnContext(ctx, "too many deleted executions await their audit records, final status of this one is not recorded", "execution", key(ke))
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
