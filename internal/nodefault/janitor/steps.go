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
)

// reasonSending means that the request may have been sent to the provider.
const reasonSending = "Sending"

// Limits of texts, as in the schema.
const (
	maxMessage   = 1024
	maxReference = 512
)

// rejectBeginOrQueueAction starts an action if no other action on its node must run first.
func (r *reconciler) rejectBeginOrQueueAction(
	ctx context.Context, s *reconcileState,
) (advanced bool, after time.Duration, err error) {
	if reason := s.permanentRejectionReason(r.cfg); reason != "" {
		s.status.StartTime = toMetaTimeSeconds(s.now)
		s.endActionInStatus(r.kind, v1alpha1.ReasonFailed, reason)
		return true, requeueSoon, r.writeStatusAndReportEnd(ctx, s)
	}
	begin := func() error { return r.writeActionStartToStatus(ctx, s) }
	waitingFor, err := r.turns.beginIfFirstOnNode(ctx, s.object, begin)
	if err != nil {
		return false, 0, err
	}
	if waitingFor == "" {
		return true, 0, nil
	}
	if s.status.Message != waitingFor {
		s.status.Message = waitingFor
		err = r.writeStatusAndReportEnd(ctx, s)
	}
	return false, r.cfg.Poll, err
}

// writeActionStartToStatus records the start of an action, with the data of the node that it needs later.
func (r *reconciler) writeActionStartToStatus(ctx context.Context, s *reconcileState) error {
	s.status.StartTime = toMetaTimeSeconds(s.now)
	s.status.Deadline = toMetaTimeSeconds(s.now.Add(r.kind.deadline))
	s.status.NodeUID = s.node.UID
	s.status.PreviousBootID = s.node.Status.NodeInfo.BootID
	s.status.Provider = r.kind.provider.Name()
	s.status.Message = ""
	s.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionFalse, v1alpha1.ReasonWaiting, "")
	s.setCondition(r.kind.final, metav1.ConditionUnknown, v1alpha1.ReasonWaiting, "")
	return r.writeStatusAndReportEnd(ctx, s)
}

// permanentRejectionReason returns why an action is never executed, or "". The reason is permanent:
// a new request is needed once it no longer applies.
func (s *reconcileState) permanentRejectionReason(cfg Config) string {
	switch {
	case s.node == nil:
		return fmt.Sprintf("node %q not found", s.spec.NodeName)
	case s.node.CreationTimestamp.After(s.object.GetCreationTimestamp().Time):
		// The request refers to the previous node of that name.
		return fmt.Sprintf("node %q was created after this request: create another request if this node is meant", s.node.Name)
	}
	return cfg.exclusionReason(s.node)
}

// exclusionReason returns why a node is excluded from actions, or "".
func (c Config) exclusionReason(n *corev1.Node) string {
	if n.Labels[faults.LabelOptOut] == faults.OptedOut {
		return fmt.Sprintf("node %q has the label %s=%s, which forbids actions on it",
			n.Name, faults.LabelOptOut, faults.OptedOut)
	}
	excluded := c.Excluded
	if !c.ControlPlane {
		controlPlane := []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"}
		excluded = append(controlPlane, excluded...)
	}
	for _, label := range excluded {
		key, excludedValue, hasValue := strings.Cut(label, "=") // without a value, all values are excluded
		value, labelled := n.Labels[key]
		if labelled && (!hasValue || value == excludedValue) {
			return fmt.Sprintf("node %q has the label %s, which excludes it from reboot and termination", n.Name, label)
		}
	}
	return ""
}

