package kubebedtest

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

// OutcomeAnnotation of a Pod is the phase that SimulatePodOutcomes sets. It is Succeeded, which
// is the default, Failed (with exit code 3), or Running (and Ready, permanently).
const OutcomeAnnotation = "kubebed.fleetloop.io/outcome"

const failedCode = 3

// SimulatePodOutcomes simulates the scheduler and kubelet for the Pods of a namespace until the
// test ends. It sets the phase of each according to its annotation. No container runs.
func SimulatePodOutcomes(tb testing.TB, bed *kubebed.Bed, namespace string) {
	tb.Helper()
	client, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		tb.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(tb.Context()))
	var following sync.WaitGroup
	following.Go(func() {
		ticker := time.NewTicker(PollEvery)
		defer ticker.Stop()
		for {
			if err := applyOutcomesToPendingPods(ctx, client, namespace); err != nil && ctx.Err() == nil {
				tb.Logf("finish pods: %v", err) // the API server may be unavailable for a while
			}
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
		}
	})
	tb.Cleanup(func() {
		cancel()
		following.Wait()
	})
}

// applyOutcomesToPendingPods sets the status of the Pods that are pending now.
func applyOutcomesToPendingPods(ctx context.Context, client kubernetes.Interface, namespace string) error {
	pods, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, p := range pods.Items {
		if p.Status.Phase != corev1.PodPending || p.DeletionTimestamp != nil {
			continue
		}
		patch, err := json.Marshal(map[string]any{"status": newOutcomeStatus(p)})
		if err != nil {
			return err
		}
		_, err = client.CoreV1().Pods(namespace).Patch(ctx, p.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		if err != nil {
			return err
		}
	}
	return nil
}

// newOutcomeStatus returns the status to set on a Pod.
func newOutcomeStatus(p corev1.Pod) corev1.PodStatus {
	now := metav1.Now()
	s := corev1.PodStatus{Phase: corev1.PodSucceeded, StartTime: &now}
	state := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{StartedAt: now, FinishedAt: now}}
	switch corev1.PodPhase(p.Annotations[OutcomeAnnotation]) { //nolint:exhaustive // any other is a success
	case corev1.PodFailed:
		s.Phase, state.Terminated.ExitCode = corev1.PodFailed, failedCode
	case corev1.PodRunning:
		s.Phase = corev1.PodRunning
		s.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		state = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: now}}
	}
	for _, c := range p.Spec.Containers {
		s.ContainerStatuses = append(
			s.ContainerStatuses,
			corev1.ContainerStatus{Name: c.Name, Image: c.Image, State: state, Ready: s.Phase == corev1.PodRunning},
		)
	}
	return s
}
