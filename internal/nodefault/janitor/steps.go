package janitor

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	faults "github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/provider"
)

// reasonSending means that the request may have been sent to the provider.
const reasonSending = "Sending"

// Limits of texts, as in the schema.
const (
	maxMessage   = 1024
	maxReference = 512
)

// tryBeginAction starts an action if no other action on its node must run first.
func (r *reconciler) tryBeginAction(ctx context.Context, t *turn) (moved bool, again time.Duration, err error) {
	if why := t.refusalReason(r.cfg); why != "" {
		t.status.StartTime = metaTime(t.now)
		t.endAction(r.kind, v1alpha1.ReasonFailed, why)
		return true, soon, r.writeStatus(ctx, t)
	}
	before, err := r.turns.takeTurn(ctx, t.object, func() error {
		t.status.StartTime, t.status.Deadline = metaTime(t.now), metaTime(t.now.Add(r.kind.deadline))
		t.status.NodeUID, t.status.PreviousBootID = t.node.UID, t.node.Status.NodeInfo.BootID
		t.status.Provider = r.kind.provider.Name()
		t.status.Message = ""
		t.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "")
		t.setCondition(r.kind.final, metav1.ConditionUnknown, v1alpha1.ReasonWaiting, "")
		return r.writeStatus(ctx, t)
	})
	if err != nil || before == "" {
		return err == nil, 0, err
	}
	if t.status.Message != before {
		t.status.Message = before
		err = r.writeStatus(ctx, t)
	}
	return false, r.cfg.Poll, err
}

// refusalReason returns why an action is never executed, or "". The reason is permanent:
// a new request is needed once it no longer applies.
func (t *turn) refusalReason(cfg Config) string {
	switch {
	case t.node == nil:
		return fmt.Sprintf("node %q not found", t.spec.NodeName)
	case t.node.CreationTimestamp.After(t.object.GetCreationTimestamp().Time): // the request refers to the previous node of that name
		return fmt.Sprintf("node %q was created after this request: create another request if this node is meant", t.node.Name)
	}
	return cfg.exclusionReason(t.node)
}

// exclusionReason returns why a node is excluded from actions, or "".
func (c Config) exclusionReason(n *corev1.Node) string {
	if n.Labels[faults.LabelOptOut] == faults.OptedOut {
		return fmt.Sprintf("node %q has the label %s=%s, which forbids actions on it", n.Name, faults.LabelOptOut, faults.OptedOut)
	}
	excluded := c.Excluded
	if !c.ControlPlane {
		excluded = append([]string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}, excluded...)
	}
	for _, label := range excluded {
		key, want, valued := strings.Cut(label, "=")
		if value, has := n.Labels[key]; has && (!valued || value == want) {
			return fmt.Sprintf("node %q has the label %s, which excludes it from reboot and termination", n.Name, label)
		}
	}
	return ""
}

// advanceAction advances a started action. Success after the deadline still counts.
func (r *reconciler) advanceAction(ctx context.Context, t *turn) error {
	if t.status.Deadline == nil { // started by another janitor
		t.status.Deadline = metaTime(t.status.StartTime.Add(r.kind.deadline))
	}
	late := !t.now.Before(t.status.Deadline.Time)
	if meta.IsStatusConditionTrue(t.status.Conditions, v1alpha1.ConditionSignalSent) {
		err := r.followAction(ctx, t)
		if err != nil && late { // reported in the message, but no longer retried
			t.setWaiting(err.Error())
			err = nil
		}
		if err != nil || t.status.CompletionTime != nil || !late {
			return err
		}
	}
	switch {
	case late:
		return r.giveUp(ctx, t, v1alpha1.ReasonTimeout, strings.TrimSpace("the action did not finish before its deadline. "+t.status.Message))
	case t.mayHaveSent():
		return r.sendRequest(ctx, t)
	}
	return r.prepareRequest(ctx, t)
}

func (r *reconciler) followAction(ctx context.Context, t *turn) error {
	if r.kind.action == provider.ActionTerminate {
		return r.followTermination(ctx, t)
	}
	return r.followReboot(ctx, t)
}

