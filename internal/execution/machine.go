package execution

import (
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// Transition is an allowed change from one phase to another.
type Transition struct {
	From, To v1alpha1.Phase
	When     string // the text in docs/states/execution.md
}

// Transitions returns all transitions in the order of the phases.
func Transitions() []Transition {
	const (
		fresh      = v1alpha1.PhaseNew
		validating = v1alpha1.PhaseValidating
		validated  = v1alpha1.PhaseValidated
		waiting    = v1alpha1.PhaseWaitingApproval
		executing  = v1alpha1.PhaseExecuting
		ready      = v1alpha1.PhaseRollbackReady
		completed  = v1alpha1.PhaseCompleted
		failed     = v1alpha1.PhaseFailed
	)
	return []Transition{
		{fresh, validating, "the controller accepts the execution"},
		{validating, validated, "all checks pass"},
		{validating, failed, "a check fails, or the execution is cancelled"},
		{validated, waiting, "approval is required"},
		{validated, executing, "no approval is required, and nothing blocks the start"},
		{validated, completed, "only a dry run was requested"},
		{validated, failed, "planning fails, the queue times out, the requester is unverified, or the execution is cancelled"},
		{waiting, executing, "the plan is approved and still current, and nothing blocks the start"},
		{waiting, completed, "the plan is approved, and the controller now runs in dry-run mode"},
		{
			waiting,
			failed,
			"the plan is rejected or stale, the approval or the queue times out, the requester is unverified, or the execution is cancelled",
		},
		{executing, ready, "the action succeeds and can be rolled back, or a required postcondition fails"},
		{executing, completed, "the action succeeds and cannot be rolled back"},
		{executing, failed, "the action fails, times out, or is cancelled"},
		{ready, completed, "finalized, or the rollback window ends"},
		{ready, failed, "finalized, or the rollback window ends, after a required postcondition failed"},
	}
}

// CanTransition reports whether a phase can follow another.
func CanTransition(from, to v1alpha1.Phase) bool {
	for _, t := range Transitions() {
		if t.From == from && t.To == to {
			return true
		}
	}
	return false
}

// IsFinal reports whether a phase is final.
func IsFinal(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseCompleted || p == v1alpha1.PhaseFailed
}

// PhaseStartOrNow returns when a phase was last entered, or now.
func PhaseStartOrNow(ke *v1alpha1.KubernetesExecution, p v1alpha1.Phase, now time.Time) time.Time {
	for _, t := range slices.Backward(ke.Status.PhaseTransitions) {
		if t.Phase == p {
			return t.At.Time
		}
	}
	return now
}
