package kube

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// maxConflicts limits the retries after a concurrent change of a node.
const maxConflicts = 10

// UpdateNodeRetryingConflicts changes a node and reports whether it did. change returns the
// changed node, and whether it differs. After a concurrent change it is called again.
func UpdateNodeRetryingConflicts(
	ctx context.Context, c client.Client, name string, change func(*corev1.Node) (after *corev1.Node, differs bool),
) (node *corev1.Node, changed bool, err error) {
	for range maxConflicts {
		var before corev1.Node
		if err := c.Get(ctx, client.ObjectKey{Name: name}, &before); err != nil {
			return nil, false, err
		}
		after, differs := change(&before)
		if !differs {
			return &before, false, nil
		}
		if err = c.Update(ctx, after); err == nil {
			return after, true, nil
		}
		if !apierrors.IsConflict(err) {
			break
		}
	}
	return nil, false, err
}
