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
	"github.com/fleetloop/fleetloop/internal/execution/check"
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

// failIfResultsMissing ends an execution of which another client wrote the status.
func failIfResultsMissing(_ context.Context, t *reconcileState) (proceed bool, err error) {
	if t.ke.Status.ExecutionResults != nil {
		return true, nil
	}
	failExecution(t, execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: "another client changed the status, so the controller does not know the running action. Check the target before you retry",
	})
	return false, nil
}

// followActionRun follows the run of an action and stores its result. It proceeds once the action has succeeded.
func (r *running) followActionRun(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	results, follow := t.ke.Status.ExecutionResults, r.followJob
	switch {
	case results.EndTime != nil: // stored before
		return true, nil
	case results.Mode == v1alpha1.ExecuteInline:
		follow = r.runInline
	}
	o, err := follow(ctx, t)
	if err != nil || !hasEnded(o) {
		return false, err
	}
	r.storeRunResult(t, o)
	return o.State == job.Succeeded, nil
}

// hasEnded reports whether a run has a final result.
func hasEnded(o job.Observation) bool { return o.State == job.Succeeded || o.State == job.Failed }

// followJob observes the Job that runs an action, and stops it if it is overdue or cancelled.
func (r *running) followJob(ctx context.Context, t *reconcileState) (job.Observation, error) {
	results := t.ke.Status.ExecutionResults
	j, err := r.runs.jobs.Job(ctx, t.ke, results.JobName, false)
	if err == nil && j == nil {
		j, err = r.runs.jobs.Job(ctx, t.ke, results.JobName, true)
	}
	if err != nil {
		return job.Observation{}, err
	}
	if j == nil || j.UID != results.JobUID {
		return job.Observation{State: job.Failed, Failure: &execution.Failure{ // not repeated, because its result is unknown
			Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("Job %q was deleted before the controller read its result. The result is unknown, and the controller does not retry the action: check %s", results.JobName, t.ke.Status.Target),
		}}, nil
	}
	o, err := r.runs.observeJob(ctx, j, t.now)
	if err != nil || hasEnded(o) {
		return o, err
	}
	end := j.CreationTimestamp.Add(jobTimeout(j)).Add(jobOverdueAfter)
	switch {
	case !t.now.Before(end):
		return r.stopOverdueJob(ctx, t, j, o)
	case t.ke.Spec.Cancel:
		return r.cancelJob(ctx, t, j, o)
	}
	t.requeueAt(end)
	setSlowStartMessage(t, j, o)
	return o, nil
}

// stopOverdueJob suspends a Job that Kubernetes did not stop at its deadline.
func (r *running) stopOverdueJob(ctx context.Context, t *reconcileState, j *batchv1.Job, o job.Observation) (job.Observation, error) {
	pods, err := r.runs.jobs.Pods(ctx, j, true) // the cache may be stale, in particular after an outage of the host cluster
	if err != nil {
		return o, err
	}
	if last := job.Observe(j, pods, t.now); hasEnded(last) {
		return last, nil
	}
	o.State = job.Failed
	o.Failure = &execution.Failure{
		Reason: v1alpha1.ReasonExecutionTimeout, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("Job %q did not finish within %s and Kubernetes did not stop it. It was suspended: check the target before you retry", j.Name, jobTimeout(j)),
	}
	return o, r.runs.suspendJob(ctx, j)
}

// slowStartAfter is how long a Pod may take to start before the status shows the reason.
const slowStartAfter = 30 * time.Second

// routineWaitReason is the first waiting reason of every Pod. A more specific reason may replace it
// later.
const routineWaitReason = "ContainerCreating"

// setSlowStartMessage writes once to the status why the Pod of a Job does not start.
func setSlowStartMessage(t *reconcileState, j *batchv1.Job, o job.Observation) {
	s := &t.ke.Status
	switch late := j.CreationTimestamp.Add(slowStartAfter); {
	case o.State == job.Running:
		s.Message = ""
	case o.Waiting == "" || s.Message != "" && !strings.HasSuffix(s.Message, routineWaitReason):
	case t.now.Before(late):
		t.requeueAt(late)
	default:
		s.Message = action.TruncateText("the Pod of the action does not start: "+o.Waiting, maxMessage)
	}
}

