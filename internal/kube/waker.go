package kube

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

// A Waker has objects reconciled for reasons that no watch knows of. The zero
// value wakes nobody until a controller has taken its source.
type Waker struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// Source gives the waker the controller's queue.
func (w *Waker) Source() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		return nil
	})
}

// Wake does not block. Before the controller starts it does nothing: then
// everything is looked at anyway.
func (w *Waker) Wake(name types.NamespacedName) { w.WakeAfter(name, 0) }

// WakeAfter is Wake after some time, once for all that happens until then.
func (w *Waker) WakeAfter(name types.NamespacedName, d time.Duration) {
	w.mu.Lock()
	q := w.queue
	w.mu.Unlock()
	if q != nil {
		q.AddAfter(reconcile.Request{NamespacedName: name}, d)
	}
}
