package job

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// State is the progress of a Job.
type State string

// States of a Job.
const (
	Pending   State = "Pending"   // no container has started
	Running   State = "Running"   // a container runs
	Retrying  State = "Retrying"  // an attempt has failed and another follows
	Succeeded State = "Succeeded" // see Result
	Failed    State = "Failed"    // see Failure
)

// Observation is the state derived from a Job and its Pods.
type Observation struct {
	State State

	// Result is the result of the runner. It is nil if the result is not readable and the exit code
	// is not sufficient.
	Result *action.Result
	// Unreadable is true if a runner ended without a readable result.
	Unreadable bool

	Pod     string     // the Pod that State describes; empty means none
	Retries int32      // attempts after the first
	Started *time.Time // start of the first attempt
	Ended   *time.Time // end of the last attempt, if Succeeded or Failed

	// Waiting describes for people what prevents the next attempt from starting.
	Waiting string
	// Failure is why the Job has Failed.
	Failure *execution.Failure
}

// Observe derives the state of a Job. pods are the Pods that the Job controls, including those that
// are being deleted.
func Observe(j *batchv1.Job, pods []corev1.Pod, now time.Time) Observation {
	s := newJobState(j, pods, now)
	observed := s.observeAttempts()
	observed.Retries = s.countRetries()
	observed.Started = s.firstStartTime()
	if observed.Result != nil {
		observed.Result.Attempt = max(observed.Result.Attempt, observed.Retries+1)
	}
	return observed
}

func newJobState(j *batchv1.Job, pods []corev1.Pod, now time.Time) *jobState {
	s := &jobState{job: j, now: now, dryRun: j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun}
	for i := range pods {
		s.attempts = append(s.attempts, newAttempt(j, &pods[i]))
	}
	slices.SortStableFunc(s.attempts, compareByCreation)
	return s
}

// compareByCreation orders attempts by the creation of their Pods, which has a precision of a second.
func compareByCreation(a, b *attempt) int {
	return cmp.Or(
		a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time),
		cmp.Compare(a.pod.Name, b.pod.Name),
	)
}

// jobState is a Job with its attempts at one point in time.
type jobState struct {
	job      *batchv1.Job
	attempts []*attempt // oldest first
	dryRun   bool
	now      time.Time
}

// observeAttempts derives the state from the attempts first, because the conditions of the Job follow
// later. It leaves the times and the number of the attempts to Observe.
func (s *jobState) observeAttempts() Observation {
	if succeeded := s.findLatest((*attempt).hasEndedSuccessfully); succeeded != nil {
		return s.successObservation(succeeded)
	}
	failedCondition := s.findTrueCondition(batchv1.JobFailed)
	if running := s.findLatest((*attempt).isRunning); running != nil && failedCondition == nil {
		return Observation{State: Running, Pod: running.pod.Name}
	}

	// Kubernetes announces a failure before the last Pod is gone. Without Pods, the Job has not
	// counted its failures yet.
	if failedCondition == nil && len(s.attempts) > 0 {
		failedCondition = s.findTrueCondition(batchv1.JobFailureTarget)
	}
	lastEnded := s.findLatest((*attempt).hasEnded)
	switch {
	case failedCondition != nil:
		return s.failureObservation(lastEnded, failedCondition)
	case lastEnded != nil && s.isLastAttempt(lastEnded):
		return s.failureObservation(lastEnded, nil)
	case s.findTrueCondition(batchv1.JobComplete) != nil || s.findTrueCondition(batchv1.JobSuccessCriteriaMet) != nil:
		return s.successObservation(nil)
	}

	// No attempt runs, and another one follows.
	observed := Observation{State: Pending}
	if lastEnded != nil || s.job.Status.Failed > 0 {
		observed.State = Retrying
	}
	if next := s.findLatest((*attempt).hasNotEnded); next != nil {
		observed.Pod = next.pod.Name
		observed.Waiting = next.explainNotStarted()
	}
	return observed
}

// findLatest returns the latest attempt for which matches returns true. Nil means none.
func (s *jobState) findLatest(matches func(*attempt) bool) *attempt {
	for _, a := range slices.Backward(s.attempts) {
		if matches(a) {
			return a
		}
	}
	return nil
}

// isLastAttempt reports whether no other attempt follows a failed one. The Job controller comes to
// the same decision later.
func (s *jobState) isLastAttempt(last *attempt) bool {
	switch last.failurePolicyAction(s.job) {
	case batchv1.PodFailurePolicyActionFailJob:
		return true
	case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailIndex:
		return false
	case batchv1.PodFailurePolicyActionCount:
	}
	var counted int32
	for _, a := range s.attempts {
		if a.over && a.failurePolicyAction(s.job) != batchv1.PodFailurePolicyActionIgnore {
			counted++
		}
	}
	const defaultBackoffLimit = 6 // of Kubernetes
	limit := int32(defaultBackoffLimit)
	if s.job.Spec.BackoffLimit != nil {
		limit = *s.job.Spec.BackoffLimit
	}
	return max(counted, s.job.Status.Failed) > limit
}

