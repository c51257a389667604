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

// QueueCapturingSource returns the source that connects the requeuer to the controller's queue.
func (r *Requeuer) QueueCapturingSource() source.Source {
	return source.Func(func(_ context.Context, q workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.queue = q
		return nil
	})
}

// Requeue requeues an object. It does not block. Before the controller starts it does
// nothing, as every object is reconciled then.
func (r *Requeuer) Requeue(name types.NamespacedName) { r.RequeueAfter(name, 0) }

// RequeueAfter is like Requeue after a delay, once for all calls until then.
func (r *Requeuer) RequeueAfter(name types.NamespacedName, delay time.Duration) {
	r.mu.Lock()
	q := r.queue
	r.mu.Unlock()
	if q != nil {
		q.AddAfter(reconcile.Request{NamespacedName: name}, delay)
	}
}
