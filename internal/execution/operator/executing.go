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
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

const (
	// overdue is how long after its deadline a Job is waited for that should
	// have ended by itself.
	overdue = 30 * time.Second
	// maxAffected is how many changed objects a status lists.
	maxAffected = 50
)

// watch follows an action that is under way.
func (r *reconciler) watch(ctx context.Context, t *turn) error {
	results := t.ke.Status.ExecutionResults
	switch {
	case results == nil: // somebody else wrote the status
		fail(t, execution.Failure{
			Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
			Message: "another client changed the status, so the controller does not know the running action. Check the target before you retry",
		})
		return nil
	case results.EndTime != nil:
		return r.verify(ctx, t)
	case results.Mode == v1alpha1.ExecuteInline:
		return r.runInline(ctx, t)
	}
	j, err := r.jobs.Job(ctx, t.ke, results.JobName, false)
	if err == nil && j == nil {
		j, err = r.jobs.Job(ctx, t.ke, results.JobName, true)
	}
	if err != nil {
		return err
	}
	if j == nil || j.UID != results.JobUID {
		return r.vanished(ctx, t)
	}
	o, err := r.observe(ctx, t, j)
	if err != nil {
		return err
	}
	return r.observed(ctx, t, j, o)
}

// observed goes on from what a Job and its Pods show.
func (r *reconciler) observed(ctx context.Context, t *turn, j *batchv1.Job, o job.Observation) error {
	end := j.CreationTimestamp.Add(timeoutOf(j)).Add(overdue)
	switch {
	case o.State == job.Succeeded || o.State == job.Failed:
		return r.ended(ctx, t, o)
	case !t.now.Before(end):
		pods, err := r.jobs.Pods(ctx, j, true) // the cache may be behind, above all where the host cluster was away
		if err != nil {
			return err
		}
		if last := job.Observe(j, pods, t.now); last.State == job.Succeeded || last.State == job.Failed {
			return r.ended(ctx, t, last)
		}
		o.State = job.Failed
		o.Failure = &execution.Failure{
			Reason: v1alpha1.ReasonExecutionTimeout, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("Job %q did not finish within %s and Kubernetes did not stop it. It was suspended: check the target before you retry", j.Name, timeoutOf(j)),
		}
		if err := r.suspend(ctx, j); err != nil {
			return err
		}
		return r.ended(ctx, t, o)
	case t.ke.Spec.Cancel:
		return r.cancel(ctx, t, j, o)
	}
	t.until(end)
	r.explain(t, j, o)
	return nil
}

// slow is how long a Pod may take to begin without the status saying why.
const slow = 30 * time.Second

// routine is what every Pod waits for at first. What keeps one longer comes later.
const routine = "ContainerCreating"

// explain says what keeps a Job from beginning, once.
func (r *reconciler) explain(t *turn, j *batchv1.Job, o job.Observation) {
	s := &t.ke.Status
	switch late := j.CreationTimestamp.Add(slow); {
	case o.State == job.Running:
		s.Message = ""
	case o.Waiting == "" || s.Message != "" && !strings.HasSuffix(s.Message, routine):
	case t.now.Before(late):
		t.until(late)
	default:
		s.Message = bounded("the Pod of the action does not start: "+o.Waiting, maxMessage)
	}
}

// cancel tells a Job's Pod to end, and waits for what it says. A Job without a
// Pod is kept from making one.
func (r *reconciler) cancel(ctx context.Context, t *turn, j *batchv1.Job, o job.Observation) error {
	if o.State == job.Running {
		return r.stop(ctx, t, j, o.Pod)
	}
	if err := r.suspend(ctx, j); err != nil {
		return err
	}
	if j.Spec.Suspend == nil || !*j.Spec.Suspend || j.Status.Active > 0 || j.Status.Terminating != nil && *j.Status.Terminating > 0 {
		t.wait(time.Second) // it is told when something changes; this is in case it was missed
		return nil
	}
	failure := cancelled(t.ke)
	if o.Started != nil || j.Status.Failed > 0 { // an attempt whose Pod is gone counts as well
		failure = execution.Failure{
			Reason: v1alpha1.ReasonCancelled, Detail: v1alpha1.DetailResultUnknown,
			Message: fmt.Sprintf("the action was cancelled%s and left no result: check %s", byWhom(t.ke), t.ke.Status.Target),
		}
	}
	return r.ended(ctx, t, job.Observation{State: job.Failed, Failure: &failure, Started: o.Started})
}

// stop tells a Pod that runs to end, once.
func (r *reconciler) stop(ctx context.Context, t *turn, j *batchv1.Job, name string) error {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return err
	}
	t.wait(time.Second) // it is told when something changes; this is in case it was missed
	for i := range pods {
		p := &pods[i]
		if p.Name == name && p.DeletionTimestamp.IsZero() && (p.Spec.ActiveDeadlineSeconds == nil || *p.Spec.ActiveDeadlineSeconds > 1) {
			return r.jobs.Stop(ctx, p)
		}
	}
	return nil
}

