package operator

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// maxNote limits the text of a Kubernetes event.
const maxNote = 1024

// eventEmitter emits Kubernetes events about executions. It does not wait for the host cluster.
type eventEmitter struct {
	recorder events.EventRecorder
	log      *slog.Logger
}

func (e *eventEmitter) emitNormal(ke *v1alpha1.KubernetesExecution, reason, note string) {
	e.emitEvent(ke, corev1.EventTypeNormal, reason, note)
}

func (e *eventEmitter) emitWarning(ke *v1alpha1.KubernetesExecution, reason, note string) {
	e.emitEvent(ke, corev1.EventTypeWarning, reason, note)
}

func (e *eventEmitter) emitEvent(ke *v1alpha1.KubernetesExecution, eventType, reason, note string) {
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind,
		Namespace: ke.Namespace, Name: ke.Name, UID: ke.UID,
	}
	e.recorder.Eventf(about, nil, eventType, reason, "Execute", "%s", action.TruncateText(note, maxNote))
}

// emitJobCreated emits the event of a started Job, including the approvers. An approval has no
// separate event, because each event is a write.
func (e *eventEmitter) emitJobCreated(ke *v1alpha1.KubernetesExecution) {
	status := &ke.Status
	if status.ExecutionResults == nil || status.ExecutionResults.Mode != v1alpha1.ExecuteInJob {
		return
	}
	e.emitNormal(ke, "JobCreated", fmt.Sprintf("checks passed%s; Job %q runs the action: %s",
		approvalNote(status), status.JobName, status.Plan.Impact.Description))
}

// emitSucceeded emits the event of a succeeded action, including the rollback command.
func (e *eventEmitter) emitSucceeded(ke *v1alpha1.KubernetesExecution, reason string) {
	status := &ke.Status
	note := status.Message
	if status.ExecutionResults != nil && status.ExecutionResults.Mode == v1alpha1.ExecuteInline {
		note += approvalNote(status) // no JobCreated event names the approvers
	}
	if status.RollbackInformation != nil && status.RollbackInformation.Available {
		note = fmt.Sprintf("%s; to roll back: fleetloop rollback %s -n %s", note, ke.Name, ke.Namespace)
	}
	e.emitNormal(ke, reason, note)
}

// approvalNote names the approvers of an execution that required approval. It is empty if none was
// required.
func approvalNote(s *v1alpha1.KubernetesExecutionStatus) string {
	if s.Approval == nil || !s.Approval.Required {
		return ""
	}
	return ", " + approvedByText(*s.Approval)
}

// emitFailed emits the event of a failed execution. If a named refusal prevented it, an event with
// that name comes first. The note begins with the word that the status, the command line and the
// audit also use.
func (e *eventEmitter) emitFailed(ke *v1alpha1.KubernetesExecution) {
	if reason := refusalEventReason(&ke.Status); reason != "" {
		e.emitWarning(ke, reason, ke.Status.Message)
	}
	word := cmp.Or(string(ke.Status.ReasonDetail), string(ke.Status.Reason))
	e.emitWarning(ke, "ExecutionFailed", word+": "+ke.Status.Message)
}

// refusalEventReason returns the event reason of a refusal. Empty means that the failure has no reason
// with a separate event.
func refusalEventReason(s *v1alpha1.KubernetesExecutionStatus) string {
	switch {
	case s.ReasonDetail == v1alpha1.DetailPolicyDenied:
		return "PolicyDenied"
	case s.Reason == v1alpha1.ReasonApprovalRejected:
		return "ApprovalRejected"
	case s.Reason == v1alpha1.ReasonPlanStale:
		return "PlanStale"
	}
	return ""
}

// warnFailedOptionalConditions logs and emits a warning for each optional condition that failed. kind is
// Precondition or Postcondition.
func (e *eventEmitter) warnFailedOptionalConditions(
	ctx context.Context, ke *v1alpha1.KubernetesExecution, kind string, results []v1alpha1.ConditionResult,
) {
	lowerKind := strings.ToLower(kind)
	for _, result := range results {
		if result.Passed || result.Required {
			continue
		}
		e.log.WarnContext(ctx, "optional condition failed", "execution", logKey(ke),
			"kind", lowerKind, "condition", result.ConditionType, "message", result.ErrorMessage)
		e.emitWarning(ke, kind+"Warning", fmt.Sprintf("%s %q failed: %s", lowerKind, result.ConditionType, result.ErrorMessage))
	}
}

