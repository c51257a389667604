// Package eviction holds the rules of evicting pods that the drain_node action and the node
// fault controller share: what kind of pod a pod is, and what the response to an eviction means.
// Each has its own loop, because they run differently: the action once, under a plan, and the
// controller until a deadline, across restarts.
//
// The package does not import k8s.io/api, which would be a tenth of action-runner.
package eviction

import (
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Values of k8s.io/api.
const (
	mirrorPodAnnotation       = "kubernetes.io/config.mirror"
	daemonSetKind             = "DaemonSet"
	podSucceeded              = "Succeeded"
	podFailed                 = "Failed"
	disruptionBudgetCause     = metav1.CauseType("DisruptionBudget")
	namespaceTerminatingCause = metav1.CauseType("NamespaceTerminating")
)

// IsMirrorPod reports whether a pod mirrors a static pod of the kubelet. Only the kubelet can end it.
func IsMirrorPod(pod metav1.Object) bool {
	_, isMirror := pod.GetAnnotations()[mirrorPodAnnotation]
	return isMirror
}

// IsFinished reports whether a pod in a phase has ended and does not run again.
func IsFinished(phase string) bool { return phase == podSucceeded || phase == podFailed }

// HasController reports whether a controller would replace a pod.
func HasController(pod metav1.Object) bool { return metav1.GetControllerOfNoCopy(pod) != nil }

// DaemonSetOf returns the name of the DaemonSet that controls a pod, or "" if none does.
func DaemonSetOf(pod metav1.Object) (name string) {
	owner := metav1.GetControllerOfNoCopy(pod)
	if owner == nil || owner.Kind != daemonSetKind {
		return ""
	}
	return owner.Name
}

// A Result is what the response to a request to remove a pod means.
type Result string

// The results. The node fault controller uses them as values of a metric label.
const (
	// Accepted means that the pod terminates.
	Accepted Result = "accepted"
	// NotFound means that the pod was gone before the request, or that another pod has its name.
	NotFound Result = "not_found"
	// BlockedByBudget means that a PodDisruptionBudget forbids the eviction for now, or that several
	// budgets cover the pod, which the eviction API does not support.
	BlockedByBudget Result = "blocked_by_pdb"
	// Rejected means that the API server rejects the request for another reason.
	Rejected Result = "rejected"
	// Failed means that there was no response, or none about the pod.
	Failed Result = "failed"
)

// Results returns all results.
func Results() []Result {
	return []Result{Accepted, NotFound, BlockedByBudget, Rejected, Failed}
}

// Classify returns the result of a request to evict or delete a pod with a precondition on
// its UID, by the error of the request.
func Classify(err error) Result {
	switch {
	case err == nil:
		return Accepted
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return NotFound
	case apierrors.HasStatusCause(err, disruptionBudgetCause), isMultipleBudgetsError(err):
		return BlockedByBudget
	case apierrors.ReasonForError(err) == metav1.StatusReasonUnknown, apierrors.IsTooManyRequests(err), isServerError(err):
		return Failed
	}
	return Rejected
}

// isMultipleBudgetsError reports whether several disruption budgets cover a pod. Only the status
// code shows this.
func isMultipleBudgetsError(err error) bool {
	s, is := errors.AsType[*apierrors.StatusError](err)
	return is && s.ErrStatus.Code == http.StatusInternalServerError && s.ErrStatus.Reason == ""
}

// isServerError reports whether an error concerns the API server rather than the pod.
func isServerError(err error) bool {
	return apierrors.IsServerTimeout(err) ||
		apierrors.IsTimeout(err) ||
		apierrors.IsServiceUnavailable(err) ||
		apierrors.IsInternalError(err) ||
		apierrors.IsUnexpectedServerError(err)
}

// IsNamespaceTerminating reports whether an eviction is rejected because the namespace of the pod is
// being deleted, and the pod with it.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, namespaceTerminatingCause)
}

// BlockReason returns the API server's reason for not removing a pod: the message about the
// disruption budget if there is one, or else the message of the error.
func BlockReason(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return err.Error()
	}
	s := status.Status()
	if s.Details != nil {
		for _, cause := range s.Details.Causes {
			if cause.Type == disruptionBudgetCause && cause.Message != "" {
				return cause.Message
			}
		}
	}
	return s.Message
}
