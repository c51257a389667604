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
	l := jobState{job: j, now: now, dry: j.Labels[v1alpha1.LabelPurpose] == v1alpha1.PurposeDryRun}
	for i := range pods {
		l.attempts = append(l.attempts, newAttempt(j, &pods[i]))
	}
	slices.SortStableFunc(l.attempts, func(a, b *attempt) int {
		return cmp.Or(a.pod.CreationTimestamp.Compare(b.pod.CreationTimestamp.Time), cmp.Compare(a.pod.Name, b.pod.Name))
	})
	o := l.observeAttempts()
	o.Retries, o.Started = l.countRetries(), l.firstStartTime()
	if o.Result != nil {
		o.Result.Attempt = max(o.Result.Attempt, o.Retries+1)
	}
	return o
}

// jobState is a Job with its attempts at one point in time.
type jobState struct {
	job      *batchv1.Job
	attempts []*attempt // oldest first
	dry      bool
	now      time.Time
}

func (l *jobState) observeAttempts() Observation {
	if a := l.findLatest(func(a *attempt) bool { return a.over && a.hasSucceeded() }); a != nil {
		return l.successObservation(a)
	}
	broken := l.findTrueCondition(batchv1.JobFailed)
	if a := l.findLatest((*attempt).isRunning); a != nil && broken == nil {
		return Observation{State: Running, Pod: a.pod.Name}
	}
	last := l.findLatest(func(a *attempt) bool { return a.over })
	if broken == nil && len(l.attempts) > 0 { // without Pods, the Job has not counted its failures yet
		broken = l.findTrueCondition(batchv1.JobFailureTarget)
	}
	switch {
	case broken != nil:
		return l.failureObservation(last, broken)
	case last != nil && l.isLastAttempt(last):
		return l.failureObservation(last, nil)
	case l.findTrueCondition(batchv1.JobComplete) != nil || l.findTrueCondition(batchv1.JobSuccessCriteriaMet) != nil:
		return l.successObservation(nil)
	}
	o := Observation{State: Pending}
	if last != nil || l.job.Status.Failed > 0 {
		o.State = Retrying
	}
	if a := l.findLatest(func(a *attempt) bool { return !a.over }); a != nil {
		o.Pod, o.Waiting = a.pod.Name, a.explainNotStarted()
	}
	return o
}

// findLatest returns the latest attempt for which matches returns true. Nil means none.
func (l *jobState) findLatest(matches func(*attempt) bool) *attempt {
	for _, a := range slices.Backward(l.attempts) {
		if matches(a) {
			return a
		}
	}
	return nil
}

// isLastAttempt reports whether no other attempt follows a failed one. The Job controller comes to
// the same decision later.
func (l *jobState) isLastAttempt(last *attempt) bool {
	switch last.failurePolicyAction(l.job) {
	case batchv1.PodFailurePolicyActionFailJob:
		return true
	case batchv1.PodFailurePolicyActionIgnore, batchv1.PodFailurePolicyActionFailIndex:
		return false
	case batchv1.PodFailurePolicyActionCount:
	}
	var counted int32
	for _, a := range l.attempts {
		if a.over && a.failurePolicyAction(l.job) != batchv1.PodFailurePolicyActionIgnore {
			counted++
		}
	}
	const usual = 6
	most := int32(usual)
	if l.job.Spec.BackoffLimit != nil {
		most = *l.job.Spec.BackoffLimit
	}
	return max(counted, l.job.Status.Failed) > most
}

func (l *jobState) findTrueCondition(t batchv1.JobConditionType) *batchv1.JobCondition {
	for i := range l.job.Status.Conditions {
		if c := &l.job.Status.Conditions[i]; c.Type == t && c.Status == corev1.ConditionTrue {
			return c
		}
	}
	return nil
}

// countRetries counts the attempts after the first whose container started. Pods that are gone
// count as started, because it is unknown.
func (l *jobState) countRetries() int32 {
	var began, over int32
	for _, a := range l.attempts {
		if a.began {
			began++
		}
		if a.over {
			over++
		}
	}
	gone := max(0, l.job.Status.Failed+l.job.Status.Succeeded-over)
	return max(0, began+gone-1)
}

