package budget

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

func noon() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

// newNodes returns a number of Ready nodes.
func newNodes(n int) []*corev1.Node {
	var nodes []*corev1.Node
	for i := range n {
		node := &corev1.Node{}
		node.Name = fmt.Sprintf("node-%03d", i)
		node.UID = types.UID("uid-" + node.Name)
		node.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		nodes = append(nodes, node)
	}
	return nodes
}

func label(nodes []*corev1.Node, key, value string) {
	for _, node := range nodes {
		if node.Labels == nil {
			node.Labels = map[string]string{}
		}
		node.Labels[key] = value
	}
}

// take marks nodes as quarantined.
func take(at time.Time, nodes ...*corev1.Node) {
	for _, node := range nodes {
		node.Spec.Unschedulable = true
		node.Annotations = map[string]string{v1alpha1.AnnotationOwned: owned(at)}
	}
}

func owned(at time.Time) string {
	return fmt.Sprintf(`{"session":"k3f9c2aa","cordon":true,"appliedAt":%q}`, at.UTC().Format("2006-01-02T15:04:05.000000Z07:00"))
}

func cordon(nodes ...*corev1.Node) {
	for _, node := range nodes {
		node.Spec.Unschedulable = true
	}
}

func fail(nodes ...*corev1.Node) {
	for _, node := range nodes {
		node.Status.Conditions[0].Status = corev1.ConditionUnknown
	}
}

func newBudget(tb testing.TB, cfg Config, nodes func() []*corev1.Node) *Budget {
	tb.Helper()
	b, err := New(cfg, nodes, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// always returns copies, because the tests change nodes in place and a cache does not.
func always(nodes []*corev1.Node) func() []*corev1.Node {
	return func() []*corev1.Node { return copies(nodes) }
}

// grants requests each node and returns the names of the granted ones.
func grants(b *Budget, now time.Time, nodes ...*corev1.Node) []string {
	var granted []string
	for _, node := range nodes {
		if _, denial := b.Reserve(node, now); denial == "" {
			granted = append(granted, node.Name)
		}
	}
	return granted
}

func copies(nodes []*corev1.Node) []*corev1.Node {
	list := slices.Clone(nodes)
	for i := range list {
		list[i] = list[i].DeepCopy()
	}
	return list
}

func registry() *prometheus.Registry { return prometheus.NewRegistry() }
