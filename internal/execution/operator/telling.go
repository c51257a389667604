package operator

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// maxNote bounds the text of a Kubernetes event.
const maxNote = 1024

// A teller tells of executions by Kubernetes events. It does not wait for the
// host cluster.
type teller struct{ events events.EventRecorder }

func (t teller) say(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.tell(ke, corev1.EventTypeNormal, reason, note)
}

func (t teller) warn(ke *v1alpha1.KubernetesExecution, reason, note string) {
	t.tell(ke, corev1.EventTypeWarning, reason, note)
}

func (t teller) tell(ke *v1alpha1.KubernetesExecution, kind, reason, note string) {
	about := &corev1.ObjectReference{
		APIVersion: v1alpha1.GroupVersion.String(), Kind: v1alpha1.Kind,
		Namespace: ke.Namespace, Name: ke.Name, UID: ke.UID,
	}
	t.events.Eventf(about, nil, kind, reason, "Execute", "%s", bounded(note, maxNote))
}

// change tells other systems what was done.
func (r *reconciler) change(ctx context.Context, ke *v1alpha1.KubernetesExecution, what execution.ChangeAction, by, message string) {
	s := &ke.Status
	c := execution.Change{
		Action: what, Execution: key(ke), UID: string(ke.UID), Does: ke.Spec.Action, By: by,
		Reason: string(s.ReasonDetail), Message: message, At: r.now(), DryRun: ke.Spec.DryRun == v1alpha1.DryRunOnly,
	}
	if s.Plan != nil {
		c.Target = s.Plan.Target
	}
	r.recorder.Record(ctx, c)
}

// decided tells who approved or rejected.
func (r *reconciler) decided(ctx context.Context, ke *v1alpha1.KubernetesExecution, d v1alpha1.ApprovalDecision) {
	what, by, said := execution.ChangeApproved, "", ke.Status.Message
	if d == v1alpha1.Reject {
		what = execution.ChangeRejected
	}
	if a := ke.Status.Approval; a != nil {
		for _, received := range a.Received {
			if received.Decision == d {
				by, said = received.Approver, received.Reason
			}
		}
		r.metrics.decided(ke, d, r.now())
	}
	r.log.InfoContext(ctx, "decided", "execution", key(ke), "decision", string(d), "by", by, "why", said)
	r.change(ctx, ke, what, by, said)
}

// timeoutFor is how long an execution of an action may take.
func timeoutFor(ke *v1alpha1.KubernetesExecution, a *action.Action) time.Duration {
	if ke.Spec.Timeout != nil {
		return ke.Spec.Timeout.Duration
	}
	return a.Timeout
}
