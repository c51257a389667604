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

// A Requeuer requeues objects for reasons that no watch covers. The zero value does
// nothing until a controller has started its source.
type Requeuer struct {
	mu    sync.Mutex
	queue workqueue.TypedRateLimitingInterface[reconcile.Request]
}

// QueueCapturingSource returns the source that connects the waker to the controller's queue.
func (w *Requeuer) QueueCapturingSource() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.queue = q
		return nil
	})
}

// Requeue requeues an object. It does not block. Before the controller starts it does
// nothing, as every object is reconciled then.
func (w *Requeuer) Requeue(name types.NamespacedName) { w.RequeueAfter(name, 0) }

// RequeueAfter is like Requeue after a delay, once for all calls until then.
func (w *Requeuer) RequeueAfter(name types.NamespacedName, delay time.Duration) {
	w.mu.Lock()
	q := w.queue
	w.mu.Unlock()
	if q != nil {
		q.AddAfter(reconcile.Request{NamespacedName: name}, delay)
	}
}
