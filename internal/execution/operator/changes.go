package operator

import (
	"slices"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
)

// phaseChange is one of the transitions in one write.
type phaseChange struct {
	from, to    v1alpha1.Phase
	first, last bool
}

// phaseChanges returns the transitions in one write.
func phaseChanges(before, ke *v1alpha1.KubernetesExecution) (list []phaseChange) {
	from, passed := before.Status.Phase, ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):]
	for i, t := range passed {
		list = append(list, phaseChange{from: from, to: t.Phase, first: i == 0, last: i == len(passed)-1})
		from = t.Phase
	}
	return list
}

// recordPhaseChange adds the change event of a transition to the status before the write.
func (t *reconcileState) recordPhaseChange(p phaseChange) {
	s := &t.ke.Status
	succeeded := execution.ChangeSucceeded
	if t.ke.Spec.RollbackOf != nil {
		succeeded = execution.ChangeRolledBack
	}
	switch {
	case p.to == v1alpha1.PhaseRollbackReady && s.Outcome == v1alpha1.OutcomeFailed,
		p.to == v1alpha1.PhaseFailed && p.from != v1alpha1.PhaseRollbackReady:
		t.recordChange(execution.ChangeFailed, "", s.Message)
	case p.to == v1alpha1.PhaseRollbackReady, p.to == v1alpha1.PhaseCompleted && p.from == v1alpha1.PhaseExecuting:
		t.recordChange(succeeded, t.ke.Spec.RequestedBy, s.Message)
	}
}

// recordChange adds a change event to the status, written together with the change. An event about
// an execution whose action has begun is not marked as a dry run, even if the controller has since
// switched to dry-run mode.
func (t *reconcileState) recordChange(what execution.ChangeAction, by, message string) {
	s := &t.ke.Status
	t.events = append(t.events, v1alpha1.PendingChangeEvent{
		Action: string(what), At: outbox.At(t.now), By: by, Reason: string(s.ReasonDetail), Message: truncateText(message, maxMessage),
		DryRun: t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly && !hasBegun(s),
	})
}

// hasBegun reports whether an action has begun. Its results alone do not tell, because another
// client may have removed them.
func hasBegun(s *v1alpha1.KubernetesExecutionStatus) bool {
	return s.ExecutionResults != nil || slices.ContainsFunc(s.PhaseTransitions, func(t v1alpha1.PhaseTransition) bool { return t.Phase == v1alpha1.PhaseExecuting })
}
