package store

import (
	"context"
	"fmt"
	"net"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// NodeAt gives a function that finds the node that has an IP address, for sources
// that know nothing else of it. It reads all nodes, which should be in memory.
func NodeAt(nodes client.Reader) func(ctx context.Context, address string) (string, error) {
	return func(ctx context.Context, address string) (string, error) {
		var list corev1.NodeList
		if err := nodes.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
			return "", fmt.Errorf("%w: list nodes: %w", intake.ErrUnavailable, err)
		}
		wanted := net.ParseIP(address)
		for i := range list.Items {
			for _, a := range list.Items[i].Status.Addresses {
				if ip := net.ParseIP(a.Address); ip != nil && ip.Equal(wanted) {
					return list.Items[i].Name, nil
				}
			}
		}
		return "", fmt.Errorf("no node has the address %q: %w", address, intake.ErrUnknownNode)
	}
}