// cancelJob stops the Pod of a Job and waits for its result. A Job without a Pod is suspended, so
// that it creates none.
func (r *running) cancelJob(ctx context.Context, t *reconcileState, j *batchv1.Job, o job.Observation) (job.Observation, error) {
	if o.State == job.Running {
		return o, r.stopPod(ctx, t, j, o.Pod)
	}
	if err := r.runs.suspendJob(ctx, j); err != nil {
		return o, err
	}
	if j.Spec.Suspend == nil || !*j.Spec.Suspend || j.Status.Active > 0 || j.Status.Terminating != nil && *j.Status.Terminating > 0 {
		t.requeueIn(time.Second) // changes wake it; this covers a missed one
		return job.Observation{}, nil
	}
	failure := cancelledFailure(t.ke)
	if o.Started != nil || j.Status.Failed > 0 { // includes attempts whose Pod is gone
		failure = execution.Failure{
			Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("the action was cancelled%s and left no result: check %s", cancelledByText(t.ke), t.ke.Status.Target),
		}
	}
	return job.Observation{State: job.Failed, Failure: &failure, Started: o.Started}, nil
}

// stopPod stops a running Pod once.
func (r *running) stopPod(ctx context.Context, t *reconcileState, j *batchv1.Job, podName string) error {
	pods, err := r.runs.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	t.requeueIn(time.Second) // changes wake it; this covers a missed one
	for i := range pods {
		p := &pods[i]
		if p.Name == podName && p.DeletionTimestamp.IsZero() && (p.Spec.ActiveDeadlineSeconds == nil || *p.Spec.ActiveDeadlineSeconds > 1) {
			return r.runs.jobs.StopPod(ctx, p)
		}
	}
	return nil
}

// storeRunResult stores the result of a run. If the action failed, the execution ends.
func (r *running) storeRunResult(t *reconcileState, o job.Observation) {
	results := t.ke.Status.ExecutionResults
	fillResults(results, o, t.now)
	t.addAfterWrite(func(context.Context) { r.metrics.observeAction(t.ke, o) })
	if o.State == job.Succeeded {
		results.Success = true
		t.ke.Status.ReasonDetail = "" // clear the detail of earlier retries
		removeCondition(&t.ke.Status, v1alpha1.ConditionQueued)
		setCondition(t, v1alpha1.ConditionExecuted, metav1.ConditionTrue, "ActionSucceeded", "the action succeeded")
		return
	}
	failure := *o.Failure
	results.ErrorMessage = action.TruncateText(failure.Message, maxMessage)
	if t.ke.Spec.Cancel && failure.Reason != v1alpha1.ReasonExecutionTimeout {
		failure.Reason = v1alpha1.ReasonCancelled
	}
	setCondition(t, v1alpha1.ConditionExecuted, metav1.ConditionFalse, toConditionReason(detailOrReason(failure)), failure.Message)
	if results.ResourcesAffectedCount > 0 || failure.Detail == v1alpha1.DetailResultUnknown {
		t.ke.Status.RollbackInformation = t.ke.Status.Plan.Rollback // for users who find that the target was changed
	}
	failExecution(t, failure)
}

// fillResults copies the observation of a run to the results in the status.
func fillResults(results *v1alpha1.ExecutionResults, o job.Observation, now time.Time) {
	if o.Started != nil {
		results.StartTime = toAPITime(*o.Started)
	}
	results.EndTime = toAPITime(now)
	if o.Ended != nil {
		results.EndTime = toAPITime(*o.Ended)
	}
	if results.StartTime != nil {
		results.Duration = max(0, results.EndTime.Sub(results.StartTime.Time)).String()
	}
	results.RetriesAttempted = o.Retries
	if o.Result == nil {
		return
	}
	affected := o.Result.Resources
	results.ResourcesAffectedCount = max(o.Result.Count, int32(len(affected))) //nolint:gosec // a few
	results.ResourcesAffected = affected[:min(len(affected), maxAffected)]
	results.PodLogs, results.PodLogsTruncated = o.Result.Log, o.Result.Truncated
}

