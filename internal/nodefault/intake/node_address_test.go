package intake_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

func nodeWithAddresses(name string, age time.Duration, addresses ...string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, CreationTimestamp: metav1.NewTime(time.Unix(0, 0).Add(-age))}}
	for _, a := range addresses {
		n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: a})
	}
	return n
}

// indexNodes looks up nodes like a cache.
func indexNodes(tb testing.TB, nodes ...*corev1.Node) func(string) ([]*corev1.Node, error) {
	tb.Helper()
	const by = "address"
	index := toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, toolscache.Indexers{by: func(o any) ([]string, error) {
		return intake.CanonicalNodeIPs(o.(*corev1.Node)), nil //nolint:errcheck // it has nothing else
	}})
	for _, n := range nodes {
		if err := index.Add(n); err != nil {
			tb.Fatal(err)
		}
	}
	return func(address string) (found []*corev1.Node, err error) {
		list, err := index.ByIndex(by, address)
		for _, o := range list {
			found = append(found, o.(*corev1.Node)) //nolint:errcheck // it has nothing else
		}
		return found, err
	}
}

func TestNodeAddresses(t *testing.T) {
	got := intake.CanonicalNodeIPs(nodeWithAddresses("a", 0, "10.0.0.1", "::ffff:10.0.0.1", "2001:DB8:0::1", "fe80::1%eth0", "a.example.com", ""))
	if diff := cmp.Diff([]string{"10.0.0.1", "2001:db8::1", "fe80::1"}, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

func TestNodeByAddress(t *testing.T) {
	at := intake.NewestNodeNameByAddressFunc(indexNodes(t,
		nodeWithAddresses("a", 0, "10.0.0.1", "2001:db8::1"), nodeWithAddresses("b", time.Hour, "10.0.0.2"), nodeWithAddresses("c", time.Minute, "10.0.0.2"), nodeWithAddresses("d", time.Minute, "10.0.0.2")))
	cases := map[string]struct {
		reason, address, want string
		err                   error
	}{
		"One":       {"", "10.0.0.1", "a", nil},
		"Other":     {"another way to write it", "2001:0DB8:0::1", "a", nil},
		"Mapped":    {"another way to write it", "::ffff:10.0.0.1", "a", nil},
		"Stale":     {"b is gone, and its object is not; of the others either would do, but always the same one", "10.0.0.2", "c", nil},
		"Nobody":    {"it is refused for good", "10.0.0.9", "", intake.ErrUnknownNode},
		"NoAddress": {"it is refused for good", "a", "", intake.ErrUnknownNode},
	}
	for name, tc := range cases {
		got, err := at(t.Context(), tc.address)
		if got != tc.want || !errors.Is(err, tc.err) {
			t.Errorf("%s: got %q, %v, want %q, %v: %s", name, got, err, tc.want, tc.err, tc.reason)
		}
	}
	at = intake.NewestNodeNameByAddressFunc(func(string) ([]*corev1.Node, error) { return nil, errors.New("not listed yet") })
	if _, err := at(t.Context(), "10.0.0.1"); !errors.Is(err, intake.ErrUnavailable) {
		t.Errorf("before nodes are known: %v, want that it is tried again", err)
	}
}

func BenchmarkNodeByAddress(b *testing.B) {
	var nodes []*corev1.Node
	for i := range 5000 {
		nodes = append(nodes, nodeWithAddresses(fmt.Sprintf("node-%d", i), 0, fmt.Sprintf("10.0.%d.%d", i/250, i%250), fmt.Sprintf("172.16.%d.%d", i/250, i%250)))
	}
	at := intake.NewestNodeNameByAddressFunc(indexNodes(b, nodes...))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := at(b.Context(), "10.0.19.249"); err != nil {
			b.Fatal(err)
		}
	}
}
