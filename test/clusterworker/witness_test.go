package clusterworker

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A witness sees every Shoot of a fixture's project, and holds that no cluster has
// two of them and that none goes back to an older change.
type witness struct {
	*fixture
	names map[string]string // of a cluster's Shoot
	sent  map[string]int64  // the generation that a Shoot was sent last, by uid
}

// witness begins to look, and goes on until the test ends.
func (r *fixture) witness() {
	w := &witness{fixture: r, names: map[string]string{}, sent: map[string]int64{}}
	ctx, cancel := context.WithCancel(context.WithoutCancel(r.Context()))
	var looking sync.WaitGroup
	looking.Go(func() {
		for ctx.Err() == nil {
			w.look(ctx)
			_ = pause(ctx, 50*time.Millisecond) // the garden may be away
		}
	})
	r.Cleanup(func() {
		cancel()
		looking.Wait()
	})
}

func (w *witness) look(ctx context.Context) {
	list, err := w.shoots.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range list.Items {
		w.saw(&list.Items[i])
	}
	changes, err := w.shoots.Watch(ctx, metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		return
	}
	defer changes.Stop()
	for e := range changes.ResultChan() {
		o, ok := e.Object.(*unstructured.Unstructured)
		switch {
		case e.Type == watch.Error || !ok:
			return
		case e.Type == watch.Deleted:
			w.book.note(o.GetName(), "garden: %s is gone, uid %s", o.GetName(), o.GetUID())
		default:
			w.saw(o)
		}
	}
}

func (w *witness) saw(o *unstructured.Unstructured) {
	id, name, uid, sent := o.GetLabels()[shoot.LabelCluster], o.GetName(), string(o.GetUID()), sentTo(o)
	before, known := w.sent[uid]
	if !known || sent != before {
		w.book.note(name, "garden: %s of cluster %s is at generation %d, uid %s: %+v", name, id, sent, uid, madeOf(o))
	}
	if sent < before {
		w.book.wrong(id, name, "Shoot %s went back from generation %d to %d", name, before, sent)
	}
	if had := w.names[id]; had != "" && had != name {
		w.book.wrong(id, name, "the cluster has a second Shoot, %s besides %s", name, had)
	}
	w.names[id], w.sent[uid] = name, sent
}
