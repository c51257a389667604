package nodefaultapp

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/nodefault/operator"
)

func TestMain(m *testing.M) {
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

// TestNodesByAddress verifies that nodes are found by their current addresses. An unsynced cache is
// an error instead of an empty result.
func TestNodesByAddress(t *testing.T) {
	scheme := runtime.NewScheme()
	if err := operator.AddToScheme(scheme); err != nil {
		t.Fatal(err)
	}
	rc := kubebedtest.Bed(t).Config()
	live, err := client.New(rc, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "by-address"}}
	if err := live.Create(t.Context(), node); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = live.Delete(context.WithoutCancel(t.Context()), node) })
	move := func(addresses ...string) {
		t.Helper()
		node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: node.Name}}
		for _, a := range addresses {
			node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
		}
		if err := live.Status().Update(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	move("10.0.0.7", "2001:DB8:0::7")

	kept, err := cache.New(rc, cache.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	v, err := newIndexedNodeView(t.Context(), kept)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := v.findNodesByAddress("10.0.0.7"); !errors.Is(err, errNotSynced) {
		t.Errorf("before they are known: %v, want %v", err, errNotSynced)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- kept.Start(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	if !kept.WaitForCacheSync(t.Context()) {
		t.Fatal("the cache does not fill")
	}
	want := func(address string, names ...string) {
		t.Helper()
		kubebedtest.Eventually(t, func(context.Context) error {
			nodes, err := v.findNodesByAddress(address)
			if err != nil {
				return err
			}
			var got []string
			for _, n := range nodes {
				got = append(got, n.Name)
			}
			if !slices.Equal(got, names) {
				return fmt.Errorf("%v have the address %s, want %v", got, address, names)
			}
			return nil
		})
	}
	want("10.0.0.7", node.Name)
	want("2001:db8::7", node.Name)
	want(node.Name)
	want("10.0.0.8")
	move("10.0.0.8")
	want("10.0.0.8", node.Name)
	want("10.0.0.7")
}