// mayHaveSent reports whether the request may have been sent to the provider.
func (t *turn) mayHaveSent() bool {
	c := meta.FindStatusCondition(t.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Reason == reasonSending
}

// prepareRequest records that the request is about to be sent, once all preconditions
// are met.
func (r *reconciler) prepareRequest(ctx context.Context, t *turn) error {
	if t.node == nil {
		t.endAction(r.kind, v1alpha1.ReasonFailed, fmt.Sprintf("node %q was deleted before the request was sent", t.spec.NodeName))
		return nil
	}
	if why := r.cfg.exclusionReason(t.node); why != "" {
		t.endAction(r.kind, v1alpha1.ReasonFailed, why)
		return nil
	}
	if !t.awaitBootID(r.kind, r.cfg) {
		return nil
	}
	if !t.spec.Force {
		left, err := r.podsOn(ctx, t.node.Name)
		if err != nil {
			return err
		}
		if left != "" {
			t.setWaiting(left + ": drain the node, or set spec.force")
			t.requeueAfter(r.cfg.Poll)
			return nil
		}
	}
	t.status.PreviousBootID = t.node.Status.NodeInfo.BootID // the boot to end, even if the node has rebooted since the start
	t.status.Message = ""
	t.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, reasonSending, "")
	return nil
}

// awaitBootID reports whether the boot ID is known, which is needed to verify a
// reboot. A new node reports it a while later.
func (t *turn) awaitBootID(k kind, cfg Config) (known bool) {
	if k.action != provider.ActionReboot || t.node.Status.NodeInfo.BootID != "" {
		return true
	}
	left := t.status.StartTime.Add(cfg.BootIDWait).Sub(t.now)
	if left <= 0 {
		t.endAction(k, v1alpha1.ReasonFailed, fmt.Sprintf("node %q has reported no boot ID for %s, so that its reboot could not be verified", t.node.Name, cfg.BootIDWait))
		return false
	}
	t.setWaiting(fmt.Sprintf("waiting for the boot ID of node %q until %s; it is needed to verify the reboot", t.node.Name, t.now.Add(left).UTC().Format(time.TimeOnly)))
	t.requeueAfter(min(cfg.Poll, left))
	return false
}

// podsOn describes the pods that a reboot would interrupt, read from the API server. It
// returns "" if there are none.
func (r *reconciler) podsOn(ctx context.Context, node string) (description string, err error) {
	var pods corev1.PodList
	err = r.live.List(ctx, &pods, client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector("spec.nodeName", node)})
	if err != nil {
		return "", fmt.Errorf("list pods of node %q: %w", node, err)
	}
	count, one := 0, ""
	for i := range pods.Items {
		p := &pods.Items[i]
		_, mirror := p.Annotations[corev1.MirrorPodAnnotationKey]
		owner := metav1.GetControllerOf(p)
		if mirror || owner != nil && owner.Kind == "DaemonSet" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		count, one = count+1, p.Namespace+"/"+p.Name
	}
	if count == 0 {
		return "", nil
	}
	return fmt.Sprintf("number of pods left on the node: %d, for example %s", count, one), nil
}

// withCallTimeout returns a context for one call of a provider.
func (r *reconciler) withCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.cfg.CallTimeout, errNoAnswer)
}

// providerRequest returns the request to the provider.
func (t *turn) providerRequest(k kind) provider.Request {
	return provider.Request{
		Key: t.object.GetUID(), Action: k.action, Node: t.node, BootID: t.status.PreviousBootID, Force: t.spec.Force, Deadline: t.status.Deadline.Time,
		By: provider.Object{
			APIVersion: v1alpha1.GroupVersion.String(), Kind: k.name, Name: t.object.GetName(),
			Labels: t.object.GetLabels(), Annotations: t.object.GetAnnotations(),
		},
	}
}

// sendRequest sends the request to the provider. A janitor that crashed may already have
// sent it, which a reboot or the end of the node shows.
func (r *reconciler) sendRequest(ctx context.Context, t *turn) error {
	switch {
	case t.node == nil && r.kind.action == provider.ActionTerminate, t.node != nil && t.hasRebooted(r.kind):
		t.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "already done")
		return nil
	case t.node == nil:
		return r.giveUp(ctx, t, v1alpha1.ReasonFailed, fmt.Sprintf("node %q was deleted", t.spec.NodeName))
	}
	calling, cancel := r.withCallTimeout(ctx)
	defer cancel()
	reference, err := r.kind.callProvider(calling, t.providerRequest(r.kind))
	var waiting *provider.WaitingError
	var permanent *provider.PermanentError
	switch {
	case errors.As(err, &waiting):
		r.countRequest("pending")
		t.setWaiting(waiting.Message)
	case errors.As(err, &permanent):
		r.countRequest("rejected")
		return r.giveUp(ctx, t, v1alpha1.ReasonFailed, err.Error())
	case err != nil:
		r.countRequest("error")
		if cause := context.Cause(calling); cause != nil && ctx.Err() == nil {
			err = cause
		}
		r.log.WarnContext(ctx, "provider request failed", "kind", r.kind.name, "object", t.object.GetName(), "err", err)
		t.setWaiting(err.Error())
	default:
		r.countRequest("accepted")
		t.status.ProviderRequestID = nodefault.TruncateText(reference, maxReference)
		t.status.Message = ""
		t.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
	}
	t.requeueAfter(r.cfg.Poll)
	return nil
}

