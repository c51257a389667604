package operator

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// maxMessage limits messages in the status.
const maxMessage = 2048

// cancelledFailure is the failure of an execution that was cancelled before it changed anything.
func cancelledFailure(ke *v1alpha1.KubernetesExecution) execution.Failure {
	return execution.Failure{
		Reason:  v1alpha1.ReasonCancelled,
		Message: "the execution was cancelled" + cancelledByText(ke) + " before anything was changed",
	}
}

// cancelledByText names the user who cancelled. It is empty if no user is named, as by an emergency stop.
func cancelledByText(ke *v1alpha1.KubernetesExecution) string {
	if ke.Spec.CancelledBy == "" {
		return ""
	}
	return " by " + ke.Spec.CancelledBy
}

// enterPhase sets the phase and records the transition.
func enterPhase(state *reconcileState, p v1alpha1.Phase) {
	status := &state.ke.Status
	status.Phase = p
	transition := v1alpha1.PhaseTransition{Phase: p, At: metav1.NewMicroTime(state.now)}
	status.PhaseTransitions = append(status.PhaseTransitions, transition)
}

// failExecution ends an execution as failed.
func failExecution(state *reconcileState, f execution.Failure) {
	status := &state.ke.Status
	status.Outcome = v1alpha1.OutcomeFailed
	status.Reason = f.Reason
	status.ReasonDetail = detailOrReason(f)
	status.Message = action.TruncateText(f.Message, maxMessage)
	removeCondition(status, v1alpha1.ConditionQueued)
	conditionReason := toConditionReason(status.ReasonDetail)
	if status.Phase == v1alpha1.PhaseValidating {
		setCondition(state, v1alpha1.ConditionValidated, metav1.ConditionFalse, conditionReason, status.Message)
	}
	setCondition(state, v1alpha1.ConditionSucceeded, metav1.ConditionFalse, conditionReason, status.Message)
	enterPhase(state, v1alpha1.PhaseFailed)
}

// detailOrReason returns the detail of a failure, or its reason if it has no detail.
func detailOrReason(f execution.Failure) v1alpha1.Detail {
	if f.Detail == "" {
		return v1alpha1.Detail(f.Reason)
	}
	return f.Detail
}

// toConditionReason converts a detail to the reason of a condition: target_busy becomes TargetBusy.
func toConditionReason(d v1alpha1.Detail) string {
	var b strings.Builder
	for word := range strings.SplitSeq(string(d), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	if b.Len() == 0 {
		return "Unknown"
	}
	return b.String()
}

func findCondition(s *v1alpha1.KubernetesExecutionStatus, kind string) *metav1.Condition {
	return meta.FindStatusCondition(s.Conditions, kind)
}

func setCondition(state *reconcileState, kind string, status metav1.ConditionStatus, reason, message string) {
	meta.SetStatusCondition(&state.ke.Status.Conditions, metav1.Condition{
		Type:               kind,
		Status:             status,
		Reason:             reason,
		Message:            action.TruncateText(message, maxMessage),
		ObservedGeneration: state.ke.Generation,
		LastTransitionTime: metav1.NewTime(state.now),
	})
}

func removeCondition(s *v1alpha1.KubernetesExecutionStatus, kind string) {
	meta.RemoveStatusCondition(&s.Conditions, kind)
}

// takeCondition removes a condition from a status and returns it.
func takeCondition(s *v1alpha1.KubernetesExecutionStatus, kind string) *metav1.Condition {
	c := findCondition(s, kind)
	if c == nil {
		return nil
	}
	taken := *c
	removeCondition(s, kind)
	return &taken
}

func conditionStatus(holds bool) metav1.ConditionStatus {
	if holds {
		return metav1.ConditionTrue
	}
	return metav1.ConditionFalse
}

// formatTarget formats a target as kind/namespace/name.
func formatTarget(t v1alpha1.Target) string {
	if t.Namespace == "" {
		return t.Kind + "/" + t.Name
	}
	return t.Kind + "/" + t.Namespace + "/" + t.Name
}

// ensureValidationResults returns the results of the checks in a status. It adds them if there are none.
func ensureValidationResults(s *v1alpha1.KubernetesExecutionStatus) *v1alpha1.ValidationResults {
	if s.ValidationResults == nil {
		s.ValidationResults = &v1alpha1.ValidationResults{}
	}
	return s.ValidationResults
}

// keepFirstConditionAndDryRunResults combines results of a later check with those that only the first check produces.
func keepFirstConditionAndDryRunResults(first *v1alpha1.ValidationResults, later v1alpha1.ValidationResults) *v1alpha1.ValidationResults {
	if first == nil {
		return &later
	}
	later.DryRunResults = first.DryRunResults
	later.PreConditionResults = first.PreConditionResults
	later.PostConditionResults = first.PostConditionResults
	later.ValidationTime = first.ValidationTime
	return &later
}

// storeResultsIfNewlyKilled stores results that contain a newly killed evaluation, so that the condition is not
// evaluated again.
func storeResultsIfNewlyKilled(s *v1alpha1.KubernetesExecutionStatus, pre, post []v1alpha1.ConditionResult) {
	var stored v1alpha1.ValidationResults
	if s.ValidationResults != nil {
		stored = *s.ValidationResults
	}
	preKilled := hasNewlyKilled(stored.PreConditionResults, pre)
	postKilled := hasNewlyKilled(stored.PostConditionResults, post)
	if preKilled {
		stored.PreConditionResults = pre
	}
	if postKilled {
		stored.PostConditionResults = post
	}
	if preKilled || postKilled {
		s.ValidationResults = &stored
	}
}

// hasNewlyKilled reports whether an evaluation was killed whose stored result was not.
func hasNewlyKilled(stored, current []v1alpha1.ConditionResult) bool {
	for i, result := range current {
		knownKilled := i < len(stored) && stored[i].Killed
		if result.Killed && !knownKilled {
			return true
		}
	}
	return false
}

// approvedByText names the approvers.
func approvedByText(s v1alpha1.ApprovalStatus) string {
	var names []string
	for _, a := range s.CountedDecisions {
		names = append(names, a.Approver)
	}
	if len(names) == 0 {
		return "approved"
	}
	return "approved by " + strings.Join(names, ", ")
}

// canonicalAction returns the name of an action in the catalogue, which may differ from the
// requested alias.
func canonicalAction(name string) string {
	if a, known := action.Find(name); known {
		return a.Name
	}
	return name
}

func planSubject(ke *v1alpha1.KubernetesExecution) action.Subject {
	return action.Subject{UID: ke.UID, Created: ke.CreationTimestamp.Time}
}

func rawBytes(r *runtime.RawExtension) []byte {
	if r == nil {
		return nil
	}
	return r.Raw
}
