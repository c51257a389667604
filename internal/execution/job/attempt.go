package job

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// attempt is one Pod of a Job.
type attempt struct {
	pod        *corev1.Pod
	status     *corev1.ContainerStatus          // nil until a node reports it
	terminated *corev1.ContainerStateTerminated // nil until the container ends
	disrupted  *corev1.PodCondition             // why the Pod was evicted; nil if it was not

	began   bool // the container was started
	over    bool // it has ended and will not restart
	stopped bool // it was stopped with StopPodPatch

	result     *action.Result // the result as far as it is known
	unreadable bool
}

func newAttempt(j *batchv1.Job, pod *corev1.Pod) *attempt {
	a := &attempt{pod: pod, over: pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			a.disrupted = c
		}
	}
	for i := range pod.Status.ContainerStatuses {
		if s := &pod.Status.ContainerStatuses[i]; s.Name == Container {
			a.status, a.terminated = s, s.State.Terminated
		}
	}
	if a.terminated != nil {
		a.over = true // the restart policy is Never
	}
	if own, usual := pod.Spec.ActiveDeadlineSeconds, j.Spec.Template.Spec.ActiveDeadlineSeconds; own != nil && usual != nil {
		a.stopped = *own < *usual
	}
	a.began = a.hasContainerStarted()
	if a.over && a.began {
		a.decodeAndStoreResult(j.Annotations[v1alpha1.AnnotationPlan])
	}
	return a
}

// hasContainerStarted reports whether the container was ever started. A Pod that is evicted before that also
// has a terminated container, but one that never had an ID.
func (a *attempt) hasContainerStarted() bool {
	s := a.status
	switch {
	case s == nil:
		return false
	case s.State.Running != nil || s.LastTerminationState.Terminated != nil:
		return true
	case a.terminated == nil:
		return false
	}
	switch a.terminated.Reason {
	case "StartError", "ContainerCannotRun", "RunContainerError": // the program failed to start
		return false
	}
	return !a.terminated.StartedAt.IsZero() || cmp.Or(a.terminated.ContainerID, s.ContainerID) != ""
}

// decodeAndStoreResult decodes the termination message of the container. If it is not readable, the exit code
// serves as the result where possible.
func (a *attempt) decodeAndStoreResult(planHash string) {
	if a.terminated == nil { // the node is gone, and the exit status with it
		return
	}
	r, err := action.DecodeResult(a.terminated.Message)
	if err == nil && (planHash == "" || r.PlanHash == "" || r.PlanHash == planHash) {
		a.result = &r
		return
	}
	a.unreadable = true
	code := action.Code(a.terminated.ExitCode)
	if code == action.CodeOK || slices.Contains(nonRetryableExitCodes(), a.terminated.ExitCode) || code.Retry() {
		a.result = newResultFromCode(code, a.terminated.FinishedAt.Time)
		a.result.Started = a.terminated.StartedAt.Time
	}
}

// newResultFromCode returns a result for an exit code alone.
func newResultFromCode(code action.Code, ended time.Time) *action.Result {
	return &action.Result{
		Version: 1, Code: code, Ended: ended,
		Message: fmt.Sprintf("the runner exited with code %d and left no result", code),
	}
}

func (a *attempt) hasSucceeded() bool { return a.result != nil && a.result.Code == action.CodeOK }

func (a *attempt) isRunning() bool { return a.began && !a.over }

// exceededDeadline reports whether the attempt exceeded its deadline.
func (a *attempt) exceededDeadline() bool {
	return !a.stopped && a.pod.Status.Reason == batchv1.JobReasonDeadlineExceeded || a.result != nil && a.result.Code == action.CodeDeadline
}

// startTime returns when the container started. Nil means unknown.
func (a *attempt) startTime() *time.Time {
	switch {
	case !a.began:
	case a.status.State.Running != nil:
		return new(a.status.State.Running.StartedAt.Time)
	case a.terminated != nil && !a.terminated.StartedAt.IsZero():
		return new(a.terminated.StartedAt.Time)
	}
	return nil
}

// failurePolicyAction returns how the Job's policy handles the failed Pod.
func (a *attempt) failurePolicyAction(j *batchv1.Job) batchv1.PodFailurePolicyAction {
	if j.Spec.PodFailurePolicy != nil {
		for _, r := range j.Spec.PodFailurePolicy.Rules {
			if a.matchesFailureRule(r) {
				return r.Action
			}
		}
	}
	return batchv1.PodFailurePolicyActionCount
}

func (a *attempt) matchesFailureRule(r batchv1.PodFailurePolicyRule) bool {
	if codes := r.OnExitCodes; codes != nil {
		if a.terminated == nil || a.terminated.ExitCode == 0 {
			return false
		}
		in := slices.Contains(codes.Values, a.terminated.ExitCode)
		return in == (codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn)
	}
	return slices.ContainsFunc(r.OnPodConditions, func(p batchv1.PodFailurePolicyOnPodConditionsPattern) bool {
		return slices.ContainsFunc(a.pod.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == p.Type && c.Status == cmp.Or(p.Status, corev1.ConditionTrue)
		})
	})
}

// explainNotStarted returns what prevents the container from starting, or prevented it until the end.
func (a *attempt) explainNotStarted() string {
	status := a.pod.Status
	for _, c := range status.Conditions {
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return joinReason(c.Reason, c.Message)
		}
	}
	switch {
	case a.status != nil && a.status.State.Waiting != nil && a.status.State.Waiting.Reason != "":
		return joinReason(a.status.State.Waiting.Reason, a.status.State.Waiting.Message)
	case status.Reason != "":
		return joinReason(status.Reason, status.Message)
	case a.disrupted != nil:
		return joinReason(a.disrupted.Reason, a.disrupted.Message)
	case a.terminated != nil:
		return joinReason(a.terminated.Reason, a.terminated.Message)
	case a.pod.DeletionTimestamp != nil:
		return "the Pod was deleted before it started"
	}
	return "the container has not started yet"
}

// describeTermination describes the end of a container that left no result.
func (a *attempt) describeTermination() string {
	if a.terminated == nil {
		return "with its node, exit status unknown"
	}
	how := fmt.Sprintf("with exit code %d", a.terminated.ExitCode)
	if r := a.terminated.Reason; r != "" && r != "Error" {
		how += " (" + r + ")"
	}
	if text := strings.TrimSpace(a.terminated.Message); text != "" {
		const most = 300
		how += fmt.Sprintf(", message %q", text[max(0, len(text)-most):])
	}
	return how
}

func joinReason(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}
