package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	janitor "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// requestTimeout limits each request to the host cluster.
const requestTimeout = 30 * time.Second

var (
	errNoAnswer = errors.New("the Kubernetes API did not respond in time")
	// errBehind means that the cache does not show the last write yet.
	errBehind = errors.New("cache is older than the last write")
)

// nodes accesses Nodes.
type nodes interface {
	// Get returns a Node from the cache, or nil if it does not exist. It returns
	// errBehind if the cache is older than the last write.
	Get(ctx context.Context, name string) (*corev1.Node, error)
	// Write writes the changes from before to after. It fails if the Node has changed
	// since. It sets after to the stored object.
	Write(ctx context.Context, before, after *corev1.Node) error
}

// faults accesses NodeFaults.
type faults interface {
	// Get is like Get of nodes.
	Get(ctx context.Context, name string) (*v1alpha1.NodeFault, error)
	// Create creates a NodeFault without faults.
	Create(ctx context.Context, name string) (*v1alpha1.NodeFault, error)
	// WriteStatus writes the status of after, except the fields of the outbox; new sinks
	// are added. It fails if the NodeFault has changed since before.
	WriteStatus(ctx context.Context, before, after *v1alpha1.NodeFault) error
	// KeepOnlyFaults removes all faults but those in keep. It fails if the NodeFault has changed
	// since f.
	KeepOnlyFaults(ctx context.Context, f *v1alpha1.NodeFault, keep []v1alpha1.Fault) error
	// Delete deletes f if it has not changed.
	Delete(ctx context.Context, f *v1alpha1.NodeFault) error
}

// stripUnusedNodeFields removes fields of a Node that the operator does not need. A fleet has many
// Nodes, and their images take the most memory.
func stripUnusedNodeFields(o any) (any, error) {
	if n, ok := o.(*corev1.Node); ok {
		n.Status.Images, n.Status.VolumesInUse, n.Status.VolumesAttached = nil, nil, nil
	}
	return o, nil
}

// cachedNodeClient accesses the Nodes of a host cluster.
type cachedNodeClient struct {
	client  client.Client
	written *kube.WrittenVersions
}

// Get reads the cache.
func (h cachedNodeClient) Get(ctx context.Context, name string) (nodeOrNil *corev1.Node, err error) {
	var n corev1.Node
	found, err := readCachedUnlessStale(ctx, h.client, h.written, name, &n)
	if err != nil || !found {
		return nil, err
	}
	return &n, nil
}

// readCachedUnlessStale reads an object from the cache, and reports whether it exists.
func readCachedUnlessStale(ctx context.Context, from client.Reader, written *kube.WrittenVersions, name string, o client.Object) (found bool, err error) {
	key := types.NamespacedName{Name: name}
	err = from.Get(ctx, key, o)
	if apierrors.IsNotFound(err) {
		written.ForgetObject(key)
		return false, nil
	}
	if err == nil && written.WroteNewerElseForget(o) {
		err = errBehind
	}
	return err == nil, err
}

// Write sends a merge patch for the version of before.
func (h cachedNodeClient) Write(ctx context.Context, before, after *corev1.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := h.client.Patch(ctx, after, patch, client.FieldOwner(v1alpha1.FieldManager)); err != nil {
		return fmt.Errorf("write Node %q: %w", after.Name, err)
	}
	h.written.RecordWritten(after)
	return nil
}

// cachedFaultClient accesses the NodeFaults of a host cluster.
type cachedFaultClient struct {
	client  client.Client
	live    client.Reader // reads from the host cluster
	written *kube.WrittenVersions
}

// Get reads the cache.
func (h cachedFaultClient) Get(ctx context.Context, name string) (faultOrNil *v1alpha1.NodeFault, err error) {
	var f v1alpha1.NodeFault
	found, err := readCachedUnlessStale(ctx, h.client, h.written, name, &f)
	if err != nil || !found {
		return nil, err
	}
	return &f, nil
}

