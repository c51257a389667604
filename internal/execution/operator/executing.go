package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
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
	if err != nil {
		return observed, err
	}
	overdue := j.CreationTimestamp.Add(jobTimeout(j)).Add(jobOverdueAfter)
	isOverdue := !state.now.Before(overdue)
	if r.runs.isStopping(state.ke.UID) && !isOverdue {
		state.ke.Spec.Cancel = true // an emergency stop that cancelled it may be over
	}
	switch {
	case hasEnded(observed): // see below
	case isOverdue:
		observed, err = r.stopOverdueJob(ctx, state, j)
	case state.ke.Spec.Cancel:
		observed, err = r.cancelJob(ctx, state, j)
	default:
		state.requeueAt(overdue)
		setSlowStartMessage(state, j, observed)
	}
	return withReasonOfStop(state.ke, observed, j.CreationTimestamp.Add(jobTimeout(j))), err
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
