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

// reportStatusThenDelete sends the pod's status to the API server, and removes the object of a
// deleted pod that has ended.
func (w *worker) reportStatusThenDelete(ctx context.Context) error {
	if status := w.podStatus(); !equality.Semantic.DeepEqual(status, w.sent) {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": w.pod.UID}, "status": status})
		if err != nil {
			return err
		}
		_, err = w.node.client.CoreV1().Pods(w.pod.Namespace).Patch(ctx, w.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
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

// podStatus returns the pod's status. It omits the conditions of other writers, which
// the patch keeps.
func (w *worker) podStatus() corev1.PodStatus {
	s := corev1.PodStatus{
		ObservedGeneration: w.pod.Generation,
		Phase:              w.podPhase(), Reason: w.reason, Message: w.message,
		HostIP: address, HostIPs: []corev1.HostIP{{IP: address}},
		PodIP: address, PodIPs: []corev1.PodIP{{IP: address}},
		StartTime: &w.started, QOSClass: w.pod.Status.QOSClass,
	}
	for _, c := range w.inits {
		s.InitContainerStatuses = append(s.InitContainerStatuses, w.containerStatus(c, true))
	}
	for _, c := range w.containers {
		s.ContainerStatuses = append(s.ContainerStatuses, w.containerStatus(c, false))
	}
	s.Conditions = w.podConditions(s.Phase, s.ContainerStatuses)
	return s
}

// podPhase returns the phase as the kubelet computes it: a pod runs from its start
// until all its containers have ended.
func (w *worker) podPhase() corev1.PodPhase {
	if w.over && (w.sent.Phase == corev1.PodSucceeded || w.sent.Phase == corev1.PodFailed) {
		return w.sent.Phase
	}
	if w.over && w.reason != "" {
		return corev1.PodFailed
	}
	never := w.pod.Spec.RestartPolicy == corev1.RestartPolicyNever
	for _, c := range w.inits {
		if c.ended != nil && !c.succeeded() && (never || w.over) {
			return corev1.PodFailed
		}
		if !c.succeeded() {
			return corev1.PodPending
		}
	}
	var waiting, running, failed int
	for _, c := range w.containers {
		switch {
		case c.proc != nil:
			running++
		case c.ended == nil:
			waiting++
		case !w.over && w.shouldRestart(c):
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

func (w *worker) containerStatus(c *container, init bool) corev1.ContainerStatus {
	s := corev1.ContainerStatus{
		Name: c.spec.Name, Image: c.spec.Image, ImageID: c.spec.Image,
		RestartCount: c.restarts, ContainerID: w.containerID(c),
	}
	s.LastTerminationState.Terminated = c.last
	started := false
	switch {
	case c.proc != nil:
		s.State.Running = &corev1.ContainerStateRunning{StartedAt: c.startAt}
		started = c.probes.passedStartup()
		s.Ready = started && c.probes.passedReadiness() && !init
	case c.ended != nil && !w.over && !init && w.shouldRestart(c), c.ended != nil && !w.over && init && !c.succeeded() && w.pod.Spec.RestartPolicy != corev1.RestartPolicyNever:
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
func (w *worker) podConditions(phase corev1.PodPhase, statuses []corev1.ContainerStatus) []corev1.PodCondition {
	done := phase == corev1.PodSucceeded
	initialized := done || !slices.ContainsFunc(w.inits, func(c *container) bool { return !c.succeeded() })
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
	if gate := w.closedGate(); ready && gate != "" {
		readyReason, readyMessage = "ReadinessGatesNotReady", fmt.Sprintf("condition %q is not true", gate)
	}
	initReason := ""
	if done {
		initReason = reasonPodCompleted
	} else if !initialized {
		initReason = reasonNotInitalized
	}
	return []corev1.PodCondition{
		w.newCondition(corev1.PodReadyToStartContainers, w.hasBegun() && !w.over, "", ""),
		w.newCondition(corev1.PodInitialized, initialized, initReason, ""),
		w.newCondition(corev1.PodReady, readyReason == "", readyReason, readyMessage),
		w.newCondition(corev1.ContainersReady, ready, reason, message),
		w.newCondition(corev1.PodScheduled, true, "", ""),
	}
}

// closedGate returns a readiness gate whose condition is not true, empty if there is
// none.
func (w *worker) closedGate() corev1.PodConditionType {
	for _, g := range w.pod.Spec.ReadinessGates {
		open := slices.ContainsFunc(w.pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == g.ConditionType && c.Status == corev1.ConditionTrue
		})
		if !open {
			return g.ConditionType
		}
	}
	return ""
}

func (w *worker) newCondition(kind corev1.PodConditionType, is bool, reason, message string) corev1.PodCondition {
	c := corev1.PodCondition{
		Type: kind, Status: corev1.ConditionFalse, Reason: reason, Message: message,
		ObservedGeneration: w.pod.Generation, LastTransitionTime: metav1.Now().Rfc3339Copy(),
	}
	if is {
		c.Status = corev1.ConditionTrue
	}
	for _, known := range [][]corev1.PodCondition{w.sent.Conditions, w.pod.Status.Conditions} {
		for i := range known {
			if known[i].Type == kind && known[i].Status == c.Status {
				c.LastTransitionTime = known[i].LastTransitionTime
				return c
			}
		}
	}
	return c
}