// advanceStartedAction advances a started action. Success after the deadline still counts.
func (r *reconciler) advanceStartedAction(ctx context.Context, s *reconcileState) error {
	if s.status.Deadline == nil { // started by another janitor
		s.status.Deadline = toMetaTimeSeconds(s.status.StartTime.Add(r.kind.deadline))
	}
	late := !s.now.Before(s.status.Deadline.Time)
	if meta.IsStatusConditionTrue(s.status.Conditions, v1alpha1.ConditionSignalSent) {
		err := r.followSentRequest(ctx, s)
		if err != nil && late { // reported in the message, but no longer retried
			s.setStatusMessage(err.Error())
			err = nil
		}
		if err != nil || s.status.CompletionTime != nil || !late {
			return err
		}
	}
	switch {
	case late:
		message := strings.TrimSpace("the action did not finish before its deadline. " + s.status.Message)
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonTimeout, message)
	case s.mayHaveSent():
		return r.sendRequestAndApplyOutcome(ctx, s)
	}
	return r.recordSendingIfReady(ctx, s)
}

// followSentRequest checks whether the action that the provider has accepted is done.
func (r *reconciler) followSentRequest(ctx context.Context, s *reconcileState) error {
	if r.kind.action == ActionTerminate {
		return r.followTerminationAndDeleteNode(ctx, s)
	}
	return r.followReboot(ctx, s)
}

// mayHaveSent reports whether the request may have been sent to the provider.
func (s *reconcileState) mayHaveSent() bool {
	c := meta.FindStatusCondition(s.status.Conditions, v1alpha1.ConditionSignalSent)
	return c != nil && c.Reason == reasonSending
}

// recordSendingIfReady records that the request is about to be sent, once all preconditions
// are met.
func (r *reconciler) recordSendingIfReady(ctx context.Context, s *reconcileState) error {
	if s.node == nil {
		reason := fmt.Sprintf("node %q was deleted before the request was sent", s.spec.NodeName)
		s.endActionInStatus(r.kind, v1alpha1.ReasonFailed, reason)
		return nil
	}
	if reason := r.cfg.exclusionReason(s.node); reason != "" {
		s.endActionInStatus(r.kind, v1alpha1.ReasonFailed, reason)
		return nil
	}
	if !s.checkBootIDRequeueOrFail(r.kind, r.cfg) {
		return nil
	}
	if !s.spec.Force {
		left, err := r.describePodsLeft(ctx, s.node.Name)
		if err != nil {
			return err
		}
		if left != "" {
			s.setStatusMessage(left + ": drain the node, or set spec.force")
			s.requeueAfterOrAtDeadline(r.cfg.Poll)
			return nil
		}
	}
	// The boot to end, even if the node has rebooted since the start.
	s.status.PreviousBootID = s.node.Status.NodeInfo.BootID
	s.status.Message = ""
	s.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionUnknown, reasonSending, "")
	return nil
}

// checkBootIDRequeueOrFail reports whether the boot ID is known, which is needed to verify a
// reboot. A new node reports it a while later.
func (s *reconcileState) checkBootIDRequeueOrFail(k actionKind, cfg Config) (known bool) {
	if k.action != ActionReboot || s.node.Status.NodeInfo.BootID != "" {
		return true
	}
	left := s.status.StartTime.Add(cfg.BootIDWait).Sub(s.now)
	if left <= 0 {
		reason := fmt.Sprintf("node %q has reported no boot ID for %s, so that its reboot could not be verified",
			s.node.Name, cfg.BootIDWait)
		s.endActionInStatus(k, v1alpha1.ReasonFailed, reason)
		return false
	}
	waitEnd := s.now.Add(left).UTC().Format(time.TimeOnly)
	s.setStatusMessage(fmt.Sprintf("waiting for the boot ID of node %q until %s; it is needed to verify the reboot",
		s.node.Name, waitEnd))
	s.requeueAfterOrAtDeadline(min(cfg.Poll, left))
	return false
}

// describePodsLeft describes the pods that a reboot would interrupt, read from the API server. It
// returns "" if there are none.
func (r *reconciler) describePodsLeft(ctx context.Context, node string) (description string, err error) {
	onNode := fields.OneTermEqualSelector("spec.nodeName", node)
	var pods corev1.PodList
	if err := r.live.List(ctx, &pods, client.MatchingFieldsSelector{Selector: onNode}); err != nil {
		return "", fmt.Errorf("list pods of node %q: %w", node, err)
	}
	count, example := 0, ""
	for i := range pods.Items {
		pod := &pods.Items[i]
		if interruptedByReboot(pod) {
			count++
			example = pod.Namespace + "/" + pod.Name
		}
	}
	if count == 0 {
		return "", nil
	}
	return fmt.Sprintf("number of pods left on the node: %d, for example %s", count, example), nil
}