func (r *reconciler) suspend(ctx context.Context, j *batchv1.Job) error {
	if j.Spec.Suspend != nil && *j.Spec.Suspend {
		return nil
	}
	return r.jobs.Patch(ctx, j, map[string]any{"suspend": true})
}

// vanished ends an execution whose Job is no more. Whatever it did, it is not
// done again.
func (r *reconciler) vanished(ctx context.Context, t *turn) error {
	return r.ended(ctx, t, job.Observation{State: job.Failed, Failure: &execution.Failure{
		Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailResultUnknown,
		Message: fmt.Sprintf("Job %q was deleted before the controller read its result. The result is unknown, and the controller does not retry the action: check %s", t.ke.Status.ExecutionResults.JobName, t.ke.Status.Target),
	}})
}

// ended writes down what an action did, and verifies it.
func (r *reconciler) ended(ctx context.Context, t *turn, o job.Observation) error {
	results := t.ke.Status.ExecutionResults
	fill(results, o, t.now)
	if o.State == job.Succeeded {
		results.Success = true
		t.ke.Status.ReasonDetail = "" // it may have been in trouble
		dropCondition(&t.ke.Status, v1alpha1.ConditionQueued)
		setCondition(t, v1alpha1.ConditionExecuted, metav1.ConditionTrue, "ActionSucceeded", "the action succeeded")
		t.afterwards(func(context.Context) { r.metrics.executed(t.ke, o) })
		return r.verify(ctx, t)
	}
	failure := *o.Failure
	results.ErrorMessage = bounded(failure.Message, maxMessage)
	if t.ke.Spec.Cancel && failure.Reason != v1alpha1.ReasonExecutionTimeout {
		failure.Reason = v1alpha1.ReasonCancelled
	}
	setCondition(t, v1alpha1.ConditionExecuted, metav1.ConditionFalse, conditionReason(detailOf(failure)), failure.Message)
	if results.ResourcesAffectedCount > 0 || failure.Detail == v1alpha1.DetailResultUnknown {
		t.ke.Status.RollbackInformation = t.ke.Status.Plan.Rollback // for whoever finds that something was done
	}
	fail(t, failure)
	t.afterwards(func(context.Context) { r.metrics.executed(t.ke, o) })
	return nil
}

// fill writes down what is known of a run.
func fill(results *v1alpha1.ExecutionResults, o job.Observation, now time.Time) {
	if o.Started != nil {
		results.StartTime = at(*o.Started)
	}
	results.EndTime = at(now)
	if o.Ended != nil {
		results.EndTime = at(*o.Ended)
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

// verify sees whether the postconditions hold, as long as they may take.
func (r *reconciler) verify(ctx context.Context, t *turn) error {
	s := &t.ke.Status
	if len(t.ke.Spec.PostConditions) == 0 {
		r.finish(t, nil, nil)
		return nil
	}
	since := t.now // and not when a node says that it ended
	if waiting := condition(s, v1alpha1.ConditionPostConditionsMet); waiting != nil {
		since = waiting.LastTransitionTime.Time
	}
	results, wait, err := r.check.PostConditions(ctx, t.ke, since, t.now)
	keepKilled(s, nil, results)
	if err != nil {
		if ctx.Err() != nil {
			return err
		}
		// Had they been evaluated up to the last one's end, it would be over.
		if results, wait = unevaluated(t.ke, err, t.now), againAfter(err); !t.now.Before(since.Add(longest(t.ke.Spec.PostConditions) + r.cfg.CheckTimeout)) {
			wait = 0
		}
	}
	if wait > 0 && !t.ke.Spec.Cancel {
		if condition(s, v1alpha1.ConditionPostConditionsMet) == nil { // once: each look would be a write
			s.ValidationResults = withPostConditions(s.ValidationResults, results)
			s.Message = "the action succeeded; waiting for postconditions to pass"
			setCondition(t, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, "Waiting", s.Message)
		}
		p := s.Plan.Target
		r.targets.follow(nameOf(t.ke), v1alpha1.Target{APIVersion: p.APIVersion, Kind: p.Kind, Namespace: p.Namespace, Name: p.Name})
		t.wait(wait)
		return nil
	}
	s.ValidationResults = withPostConditions(s.ValidationResults, results)
	var open []bool
	if wait > 0 { // by a cancel
		open = undecided(t.ke, since, t.now)
	}
	r.finish(t, results, open)
	t.afterwards(func(ctx context.Context) { r.warnOf(ctx, t.ke, "PostconditionWarning", "postcondition", results) })
	return nil
}

// undecided says of which postconditions it was not known yet whether they come to
// hold.
func undecided(ke *v1alpha1.KubernetesExecution, since, now time.Time) []bool {
	open := make([]bool, len(ke.Spec.PostConditions))
	for i, c := range ke.Spec.PostConditions {
		open[i] = now.Before(check.PostConditionEnd(c, since))
	}
	return open
}

// longest is the most time that any of the conditions names.
func longest(conditions []v1alpha1.Condition) (most time.Duration) {
	for _, c := range conditions {
		if c.Timeout != nil {
			most = max(most, min(c.Timeout.Duration, check.MaxConditionTimeout))
		}
	}
	return most
}

// unevaluated are the results of postconditions that cannot be looked at. Those that
// were killed keep theirs.
func unevaluated(ke *v1alpha1.KubernetesExecution, why error, now time.Time) []v1alpha1.ConditionResult {
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
			ConditionType: c.Type, Required: c.Required, EvaluationTime: at(now), ErrorMessage: bounded("evaluation failed: "+why.Error(), maxNote),
		})
	}
	return results
}