// emitPhaseChange emits the Kubernetes events of a transition.
func (e *eventEmitter) emitPhaseChange(p phaseChange, ke *v1alpha1.KubernetesExecution) {
	status := &ke.Status
	switch p.to {
	case v1alpha1.PhaseRollbackReady:
		switch {
		case status.Outcome == v1alpha1.OutcomeFailed:
			e.emitWarning(ke, "ExecutionFailed", status.Message)
		case p.last: // otherwise the event of the next phase reports it
			e.emitSucceeded(ke, "ExecutionCompleted")
		}
	case v1alpha1.PhaseCompleted:
		if p.from == v1alpha1.PhaseRollbackReady && p.first { // the result was already reported
			e.emitNormal(ke, "ExecutionCompletedPermanent", status.Message)
			return
		}
		e.emitSucceeded(ke, "ExecutionCompletedPermanent")
	case v1alpha1.PhaseFailed:
		if p.from != v1alpha1.PhaseRollbackReady { // the failed postcondition was already reported
			e.emitFailed(ke)
		}
	case v1alpha1.PhaseExecuting:
		e.emitJobCreated(ke)
	case v1alpha1.PhaseNew, v1alpha1.PhaseValidating, v1alpha1.PhaseValidated, v1alpha1.PhaseWaitingApproval:
		// Each event is a write, so these phases have none. A requested approval emits its own.
	}
}

// phaseChange is one of the transitions in one write.
type phaseChange struct {
	from, to    v1alpha1.Phase
	first, last bool // in the write
}

// listNewPhaseChanges returns the transitions in one write.
func listNewPhaseChanges(before, ke *v1alpha1.KubernetesExecution) (changes []phaseChange) {
	phase := before.Status.Phase
	transitions := ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):]
	for i, transition := range transitions {
		changes = append(changes, phaseChange{
			from:  phase,
			to:    transition.Phase,
			first: i == 0,
			last:  i == len(transitions)-1,
		})
		phase = transition.Phase
	}
	return changes
}

// addChangeEventOfPhase adds the change event of a transition to the write. Other transitions have none.
func (s *reconcileState) addChangeEventOfPhase(p phaseChange) {
	status := &s.ke.Status
	requester := s.ke.Spec.RequestedBy
	started := p.to == v1alpha1.PhaseExecuting
	// A failed postcondition leads to rollback_ready first. The later end is then no further failure.
	failed := p.to == v1alpha1.PhaseRollbackReady && status.Outcome == v1alpha1.OutcomeFailed ||
		p.to == v1alpha1.PhaseFailed && p.from != v1alpha1.PhaseRollbackReady
	succeeded := p.to == v1alpha1.PhaseRollbackReady && status.Outcome != v1alpha1.OutcomeFailed ||
		p.to == v1alpha1.PhaseCompleted && p.from == v1alpha1.PhaseExecuting
	switch {
	case started:
		s.addChangeEvent(execution.ChangeStarted, requester, status.Plan.Impact.Description)
	case failed:
		s.addChangeEvent(execution.ChangeFailed, "", status.Message)
	case succeeded && s.ke.Spec.RollbackOf != nil:
		s.addChangeEvent(execution.ChangeRolledBack, requester, status.Message)
	case succeeded:
		s.addChangeEvent(execution.ChangeSucceeded, requester, status.Message)
	}
}

// addChangeEvent adds a change event, which is written together with the status. An event about an
// execution whose action has begun is not marked as a dry run, even if the controller has since
// switched to dry-run mode.
func (s *reconcileState) addChangeEvent(what execution.ChangeAction, by, message string) {
	status := &s.ke.Status
	s.events = append(s.events, v1alpha1.PendingChangeEvent{
		Action:  string(what),
		At:      microTime(s.now),
		By:      by,
		Reason:  string(status.ReasonDetail),
		Message: action.TruncateText(message, maxMessage),
		DryRun:  s.ke.Spec.DryRunMode == v1alpha1.DryRunOnly && !hasActionBegun(status),
	})
}

// hasActionBegun reports whether an action has begun. Its results alone do not tell, because another
// client may have removed them.
func hasActionBegun(s *v1alpha1.KubernetesExecutionStatus) bool {
	if s.ExecutionResults != nil {
		return true
	}
	for _, transition := range s.PhaseTransitions {
		if transition.Phase == v1alpha1.PhaseExecuting {
			return true
		}
	}
	return false
}