func (s *jobState) findTrueCondition(t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range s.job.Status.Conditions {
		if c := &s.job.Status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// countRetries counts the attempts after the first whose container started. Pods that are gone
// count as started, because it is unknown.
func (s *jobState) countRetries() int32 {
	var began, over int32
	for _, a := range s.attempts {
		if a.began {
			began++
		}
		if a.over {
			over++
		}
	}
	gone := max(0, s.job.Status.Failed+s.job.Status.Succeeded-over)
	return max(0, began+gone-1)
}

func (s *jobState) firstStartTime() *time.Time {
	var first *time.Time
	for _, a := range s.attempts {
		if t := a.startTime(); t != nil && (first == nil || t.Before(*first)) {
			first = t
		}
	}
	return first
}

// endTimeOrNow returns when an attempt ended, or else now.
func (s *jobState) endTimeOrNow(a *attempt) *time.Time {
	if a != nil && a.terminated != nil && !a.terminated.FinishedAt.IsZero() {
		return new(a.terminated.FinishedAt.Time)
	}
	return new(s.now)
}

// successObservation is the observation of a successful attempt, or of a complete Job without
// attempts.
func (s *jobState) successObservation(a *attempt) Observation {
	observed := Observation{State: Succeeded, Ended: s.endTimeOrNow(a)}
	if a != nil {
		observed.Pod = a.pod.Name
		observed.Result = a.result
		observed.Unreadable = a.unreadable
	} else {
		observed.Result = newResultFromCode(action.CodeOK, *observed.Ended)
		observed.Unreadable = true
	}
	if s.dryRun && observed.Result.DryRun == nil { // the findings are the purpose of a dry run
		observed.State = Failed
		observed.Result = nil
		observed.Failure = s.newFailure(v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown,
			"the dry run ended without a readable result")
	}
	return observed
}

// failureObservation is the observation of a failed last attempt or a failed Job. Either may be nil.
func (s *jobState) failureObservation(last *attempt, failedCondition *batchv1.JobCondition) Observation {
	observed := Observation{State: Failed, Ended: s.endTimeOrNow(last)}
	if last != nil {
		observed.Pod = last.pod.Name
		observed.Result = last.result
		observed.Unreadable = last.unreadable
	}
	observed.Failure = s.otherAttempts(last).AddTo(s.explainFailure(last, failedCondition))
	return observed
}

// explainFailure returns why no attempt succeeded.
func (s *jobState) explainFailure(last *attempt, failedCondition *batchv1.JobCondition) *execution.Failure {
	jobTimedOut := failedCondition != nil && failedCondition.Reason == batchv1.JobReasonDeadlineExceeded
	timedOut := jobTimedOut || last != nil && last.exceededDeadline()
	latestBegun := s.findLatest((*attempt).hasBegun)
	switch {
	case latestBegun == nil && len(s.attempts) > 0:
		return s.neverStartedFailure(timedOut)
	case timedOut && s.failedWithoutPod():
		message := fmt.Sprintf("no Pod could be created within %s, for example because of a quota, a LimitRange or "+
			"an admission webhook. Nothing was changed. See the events of Job %q", s.deadline(), s.job.Name)
		return s.newFailure(v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailExecutorUnavailable, message)
	case timedOut:
		return s.timeoutFailure(latestBegun)
	case last == nil || last.result == nil:
		return s.unknownResultFailure(last, failedCondition)
	}

	failure := FailureFromResult(last.result)
	if last.result.Code == action.CodeCancelled && last.disrupted != nil { // no user cancelled it
		message := fmt.Sprintf("the node evicted it (%s): %s", last.disrupted.Message, failure.Message)
		return s.newFailure(v1alpha1.ReasonExecutionFailed, failure.Detail, message)
	}
	return s.newFailure(failure.Reason, failure.Detail, failure.Message)
}

// failedWithoutPod reports whether a Job failed without ever having a Pod. Before a Job fails, it counts
// all its Pods, including deleted ones.
func (s *jobState) failedWithoutPod() bool {
	status := s.job.Status
	return s.findTrueCondition(batchv1.JobFailed) != nil && len(s.attempts) == 0 &&
		status.Active+status.Failed+status.Succeeded == 0
}

// neverStartedFailure is the failure of a Job of which no container started.
func (s *jobState) neverStartedFailure(timedOut bool) *execution.Failure {
	latest := s.attempts[len(s.attempts)-1]
	reason := v1alpha1.ReasonExecutionFailed
	why := latest.explainNotStarted()
	if timedOut {
		reason = v1alpha1.ReasonExecutionTimeout
		why = fmt.Sprintf("it did not start within %s: %s", s.deadline(), why)
	}
	message := fmt.Sprintf("Pod %q: %s", latest.pod.Name, why)
	if !s.hasLostAttempts() {
		message += ". Nothing was changed"
	}
	return s.newFailure(reason, v1alpha1.DetailExecutorUnavailable, message)
}

// timeoutFailure is the failure of a Job that exceeded its deadline. begun is nil if none of its
// Pods is left.
func (s *jobState) timeoutFailure(begun *attempt) *execution.Failure {
	message := fmt.Sprintf("the action did not finish within %s", s.deadline())
	var detail v1alpha1.Detail
	switch {
	case begun == nil:
		detail = v1alpha1.DetailResultUnknown
		message += ", and no Pod is left to show whether it had started: check the target before you retry"
	case begun.result == nil:
		detail = v1alpha1.DetailResultUnknown
		message += ", and left no result: check the target before you retry"
	default:
		if begun.result.Code == action.CodePartial || begun.result.Changed {
			detail = v1alpha1.DetailPartiallyExecuted
		}
		message += ": " + FailureFromResult(begun.result).Message
	}
	return s.newFailure(v1alpha1.ReasonExecutionTimeout, detail, message)
}

// unknownResultFailure is the failure of a last attempt that is gone or left no readable result.
func (s *jobState) unknownResultFailure(last *attempt, failedCondition *batchv1.JobCondition) *execution.Failure {
	const advice = "The result is unknown: check the target before you retry"
	message := "no Pod of the Job is left"
	switch {
	case last != nil && !last.began:
		message = fmt.Sprintf("Pod %q: %s", last.pod.Name, last.explainNotStarted())
	case last != nil:
		message = fmt.Sprintf("Pod %q ended %s", last.pod.Name, last.describeTermination())
	case failedCondition != nil:
		message = fmt.Sprintf("%s (%s: %s)", message, failedCondition.Reason, failedCondition.Message)
	}
	return s.newFailure(v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown, message+". "+advice)
}

// newFailure returns a failure with the reason for the purpose of the Job.
func (s *jobState) newFailure(reason v1alpha1.Reason, detail v1alpha1.Detail, message string) *execution.Failure {
	if s.dryRun {
		reason = v1alpha1.ReasonDryRunFailed
	}
	return &execution.Failure{Reason: reason, Detail: detail, Message: truncateMessage(message)}
}

// deadline returns the time in which the Job had to end.
func (s *jobState) deadline() time.Duration {
	if seconds := s.job.Spec.ActiveDeadlineSeconds; seconds != nil {
		return time.Duration(*seconds) * time.Second
	}
	return defaultTimeout
}

// StopPodPatch returns a merge patch for a Pod of a Job that stops its container and keeps the Pod
// with its result. When a Job is suspended or deleted, its Pods are deleted and their results may
// be lost.
func StopPodPatch() []byte { return []byte(`{"spec":{"activeDeadlineSeconds":1}}`) }

// FailureFromResult converts a result to a failure. Nil means success.
func FailureFromResult(r *action.Result) *execution.Failure {
	failure := &execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Message: truncateMessage(r.Message)}
	switch r.Code {
	case action.CodeOK:
		return nil
	case action.CodeGuard:
		failure.Detail = v1alpha1.DetailTargetChanged
		if r.Attempt > 1 { // an earlier attempt may have changed the target, and another client changed it since
			failure.Detail = v1alpha1.DetailResultUnknown
			failure.Message = truncateMessage("an earlier attempt started and its result is unknown: " + failure.Message)
		}
	case action.CodeForbidden:
		failure.Detail = v1alpha1.DetailRBACDenied
	case action.CodeInvalid:
		failure.Detail = v1alpha1.DetailInvalidParameters
	case action.CodeDenied:
		failure.Detail = v1alpha1.DetailAdmissionDenied
	case action.CodeTransient: // the message says all that is known
	case action.CodePartial:
		failure.Detail = v1alpha1.DetailPartiallyExecuted
	case action.CodeDeadline:
		failure.Reason = v1alpha1.ReasonExecutionTimeout
	case action.CodeCancelled:
		failure.Reason = v1alpha1.ReasonCancelled
	}
	if r.Changed && failure.Detail == "" {
		failure.Detail = v1alpha1.DetailPartiallyExecuted
	}
	if failure.Message == "" {
		failure.Message = fmt.Sprintf("the runner exited with code %d", r.Code)
	}
	return failure
}

// IsSuspended reports whether a Job is suspended and the Job controller has deleted the Pods that it created.
func IsSuspended(j *batchv1.Job) bool {
	isSuspended := func(c batchv1.JobCondition) bool {
		return c.Type == batchv1.JobSuspended && c.Status == corev1.ConditionTrue
	}
	return j.Spec.Suspend != nil && *j.Spec.Suspend && slices.ContainsFunc(j.Status.Conditions, isSuspended)
}

// truncateMessage limits a message to the length that a status allows.
func truncateMessage(s string) string {
	const maxRunes, mark = 1024, "…"
	runes := []rune(s)
	if len(runes) <= maxRunes {
		return s
	}
	return string(runes[:maxRunes-1]) + mark
}