// judge says what postconditions make of an action that succeeded. One that a
// cancel cut short says nothing against the action: it might have come to hold.
func judge(s *v1alpha1.KubernetesExecutionStatus, results []v1alpha1.ConditionResult, open []bool) (reason string) {
	s.Outcome, reason = v1alpha1.OutcomeSucceeded, "ActionSucceeded"
	s.Message = s.Plan.Impact.Description
	var cut *v1alpha1.ConditionResult
	for i, c := range results {
		switch {
		case c.Passed:
		case c.Required && i < len(open) && open[i]:
			cut = &results[i]
		case c.Required:
			s.Outcome, reason = v1alpha1.OutcomeFailed, "PostConditionFailed"
			s.Reason, s.ReasonDetail = v1alpha1.ReasonPostConditionFailed, v1alpha1.Detail(v1alpha1.ReasonPostConditionFailed)
			if c.Killed {
				s.ReasonDetail = v1alpha1.DetailConditionKilled
			}
			s.Message = bounded(fmt.Sprintf("the action succeeded, but required postcondition %q failed: %s", c.ConditionType, c.ErrorMessage), maxMessage)
		case s.Outcome == v1alpha1.OutcomeSucceeded:
			s.Outcome, reason = v1alpha1.OutcomePartial, "PostConditionWarning"
			s.Message = bounded(fmt.Sprintf("the action succeeded, but optional postcondition %q failed: %s", c.ConditionType, c.ErrorMessage), maxMessage)
		}
	}
	if cut != nil && s.Outcome != v1alpha1.OutcomeFailed {
		s.Outcome, reason = v1alpha1.OutcomeFailed, "Cancelled"
		s.Reason, s.ReasonDetail = v1alpha1.ReasonCancelled, v1alpha1.Detail(v1alpha1.ReasonCancelled)
		s.Message = bounded(fmt.Sprintf("the action succeeded, and the execution was cancelled before postcondition %q passed: %s", cut.ConditionType, cut.ErrorMessage), maxMessage)
	}
	return reason
}

// finish ends an action that succeeded. open are the postconditions that might
// still have come to hold.
func (r *reconciler) finish(t *turn, results []v1alpha1.ConditionResult, open []bool) {
	s := &t.ke.Status
	reason := judge(s, results, open)
	switch {
	case s.Reason == v1alpha1.ReasonCancelled:
		setCondition(t, v1alpha1.ConditionPostConditionsMet, metav1.ConditionUnknown, reason, s.Message)
	case len(results) > 0:
		setCondition(t, v1alpha1.ConditionPostConditionsMet, statusOf(reason == "ActionSucceeded"), reason, s.Message)
	}
	way := s.Plan.Rollback
	if way == nil {
		way = &v1alpha1.RollbackInformation{Reason: "this action cannot be rolled back"}
	}
	s.RollbackInformation = way
	setCondition(t, v1alpha1.ConditionRollbackAvailable, statusOf(way.Available), rollbackReason(way), way.Reason)
	setCondition(t, v1alpha1.ConditionSucceeded, statusOf(s.Outcome != v1alpha1.OutcomeFailed), reason, s.Message)
	if s.Outcome == v1alpha1.OutcomeFailed || way.Available {
		enter(t, v1alpha1.PhaseRollbackReady)
		if t.ke.Spec.Finalize || r.cfg.RollbackWindow == 0 {
			settled(t)
		}
		return
	}
	enter(t, v1alpha1.PhaseCompleted)
}

func rollbackReason(way *v1alpha1.RollbackInformation) string {
	if way.Available {
		return "Available"
	}
	return "NotAvailable"
}

// timeoutOf is how long a Job may take.
func timeoutOf(j *batchv1.Job) time.Duration {
	if j.Spec.ActiveDeadlineSeconds == nil {
		return 15 * time.Minute
	}
	return time.Duration(*j.Spec.ActiveDeadlineSeconds) * time.Second
}
