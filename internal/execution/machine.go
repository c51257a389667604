package execution

import "github.com/fleetloop/fleetloop/api/execution/v1alpha1"

// A Transition is one way from a phase to another.
type Transition struct {
	From, To v1alpha1.Phase
	When     string // in the words of docs/states/execution.md
}

// Transitions are all ways there are, in the order of the phases.
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
		{fresh, validating, "it is seen"},
		{validating, validated, "the checks passed"},
		{validating, failed, "a check failed, or it was cancelled"},
		{validated, waiting, "an approval is needed"},
		{validated, executing, "no approval is needed, and it is its turn"},
		{validated, completed, "a dry run was all that was asked for"},
		{validated, failed, "the plan can no longer be made, its turn did not come, who asked was not checked, or it was cancelled"},
		{waiting, executing, "it was approved, the plan still holds, and it is its turn"},
		{waiting, completed, "it was approved, and a dry run is all that is wanted by now"},
		{waiting, failed, "it was rejected, nobody approved in time, the plan is stale, its turn did not come, who asked was not checked, or it was cancelled"},
		{executing, ready, "the action succeeded and there is a way back, or a required postcondition does not hold"},
		{executing, completed, "the action succeeded and there is no way back"},
		{executing, failed, "the action failed, took too long, or was cancelled"},
		{ready, completed, "it was finalized, or the time for it is over"},
		{ready, failed, "it was finalized, or the time for it is over, after a required postcondition did not hold"},
	}
}

// CanPass says whether a phase can follow another.
func CanPass(from, to v1alpha1.Phase) bool {
	for _, t := range Transitions() {
		if t.From == from && t.To == to {
			return true
		}
	}
	return false
}

// Ended says whether a phase is never left.
func Ended(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseCompleted || p == v1alpha1.PhaseFailed
}
