package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
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
	errRequestTimeout = errors.New("the Kubernetes API did not respond in time")
	// errStaleCache means that the cache does not show the last write yet.
	errStaleCache = errors.New("cache is older than the last write")
)

// nodes accesses Nodes.
type nodes interface {
	// Get returns a Node from the cache, or nil if it does not exist. It returns
	// errStaleCache if the cache is older than the last write.
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
	// are added. It fails if anything but those fields has changed since before.
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

// readCachedUnlessStale reads an object from the cache, and reports whether it exists. It returns
// errStaleCache if the cache is older than the last write.
func readCachedUnlessStale(
	ctx context.Context, from client.Reader, written *kube.WrittenVersions, name string, o client.Object,
) (found bool, err error) {
	key := types.NamespacedName{Name: name}
	err = from.Get(ctx, key, o)
	switch {
	case apierrors.IsNotFound(err):
		written.ForgetObject(key)
		return false, nil
	case err != nil:
		return false, err
	case written.WroteNewerElseForget(o):
		return false, errStaleCache
	default:
		return true, nil
	}
}

// Write sends a merge patch for the version of before.
func (h cachedNodeClient) Write(ctx context.Context, before, after *corev1.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
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
	live    client.Reader // reads from the API server, not from the cache
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

// Create creates a NodeFault. It returns errStaleCache if it already exists.
func (h cachedFaultClient) Create(ctx context.Context, name string) (*v1alpha1.NodeFault, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
	defer cancel()
	f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err := h.client.Create(ctx, f, client.FieldOwner(v1alpha1.FieldManager))
	if apierrors.IsAlreadyExists(err) {
		return nil, errStaleCache
	}
	if err != nil {
		return nil, fmt.Errorf("create NodeFault %q: %w", name, err)
	}
	h.written.RecordWritten(f)
	return f, nil
}

// patchFault patches a NodeFault or its status, and sets f to the stored object.
func (h cachedFaultClient) patchFault(
	ctx context.Context, f *v1alpha1.NodeFault, patch client.Patch, statusSubresource bool,
) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
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
func (h cachedFaultClient) KeepOnlyFaults(
	ctx context.Context, f *v1alpha1.NodeFault, keep []v1alpha1.Fault,
) error {
	to := f.DeepCopy()
	to.Spec.Faults = keep
	patch := client.MergeFromWithOptions(f, client.MergeFromWithOptimisticLock{})
	if err := h.patchFault(ctx, to, patch, false); err != nil {
		return err
	}
	to.ManagedFields = nil
	*f = *to
	return nil
}

// Delete deletes only the version of f.
func (h cachedFaultClient) Delete(ctx context.Context, f *v1alpha1.NodeFault) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
	defer cancel()
	err := h.client.Delete(ctx, f, client.Preconditions{UID: &f.UID, ResourceVersion: &f.ResourceVersion})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete NodeFault %q: %w", f.Name, err)
	}
	return nil
}

// cachedActionReader accesses the RebootNodes and TerminateNodes of a host cluster.
type cachedActionReader struct{ client client.Reader }

// hasStartedAction reports whether a reboot or termination of a node was started, from the cache.
func (h cachedActionReader) hasStartedAction(ctx context.Context, node string) (started bool, err error) {
	var reboots janitor.RebootNodeList
	if err := h.client.List(ctx, &reboots, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list RebootNodes: %w", err)
	}
	for i := range reboots.Items {
		reboot := &reboots.Items[i]
		if reboot.Spec.NodeName == node && reboot.Status.StartTime != nil {
			return true, nil
		}
	}
	var terminations janitor.TerminateNodeList
	if err := h.client.List(ctx, &terminations, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("list TerminateNodes: %w", err)
	}
	for i := range terminations.Items {
		termination := &terminations.Items[i]
		if termination.Spec.NodeName == node && termination.Status.StartTime != nil {
			return true, nil
		}
	}
	return false, nil
}
