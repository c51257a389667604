package operator

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
)

// maxNote limits the text of a Kubernetes event.
const maxNote = 1024

// eventEmitter emits Kubernetes events about executions. It does not wait for the host cluster.
type eventEmitter struct{ events events.EventRecorder }

func (t eventEmitter) emitNormal(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.emitEvent(ke, corev1.EventTypeNormal, reason, note)
}

func (t eventEmitter) emitWarning(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.emitEvent(ke, corev1.EventTypeWarning, reason, note)
}

func (t eventEmitter) emitEvent(ke *v1alpha1.KubernetesExecution, eventType, reason, note string) {
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind,
		Namespace: ke.Namespace, Name: ke.Name, UID: ke.UID,
	}
	t.events.Eventf(about, nil, eventType, reason, "Execute", "%s", truncateText(note, maxNote))
}

// emitJobCreated emits the event of a started Job, including the approvers. An approval has no
// separate event, because each event is a write.
func (t eventEmitter) emitJobCreated(ke *v1alpha1.KubernetesExecution) {
	s := &ke.Status
	if s.ExecutionResults == nil || s.ExecutionResults.Mode != v1alpha1.ExecuteInJob {
		return
	}
	t.emitNormal(ke, "JobCreated", fmt.Sprintf("checks passed%s; Job %q runs the action: %s", approvalNote(s), s.JobName, s.Plan.Impact.Description))
}

// emitSucceeded emits the event of a succeeded action, including the rollback command.
func (t eventEmitter) emitSucceeded(ke *v1alpha1.KubernetesExecution, reason string) {
	s, note := &ke.Status, ke.Status.Message
	if s.ExecutionResults != nil && s.ExecutionResults.Mode == v1alpha1.ExecuteInline {
		note += approvalNote(s) // no JobCreated event names the approvers
	}
	if s.RollbackInformation != nil && s.RollbackInformation.Available {
		note = fmt.Sprintf("%s; to roll back: fleetloop rollback %s -n %s", note, ke.Name, ke.Namespace)
	}
	t.emitNormal(ke, reason, note)
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
func (t eventEmitter) emitFailed(ke *v1alpha1.KubernetesExecution) {
	if reason := refusalEventReason(&ke.Status); reason != "" {
		t.emitWarning(ke, reason, ke.Status.Message)
	}
	t.emitWarning(ke, "ExecutionFailed", cmp.Or(string(ke.Status.ReasonDetail), string(ke.Status.Reason))+": "+ke.Status.Message)
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

// recordChange adds a change event to the status, written together with the change. An event about
// an execution whose action has begun is not marked as a dry run, even if the controller has since
// switched to dry-run mode.
func (r *reconciler) recordChange(t *reconcileState, what execution.ChangeAction, by, message string) {
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

// canonicalAction returns the name of an action in the catalogue, which may differ from the
// requested alias.
func canonicalAction(name string) string {
	if a, known := action.Find(name); known {
		return a.Name
	}
	return name
}

// recordDecision records the change event, the metric and the log line of an approval or rejection.
func (r *reconciler) recordDecision(t *reconcileState, d v1alpha1.ApprovalDecision) {
	t.addBeforeWrite(func() {
		what := execution.ChangeApproved
		if d == v1alpha1.Reject {
			what = execution.ChangeRejected
		}
		by, said := latestDecision(&t.ke.Status, d)
		r.recordChange(t, what, by, said)
	})
	t.addAfterWrite(func(ctx context.Context) {
		if t.ke.Status.Approval != nil {
			r.metrics.countDecision(t.ke, d, r.now())
		}
		by, said := latestDecision(&t.ke.Status, d)
		r.log.InfoContext(ctx, "decided", "execution", logKey(t.ke), "decision", string(d), "by", by, "why", said)
	})
}

// latestDecision returns who decided, and why.
func latestDecision(s *v1alpha1.KubernetesExecutionStatus, d v1alpha1.ApprovalDecision) (by, reason string) {
	reason = s.Message
	if s.Approval == nil {
		return by, reason
	}
	for _, received := range s.Approval.CountedDecisions {
		if received.Decision == d {
			by, reason = received.Approver, received.Reason
		}
	}
	return by, reason
}

// timeoutFor returns how long an execution of an action may take.
func timeoutFor(ke *v1alpha1.KubernetesExecution, a *action.Action) time.Duration {
	if ke.Spec.Timeout != nil {
		return ke.Spec.Timeout.Duration
	}
	return a.Timeout
}
