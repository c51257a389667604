package intake

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
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
	var acceptedErrs []error
	if len(accepted) > 0 {
		acceptedErrs = s.applyReportsWithRetry(ctx, node, accepted)
	}
	errs := make([]error, len(reports))
	next := 0 // of acceptedErrs
	for i, r := range reports {
		if nodeErr != nil && isFault(r) {
			errs[i] = nodeErr
			continue
		}
		errs[i] = acceptedErrs[next]
		next++
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
	return wrapWithErrUnavailable(ctx, err)
}

// applyReportsWithRetry writes the changes of reports to a NodeFault, and reads it again after a
// conflict. It returns the error of each report. A batch with many changes may conflict often with the controller, which
// writes the status after each change, so only attempts without progress count.
func (s *FaultStore) applyReportsWithRetry(
	ctx context.Context, node string, reports []nodefault.Report,
) (errs []error) {
	for attempt := 0; ; attempt++ {
		errs, written, err := s.applyReportsOnce(ctx, node, reports)
		if err == nil {
			return errs
		}
		if written > 0 {
			attempt = 0
		}
		mayRetry := isWriteConflict(err) && attempt < maxWriteRetries
		if !mayRetry || backoff.Sleep(ctx, writeRetryBackoff().Delay(attempt)) != nil {
			return slices.Repeat([]error{wrapWithErrUnavailable(ctx, err)}, len(reports))
		}
	}
}

// applyReportsOnce writes the changes of reports to the current NodeFault, one fault after the other. It returns the
// error of each report, the number of changes that were written, and an error that concerns all reports.
func (s *FaultStore) applyReportsOnce(
	ctx context.Context, node string, reports []nodefault.Report,
) (errs []error, written int, err error) {
	var nf v1alpha1.NodeFault
	err = s.deps.Live.Get(ctx, types.NamespacedName{Name: node}, &nf)
	if client.IgnoreNotFound(err) != nil {
		return nil, 0, err
	}
	nf.Name = node
	from := nodeState{faults: nf.Spec.Faults, ended: nf.Spec.EndedFaults}
	to, errs := applyReports(from, reports, time.Now())
	var removed []v1alpha1.Fault
	to.faults, removed = removeFaultsOverMaximum(from.faults, to.faults)
	var failed []writeFailure
	for _, f := range removed {
		failed = append(failed, writeFailure{f, ErrFull})
	}
	for _, c := range diffStates(from, to) {
		err := s.writeChange(ctx, &nf, c)
		if invalid := invalidErrorOrNil(err); invalid != nil {
			failed = append(failed, writeFailure{c.id, invalid})
			continue
		}
		if err != nil {
			return nil, written, err
		}
		written++
	}
	for i, r := range reports {
		errs[i] = errors.Join(errs[i], joinErrorsOfReport(r, failed))
	}
	return errs, written, nil
}

// writeChange writes or removes one fault of an object, unless the object has changed since it was read. It sets nf to the
// stored object, so that the next change can follow.
func (s *FaultStore) writeChange(ctx context.Context, nf *v1alpha1.NodeFault, c faultChange) error {
	err := s.applyChange(ctx, nf, c)
	if err != nil && strings.Contains(err.Error(), "field not declared in schema") {
		s.warnOldCRD.Do(func() {
			s.deps.Log.WarnContext(
				ctx,
				"the CRD nodefaults.fleetloop.io is older than this release: apply deploy/crds; until then, reports are ordered by their arrival",
				"err",
				err,
			)
		})
		c = c.withoutTimes()
		err = s.applyChange(ctx, nf, c)
	}
	if c.fault != nil {
		return err
	}
	return s.removeFaultIfStillPresent(ctx, nf, c, err)
}

// applyChange applies the fault and its end as their field manager, and sets nf to the stored object.
func (s *FaultStore) applyChange(ctx context.Context, nf *v1alpha1.NodeFault, c faultChange) error {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	object.SetName(nf.Name)
	// Fail if the object was changed, deleted or created again since it was read. Another replica may have stored a newer
	// report about the same fault.
	object.SetUID(nf.UID)
	object.SetResourceVersion(nf.ResourceVersion)
	spec := v1alpha1.NodeFaultSpec{}
	if c.fault != nil {
		spec.Faults = []v1alpha1.Fault{*c.fault}
	}
	if c.end != nil {
		spec.EndedFaults = []v1alpha1.EndedFault{*c.end}
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&spec)
	if err != nil {
		return fmt.Errorf("encode fault: %w", err)
	}
	if len(content) > 0 {
		object.Object["spec"] = content
	}
	if err := s.applyAsManagerOfFault(ctx, object, c.id); err != nil {
		return err
	}
	*nf = v1alpha1.NodeFault{}
	return runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, nf)
}

// applyAsManagerOfFault applies an object, and sets it to the stored object.
func (s *FaultStore) applyAsManagerOfFault(
	ctx context.Context, object *unstructured.Unstructured, f v1alpha1.Fault,
) error {
	return s.deps.Write.Apply(ctx, client.ApplyConfigurationFromUnstructured(object),
		client.FieldOwner(fieldManagerOfFault(f)), client.ForceOwnership)
}

// removeFaultIfStillPresent removes what is left of a fault after an apply without it, and returns the error of both.
func (s *FaultStore) removeFaultIfStillPresent(
	ctx context.Context, nf *v1alpha1.NodeFault, c faultChange, applyErr error,
) error {
	// If another manager has edited the last fault, its removal leaves a null list, which the
	// schema rejects. The object is then still as it was read.
	if applyErr != nil && !apierrors.IsInvalid(applyErr) {
		return applyErr
	}
	return s.removeFaultOwnedByOthers(ctx, nf, c)
}

// removeFaultOwnedByOthers removes a fault that remains after its manager has released it, and replaces an end that
// remains. Another manager, such as a person with an editor, then also owns them.
func (s *FaultStore) removeFaultOwnedByOthers(ctx context.Context, nf *v1alpha1.NodeFault, c faultChange) error {
	isEnded := equality.Semantic.DeepEqual(findEndByKey(nf.Spec.EndedFaults, c.id), c.end)
	if findFaultByKey(nf.Spec.Faults, c.id) == nil && isEnded {
		return nil
	}
	nf.Spec.Faults = slices.DeleteFunc(slices.Clone(nf.Spec.Faults), func(other v1alpha1.Fault) bool {
		return nodefault.KeyOf(other) == nodefault.KeyOf(c.id)
	})
	nf.Spec.EndedFaults = slices.DeleteFunc(slices.Clone(nf.Spec.EndedFaults), func(e v1alpha1.EndedFault) bool {
		return isEndOf(e, c.id)
	})
	if c.end != nil {
		nf.Spec.EndedFaults = append(nf.Spec.EndedFaults, *c.end)
	}
	return s.deps.Write.Update(ctx, nf, client.FieldOwner(fieldManagerOfFault(c.id)))
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

// wrapWithErrUnavailable wraps an error of the API server or of the connection to it.
func wrapWithErrUnavailable(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}
