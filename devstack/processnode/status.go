package processnode

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// reportStatusDeleteIfEnded sends the pod's status to the API server, and removes the object of a
// deleted pod that has ended.
func (w *worker) reportStatusDeleteIfEnded(ctx context.Context) error {
	if status := (statusBuilder{w}).buildPodStatus(); !equality.Semantic.DeepEqual(status, w.sent) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.pod.UID}, "status": status})
		if err != nil {
			return err
		}
		_, err = w.node.client.CoreV1().
			Pods(w.pod.Namespace).
			Patch(ctx, w.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) { // another pod of the same name may exist
			w.forget()
			return nil
		}
		if err != nil {
			return fmt.Errorf("update status of pod %q: %w", w.podName(), err)
		}
		w.sent = status
	}
	if !w.over || w.pod.DeletionTimestamp == nil || w.removed {
		return nil
	}
	now := int64(0)
	err := w.node.client.CoreV1().Pods(w.pod.Namespace).Delete(ctx, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: &now, Preconditions: metav1.NewUIDPreconditions(string(w.pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete pod %q: %w", w.podName(), err)
	}
	w.removed = true
	return nil
}

// A statusBuilder makes the status of a pod.
type statusBuilder struct{ worker *worker }

// buildPodStatus returns the pod's status. It omits the conditions of other writers, which
// the patch keeps.
func (sb statusBuilder) buildPodStatus() corev1.PodStatus {
	s := corev1.PodStatus{
		ObservedGeneration: sb.worker.pod.Generation,
		Phase:              sb.podPhase(), Reason: sb.worker.reason, Message: sb.worker.message,
		HostIP: address, HostIPs: []corev1.HostIP{{IP: address}},
		PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		StartTime: &sb.worker.started, QOSClass: sb.worker.pod.Status.QOSClass,
	}
	for _, c := range sb.worker.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses, sb.containerStatus(c, true))
	}
	for _, c := range sb.worker.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, sb.containerStatus(c, false))
	}
	s.Conditions = sb.podConditions(s.Phase, s.ContainerStatuses)
	return s
}

// podPhase returns the phase as the kubelet computes it: a pod runs from its start
// until all its containers have ended.
func (sb statusBuilder) podPhase() corev1.PodPhase {
	if sb.worker.over && (sb.worker.sent.Phase == corev1.PodSucceeded || sb.worker.sent.Phase == corev1.PodFailed) {
		return sb.worker.sent.Phase
	}
	if sb.worker.over && sb.worker.reason != "" {
		return corev1.PodFailed
	}
	never := sb.worker.pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	for _, c := range sb.worker.inits {
		if c.ended != nil && !c.succeeded() && (never || sb.worker.over) {
			return corev1.PodFailed
		}
		if !c.succeeded() {
			return corev1.PodPending
		}
	}
	var waiting, running, failed int
	for _, c := range sb.worker.containers {
		switch {
		case c.proc != nil:
			running++
		case c.ended == nil:
			waiting++
		case !sb.worker.over && sb.worker.shouldRestart(c):
			running++ // about to restart
		case !c.succeeded():
			failed++
		}
	}
	switch {
	case waiting > 0:
		return corev1.PodPending
	case running > 0:
		return corev1.PodRunning
	case failed > 0:
		return corev1.PodFailed
	}
	return corev1.PodSucceeded
}

func (sb statusBuilder) containerStatus(c *container, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		RestartCount: c.restarts, ContainerID: containerRunner(sb).containerID(c),
	}
	s.LastTerminationState.Terminated = c.last
	started := false
	switch {
	case c.proc != nil:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.startAt}
		started = c.probes.hasPassedStartup()
		s.Ready = started && c.probes.hasPassedReadiness() && !init
	case c.ended != nil && !sb.worker.over && !init && sb.worker.shouldRestart(c), c.ended != nil && !sb.worker.over && init && !c.succeeded() && sb.worker.pod.Spec.RestartPolicy != corev1.RestartPolicyNever:
		s.State.Waiting = &c.waiting
		s.LastTerminationState.Terminated = c.ended
	case c.ended != nil:
		s.State.Terminated, s.ContainerID = c.ended, c.ended.ContainerID
		s.Ready = init && c.succeeded()
	default:
		s.State.Waiting = &c.waiting
	}
	s.Started = &started
	return s
}

// podConditions returns the conditions that a kubelet sets.
func (sb statusBuilder) podConditions(phase corev1.PodPhase, statuses []corev1.ContainerStatus) []corev1.PodCondition {
	done := phase == corev1.PodSucceeded
	initialized := done || !slices.ContainsFunc(sb.worker.inits, func(c *container) bool { return !c.succeeded() })
	var unready []string
	for i := range statuses {
		if !statuses[i].Ready {
			unready = append(unready, statuses[i].Name)
		}
	}
	reason, message := "", ""
	switch {
	case done:
		reason = reasonPodCompleted
	case phase == corev1.PodFailed:
		reason = reasonPodFailed
	case len(unready) > 0:
		reason, message = reasonNotReady, "containers with unready status: ["+strings.Join(unready, " ")+"]"
	}
	ready := reason == ""
	readyReason, readyMessage := reason, message
	if gate := sb.findUnmetReadinessGate(); ready && gate != "" {
		readyReason, readyMessage = "ReadinessGatesNotReady", fmt.Sprintf("condition %q is not true", gate)
	}
	initReason := ""
	if done {
		initReason = reasonPodCompleted
	} else if !initialized {
		initReason = reasonNotInitalized
	}
	return []corev1.PodCondition{
		sb.newCondition(corev1.PodReadyToStartContainers, sb.worker.hasStartedContainer() && !sb.worker.over, "", ""),
		sb.newCondition(corev1.PodInitialized, initialized, initReason, ""),
		sb.newCondition(corev1.PodReady, readyReason == "", readyReason, readyMessage),
		sb.newCondition(corev1.ContainersReady, ready, reason, message),
		sb.newCondition(corev1.PodScheduled, true, "", ""),
	}
}

// findUnmetReadinessGate returns a readiness gate whose condition is not true, empty if there is
// none.
func (sb statusBuilder) findUnmetReadinessGate() corev1.PodConditionType {
	for _, g := range sb.worker.pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(sb.worker.pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !open {
			return g.ConditionType
		}
	}
	return ""
}

func (sb statusBuilder) newCondition(kind corev1.PodConditionType, isTrue bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: sb.worker.pod.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}
	if isTrue {
		c.Status = corev1.ConditionTrue
	}
	for _, known := range [][]corev1.PodCondition{sb.worker.sent.Conditions, sb.worker.pod.Status.Conditions} {
		for i := range known {
			if known[i].Type == kind && known[i].Status == c.Status {
				c.LastTransitionTime = known[i].LastTransitionTime
				return c
			}
		}
	}
	return c
}