// interruptedByReboot reports whether a drain would have evicted a pod. Mirror pods and the pods of
// DaemonSets stay on a node, and finished pods lose nothing.
func interruptedByReboot(pod *corev1.Pod) bool {
	_, isMirror := pod.Annotations[corev1.MirrorPodAnnotationKey]
	owner := metav1.GetControllerOf(pod)
	ofDaemonSet := owner != nil && owner.Kind == "DaemonSet"
	finished := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	return !isMirror && !ofDaemonSet && !finished
}

// errNoAnswer is the cause of a timeout of a call.
var errNoAnswer = errors.New("the provider did not respond in time")

// withProviderCallTimeout returns a context for one call of a provider.
func (r *reconciler) withProviderCallTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, r.cfg.CallTimeout, errNoAnswer)
}

// providerRequest returns the request to the provider.
func (s *reconcileState) providerRequest(k actionKind) Request {
	return Request{
		Key:      s.object.GetUID(),
		Action:   k.action,
		Node:     s.node,
		BootID:   s.status.PreviousBootID,
		Force:    s.spec.Force,
		Deadline: s.status.Deadline.Time,
		By: RequestingObject{
			APIVersion:  v1alpha1.GroupVersion.String(),
			Kind:        k.name,
			Name:        s.object.GetName(),
			Annotations: s.object.GetAnnotations(),
		},
	}
}

// sendRequestAndApplyOutcome sends the request to the provider. A janitor that crashed may already have
// sent it, which a reboot or the end of the node shows.
func (r *reconciler) sendRequestAndApplyOutcome(ctx context.Context, s *reconcileState) error {
	alreadyTerminated := s.node == nil && r.kind.action == ActionTerminate
	alreadyRebooted := s.node != nil && s.hasRebooted(r.kind)
	switch {
	case alreadyTerminated || alreadyRebooted:
		s.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "already done")
		return nil
	case s.node == nil:
		message := fmt.Sprintf("node %q was deleted", s.spec.NodeName)
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, message)
	}
	if reason := r.cfg.exclusionReason(s.node); reason != "" {
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, reason)
	}
	callCtx, cancel := r.withProviderCallTimeout(ctx)
	defer cancel()
	reference, err := r.kind.provider.Start(callCtx, s.providerRequest(r.kind))
	var waiting *WaitingError
	var permanent *PermanentError
	switch {
	case errors.As(err, &waiting):
		r.countProviderRequest("pending")
		s.setStatusMessage(waiting.Message)
	case errors.As(err, &permanent):
		r.countProviderRequest("rejected")
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, err.Error())
	case err != nil:
		r.countProviderRequest("error")
		if cause := context.Cause(callCtx); cause != nil && ctx.Err() == nil {
			err = cause
		}
		r.log.WarnContext(ctx, "provider request failed",
			"kind", r.kind.name, "object", s.object.GetName(), "err", err)
		s.setStatusMessage(err.Error())
	default:
		r.countProviderRequest("accepted")
		s.status.ProviderRequestID = nodefault.TruncateText(reference, maxReference)
		s.status.Message = ""
		s.setCondition(v1alpha1.ConditionSignalSent, metav1.ConditionTrue, v1alpha1.ReasonSucceeded, "")
	}
	s.requeueAfterOrAtDeadline(r.cfg.Poll)
	return nil
}

func (r *reconciler) countProviderRequest(result string) {
	r.metrics.asked.WithLabelValues(string(r.kind.action), result).Inc()
}