// verifyPostConditions evaluates the postconditions until they pass or time out.
func (r *running) verifyPostConditions(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	s := &t.ke.Status
	if len(t.ke.Spec.PostConditions) == 0 {
		r.finishSucceededExecution(t, nil, nil)
		return false, nil
	}
	since := t.now // not the end time that the node reports
	if waiting := findCondition(s, v1alpha1.ConditionPostConditionsMet); waiting != nil {
		since = waiting.LastTransitionTime.Time
	}
	results, wait, err := r.check.EvaluatePostConditions(ctx, t.ke, since, t.now)
	storeKilledResults(s, nil, results)
	if err != nil {
		if ctx.Err() != nil {
			return false, err
		}
		// The longest timeout has passed, so the evaluation ends.
		if results, wait = unevaluatedResults(t.ke, err, t.now), checkRetryDelayFor(err); !t.now.Before(since.Add(maxConditionTimeout(t.ke.Spec.PostConditions) + r.cfg.CheckTimeout)) {
			wait = 0
		}
	}
	if wait > 0 && !t.ke.Spec.Cancel {
		if findCondition(s, v1alpha1.ConditionPostConditionsMet) == nil { // once: each look would be a write
			ensureValidationResults(s).PostConditionResults = results
			s.Message = "the action succeeded; waiting for postconditions to pass"
			setCondition(t, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, "Waiting", s.Message)
		}
		p := s.Plan.Target
		r.targets.watchTarget(nameOf(t.ke), v1alpha1.Target{APIVersion: p.APIVersion, Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})
		t.requeueIn(wait)
		return false, nil
	}
	ensureValidationResults(s).PostConditionResults = results
	var open []bool
	if wait > 0 { // because of a cancel
		open = postConditionsInTime(t.ke, since, t.now)
	}
	r.finishSucceededExecution(t, results, open)
	t.addAfterWrite(func(ctx context.Context) {
		r.events.warnFailedOptionalConditions(ctx, t.ke, "Postcondition", results)
	})
	return false, nil
}

// postConditionsInTime returns for each postcondition whether its timeout has not passed yet.
func postConditionsInTime(ke *v1alpha1.KubernetesExecution, since, now time.Time) (inTime []bool) {
	open := make([]bool, len(ke.Spec.PostConditions))
	for i, c := range ke.Spec.PostConditions {
		open[i] = now.Before(check.PostConditionDeadline(c, since))
	}
	return open
}

// maxConditionTimeout returns the longest timeout of the conditions.
func maxConditionTimeout(conditions []v1alpha1.Condition) (most time.Duration) {
	for _, c := range conditions {
		if c.Timeout != nil {
			most = max(most, min(c.Timeout.Duration, check.MaxConditionTimeout))
		}
	}
	return most
}

// unevaluatedResults returns the results of postconditions that could not be evaluated. A
// postcondition whose evaluation was killed keeps its result.
func unevaluatedResults(ke *v1alpha1.KubernetesExecution, why error, now time.Time) []v1alpha1.ConditionResult {
	var known, results []v1alpha1.ConditionResult
	if v := ke.Status.ValidationResults; v != nil {
		known = v.PostConditionResults
	}
	for i, c := range ke.Spec.PostConditions {
		if i < len(known) && known[i].Killed {
			results = append(results, known[i])
			continue
		}
		results = append(results, v1alpha1.ConditionResult{
			ConditionType: c.Type, Required: c.Required, EvaluationTime: toAPITime(now), ErrorMessage: action.TruncateText("evaluation failed: "+why.Error(), maxNote),
		})
	}
	return results
}