func (r *reconciler) countRequest(answer string) {
	r.metrics.asked.WithLabelValues(string(r.kind.action), answer).Inc()
}

// hasRebooted reports whether a node has another boot ID than before the action.
func (t *turn) hasRebooted(k kind) bool {
	id := t.node.Status.NodeInfo.BootID
	return k.action == provider.ActionReboot && id != "" && t.status.PreviousBootID != "" && id != t.status.PreviousBootID
}

// followReboot waits for a new boot ID and for the node to be Ready.
func (r *reconciler) followReboot(ctx context.Context, t *turn) error {
	switch {
	case t.node == nil:
		return r.giveUp(ctx, t, v1alpha1.ReasonFailed, fmt.Sprintf("node %q was deleted", t.spec.NodeName))
	case t.hasRebooted(r.kind) && isReady(t.node):
		t.endAction(r.kind, v1alpha1.ReasonSucceeded, "node is Ready with a new boot ID")
		return nil
	case t.hasRebooted(r.kind):
		t.setWaiting("node has rebooted and is not Ready yet")
		t.requeueAfter(r.cfg.Poll)
		return nil
	}
	p := r.checkProgress(ctx, t)
	if p.State == provider.StateFailed {
		return r.giveUp(ctx, t, v1alpha1.ReasonFailed, p.Message)
	}
	t.setWaiting(strings.TrimSpace("node has not rebooted yet. " + p.Message))
	t.requeueAfter(r.cfg.Poll)
	return nil
}

// followTermination waits until the machine is deleted, and then deletes its Node.
func (r *reconciler) followTermination(ctx context.Context, t *turn) error {
	p := r.checkProgress(ctx, t)
	switch {
	case p.State == provider.StateFailed:
		return r.giveUp(ctx, t, v1alpha1.ReasonFailed, p.Message)
	case p.State == provider.StateDone && t.node == nil:
		t.endAction(r.kind, v1alpha1.ReasonSucceeded, "machine and node are deleted")
		return nil
	case p.State == provider.StateDone:
		uid := t.node.UID
		err := r.client.Delete(ctx, t.node, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %q: %w", t.node.Name, err)
		}
		t.setWaiting("machine is deleted, Node is being deleted")
	default:
		t.setWaiting(p.Message)
	}
	t.requeueAfter(r.cfg.Poll)
	return nil
}

// checkProgress asks the provider for the progress. After an error the action counts as
// running.
func (r *reconciler) checkProgress(ctx context.Context, t *turn) provider.Progress {
	if t.status.ProviderRequestID == "" && t.node == nil { // the node disappeared before the provider answered, so no request can be checked
		return provider.Progress{State: provider.StateDone}
	}
	calling, cancel := r.withCallTimeout(ctx)
	defer cancel()
	p, err := r.kind.provider.CheckProgress(calling, t.providerRequest(r.kind), t.status.ProviderRequestID)
	if err != nil {
		r.metrics.failed.Inc()
		r.log.WarnContext(ctx, "provider status check failed", "kind", r.kind.name, "object", t.object.GetName(), "err", err)
		return provider.Progress{State: provider.StateRunning, Message: err.Error()}
	}
	return p
}

// giveUp ends an action without success, after it has cancelled the request with the
// provider. A machine that reboots unexpectedly later is worse than one that does not
// reboot.
func (r *reconciler) giveUp(ctx context.Context, t *turn, reason, message string) error {
	if w, can := r.kind.provider.(provider.Withdrawer); can {
		calling, cancel := r.withCallTimeout(ctx)
		defer cancel()
		if err := w.Withdraw(calling, t.providerRequest(r.kind)); err != nil {
			return fmt.Errorf("cancel request of %s %q: %w", r.kind.name, t.object.GetName(), err)
		}
	}
	t.endAction(r.kind, reason, message)
	return nil
}
