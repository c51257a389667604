package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// runName returns the name of the Job that runs an execution.
func runName(ke *v1alpha1.KubernetesExecution) string {
	return job.Name(ke.UID, v1alpha1.PurposeExecute, 1)
}

// adoptJob takes over an existing Job whose creation the status does not show. The operator that
// created it ended before the status write.
func (r *reconciler) adoptJob(ctx context.Context, t *reconcileState) (adopted bool, err error) {
	r.mu.Lock()
	live := r.launched[t.ke.UID] // the cache may not have the Job yet
	r.mu.Unlock()
	j, err := r.jobs.Job(ctx, t.ke, runName(t.ke), live)
	if err != nil || j == nil {
		return false, err
	}
	plan, err := planOf(j)
	if err != nil {
		return false, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
	}
	t.ke.Status.Plan = plan
	r.forceEnterGate(t)
	r.setJobRunning(t, j)
	return true, nil
}

// forceEnterGate makes the gate count a running execution, even if the gate refuses it.
func (r *reconciler) forceEnterGate(t *reconcileState) {
	if r.enterGate(t).In {
		return
	}
	c := r.gateClaim(t.ke)
	r.gate.Forget(c.UID)
	r.gate.Restore([]gate.Claim{c}, nil)
}

// planOf returns the plan that a Job runs.
func planOf(j *batchv1.Job) (*v1alpha1.Plan, error) {
	for _, c := range j.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "ACTION_PLAN" {
				var p v1alpha1.Plan
				return &p, json.Unmarshal([]byte(e.Value), &p)
			}
		}
	}
	return nil, fmt.Errorf("the execution has no plan")
}

// tryLaunchAction starts the action if the gate admits it and the plan is still current.
func (r *reconciler) tryLaunchAction(ctx context.Context, t *reconcileState) error {
	s := &t.ke.Status
	if t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly { // the controller may have switched to dry-run mode
		completeDryRun(t)
		return nil
	}
	if v := r.enterGate(t); !v.In {
		r.queueOrFailAtGate(t, v)
		return nil
	}
	r.mu.Lock()
	_, unsure := r.inlineRuns[t.ke.UID] // it may already run, see releaseUnusedGateSlot
	r.mu.Unlock()
	defer func() {
		if !t.atGate && !unsure {
			r.gate.Forget(t.ke.UID)
		}
	}()
	if holds, err := r.replanAndCheck(ctx, t); err != nil || !holds {
		return err
	}
	if !unsure && r.gate.Stats().Stopped { // replanAndCheck took time
		r.gate.Forget(t.ke.UID)
		if v := r.enterGate(t); !v.In {
			r.queueOrFailAtGate(t, v)
			return nil
		}
	}
	// From here on there may be an effect. A deletion must not lose its audit and change events.
	if r.cfg.Audited || r.outbox.Enabled() {
		status := *s.DeepCopy()
		if err := r.executions.SetFinalizer(ctx, t.ke, true); err != nil {
			return asStaleError(err)
		}
		t.ke.Status = status
	}
	var err error
	t.atGate, err = r.startAction(ctx, t)
	return err
}

// completeDryRun ends an execution that requested only a dry run.
func completeDryRun(t *reconcileState) {
	s := &t.ke.Status
	s.Outcome, s.ReasonDetail = v1alpha1.OutcomeSucceeded, ""
	s.Message = "dry run: " + s.Plan.Impact.Description
	setCondition(t, v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ConditionReasonDryRun, s.Message)
	enterPhase(t, v1alpha1.PhaseCompleted)
}