// setOutcome sets the outcome of a successful action by its postconditions. A required
// postcondition that a cancel cut short is no failure of the action, because it might still have
// passed.
func setOutcome(s *v1alpha1.KubernetesExecutionStatus, results []v1alpha1.ConditionResult, undecided []bool) (reason string) {
	s.Outcome, reason = v1alpha1.OutcomeSucceeded, "ActionSucceeded"
	s.Message = s.Plan.Impact.Description
	var cut *v1alpha1.ConditionResult
	for i, c := range results {
		switch {
		case c.Passed:
		case c.Required && i < len(undecided) && undecided[i]:
			cut = &results[i]
		case c.Required:
			s.Outcome, reason = v1alpha1.OutcomeFailed, "PostConditionFailed"
			s.Reason, s.ReasonDetail = v1alpha1.ReasonPostConditionFailed, v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed)
			if c.Killed {
				s.ReasonDetail = v1alpha1.DetailConditionKilled
			}
			s.Message = action.TruncateText(fmt.Sprintf("the action succeeded, but required postcondition %q failed: %s", c.ConditionType, c.ErrorMessage), maxMessage)
		case s.Outcome == v1alpha1.OutcomeSucceeded:
			s.Outcome, reason = v1alpha1.OutcomePartial, "PostConditionWarning"
			s.Message = action.TruncateText(fmt.Sprintf("the action succeeded, but optional postcondition %q failed: %s", c.ConditionType, c.ErrorMessage), maxMessage)
		}
	}
	if cut != nil && s.Outcome != v1alpha1.OutcomeFailed {
		s.Outcome, reason = v1alpha1.OutcomeFailed, "Cancelled"
		s.Reason, s.ReasonDetail = v1alpha1.ReasonCancelled, v1alpha1.Detail(v1alpha1.ReasonCancelled)
		s.Message = action.TruncateText(fmt.Sprintf("the action succeeded, and the execution was cancelled before postcondition %q passed: %s", cut.ConditionType, cut.ErrorMessage), maxMessage)
	}
	return reason
}

// finishSucceededExecution ends an execution whose action succeeded. undecided marks the postconditions that
// might still have passed.
func (r *running) finishSucceededExecution(t *reconcileState, results []v1alpha1.ConditionResult, undecided []bool) {
	s := &t.ke.Status
	reason := setOutcome(s, results, undecided)
	switch {
	case s.Reason == v1alpha1.ReasonCancelled:
		setCondition(t, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, reason, s.Message)
	case len(results) > 0:
		setCondition(t, v1alpha1.ConditionPostConditionsMet, conditionStatus(reason == "ActionSucceeded"), reason, s.Message)
	}
	way := s.Plan.Rollback
	if way == nil {
		way = &v1alpha1.RollbackInformation{Reason: "this action cannot be rolled back"}
	}
	s.RollbackInformation = way
	setCondition(t, v1alpha1.ConditionRollbackAvailable, conditionStatus(way.Available), rollbackConditionReason(way), way.Reason)
	setCondition(t, v1alpha1.ConditionSucceeded, conditionStatus(s.Outcome != v1alpha1.OutcomeFailed), reason, s.Message)
	if s.Outcome == v1alpha1.OutcomeFailed || way.Available {
		enterPhase(t, v1alpha1.PhaseRollbackReady)
		if t.ke.Spec.Finalize || r.cfg.RollbackWindow == 0 {
			enterFinalPhase(t)
		}
		return
	}
	enterPhase(t, v1alpha1.PhaseCompleted)
}

func rollbackConditionReason(way *v1alpha1.RollbackInformation) string {
	if way.Available {
		return "Available"
	}
	return "NotAvailable"
}

// jobTimeout returns the deadline of a Job.
func jobTimeout(j *batchv1.Job) time.Duration {
	if j.Spec.ActiveDeadlineSeconds == nil {
		return 15 * time.Minute
	}
	return time.Duration(*j.Spec.ActiveDeadlineSeconds) * time.Second
}
