package janitor

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// TestManager runs many concurrent actions with a manager and its cache. Each is
// executed, and never two of a node at a time.
func TestManager(t *testing.T) {
	const nodes, each = 4, 3
	w := newFixture(t)
	scheme := runtime.NewScheme()
	if err := AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	namespaced, clusterScoped := Kinds()
	m, err := kube.NewManager(w.config(), kube.Options{
		Scheme: scheme, Namespaced: namespaced, ClusterScoped: clusterScoped, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	under := map[string]string{} // actions in progress by node
	boots := map[string]int{}
	w.provider.onAsk = func(r Request) {
		mu.Lock()
		defer mu.Unlock()
		if other := under[r.Node.Name]; other != "" && !w.ended(other) {
			t.Errorf("%s and %s are under way at a time on %s", other, r.By.Name, r.Node.Name)
		}
		under[r.Node.Name] = r.By.Name
		boots[r.Node.Name]++
		report(t, w.client, r.Node.Name, fmt.Sprintf("boot-%d", boots[r.Node.Name]+1), corev1.ConditionTrue)
	}
	if err := Add(m, Config{Poll: time.Second}, Providers{Reboot: w.provider}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := m.Start(ctx); err != nil {
			t.Errorf("the manager ended: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })

	var all []*v1alpha1.RebootNode
	for i := range nodes {
		name := fmt.Sprintf("%s-%d", w.node(), i)
		if err := w.client.Create(t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}); err != nil {
			t.Fatal(err)
		}
		report(t, w.client, name, "boot-1", corev1.ConditionTrue)
	}
	for k := range each {
		for i := range nodes {
			o := &v1alpha1.RebootNode{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d-%d", w.prefix, i, k)},
				Spec:       v1alpha1.NodeActionSpec{NodeName: fmt.Sprintf("%s-%d", w.node(), i)},
			}
			if err := w.client.Create(t.Context(), o); err != nil {
				t.Fatal(err)
			}
			all = append(all, o)
		}
	}
	end := &v1alpha1.TerminateNode{ObjectMeta: metav1.ObjectMeta{Name: w.prefix + "-end"}, Spec: v1alpha1.NodeActionSpec{NodeName: w.node() + "-0"}}
	if err := w.client.Create(t.Context(), end); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(context.Context) error {
		for _, o := range all {
			w.read(o) //nolint:contextcheck // it has the test's
			if !meta.IsStatusConditionTrue(o.Status.Conditions, v1alpha1.ConditionNodeReady) {
				return fmt.Errorf("%s: %+v", o.Name, o.Status)
			}
		}
		w.read(end) //nolint:contextcheck // it has the test's
		if end.Status.CompletionTime == nil {
			return fmt.Errorf("%s: %+v", end.Name, end.Status)
		}
		return nil
	})
	w.want(end, failed, failed, "no provider configured")
}

// ended reports whether a RebootNode has ended, according to the API server.
func (w *fixture) ended(name string) bool {
	o := &v1alpha1.RebootNode{ObjectMeta: metav1.ObjectMeta{Name: name}}
	return w.read(o) != nil && o.Status.CompletionTime != nil
}
