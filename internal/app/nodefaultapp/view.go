package nodefaultapp

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// nodeView reads all nodes from a cache. It is read for each node that is taken out of service, of
// which there may be a thousand at once. It therefore copies nothing, and callers must not change
// the objects.
type nodeView struct {
	nodeStore, faultStore toolscache.Indexer
	synced                func() bool // of the node cache
}

// byAddress is the index of nodes by their IP addresses.
const byAddress = "fleetloop.io/address"

func newIndexedNodeView(ctx context.Context, c cache.Cache) (v nodeView, err error) {
	informer, err := c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nodeView{}, fmt.Errorf("get informer of nodes: %w", err)
	}
	v.synced = informer.HasSynced
	err = informer.AddIndexers(toolscache.Indexers{byAddress: func(o any) ([]string, error) {
		n, is := o.(*corev1.Node)
		if !is {
			return nil, nil
		}
		return intake.CanonicalNodeIPs(n), nil
	}})
	if err != nil {
		return nodeView{}, fmt.Errorf("index nodes by address: %w", err)
	}
	if v.nodeStore, err = getInformerIndexer(ctx, c, &corev1.Node{}); err == nil {
		v.faultStore, err = getInformerIndexer(ctx, c, &v1alpha1.NodeFault{})
	}
	return v, err
}

// getInformerIndexer returns the indexer in which a cache keeps a kind.
func getInformerIndexer(ctx context.Context, c cache.Cache, kind client.Object) (toolscache.Indexer, error) {
	informer, err := c.GetInformer(ctx, kind, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("get informer of %T: %w", kind, err)
	}
	kept, is := informer.(interface{ GetIndexer() toolscache.Indexer })
	if !is {
		return nil, fmt.Errorf("get informer of %T: no indexer", kind)
	}
	return kept.GetIndexer(), nil
}

var errNotSynced = errors.New("nodes not listed yet")

// findNodesByAddress returns the nodes with an IP address.
func (v nodeView) findNodesByAddress(address string) ([]*corev1.Node, error) {
	if !v.synced() {
		return nil, errNotSynced
	}
	list, err := v.nodeStore.ByIndex(byAddress, address)
	if err != nil {
		return nil, fmt.Errorf("look up %q: %w", address, err)
	}
	return castToNodes(list), nil
}

// listNodes returns all nodes.
func (v nodeView) listNodes() []*corev1.Node {
	return castToNodes(v.nodeStore.List())
}

func castToNodes(list []any) []*corev1.Node {
	all := make([]*corev1.Node, 0, len(list))
	for _, o := range list {
		if n, is := o.(*corev1.Node); is {
			all = append(all, n)
		}
	}
	return all
}

// listDrainingNodeUIDs returns the nodes with a drain in progress.
func (v nodeView) listDrainingNodeUIDs() []types.UID {
	var all []types.UID
	for _, o := range v.faultStore.List() {
		if f, is := o.(*v1alpha1.NodeFault); is && f.Status.Drain != nil && f.Status.Drain.State == v1alpha1.DrainRunning {
			all = append(all, f.Status.NodeUID)
		}
	}
	return all
}