func (l *jobState) firstStartTime() *time.Time {
	var first *time.Time
	for _, a := range l.attempts {
		if t := a.startTime(); t != nil && (first == nil || t.Before(*first)) {
			first = t
		}
	}
	return first
}

// endTimeOrNow returns when an attempt ended, or else now.
func (l *jobState) endTimeOrNow(a *attempt) *time.Time {
	if a != nil && a.terminated != nil && !a.terminated.FinishedAt.IsZero() {
		return new(a.terminated.FinishedAt.Time)
	}
	return new(l.now)
}

// successObservation is the observation of a successful attempt, or of a complete Job without
// attempts.
func (l *jobState) successObservation(a *attempt) Observation {
	o := Observation{State: Succeeded, Ended: l.endTimeOrNow(a)}
	if a != nil {
		o.Pod, o.Result, o.Unreadable = a.pod.Name, a.result, a.unreadable
	} else {
		o.Result, o.Unreadable = newResultFromCode(action.CodeOK, *o.Ended), true
	}
	if l.dry && o.Result.DryRun == nil { // a dry run without findings has no result
		o.State, o.Result = Failed, nil
		o.Failure = l.newFailure(v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown, "the dry run ended without a readable result")
	}
	return o
}

// failureObservation is the observation of a failed last attempt or a failed Job.
func (l *jobState) failureObservation(last *attempt, failedCondition *batchv1.JobCondition) Observation {
	o := Observation{State: Failed, Ended: l.endTimeOrNow(last)}
	if last != nil {
		o.Pod, o.Result, o.Unreadable = last.pod.Name, last.result, last.unreadable
	}
	o.Failure = l.explainFailure(last, failedCondition)
	return o
}

// explainFailure returns why no attempt succeeded.
func (l *jobState) explainFailure(last *attempt, failedCondition *batchv1.JobCondition) *execution.Failure {
	late := failedCondition != nil && failedCondition.Reason == batchv1.JobReasonDeadlineExceeded || last != nil && last.exceededDeadline()
	begun := l.findLatest(func(a *attempt) bool { return a.began })
	switch {
	case begun == nil && len(l.attempts) > 0:
		return l.neverStartedFailure(late)
	case late && l.failedWithoutPod():
		return l.newFailure(v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailExecutorUnavailable,
			fmt.Sprintf("no Pod could be created within %s, for example because of a quota, a LimitRange or an admission webhook. Nothing was changed. See the events of Job %q", l.jobTimeout(), l.job.Name))
	case late:
		return l.timeoutFailure(begun)
	case last == nil || last.result == nil:
		return l.unknownResultFailure(last, failedCondition)
	case last.result.Code == action.CodeCancelled && last.disrupted != nil:
		f := FailureFromResult(last.result)
		return l.newFailure(v1alpha1.ReasonExecutionFailed, f.Detail, fmt.Sprintf("the node evicted it (%s): %s", last.disrupted.Message, f.Message))
	}
	f := FailureFromResult(last.result)
	return l.newFailure(f.Reason, f.Detail, f.Message)
}

// failedWithoutPod reports whether a Job failed without ever having a Pod. Before a Job fails, it counts
// all its Pods, including deleted ones.
func (l *jobState) failedWithoutPod() bool {
	s := l.job.Status
	return l.findTrueCondition(batchv1.JobFailed) != nil && len(l.attempts) == 0 && s.Active+s.Failed+s.Succeeded == 0
}

func (l *jobState) neverStartedFailure(late bool) *execution.Failure {
	a := l.attempts[len(l.attempts)-1]
	reason, message := v1alpha1.ReasonExecutionFailed, a.explainNotStarted()
	if late {
		reason = v1alpha1.ReasonExecutionTimeout
		message = fmt.Sprintf("it did not start within %s: %s", l.jobTimeout(), message)
	}
	return l.newFailure(reason, v1alpha1.DetailExecutorUnavailable, fmt.Sprintf("Pod %q: %s. Nothing was changed", a.pod.Name, message))
}

