package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// maxWriteRetries limits the retries after a conflict.
const maxWriteRetries = 8

func writeRetryBackoff() backoff.Policy {
	return backoff.Policy{Initial: 10 * time.Millisecond, Max: 500 * time.Millisecond}
}

// isWriteConflict reports whether the object has changed since it was read.
func isWriteConflict(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	if details := status.Status().Details; details != nil {
		for _, c := range details.Causes {
			if c.Field == "metadata.uid" {
				return true // the object was deleted and created again
			}
		}
	}
	// A list that is too long was extended by others meanwhile, because there was room
	// when it was read.
	return apierrors.IsConflict(err) ||
		apierrors.IsAlreadyExists(err) ||
		apierrors.HasStatusCause(err, metav1.CauseTypeTooMany)
}

// writeReports stores reports about one node and returns the error of each. Only healthy reports
// are stored about a node that does not exist.
func (s *FaultStore) writeReports(ctx context.Context, node string, reports []nodefault.Report) []error {
	var nodeErr error
	accepted := reports
	isFault := func(r nodefault.Report) bool { return !r.Healthy }
	if slices.ContainsFunc(reports, isFault) {
		nodeErr = s.requireNodeExists(ctx, node)
	}
	if nodeErr != nil {
		accepted = slices.DeleteFunc(slices.Clone(reports), isFault)
	}
	var failed []writeFailure
	var err error
	if len(accepted) > 0 {
		failed, err = s.applyReportsWithRetry(ctx, node, accepted)
	}
	errs := make([]error, len(reports))
	for i, r := range reports {
		switch {
		case nodeErr != nil && isFault(r):
			errs[i] = nodeErr
		case err != nil:
			errs[i] = err
		default:
			errs[i] = joinErrorsOfReport(r, failed)
		}
	}
	return errs
}

// A writeFailure is a fault that could not be written.
type writeFailure struct {
	fault v1alpha1.Fault
	err   error
}

// joinErrorsOfReport returns the errors that prevented a report from being stored.
func joinErrorsOfReport(r nodefault.Report, failed []writeFailure) error {
	var all []error
	for _, f := range failed {
		concerned := nodefault.KeyOf(r.Fault) == nodefault.KeyOf(f.fault)
		if r.Healthy {
			concerned = reportEndsFault(f.fault, r)
		}
		if concerned {
			all = append(all, f.err)
		}
	}
	return errors.Join(all...)
}

// requireNodeExists returns an error if the node does not exist.
func (s *FaultStore) requireNodeExists(ctx context.Context, node string) error {
	key := types.NamespacedName{Name: node}
	err := s.deps.Nodes.Get(ctx, key, &corev1.Node{})
	if err != nil && s.deps.Nodes != s.deps.Live {
		err = s.deps.Live.Get(ctx, key, &corev1.Node{}) // the cache may be stale or empty
	}
	if apierrors.IsNotFound(err) {
		return fmt.Errorf("node %q: %w", node, ErrUnknownNode)
	}
	return wrapUnavailableError(ctx, err)
}

// applyReportsWithRetry writes the changes of reports to a NodeFault, and reads it again after a
// conflict. The error concerns all reports.
func (s *FaultStore) applyReportsWithRetry(
	ctx context.Context, node string, reports []nodefault.Report,
) ([]writeFailure, error) {
	for attempt := 0; ; attempt++ {
		failed, err := s.applyReportsOnce(ctx, node, reports)
		if !isWriteConflict(err) || attempt == maxWriteRetries {
			return failed, wrapUnavailableError(ctx, err)
		}
		if backoff.Sleep(ctx, writeRetryBackoff().Delay(attempt)) != nil {
			return failed, wrapUnavailableError(ctx, err)
		}
	}
}

