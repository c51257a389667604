package operator

import (
	"context"
	"maps"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// Two controllers of this process write the status of a NodeFault. The Outbox sends the change
// events, and owns the fields that say how far it is (see copyOutboxFields). The Reconciler owns
// all other fields, and writes them with WriteStatus. The only exception is a new sink: the
// Reconciler creates its delivery state together with the first record for it, and from then on
// the Outbox owns that state.

// maxOutboxRetries limits the retries of a status write that conflicts with the outbox.
const maxOutboxRetries = 3

// WriteStatus sends a merge patch that applies only to the resource version of before. After a conflict
// it reads the object. If only the fields of the outbox changed, the decision of the Reconciler is still
// valid, and the patch is sent for the new version. Otherwise the conflict is returned, and the
// Reconciler decides again.
func (h cachedFaultClient) WriteStatus(ctx context.Context, before, after *v1alpha1.NodeFault) error {
	newDeliveries := deliveriesOfNewSinks(before, after)
	err := h.patchStatusKeepingDeliveries(ctx, before, after, newDeliveries)
	for range maxOutboxRetries {
		if !apierrors.IsConflict(err) {
			return err
		}
		// The cache may not have the later version yet.
		var current v1alpha1.NodeFault
		getErr := h.live.Get(ctx, client.ObjectKeyFromObject(before), &current)
		if getErr != nil || !sameExceptOutboxFields(before, &current) {
			return err
		}
		err = h.patchStatusKeepingDeliveries(ctx, &current, after, newDeliveries)
	}
	return err
}

// deliveriesOfNewSinks returns the delivery states of sinks that had none before.
func deliveriesOfNewSinks(before, after *v1alpha1.NodeFault) map[string]v1alpha1.DeliveryStatus {
	added := map[string]v1alpha1.DeliveryStatus{}
	for name, delivery := range after.Status.SinkDeliveries {
		if _, existed := before.Status.SinkDeliveries[name]; !existed {
			added[name] = delivery
		}
	}
	return added
}

// patchStatusKeepingDeliveries writes the status of after to before, except the fields of the
// outbox, and adds the delivery states of new sinks. It sets after to the stored object.
func (h cachedFaultClient) patchStatusKeepingDeliveries(
	ctx context.Context, before, after *v1alpha1.NodeFault, newDeliveries map[string]v1alpha1.DeliveryStatus,
) error {
	from, to := before.DeepCopy(), before.DeepCopy()
	to.Status = *after.Status.DeepCopy()
	copyOutboxFields(&to.Status, &from.Status)
	// A delivery state that the outbox has stored meanwhile is later than the new one.
	to.Status.SinkDeliveries = maps.Clone(newDeliveries)
	maps.Copy(to.Status.SinkDeliveries, from.Status.SinkDeliveries)

	patch := client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{})
	if err := h.patchFault(ctx, to, patch, true); err != nil {
		return err
	}
	to.ManagedFields = nil
	*after = *to
	return nil
}

// sameExceptOutboxFields reports whether current differs from before at most in fields of the
// outbox, and in metadata that no decision depends on.
func sameExceptOutboxFields(before, current *v1alpha1.NodeFault) bool {
	expected := before.Status.DeepCopy()
	copyOutboxFields(expected, &current.Status)
	return before.UID == current.UID &&
		before.Generation == current.Generation &&
		before.DeletionTimestamp.IsZero() == current.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(expected, &current.Status)
}

// copyOutboxFields sets the fields that only the outbox writes to those of another status.
func copyOutboxFields(to, from *v1alpha1.NodeFaultStatus) {
	to.SinkDeliveries = from.SinkDeliveries
	to.UndeliveredChangeEvents = from.UndeliveredChangeEvents
	to.LastResendRequest = from.LastResendRequest
}
