package janitor

import (
	"context"
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
)

var errCrash = errors.New("the janitor is gone")

// dying allows n writes, and then fails the next one, before or after it is stored, and
// all that follow.
func (w *fixture) dying(n int, after bool) client.Client {
	left := n
	write := func(do func() error) error {
		left--
		switch {
		case left >= 0:
			return do()
		case left == -1 && after:
			return errors.Join(do(), errCrash)
		}
		return errCrash
	}
	c, is := w.client.(client.WithWatch)
	if !is {
		scheme := w.client.Scheme()
		var err error
		if c, err = client.NewWithWatch(w.config(), client.Options{Scheme: scheme}); err != nil {
			w.Fatal(err)
		}
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		SubResourceUpdate: func(ctx context.Context, c client.Client, sub string, o client.Object, opts ...client.SubResourceUpdateOption) error {
			return write(func() error { return c.SubResource(sub).Update(ctx, o, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			return write(func() error { return c.Delete(ctx, o, opts...) })
		},
	})
}

// TestCrash verifies that after a crash of the janitor at any write, the next one
// completes the action, and that the machine is rebooted or terminated once.
func TestCrash(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{v1alpha1.KindReboot, v1alpha1.KindTerminate} {
		for n := range 5 {
			for _, after := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s-%d-%t", kind, n, after), func(t *testing.T) {
					t.Parallel()
					crash(newFixture(t), kind, n, after)
				})
			}
		}
	}
}

func crash(w *fixture, kind string, n int, after bool) {
	w.addNode(nil)
	done := 0
	w.provider.onAsk = func(Request) { // before the result is known
		done++
		if kind == v1alpha1.KindReboot {
			w.report("boot-2", corev1.ConditionTrue)
			return
		}
		w.provider.progress = Progress{State: StateDone}
	}
	o := w.ask(kind, "a", false)
	k := newRebootActionKind
	if kind == v1alpha1.KindTerminate {
		k = newTerminateActionKind
	}
	dying := w.dying(n, after)
	r := w.reconciler(dying, k)
	for range 4 {
		_, _ = r.Reconcile(w.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
	}
	for range 3 {
		w.look(o)
	}
	w.want(w.read(o), sent, succeeded, "")
	if done != 1 {
		w.Errorf("it was done %d times", done)
	}
	if kind == v1alpha1.KindReboot && w.provider.asked[o.GetUID()] > 1 {
		w.Errorf("the provider was asked %d times, although the node shows what became of it", w.provider.asked[o.GetUID()])
	}
}