// timeoutFailure is the failure of a Job that exceeded its deadline. begun is nil if none of its
// Pods is left.
func (l *jobState) timeoutFailure(begun *attempt) *execution.Failure {
	message := fmt.Sprintf("the action did not finish within %s", l.jobTimeout())
	switch {
	case begun == nil:
		return l.newFailure(v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailResultUnknown, message+", and no Pod is left to show whether it had started: check the target before you retry")
	case begun.result == nil:
		return l.newFailure(v1alpha1.ReasonExecutionTimeout, v1alpha1.DetailResultUnknown, message+", and left no result: check the target before you retry")
	}
	f := FailureFromResult(begun.result)
	detail := v1alpha1.Detail("")
	if begun.result.Code == action.CodePartial || begun.result.Changed {
		detail = v1alpha1.DetailPartiallyExecuted
	}
	return l.newFailure(v1alpha1.ReasonExecutionTimeout, detail, message+": "+f.Message)
}

// unknownResultFailure is the failure of a last attempt that is gone or left no readable result.
func (l *jobState) unknownResultFailure(last *attempt, failedCondition *batchv1.JobCondition) *execution.Failure {
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
	return l.newFailure(v1alpha1.ReasonExecutionFailed, v1alpha1.DetailResultUnknown, message+". "+advice)
}

// newFailure returns a failure with the reason for the purpose of the Job.
func (l *jobState) newFailure(reason v1alpha1.Reason, detail v1alpha1.Detail, message string) *execution.Failure {
	if l.dry {
		reason = v1alpha1.ReasonDryRunFailed
	}
	return &execution.Failure{Reason: reason, Detail: detail, Message: truncateMessage(message)}
}

func (l *jobState) jobTimeout() time.Duration {
	if s := l.job.Spec.ActiveDeadlineSeconds; s != nil {
		return time.Duration(*s) * time.Second
	}
	return defaultTimeout
}

// StopPodPatch returns a merge patch for a Pod of a Job that stops its container and keeps the Pod
// with its result. When a Job is suspended or deleted, its Pods are deleted and their results may
// be lost.
func StopPodPatch() []byte { return []byte(`{"spec":{"activeDeadlineSeconds":1}}`) }

// FailureFromResult converts a result to a failure. Nil means success.
func FailureFromResult(r *action.Result) *execution.Failure {
	f := &execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Message: truncateMessage(r.Message)}
	switch r.Code {
	case action.CodeOK:
		return nil
	case action.CodeGuard:
		f.Detail = v1alpha1.DetailTargetChanged
		if r.Attempt > 1 { // an earlier attempt may have changed the target, and another client changed it since
			f.Detail = v1alpha1.DetailResultUnknown
			f.Message = truncateMessage("an earlier attempt started and its result is unknown: " + f.Message)
		}
	case action.CodeForbidden:
		f.Detail = v1alpha1.DetailRBACDenied
	case action.CodeInvalid:
		f.Detail = v1alpha1.DetailInvalidParameters
	case action.CodeDenied:
		f.Detail = v1alpha1.DetailAdmissionDenied
	case action.CodeTransient:
	case action.CodePartial:
		f.Detail = v1alpha1.DetailPartiallyExecuted
	case action.CodeDeadline:
		f.Reason = v1alpha1.ReasonExecutionTimeout
	case action.CodeCancelled:
		f.Reason = v1alpha1.ReasonCancelled
	}
	if r.Changed && f.Detail == "" {
		f.Detail = v1alpha1.DetailPartiallyExecuted
	}
	if f.Message == "" {
		f.Message = fmt.Sprintf("the runner exited with code %d", r.Code)
	}
	return f
}

// truncateMessage limits a message to the length that a status allows.
func truncateMessage(s string) string {
	const most, mark = 1024, "…"
	runes := []rune(s)
	if len(runes) <= most {
		return s
	}
	return string(runes[:most-1]) + mark
}
