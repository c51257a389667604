package operator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

const (
	// jobOverdueAfter is how long after its deadline a Job may still run before the controller
	// stops it.
	jobOverdueAfter = 30 * time.Second
	// maxAffected limits the changed objects in a status.
	maxAffected = 50
)

// running follows running actions until their results and postconditions are known.
type running struct {
	cfg        *Config
	check      *measuredChecker
	identities identities
	runs       *runs
	slots      *gateSlots
	retries    *startRetries
	targets    targetWatcher
	events     *eventEmitter
	metrics    *metrics
}

// failIfRunNotInStatus ends an execution of which another client wrote the status.
func failIfRunNotInStatus(_ context.Context, state *reconcileState) (proceed bool, err error) {
	if state.ke.Status.ExecutionResults != nil {
		return true, nil
	}
	failExecution(state, execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: "another client changed the status, so the controller does not know the running action. Check the target before you retry",
	})
	return false, nil
}

// runInlineOrFollowJob follows the run of an action and stores its result. It proceeds once the action has succeeded.
func (r *running) runInlineOrFollowJob(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	results := state.ke.Status.ExecutionResults
	if results.EndTime != nil { // the result is already stored, and the postconditions follow
		return true, nil
	}
	var observed job.Observation
	if results.Mode == v1alpha1.ExecuteInline {
		observed, err = r.runInline(ctx, state)
	} else {
		observed, err = r.followJob(ctx, state)
	}
	if err != nil || !hasEnded(observed) {
		return false, err
	}
	r.storeRunResult(state, observed)
	return observed.State == job.Succeeded, nil
}

// hasEnded reports whether a run has a final result.
func hasEnded(o job.Observation) bool { return o.State == job.Succeeded || o.State == job.Failed }

// followJob observes the Job that runs an action, and stops it if it is overdue or cancelled.
func (r *running) followJob(ctx context.Context, state *reconcileState) (job.Observation, error) {
	results := state.ke.Status.ExecutionResults
	j, err := r.runs.jobs.Job(ctx, state.ke, results.JobName, false)
	if err == nil && j == nil { // the cache may not have it yet
		j, err = r.runs.jobs.Job(ctx, state.ke, results.JobName, true)
	}
	if err != nil {
		return job.Observation{}, err
	}
	if j == nil || j.UID != results.JobUID {
		return job.Observation{State: job.Failed, Failure: deletedJobFailure(state.ke)}, nil
	}

	observed, err := r.runs.observeJob(ctx, j, state.now)
	if err != nil || hasEnded(observed) {
		return observed, err
	}
	overdue := j.CreationTimestamp.Add(jobTimeout(j)).Add(jobOverdueAfter)
	switch {
	case !state.now.Before(overdue):
		return r.stopOverdueJob(ctx, state, j, overdue)
	case state.ke.Spec.Cancel:
		return r.cancelJob(ctx, state, j, observed)
	}
	state.requeueAt(overdue)
	setSlowStartMessage(state, j, observed)
	return observed, nil
}

// deletedJobFailure is the failure of an action whose Job was deleted. The action is not repeated,
// because its result is unknown.
func deletedJobFailure(ke *v1alpha1.KubernetesExecution) *execution.Failure {
	return &execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("Job %q was deleted before the controller read its result. "+
			"The result is unknown, and the controller does not retry the action: check %s",
			ke.Status.ExecutionResults.JobName, ke.Status.Target),
	}
}

// stopOverdueJob stops a Job that Kubernetes did not stop at its deadline, and its Pods, which only a running Job
// controller would stop. The Job counts as failed once its Pods have ended, or after a grace period.
func (r *running) stopOverdueJob(
	ctx context.Context, state *reconcileState, j *batchv1.Job, overdue time.Time,
) (job.Observation, error) {
	// The cache may be stale, in particular after an outage of the host cluster.
	pods, err := r.runs.jobs.Pods(ctx, j, true)
	if err != nil {
		return job.Observation{}, err
	}
	observed := job.Observe(j, pods, state.now)
	if hasEnded(observed) {
		return observed, nil
	}
	if err := r.runs.suspendJob(ctx, j); err != nil {
		return observed, err
	}
	if err := r.runs.stopPods(ctx, pods); err != nil {
		return observed, err
	}
	if slices.ContainsFunc(pods, isPodActive) && state.now.Before(overdue.Add(overdueStopGrace)) {
		state.requeueIn(time.Second)
		return observed, nil
	}
	observed.State = job.Failed
	observed.Failure = &execution.Failure{
		Reason: v1alpha1.ReasonExecutionTimeout, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("Job %q did not finish within %s and Kubernetes did not stop it. "+
			"It was suspended: check the target before you retry", j.Name, jobTimeout(j)),
	}
	return observed, nil
}

// overdueStopGrace is how long the Pods of an overdue Job may take to end.
const overdueStopGrace = time.Minute

// slowStartAfter is how long a Pod may take to start before the status shows the reason.
const slowStartAfter = 30 * time.Second

// routineWaitReason is the first waiting reason of every Pod. A more specific reason may replace it
// later.
const routineWaitReason = "ContainerCreating"

