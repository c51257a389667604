package budget_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"

	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/budget"
)

const namespace = "fleetloop-system"

func newNode(name string, cordoned bool) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid-" + name)}, Spec: corev1.NodeSpec{Unschedulable: cordoned}}
}

// newKeeper returns a new keeper of a budget of one node.
func newKeeper(t *testing.T, c *fake.Clientset, nodes ...*corev1.Node) *budget.ManualResetBudget {
	t.Helper()
	b, err := budget.New(budget.Config{MinAllowedNodes: 1, WindowMinAllowedNodes: 10, OnExhausted: budget.ManualReset}, func() []*corev1.Node { return nodes }, nil)
	if err != nil {
		t.Fatal(err)
	}
	return budget.NewManualResetBudget(b, c.CoordinationV1(), namespace, slog.New(slog.DiscardHandler))
}

func TestKeeperStaysClosedUntilReset(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := fake.NewClientset()
		a, b := newNode("a", true), newNode("b", false)
		k := newKeeper(t, c, a, b)
		go func() { _ = k.Start(t.Context()) }()
		synctest.Wait()
		if _, denial := k.Reserve(b, time.Now()); denial == "" {
			t.Fatal("it is not exhausted with one node out of service")
		}
		time.Sleep(6 * time.Second)
		if _, err := c.CoordinationV1().Leases(namespace).Get(t.Context(), nodefault.BudgetLease, metav1.GetOptions{}); err != nil {
			t.Fatalf("that it is closed is not kept: %v", err)
		}

		// The node is back in service, and another process starts.
		a.Spec.Unschedulable = false
		next := newKeeper(t, c, a, b)
		if _, denial := next.Reserve(b, time.Now()); !strings.Contains(denial, "kubectl delete lease -n "+namespace+" "+nodefault.BudgetLease) {
			t.Errorf("denied with %q", denial)
		}
		go func() { _ = next.Start(t.Context()) }()
		time.Sleep(6 * time.Second)
		if _, denial := next.Reserve(b, time.Now()); denial == "" {
			t.Error("it has opened by itself")
		}
		if err := c.CoordinationV1().Leases(namespace).Delete(t.Context(), nodefault.BudgetLease, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if _, denial := next.Reserve(b, time.Now()); denial != "" {
			t.Errorf("a person has opened it, and it denies: %s", denial)
		}
	})
}

func TestKeeperDeniesWithoutLease(t *testing.T) {
	c := fake.NewClientset()
	c.PrependReactor("get", "leases", func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, errors.New("away") })
	k := newKeeper(t, c, newNode("b", false))
	if _, denial := k.Reserve(newNode("b", false), time.Now()); !strings.Contains(denial, "away") {
		t.Errorf("denied with %q", denial)
	}
}

// TestKeeperRights verifies that the Lease is covered by the permissions of the controller,
// which denies every node while it cannot read the Lease.
func TestKeeperRights(t *testing.T) {
	for _, r := range nodefault.RBACGrantOfFeature(nodefault.FeatureManualReset).Inside {
		for _, verb := range r.Verbs {
			if named := len(r.ResourceNames) > 0; named == (verb == "create") {
				t.Errorf("%s is granted for %v", verb, r.ResourceNames)
			}
		}
	}
}