// Create creates a NodeFault. It returns errBehind if it already exists.
func (h cachedFaultClient) Create(ctx context.Context, name string) (*v1alpha1.NodeFault, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := h.client.Create(ctx, f, client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return nil, errBehind
	}
	if err != nil {
		return nil, fmt.Errorf("create NodeFault %q: %w", name, err)
	}
	h.written.RecordWritten(f)
	return f, nil
}

// WriteStatus sends a merge patch for the version of before. After a conflict it retries
// with a later version that only the outbox has written.
func (h cachedFaultClient) WriteStatus(ctx context.Context, before, after *v1alpha1.NodeFault) error {
	places := deliveriesOfNewSinks(before, after)
	err := h.patchStatusKeepingDeliveries(ctx, before, after, places)
	for range mostAcknowledged {
		if !apierrors.IsConflict(err) {
			return err
		}
		var now v1alpha1.NodeFault
		if getErr := h.live.Get(ctx, client.ObjectKeyFromObject(before), &now); getErr != nil || !sameExceptDeliveries(before, &now) {
			return err
		}
		err = h.patchStatusKeepingDeliveries(ctx, &now, after, places)
	}
	return err
}

// mostAcknowledged limits the retries after writes of the outbox.
const mostAcknowledged = 3

// sameExceptDeliveries reports whether a NodeFault has changed only in fields of the outbox.
func sameExceptDeliveries(before, now *v1alpha1.NodeFault) bool {
	then := before.Status.DeepCopy()
	then.SinkDeliveries, then.UndeliveredChangeEvents, then.LastResendRequest = now.Status.SinkDeliveries, now.Status.UndeliveredChangeEvents, now.Status.LastResendRequest
	return before.UID == now.UID && before.Generation == now.Generation && before.DeletionTimestamp.IsZero() == now.DeletionTimestamp.IsZero() &&
		equality.Semantic.DeepEqual(then, &now.Status)
}

func (h cachedFaultClient) patchStatusKeepingDeliveries(ctx context.Context, before, after *v1alpha1.NodeFault, newDeliveries map[string]v1alpha1.DeliveryStatus) error {
	from, to := before.DeepCopy(), before.DeepCopy()
	to.Status = *after.Status.DeepCopy()
	to.Status.SinkDeliveries, to.Status.UndeliveredChangeEvents, to.Status.LastResendRequest = addMissingDeliveries(from.Status.SinkDeliveries, newDeliveries), from.Status.UndeliveredChangeEvents, from.Status.LastResendRequest
	if err := h.patchFault(ctx, to, client.MergeFromWithOptions(from, client.MergeFromWithOptimisticLock{}), true); err != nil {
		return err
	}
	to.ManagedFields = nil
	*after = *to
	return nil
}

// deliveriesOfNewSinks returns the delivery states of sinks that had none before. They are written
// with the first record for those sinks.
func deliveriesOfNewSinks(before, after *v1alpha1.NodeFault) map[string]v1alpha1.DeliveryStatus {
	places := maps.Clone(after.Status.SinkDeliveries)
	maps.DeleteFunc(places, func(name string, _ v1alpha1.DeliveryStatus) bool {
		_, was := before.Status.SinkDeliveries[name]
		return was
	})
	return places
}

// addMissingDeliveries returns the delivery states of the outbox, with those of new sinks added.
func addMissingDeliveries(stored, added map[string]v1alpha1.DeliveryStatus) map[string]v1alpha1.DeliveryStatus {
	all := maps.Clone(stored)
	for name, place := range added {
		if _, is := all[name]; is {
			continue
		}
		if all == nil {
			all = map[string]v1alpha1.DeliveryStatus{}
		}
		all[name] = place
	}
	return all
}