// setSlowStartMessage writes to the status why the Pod of a Job does not start. It writes a reason once,
// because a Pod that cannot start alternates between several.
func setSlowStartMessage(state *reconcileState, j *batchv1.Job, observed job.Observation) {
	status := &state.ke.Status
	if observed.State == job.Running {
		status.Message = ""
		return
	}
	reasonShown := status.Message != "" && !strings.HasSuffix(status.Message, routineWaitReason)
	if observed.Waiting == "" || reasonShown {
		return
	}
	slow := j.CreationTimestamp.Add(slowStartAfter)
	if state.now.Before(slow) {
		state.requeueAt(slow)
		return
	}
	status.Message = action.TruncateText("the Pod of the action does not start: "+observed.Waiting, maxMessage)
}

// cancelJob stops the Pod of a Job and waits for its result. A Job without a Pod is suspended, so
// that it creates none. The Job controller may have created one that is not in the cache yet, and not in the counts of
// the Job: the Job has stopped when that controller reports it as suspended and no Pod is left.
func (r *running) cancelJob(
	ctx context.Context, state *reconcileState, j *batchv1.Job, observed job.Observation,
) (job.Observation, error) {
	if observed.State == job.Running {
		return observed, r.stopPodByDeadline(ctx, state, j, observed.Pod)
	}
	if err := r.runs.suspendJob(ctx, j); err != nil {
		return observed, err
	}
	pods, err := r.runs.jobs.Pods(ctx, j, true)
	if err != nil {
		return observed, err
	}
	observed = job.Observe(j, pods, state.now)
	if hasEnded(observed) {
		return observed, nil
	}
	if !job.IsSuspended(j) || slices.ContainsFunc(pods, isPodActive) {
		state.requeueIn(time.Second) // changes wake it; this covers a missed one
		return job.Observation{}, nil
	}
	failure := cancelledFailure(state.ke)
	if observed.Started != nil || j.Status.Failed > 0 { // includes attempts whose Pod is gone
		failure = execution.Failure{
			Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("the action was cancelled%s and left no result: check %s",
				cancelledByText(state.ke), state.ke.Status.Target),
		}
	}
	return job.Observation{State: job.Failed, Failure: &failure, Started: observed.Started}, nil
}

// isPodActive reports whether the container of a Pod runs or may still start.
func isPodActive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// stopPodByDeadline stops a running Pod once.
func (r *running) stopPodByDeadline(ctx context.Context, state *reconcileState, j *batchv1.Job, podName string) error {
	pods, err := r.runs.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	state.requeueIn(time.Second) // changes wake it; this covers a missed one
	pods = slices.DeleteFunc(pods, func(pod corev1.Pod) bool { return pod.Name != podName })
	return r.runs.stopPods(ctx, pods)
}

// storeRunResult stores the result of a run. If the action failed, the execution ends.
func (r *running) storeRunResult(state *reconcileState, observed job.Observation) {
	status := &state.ke.Status
	results := status.ExecutionResults
	fillResults(results, observed, state.now)
	state.addAfterWrite(func(context.Context) { r.metrics.observeAction(state.ke, observed) })
	if observed.State == job.Succeeded {
		results.Success = true
		status.ReasonDetail = "" // clear the detail of earlier retries
		removeCondition(status, v1alpha1.ConditionQueued)
		setCondition(state, v1alpha1.ConditionExecuted, metav1.ConditionTrue, "ActionSucceeded", "the action succeeded")
		return
	}

	failure := *observed.Failure
	results.ErrorMessage = action.TruncateText(failure.Message, maxMessage)
	if state.ke.Spec.Cancel && failure.Reason != v1alpha1.ReasonExecutionTimeout {
		failure.Reason = v1alpha1.ReasonCancelled
	}
	conditionReason := toConditionReason(detailOrReason(failure))
	setCondition(state, v1alpha1.ConditionExecuted, metav1.ConditionFalse, conditionReason, failure.Message)
	mayHaveChangedTarget := results.ResourcesAffectedCount > 0 ||
		failure.Detail == v1alpha1.DetailResultUnknown || failure.Detail == v1alpha1.DetailPartiallyExecuted
	if mayHaveChangedTarget {
		status.RollbackInformation = status.Plan.Rollback // for users who find that the target was changed
	}
	failExecution(state, failure)
}

// fillResults copies the observation of a run to the results in the status.
func fillResults(results *v1alpha1.ExecutionResults, observed job.Observation, now time.Time) {
	if observed.Started != nil {
		results.StartTime = toAPITime(*observed.Started)
	}
	results.EndTime = toAPITime(now)
	if observed.Ended != nil {
		results.EndTime = toAPITime(*observed.Ended)
	}
	if results.StartTime != nil {
		results.Duration = max(0, results.EndTime.Sub(results.StartTime.Time)).String()
	}
	results.RetriesAttempted = observed.Retries
	if observed.Result == nil {
		return
	}
	affected := observed.Result.Resources
	results.ResourcesAffectedCount = max(observed.Result.Count, int32(len(affected))) //nolint:gosec // a few
	results.ResourcesAffected = affected[:min(len(affected), maxAffected)]
	results.PodLogs = observed.Result.Log
	results.PodLogsTruncated = observed.Result.Truncated
}

// jobTimeout returns the deadline of a Job.
func jobTimeout(j *batchv1.Job) time.Duration {
	if j.Spec.ActiveDeadlineSeconds == nil {
		return 15 * time.Minute
	}
	return time.Duration(*j.Spec.ActiveDeadlineSeconds) * time.Second
}
