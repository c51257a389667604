package janitor

import (
	"context"
	"fmt"
	"sync"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
)

// nodeActionQueue serializes the actions on each node.
type nodeActionQueue struct {
	mu   sync.Mutex
	live client.Reader
}

// beginIfFirstOnNode calls begin if no other action runs on the node of o and no older one waits.
// Otherwise it returns a message about the action to wait for. It reads the actions from
// the API server and allows one call at a time, because a cache would let two
// simultaneous actions start.
func (t *nodeActionQueue) beginIfFirstOnNode(
	ctx context.Context, o client.Object, begin func() error,
) (waitingFor string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	others, err := listActionsOnNode(ctx, t.live, nodeNameOf(o))
	if err != nil {
		return "", err
	}
	for _, other := range others {
		if other.GetUID() == o.GetUID() || hasEndedOrIsDeleting(other) {
			continue
		}
		_, otherStatus := specAndStatus(other)
		if otherStatus.StartTime != nil || isOlder(other, o) {
			return fmt.Sprintf("waiting for %s %q to finish", kindOf(other), other.GetName()), nil
		}
	}
	return "", begin()
}

// listActionsOnNode returns all actions on a node.
func listActionsOnNode(ctx context.Context, r client.Reader, node string) ([]client.Object, error) {
	var reboots v1alpha1.RebootNodeList
	var terminations v1alpha1.TerminateNodeList
	if err := r.List(ctx, &reboots, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list RebootNodes: %w", err)
	}
	if err := r.List(ctx, &terminations, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list TerminateNodes: %w", err)
	}
	var all []client.Object
	for i := range reboots.Items {
		if reboots.Items[i].Spec.NodeName == node {
			all = append(all, &reboots.Items[i])
		}
	}
	for i := range terminations.Items {
		if terminations.Items[i].Spec.NodeName == node {
			all = append(all, &terminations.Items[i])
		}
	}
	return all, nil
}

func nodeNameOf(o client.Object) string {
	spec, _ := specAndStatus(o)
	return spec.NodeName
}

func kindOf(o client.Object) string {
	if _, isTermination := o.(*v1alpha1.TerminateNode); isTermination {
		return v1alpha1.KindTerminate
	}
	return v1alpha1.KindReboot
}

// hasEndedOrIsDeleting reports whether an action has ended or is being deleted.
func hasEndedOrIsDeleting(o client.Object) bool {
	_, status := specAndStatus(o)
	return status.CompletionTime != nil || o.GetDeletionTimestamp() != nil
}

// isOlder reports whether a was created before b. For the same second it compares the
// UIDs, so that the order is the same for both.
func isOlder(a, b client.Object) bool {
	createdA, createdB := a.GetCreationTimestamp(), b.GetCreationTimestamp()
	if !createdA.Equal(&createdB) {
		return createdA.Before(&createdB)
	}
	return a.GetUID() < b.GetUID()
}
