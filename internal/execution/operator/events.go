package operator

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
)

// maxNote bounds the text of a Kubernetes event.
const maxNote = 1024

// A eventEmitter tells of executions by Kubernetes events. It does not wait for the
// host cluster.
type eventEmitter struct{ events events.EventRecorder }

func (t eventEmitter) emitNormal(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.emitEvent(ke, corev1.EventTypeNormal, reason, note)
}

func (t eventEmitter) emitWarning(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.emitEvent(ke, corev1.EventTypeWarning, reason, note)
}

func (t eventEmitter) emitEvent(ke *v1alpha1.KubernetesExecution, kind, reason, note string) {
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind,
		Namespace: ke.Namespace, Name: ke.Name, UID: ke.UID,
	}
	t.events.Eventf(about, nil, kind, reason, "Execute", "%s", truncateText(note, maxNote))
}

// emitJobCreated tells of the Job that does the action, once it is written down, and of
// who let it: an approval has no event of its own, since each is a write.
func (t eventEmitter) emitJobCreated(ke *v1alpha1.KubernetesExecution) {
	s := &ke.Status
	if s.ExecutionResults == nil || s.ExecutionResults.Mode != v1alpha1.ExecuteInJob {
		return
	}
	t.emitNormal(ke, "JobCreated", fmt.Sprintf("checks passed%s; Job %q runs the action: %s", approvalNote(s), s.JobName, s.Plan.Impact.Description))
}

// emitSucceeded tells that an action is done, and how it is taken back.
func (t eventEmitter) emitSucceeded(ke *v1alpha1.KubernetesExecution, reason string) {
	s, note := &ke.Status, ke.Status.Message
	if s.ExecutionResults != nil && s.ExecutionResults.Mode == v1alpha1.ExecuteInline {
		note += approvalNote(s) // of which no Job has told
	}
	if s.RollbackInformation != nil && s.RollbackInformation.Available {
		note = fmt.Sprintf("%s; to roll back: fleetloop rollback %s -n %s", note, ke.Name, ke.Namespace)
	}
	t.emitNormal(ke, reason, note)
}

// approvalNote says who approved what had to be, of an execution that acts or has
// acted.
func approvalNote(s *v1alpha1.KubernetesExecutionStatus) string {
	if s.Approval == nil || !s.Approval.Required {
		return ""
	}
	return ", " + approvedBy(*s.Approval)
}

// emitFailed tells that an execution failed, and first of what it was that kept it
// from happening, where people look for that by its name. The note begins with
// the word that the status, the command line and the audit have as well.
func (t eventEmitter) emitFailed(ke *v1alpha1.KubernetesExecution) {
	if reason := refusalReason(&ke.Status); reason != "" {
		t.emitWarning(ke, reason, ke.Status.Message)
	}
	t.emitWarning(ke, "ExecutionFailed", cmp.Or(string(ke.Status.ReasonDetail), string(ke.Status.Reason))+": "+ke.Status.Message)
}

// refusalReason is the name of what kept an execution from happening; empty is none
// of those that have one.
func refusalReason(s *v1alpha1.KubernetesExecutionStatus) string {
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

// recordChange records a change event in the status, which is written with what it is about.
// What is told of an execution that acts, or has acted, was no dry run, whatever the
// controller was told since.
func (r *reconciler) recordChange(t *reconcileState, what execution.ChangeAction, by, message string) {
	s := &t.ke.Status
	t.events = append(t.events, v1alpha1.PendingChangeEvent{
		Action: string(what), At: outbox.At(t.now), By: by, Reason: string(s.ReasonDetail), Message: truncateText(message, maxMessage),
		DryRun: t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly && s.ExecutionResults == nil,
	})
}

// canonicalAction is the name that the catalogue has for an action, which may have been
// asked for by another.
func canonicalAction(name string) string {
	if a, known := action.Find(name); known {
		return a.Name
	}
	return name
}

// recordDecision tells who approved or rejected.
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

// latestDecision is who decided, and why.
func latestDecision(s *v1alpha1.KubernetesExecutionStatus, d v1alpha1.ApprovalDecision) (by, said string) {
	said = s.Message
	if s.Approval == nil {
		return by, said
	}
	for _, received := range s.Approval.CountedDecisions {
		if received.Decision == d {
			by, said = received.Approver, received.Reason
		}
	}
	return by, said
}

// timeoutFor is how long an execution of an action may take.
func timeoutFor(ke *v1alpha1.KubernetesExecution, a *action.Action) time.Duration {
	if ke.Spec.Timeout != nil {
		return ke.Spec.Timeout.Duration
	}
	return a.Timeout
}