func (h cachedFaultClient) patchFault(ctx context.Context, f *v1alpha1.NodeFault, patch client.Patch, statusSubresource bool) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	if statusSubresource {
		err = h.client.Status().Patch(ctx, f, patch, client.FieldOwner(v1alpha1.FieldManager))
	} else {
		err = h.client.Patch(ctx, f, patch, client.FieldOwner(v1alpha1.FieldManager))
	}
	if err != nil {
		return fmt.Errorf("write NodeFault %q: %w", f.Name, err)
	}
	h.written.RecordWritten(f)
	return nil
}

// KeepOnlyFaults sends a merge patch for the version of f.
func (h cachedFaultClient) KeepOnlyFaults(ctx context.Context, f *v1alpha1.NodeFault, keep []v1alpha1.Fault) error {
	to := f.DeepCopy()
	to.Spec.Faults = keep
	if err := h.patchFault(ctx, to, client.MergeFromWithOptions(f, client.MergeFromWithOptimisticLock{}), false); err != nil {
		return err
	}
	to.ManagedFields = nil
	*f = *to
	return nil
}

// Delete deletes only the version of f.
func (h cachedFaultClient) Delete(ctx context.Context, f *v1alpha1.NodeFault) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	err := h.client.Delete(ctx, f, client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NodeFault %q: %w", f.Name, err)
	}
	return nil
}

// WriteProgress sends a merge patch of fields that only the outbox writes, regardless of
// other changes.
func (h cachedFaultClient) WriteProgress(ctx context.Context, f *v1alpha1.NodeFault, p DeliveryProgress) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": f.UID}, "status": progressPatch(p)})
	if err != nil {
		return fmt.Errorf("write NodeFault %q: %w", f.Name, err)
	}
	to := f.DeepCopy()
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	if err := h.client.Status().Patch(ctx, to, client.RawPatch(types.MergePatchType, patch), client.FieldOwner(v1alpha1.FieldManager+"-outbox")); err != nil {
		return fmt.Errorf("write NodeFault %q: %w", f.Name, err)
	}
	h.written.RecordWritten(to)
	return nil
}

// progressPatch returns the fields of the outbox as a merge patch. Removed values are
// null, because omitted ones would stay.
func progressPatch(p DeliveryProgress) map[string]any {
	sinks := make(map[string]any, len(p.Sinks))
	for name, d := range p.Sinks {
		if d == nil {
			sinks[name] = nil
			continue
		}
		sink := map[string]any{"processedSequence": d.ProcessedSequence, "lastDeliveredAt": d.LastDeliveredAt, "lastError": nil, "lastFailedAt": d.LastFailedAt, "rejected": nil}
		if d.EnabledAt != nil {
			sink["enabledAt"] = d.EnabledAt
		}
		if d.Dropped > 0 {
			sink["dropped"] = d.Dropped
		}
		if d.LastError != "" {
			sink["lastError"] = d.LastError
		}
		if len(d.Rejected) > 0 {
			sink["rejected"] = d.Rejected
		}
		sinks[name] = sink
	}
	status := map[string]any{"sinkDeliveries": sinks}
	if p.Untold >= 0 {
		status["undeliveredChangeEvents"] = p.Untold
	}
	if p.Resent != "" {
		status["lastResendRequest"] = p.Resent
	}
	return status
}

// cachedActionReader accesses the RebootNodes and TerminateNodes of a host cluster.
type cachedActionReader struct{ client client.Reader }

// hasStartedAction reads the cache.
func (h cachedActionReader) hasStartedAction(ctx context.Context, node string) (started bool, err error) {
	var reboots janitor.RebootNodeList
	if err := h.client.List(ctx, &reboots, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list RebootNodes: %w", err)
	}
	for i := range reboots.Items {
		if reboots.Items[i].Spec.NodeName == node && reboots.Items[i].Status.StartTime != nil {
			return true, nil
		}
	}
	var ends janitor.TerminateNodeList
	if err := h.client.List(ctx, &ends, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list TerminateNodes: %w", err)
	}
	for i := range ends.Items {
		if ends.Items[i].Spec.NodeName == node && ends.Items[i].Status.StartTime != nil {
			return true, nil
		}
	}
	return false, nil
}