// applyReportsOnce writes the changes of reports to the current NodeFault, one fault after the other.
func (s *FaultStore) applyReportsOnce(
	ctx context.Context, node string, reports []nodefault.Report,
) ([]writeFailure, error) {
	var nf v1alpha1.NodeFault
	err := s.deps.Live.Get(ctx, types.NamespacedName{Name: node}, &nf)
	if client.IgnoreNotFound(err) != nil {
		return nil, err
	}
	kept, left := removeFaultsOverMaximum(nf.Spec.Faults, applyReportsToFaults(nf.Spec.Faults, reports))
	var failed []writeFailure
	for _, f := range left {
		failed = append(failed, writeFailure{f, ErrFull})
	}
	for _, c := range diffFaults(nf.Spec.Faults, kept) {
		err := s.applyOrRemoveFault(ctx, node, nf.UID, c)
		if invalid := invalidErrorOrNil(err); invalid != nil {
			failed = append(failed, writeFailure{c.fault, invalid})
			continue
		}
		if err != nil {
			return nil, err
		}
	}
	return failed, nil
}

// applyOrRemoveFault writes or removes one fault.
func (s *FaultStore) applyOrRemoveFault(ctx context.Context, node string, uid types.UID, c faultChange) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	object.SetName(node)
	if uid != "" {
		object.SetUID(uid) // fail if the object was created or deleted since it was read
	}
	if c.gone {
		return s.removeFault(ctx, object, c.fault)
	}
	fault, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&c.fault)
	if err != nil {
		return fmt.Errorf("encode fault: %w", err)
	}
	object.Object["spec"] = map[string]any{"faults": []any{fault}}
	return s.applyAsManagerOfFault(ctx, object, c.fault)
}

// applyAsManagerOfFault applies an object, and sets it to the stored object.
func (s *FaultStore) applyAsManagerOfFault(
	ctx context.Context, object *unstructured.Unstructured, f v1alpha1.Fault,
) error {
	return s.deps.Write.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(fieldManagerOfFault(f)), client.ForceOwnership)
}

// removeFault removes a fault by applying an object without it.
func (s *FaultStore) removeFault(
	ctx context.Context, object *unstructured.Unstructured, f v1alpha1.Fault,
) error {
	var nf v1alpha1.NodeFault
	err := s.applyAsManagerOfFault(ctx, object, f)
	switch {
	case err == nil:
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &nf)
	case apierrors.IsInvalid(err):
		// If another manager has edited the last fault, its removal leaves a null list,
		// which the schema rejects.
		err = s.deps.Live.Get(ctx, types.NamespacedName{Name: object.GetName()}, &nf)
		if apierrors.IsNotFound(err) {
			return nil
		}
	}
	if err != nil {
		return err
	}
	return s.removeFaultOwnedByOthers(ctx, &nf, f)
}

// removeFaultOwnedByOthers removes a fault that remains after its manager has released it. Another
// manager, such as a person with an editor, then also owns it.
func (s *FaultStore) removeFaultOwnedByOthers(
	ctx context.Context, nf *v1alpha1.NodeFault, f v1alpha1.Fault,
) error {
	if findFaultByKey(nf.Spec.Faults, f) == nil {
		return nil
	}
	nf.Spec.Faults = slices.DeleteFunc(nf.Spec.Faults, func(other v1alpha1.Fault) bool {
		return nodefault.KeyOf(other) == nodefault.KeyOf(f)
	})
	return s.deps.Write.Update(ctx, nf, client.FieldOwner(fieldManagerOfFault(f)))
}

// fieldManagerOfFault returns the field manager of a fault, which is unique to the fault.
func fieldManagerOfFault(f v1alpha1.Fault) string {
	const kept = 16
	sum := sha256.Sum256([]byte(nodefault.KeyOf(f)))
	return "fleetloop-fault-" + hex.EncodeToString(sum[:kept])
}

// invalidErrorOrNil wraps an error that means that a fault cannot be stored. For any other
// error it returns nil.
func invalidErrorOrNil(err error) error {
	rejected := apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	if !rejected || isWriteConflict(err) {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrInvalid, err)
}

// wrapUnavailableError wraps an error of the API server or of the connection to it.
func wrapUnavailableError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
