package processnode

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
)

// runPods watches the pods that are bound to this node until ctx ends, with one worker
// per pod.
func (n *Node) runPods(ctx context.Context) {
	d := &dispatcher{node: n, workers: map[types.UID]*worker{}}
	defer d.wg.Wait()
	bound := fields.OneTermEqualSelector("spec.nodeName", n.o.NodeName)
	source := cache.NewListWatchFromClient(n.client.CoreV1().RESTClient(), "pods", corev1.NamespaceAll, bound)
	_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
		ListerWatcher: source,
		ObjectType:    &corev1.Pod{},
		Handler: cache.ResourceEventHandlerFuncs{
			AddFunc:    func(o any) { d.startOrUpdateWorker(ctx, o) },
			UpdateFunc: func(_, o any) { d.startOrUpdateWorker(ctx, o) },
			DeleteFunc: d.handleDeletedPod,
		},
	})
	informer.RunWithContext(ctx)
}

// A dispatcher passes changes of pods to their workers. The informer calls it from one
// goroutine.
type dispatcher struct {
	node    *Node
	workers map[types.UID]*worker
	wg      sync.WaitGroup
}

func (d *dispatcher) startOrUpdateWorker(ctx context.Context, o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	w := d.workers[pod.UID]
	if w == nil {
		w = newWorker(d.node, pod)
		d.workers[pod.UID] = w
		d.wg.Go(func() { w.runUntilDeleted(ctx) })
		return
	}
	w.queueLatestPod(pod)
}

func (d *dispatcher) handleDeletedPod(o any) {
	if last, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = last.Obj
	}
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	if w := d.workers[pod.UID]; w != nil {
		delete(d.workers, pod.UID)
		w.forget()
	}
}