// hasRebooted reports whether a node has another boot ID than before the action.
func (s *reconcileState) hasRebooted(k actionKind) bool {
	before, after := s.status.PreviousBootID, s.node.Status.NodeInfo.BootID
	return k.action == ActionReboot && before != "" && after != "" && after != before
}

// followReboot waits for a new boot ID and for the node to be Ready.
func (r *reconciler) followReboot(ctx context.Context, s *reconcileState) error {
	switch {
	case s.node == nil:
		message := fmt.Sprintf("node %q was deleted", s.spec.NodeName)
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, message)
	case s.hasRebooted(r.kind) && isReady(s.node):
		s.endActionInStatus(r.kind, v1alpha1.ReasonSucceeded, "node is Ready with a new boot ID")
		return nil
	case s.hasRebooted(r.kind):
		s.setStatusMessage("node has rebooted and is not Ready yet")
		s.requeueAfterOrAtDeadline(r.cfg.Poll)
		return nil
	}
	progress := r.progressOrRunningOnError(ctx, s)
	if progress.State == StateFailed {
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, progress.Message)
	}
	s.setStatusMessage(strings.TrimSpace("node has not rebooted yet. " + progress.Message))
	s.requeueAfterOrAtDeadline(r.cfg.Poll)
	return nil
}

// followTerminationAndDeleteNode waits until the machine is deleted, and then deletes its Node.
func (r *reconciler) followTerminationAndDeleteNode(ctx context.Context, s *reconcileState) error {
	progress := r.progressOrRunningOnError(ctx, s)
	switch {
	case progress.State == StateFailed:
		return r.withdrawAndEndActionInStatus(ctx, s, v1alpha1.ReasonFailed, progress.Message)
	case progress.State == StateDone && s.node == nil:
		s.endActionInStatus(r.kind, v1alpha1.ReasonSucceeded, "machine and node are deleted")
		return nil
	case progress.State == StateDone:
		uid := s.node.UID
		err := r.client.Delete(ctx, s.node, client.Preconditions{UID: &uid})
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("delete node %q: %w", s.node.Name, err)
		}
		s.setStatusMessage("machine is deleted, Node is being deleted")
	default:
		s.setStatusMessage(progress.Message)
	}
	s.requeueAfterOrAtDeadline(r.cfg.Poll)
	return nil
}

// progressOrRunningOnError asks the provider for the progress. After an error the action counts as
// running.
func (r *reconciler) progressOrRunningOnError(ctx context.Context, s *reconcileState) Progress {
	if s.status.ProviderRequestID == "" && s.node == nil {
		// The node disappeared before the provider answered, so no request can be checked.
		return Progress{State: StateDone}
	}
	callCtx, cancel := r.withProviderCallTimeout(ctx)
	defer cancel()
	progress, err := r.kind.provider.CheckProgress(callCtx, s.providerRequest(r.kind), s.status.ProviderRequestID)
	if err != nil {
		r.metrics.failed.Inc()
		r.log.WarnContext(ctx, "provider status check failed",
			"kind", r.kind.name, "object", s.object.GetName(), "err", err)
		return Progress{State: StateRunning, Message: err.Error()}
	}
	return progress
}

// withdrawAndEndActionInStatus ends an action without success, after it has cancelled the request
// with the provider, if there may be one. A machine that reboots unexpectedly later is worse than one that does not
// reboot.
func (r *reconciler) withdrawAndEndActionInStatus(
	ctx context.Context, s *reconcileState, reason, message string,
) error {
	mayHaveRequest := s.mayHaveSent() || meta.IsStatusConditionTrue(s.status.Conditions, v1alpha1.ConditionSignalSent)
	if withdrawer, ok := r.kind.provider.(Withdrawer); ok && mayHaveRequest {
		callCtx, cancel := r.withProviderCallTimeout(ctx)
		defer cancel()
		if err := withdrawer.Withdraw(callCtx, s.providerRequest(r.kind)); err != nil {
			return fmt.Errorf("cancel request of %s %q: %w", r.kind.name, s.object.GetName(), err)
		}
	}
	s.endActionInStatus(r.kind, reason, message)
	return nil
}
