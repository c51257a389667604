package intake

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// CanonicalNodeIPs returns the IP addresses of a node in canonical form, so that nodes can be
// indexed by them.
func CanonicalNodeIPs(node *corev1.Node) []string {
	var all []string
	for _, a := range node.Status.Addresses {
		if address, ok := canonicalIP(a.Address); ok && !slices.Contains(all, address) {
			all = append(all, address)
		}
	}
	return all
}

// canonicalIP returns the canonical form of an IP address. isIP reports whether text is one.
func canonicalIP(text string) (address string, isIP bool) {
	a, err := netip.ParseAddr(text)
	if err != nil {
		return "", false
	}
	return a.Unmap().WithZone("").String(), true
}

// NewestNodeNameByAddressFunc returns a function that finds the node with an IP address, for sources that know
// only the address. nodesAt returns the nodes with one of their addresses, or an error while
// they are unknown. If two nodes have the same address, for example because a deleted
// machine has left its Node, the younger one is returned.
func NewestNodeNameByAddressFunc(
	nodesAt func(address string) ([]*corev1.Node, error),
) func(ctx context.Context, address string) (string, error) {
	return func(_ context.Context, address string) (string, error) {
		wanted, ok := canonicalIP(address)
		if !ok {
			return "", fmt.Errorf("%q is not an IP address: %w", address, ErrUnknownNode)
		}
		nodes, err := nodesAt(wanted)
		switch {
		case err != nil:
			return "", fmt.Errorf("%w: look up nodes by address: %w", ErrUnavailable, err)
		case len(nodes) == 0:
			return "", fmt.Errorf("no node has the address %q: %w", address, ErrUnknownNode)
		}
		return slices.MaxFunc(nodes, func(a, b *corev1.Node) int {
			return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(b.Name, a.Name))
		}).Name, nil
	}
}
