package job

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
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
	a := &attempt{pod: pod}
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.DisruptionTarget && condition.Status == corev1.ConditionTrue {
			a.disrupted = condition
		}
	}
	for i := range pod.Status.ContainerStatuses {
		status := &pod.Status.ContainerStatuses[i]
		if status.Name == Container {
			a.status = status
			a.terminated = status.State.Terminated
		}
	}
	// The phase of the Pod follows the container, which never restarts.
	podEnded := pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed
	a.over = podEnded || a.terminated != nil

	// StopPodPatch gives the Pod a shorter deadline than the Job did.
	deadline := pod.Spec.ActiveDeadlineSeconds
	original := j.Spec.Template.Spec.ActiveDeadlineSeconds
	a.stopped = deadline != nil && original != nil && *deadline < *original

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

// decodeAndStoreResult decodes the termination message of the container. If it is not readable, the exit
// code serves as the result where possible.
func (a *attempt) decodeAndStoreResult(planHash string) {
	if a.terminated == nil { // the node is gone, and the exit status with it
		return
	}
	result, err := action.DecodeResult(a.terminated.Message)
	ofOtherPlan := planHash != "" && result.PlanHash != "" && result.PlanHash != planHash
	if err == nil && !ofOtherPlan {
		a.result = &result
		return
	}
	a.unreadable = true
	code := action.Code(a.terminated.ExitCode)
	isRunnerCode := code == action.CodeOK || code.Retry() || slices.Contains(nonRetryableExitCodes(), a.terminated.ExitCode)
	if isRunnerCode { // others come from the container runtime
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

func (a *attempt) hasBegun() bool { return a.began }

func (a *attempt) isRunning() bool { return a.began && !a.over }

func (a *attempt) hasEnded() bool { return a.over }

func (a *attempt) hasNotEnded() bool { return !a.over }

func (a *attempt) hasEndedSuccessfully() bool {
	return a.over && a.result != nil && a.result.Code == action.CodeOK
}

// exceededDeadline reports whether the attempt exceeded its deadline. A stop also ends a Pod by a
// deadline, but not by that of the action.
func (a *attempt) exceededDeadline() bool {
	if a.result != nil && a.result.Code == action.CodeDeadline {
		return true
	}
	return !a.stopped && a.pod.Status.Reason == batchv1.JobReasonDeadlineExceeded
}

// startTime returns when the container started. Nil means unknown.
func (a *attempt) startTime() *time.Time {
	switch {
	case !a.began:
		return nil
	case a.status.State.Running != nil:
		return new(a.status.State.Running.StartedAt.Time)
	case a.terminated != nil && !a.terminated.StartedAt.IsZero():
		return new(a.terminated.StartedAt.Time)
	}
	return nil
}

// failurePolicyAction returns how the Job's policy handles the failed Pod.
func (a *attempt) failurePolicyAction(j *batchv1.Job) batchv1.PodFailurePolicyAction {
	if j.Spec.PodFailurePolicy == nil {
		return batchv1.PodFailurePolicyActionCount
	}
	for _, rule := range j.Spec.PodFailurePolicy.Rules { // the first match decides
		if a.matchesFailureRule(rule) {
			return rule.Action
		}
	}
	return batchv1.PodFailurePolicyActionCount
}

// matchesFailureRule reports whether a rule applies to the failed Pod, as the Job controller decides it.
func (a *attempt) matchesFailureRule(r batchv1.PodFailurePolicyRule) bool {
	if codes := r.OnExitCodes; codes != nil {
		if a.terminated == nil || a.terminated.ExitCode == 0 {
			return false
		}
		listed := slices.Contains(codes.Values, a.terminated.ExitCode)
		if codes.Operator == batchv1.PodFailurePolicyOnExitCodesOpIn {
			return listed
		}
		return !listed
	}
	for _, pattern := range r.OnPodConditions {
		if a.hasPodCondition(pattern.Type, cmp.Or(pattern.Status, corev1.ConditionTrue)) {
			return true
		}
	}
	return false
}

func (a *attempt) hasPodCondition(conditionType corev1.PodConditionType, status corev1.ConditionStatus) bool {
	for _, condition := range a.pod.Status.Conditions {
		if condition.Type == conditionType && condition.Status == status {
			return true
		}
	}
	return false
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
		const maxBytes = 300 // of the end, where a crash shows its cause
		how += fmt.Sprintf(", message %q", text[max(0, len(text)-maxBytes):])
	}
	return how
}

func joinReason(reason, message string) string {
	if message == "" {
		return reason
	}
	return reason + ": " + message
}

// OtherAttempts is what the attempts did besides the one that ended a run. The zero value means that they changed nothing.
type OtherAttempts struct {
	Changed    bool // one changed the target, or may have
	ResultLost bool // one started and left no result
}

// AddTo returns the failure of a run with what the target may have kept of these attempts.
func (o OtherAttempts) AddTo(failure *execution.Failure) *execution.Failure {
	whole := *failure
	switch {
	case whole.Detail == v1alpha1.DetailResultUnknown || whole.Detail == v1alpha1.DetailPartiallyExecuted:
	case o.ResultLost:
		whole.Detail = v1alpha1.DetailResultUnknown
		whole.Message = truncateMessage("another attempt started and its result is unknown: " + whole.Message)
	case o.Changed:
		whole.Detail = v1alpha1.DetailPartiallyExecuted
		whole.Message = truncateMessage("another attempt changed or may have changed the target: " + whole.Message)
	}
	return &whole
}

// otherAttempts returns what all attempts but the last one did.
func (s *jobState) otherAttempts(last *attempt) (others OtherAttempts) {
	if s.dryRun {
		return OtherAttempts{}
	}
	others.ResultLost = s.hasLostAttempts()
	for _, a := range s.attempts {
		switch {
		case a == last || !a.began:
		case a.result == nil:
			others.ResultLost = true
		default:
			others.Changed = others.Changed || a.result.Changed
		}
	}
	return others
}

// hasLostAttempts reports whether Pods of earlier attempts are gone, and their results with them. A Job counts its Pods
// while they exist or later, and not those whose failure it ignores; each Pod has the number of all earlier ones.
func (s *jobState) hasLostAttempts() bool {
	present := len(s.attempts)
	if int(s.job.Status.Failed) > present {
		return true
	}
	if present == 0 {
		return false
	}
	annotations := s.attempts[present-1].pod.Annotations
	earlier := 0
	for _, name := range []string{batchv1.JobIndexFailureCountAnnotation, batchv1.JobIndexIgnoredFailureCountAnnotation} {
		count, _ := strconv.Atoi(annotations[name]) // the Job controller writes numbers
		earlier += count
	}
	return earlier > present-1
}

// MayHaveStarted reports whether the action of a Job was started, or may have been by a Pod that is gone.
func MayHaveStarted(j *batchv1.Job, pods []corev1.Pod) bool {
	s := newJobState(j, pods, time.Time{})
	return s.hasLostAttempts() || s.findLatest((*attempt).hasBegun) != nil
}