// startAction starts the action. started reports whether it may have an effect from now on, even if
// err is not nil.
func (r *reconciler) startAction(ctx context.Context, t *reconcileState) (started bool, err error) {
	a, _ := action.Find(t.ke.Spec.Action)
	switch {
	case a == nil:
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailUnknownAction,
			Message: fmt.Sprintf("this version of the controller has no action %q: 'fleetloop exec actions' lists the available actions", t.ke.Spec.Action),
		})
		return false, nil
	case r.inlineForbidden(t.ke) != nil: // the configuration may have changed
		failExecution(t, *r.inlineForbidden(t.ke))
		return false, nil
	case r.isInline(t.ke):
		r.mu.Lock()
		r.inlineRuns[t.ke.UID] = inlineRun{}
		r.mu.Unlock()
		t.ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
			Mode: v1alpha1.ExecuteInline, PlanHash: t.ke.Status.Plan.Hash, StartTime: newTime(t.now),
		}
		r.enterExecuting(t)
		return true, nil
	}
	built, err := job.Build(t.ke, t.ke.Status.Plan, v1alpha1.PurposeExecute, 1, r.cfg.Job)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: err.Error()})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	r.mu.Lock()
	again := r.launched[t.ke.UID]
	r.launched[t.ke.UID] = true // even if the response is lost
	r.mu.Unlock()
	if again { // the Job is gone: a write detects whether the object that was read is stale
		if err := r.writeStatus(ctx, t.ke); err != nil {
			return true, err
		}
	}
	j, err := r.jobs.CreateOrGet(ctx, t.ke, built)
	if err != nil {
		r.metrics.jobs.WithLabelValues("failed").Inc()
		if isRefused(err) && !again {
			r.mu.Lock()
			delete(r.launched, t.ke.UID)
			r.mu.Unlock()
		}
		return !isRefused(err), r.retryOrFailUnavailable(ctx, t, fmt.Errorf("create the Job: %w", err))
	}
	if j.Annotations[v1alpha1.AnnotationPlan] != t.ke.Status.Plan.Hash { // an unknown Job already existed
		if t.ke.Status.Plan, err = planOf(j); err != nil {
			return true, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
		}
	}
	r.metrics.jobs.WithLabelValues("created").Inc()
	r.setJobRunning(t, j)
	return true, nil
}

// isRefused reports whether the API server certainly did not execute a request.
func isRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusRequestTimeout, http.StatusTooManyRequests:
		return code == http.StatusTooManyRequests
	default:
		return code >= http.StatusBadRequest && code < http.StatusInternalServerError
	}
}

// setJobRunning writes to the status that a Job runs the action.
func (r *reconciler) setJobRunning(t *reconcileState, j *batchv1.Job) {
	t.ke.Status.JobName = j.Name
	t.ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
		JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob,
		PlanHash: t.ke.Status.Plan.Hash, StartTime: newTime(t.now),
	}
	r.enterExecuting(t)
}

func (r *reconciler) enterExecuting(t *reconcileState) {
	t.ke.Status.Message = ""
	t.ke.Status.ReasonDetail = ""
	removeCondition(&t.ke.Status, v1alpha1.ConditionQueued)
	enterPhase(t, v1alpha1.PhaseExecuting)
	t.addBeforeWrite(func() {
		r.recordChange(t, execution.ChangeStarted, t.ke.Spec.RequestedBy, t.ke.Status.Plan.Impact.Description)
	})
}

// inlineForbidden returns why an execution may not run inline. Nil means that its mode is allowed.
func (r *reconciler) inlineForbidden(ke *v1alpha1.KubernetesExecution) *execution.Failure {
	a, known := action.Find(ke.Spec.Action)
	if !known || a.NoJob || ke.Spec.ExecutionMode != v1alpha1.ExecuteInline || slices.Contains(r.cfg.Inline, a.Name) {
		return nil
	}
	return &execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters,
		Message: fmt.Sprintf("action %q is not allowed to run inline: omit spec.executionMode, or add the action to --inline-actions of the controller", a.Name),
	}
}

// isInline reports whether an action runs in this process and not in a Job.
func (r *reconciler) isInline(ke *v1alpha1.KubernetesExecution) bool {
	a, known := action.Find(ke.Spec.Action)
	switch {
	case known && a.NoJob:
		return true
	case ke.Spec.ExecutionMode != "":
		return ke.Spec.ExecutionMode == v1alpha1.ExecuteInline
	}
	return known && r.cfg.DefaultMode == v1alpha1.ExecuteInline && slices.Contains(r.cfg.Inline, a.Name)
}
