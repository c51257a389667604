package operator

import (
	"context"
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// writeNodeOrUndoReservation writes the Node if it has changed. It cancels the reservation if the write
// was rejected.
func (r *reconciler) writeNodeOrUndoReservation(
	ctx context.Context, s *reconcileState, step quarantine.Step,
) error {
	if step.Node == nil {
		return nil
	}
	if err := r.nodes.Write(ctx, s.node, step.Node); err != nil {
		if isCertainlyRejected(err) {
			step.Undo()
		}
		return err
	}
	s.node = step.Node
	return nil
}

// isCertainlyRejected reports whether a write was certainly rejected. Without a response, or if the
// API server itself got none, the write may have succeeded.
func isCertainlyRejected(err error) bool {
	switch apierrors.ReasonForError(err) { //nolint:exhaustive // all other reasons are rejections
	case metav1.StatusReasonUnknown,
		metav1.StatusReasonTimeout,
		metav1.StatusReasonServerTimeout,
		metav1.StatusReasonInternalError:
		return false
	default:
		return true
	}
}

// recordRejectionIfPersistent records in the NodeFault that the API server rejects a write of the
// Node, and why. The rest of the status is unchanged, because nothing was done.
func (r *reconciler) recordRejectionIfPersistent(
	ctx context.Context, s *reconcileState, step quarantine.Step, rejection error,
) error {
	if !isPersistentRejection(rejection) {
		return nil
	}
	status := &s.fault.Status
	if isQuarantined(step.Why) && status.Owned == nil {
		status.Phase = v1alpha1.PhasePending
	} else if status.Phase == "" {
		status.Phase = v1alpha1.PhaseObserved
	}
	if status.Phase != s.before.Status.Phase {
		status.PhaseChangedAt = &metav1.Time{Time: s.now.Truncate(time.Second)}
	}
	message := "the API server rejects a change to the Node, and the controller retries: " + rejection.Error()
	status.Message = nodefault.TruncateText(message, maxMessage)
	if equality.Semantic.DeepEqual(&s.before.Status, status) {
		return nil
	}
	if err := r.faults.WriteStatus(ctx, s.before, s.fault); err != nil {
		return err
	}
	r.logAndCountNewRecords(ctx, &s.before.Status, s.fault)
	return nil
}

// isPersistentRejection reports whether a rejection is permanent until a person changes a role, a
// policy or a webhook of the cluster.
func isPersistentRejection(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}
