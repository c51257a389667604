package operator

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// launch starts actions that the gate admits and whose plan is still current.
type launch struct {
	cfg      *Config
	check    *measuredChecker
	slots    *gateSlots
	runs     *runs
	writer   *statusWriter
	approval *approval
	retries  *startRetries
	events   *eventEmitter
	metrics  *metrics
}

// adoptExistingJob takes over an existing Job whose creation the status does not show. The operator that
// created it ended before the status write.
func (l *launch) adoptExistingJob(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	j, err := l.runs.findActionJob(ctx, t.ke)
	if err != nil || j == nil {
		return true, err
	}
	plan, err := decodeJobPlan(j)
	if err != nil {
		return false, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
	}
	t.ke.Status.Plan = plan
	l.slots.forceEnter(t.ke, t.now)
	enterExecutingPhase(t, v1alpha1.ExecutionResults{JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob})
	return false, nil
}

// launchIfInline starts an inline action whose checks have just passed.
func (l *launch) launchIfInline(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if !l.runsInline(t.ke) {
		return false, nil // a Job starts once the plan is written
	}
	t.checked = true
	return l.launchIfAdmitted(ctx, t)
}

// launchIfAdmitted starts the action if the gate admits it and the plan is still current.
func (l *launch) launchIfAdmitted(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	if !l.enterGate(t) {
		return false, nil
	}
	_, unsure := l.runs.getInlineRun(t.ke.UID) // it may already run, see releaseUnusedGateSlot
	defer func() {
		if !t.atGate && !unsure {
			l.slots.gate.Forget(t.ke.UID)
		}
	}()
	if holds, err := l.replanAndCheck(ctx, t); err != nil || !holds {
		return false, err
	}
	if !unsure && l.slots.gate.Stats().Stopped { // replanAndCheck took time
		l.slots.gate.Forget(t.ke.UID)
		if !l.enterGate(t) {
			return false, nil
		}
	}
	if err := l.writer.addFinalizerBeforeEffects(ctx, t); err != nil {
		return false, err
	}
	t.atGate, err = l.startAction(ctx, t)
	return false, err
}

// enterGate reports whether the gate admits an execution. If not, the execution waits at the gate, or
// fails if the gate refuses it.
func (l *launch) enterGate(t *reconcileState) (admitted bool) {
	v := l.slots.enter(t.ke, t.now)
	if v.In {
		return true
	}
	s := &t.ke.Status
	t.atGate = !v.Failed
	if v.Failed {
		t.addAfterWrite(func(context.Context) { l.metrics.countStartBlocked(v.Detail) })
		reason := v1alpha1.ReasonExecutionTimeout
		if v.Detail == v1alpha1.DetailCircuitOpen {
			reason = v1alpha1.ReasonValidationError
		}
		failExecution(t, execution.Failure{Reason: reason, Detail: v.Detail, Message: v.Message})
		return false
	}
	reason := toConditionReason(v.Detail)
	if c := findCondition(s, v1alpha1.ConditionQueued); c == nil || c.Reason != reason { // only once, because the queue changes all the time
		s.ReasonDetail, s.Message = v.Detail, v.Message
		setCondition(t, v1alpha1.ConditionQueued, metav1.ConditionTrue, reason, v.Message)
		t.addAfterWrite(func(context.Context) {
			l.metrics.countStartBlocked(v.Detail)
			l.events.emitNormal(t.ke, reason, v.Message)
		})
	}
	if v.After > 0 {
		t.requeueIn(v.After)
	}
	return false
}

// startAction starts the action. started reports whether it may have an effect from now on, even if
// err is not nil.
func (l *launch) startAction(ctx context.Context, t *reconcileState) (started bool, err error) {
	if a, _ := action.Find(t.ke.Spec.Action); a == nil {
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailUnknownAction,
			Message: fmt.Sprintf("this version of the controller has no action %q: 'fleetloop exec actions' lists the available actions", t.ke.Spec.Action),
		})
		return false, nil
	}
	if allowed, err := l.failIfInlineNotAllowed(ctx, t); !allowed { // the configuration may have changed
		return false, err
	}
	if l.runsInline(t.ke) {
		l.runs.inline.Store(t.ke.UID, inlineRun{})
		enterExecutingPhase(t, v1alpha1.ExecutionResults{Mode: v1alpha1.ExecuteInline})
		return true, nil
	}
	return l.startJob(ctx, t)
}

// startJob creates the Job that runs the action. started is as of startAction.
func (l *launch) startJob(ctx context.Context, t *reconcileState) (started bool, err error) {
	built, err := job.Build(t.ke, t.ke.Status.Plan, v1alpha1.PurposeExecute, 1, l.cfg.Job)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: err.Error()})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	_, again := l.runs.launched.Swap(t.ke.UID, true) // even if the response is lost
	if again {                                       // the Job is gone: a write detects whether the object that was read is stale
		if err := l.writer.writeStatus(ctx, t.ke); err != nil {
			return true, err
		}
	}
	j, err := l.runs.jobs.CreateOrGet(ctx, t.ke, built)
	if err != nil {
		l.metrics.jobs.WithLabelValues("failed").Inc()
		if isDefinitelyRefused(err) && !again {
			l.runs.launched.Delete(t.ke.UID)
		}
		return !isDefinitelyRefused(err), l.retryOrFailStart(ctx, t, fmt.Errorf("create the Job: %w", err))
	}
	if j.Annotations[v1alpha1.AnnotationPlan] != t.ke.Status.Plan.Hash { // an unknown Job already existed
		if t.ke.Status.Plan, err = decodeJobPlan(j); err != nil {
			return true, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
		}
	}
	l.metrics.jobs.WithLabelValues("created").Inc()
	enterExecutingPhase(t, v1alpha1.ExecutionResults{JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob})
	return true, nil
}

// retryOrFailStart retries a start that cannot succeed at present, and fails the execution after a timeout.
func (l *launch) retryOrFailStart(ctx context.Context, t *reconcileState, cause error) error {
	failure, err := l.retries.requeueOrFail(ctx, t, cause)
	if failure != nil {
		failExecution(t, *failure)
	}
	return err
}

// isDefinitelyRefused reports whether the API server certainly did not execute a request.
func isDefinitelyRefused(err error) bool {
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

// enterExecutingPhase writes to the status that the action runs.
func enterExecutingPhase(t *reconcileState, run v1alpha1.ExecutionResults) {
	s := &t.ke.Status
	run.PlanHash, run.StartTime = s.Plan.Hash, toAPITime(t.now)
	s.JobName, s.ExecutionResults, s.Message, s.ReasonDetail = run.JobName, &run, "", ""
	removeCondition(s, v1alpha1.ConditionQueued)
	enterPhase(t, v1alpha1.PhaseExecuting)
}

// failIfInlineNotAllowed refuses to run an action inline that is not allowed to.
func (l *launch) failIfInlineNotAllowed(_ context.Context, t *reconcileState) (proceed bool, err error) {
	a, known := action.Find(t.ke.Spec.Action)
	if !known || a.NoJob || t.ke.Spec.ExecutionMode != v1alpha1.ExecuteInline || slices.Contains(l.cfg.Inline, a.Name) {
		return true, nil
	}
	failExecution(t, execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters,
		Message: fmt.Sprintf("action %q is not allowed to run inline: omit spec.executionMode, or add the action to --inline-actions of the controller", a.Name),
	})
	return false, nil
}

// runsInline reports whether an action runs in this process and not in a Job.
func (l *launch) runsInline(ke *v1alpha1.KubernetesExecution) bool {
	a, known := action.Find(ke.Spec.Action)
	switch {
	case known && a.NoJob:
		return true
	case ke.Spec.ExecutionMode != "":
		return ke.Spec.ExecutionMode == v1alpha1.ExecuteInline
	}
	return known && l.cfg.DefaultMode == v1alpha1.ExecuteInline && slices.Contains(l.cfg.Inline, a.Name)
}

// replanAndCheck computes the plan again after a wait and reports whether it may run. If not, the status
// shows why.
func (l *launch) replanAndCheck(ctx context.Context, t *reconcileState) (mayRun bool, err error) {
	if t.checked {
		return true, nil
	}
	s := &t.ke.Status
	out, err := l.check.Replan(ctx, t.ke, t.now)
	if err != nil {
		return false, l.retryOrFailStart(ctx, t, fmt.Errorf("compute the plan again: %w", err))
	}
	if out.Failed == nil {
		storeKilledResults(s, out.Results.PreConditionResults, nil)
	}
	switch approved := s.Approval != nil && s.Approval.Required; {
	case out.Failed != nil:
		s.ValidationResults = mergeReplanResults(s.ValidationResults, out.Results)
		failExecution(t, *out.Failed)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash && approved:
		failExecution(t, stalePlanFailure(s.Plan, out.Plan))
		return false, nil
	case approved && execution.RequiresStricterApproval(*s.Approval, out.Decision):
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonPlanStale, Detail: v1alpha1.Detail(v1alpha1.ReasonPlanStale),
			Message: "the policies now require more or other approvers than when the plan was made. Nothing was changed. Create the execution again to request their approval",
		})
		return false, nil
	case !approved && out.Decision.RequireApproval: // the policy has changed
		replaceUnapprovedPlan(t, out)
		l.approval.requestApproval(t)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash:
		replaceUnapprovedPlan(t, out)
	}
	s.Plan.Target = out.Plan.Target // version and generation may have changed
	return true, nil
}

// replaceUnapprovedPlan replaces a plan that is not approved.
func replaceUnapprovedPlan(t *reconcileState, out check.Outcome) {
	t.ke.Status.Plan = out.Plan
	t.ke.Status.ValidationResults = mergeReplanResults(t.ke.Status.ValidationResults, out.Results)
	if out.Decision.RequireApproval {
		pending := execution.InitialApprovalStatus(out.Decision, nil)
		t.ke.Status.Approval = &pending
	}
}

// stalePlanFailure describes how the current plan differs from the approved one.
func stalePlanFailure(approved, now *v1alpha1.Plan) execution.Failure {
	what := "its steps"
	detail := v1alpha1.Detail(v1alpha1.ReasonPlanStale)
	switch {
	case approved.Target.UID != now.Target.UID:
		what, detail = "the target, now another object with the same name", v1alpha1.DetailTargetChanged
	case string(rawBytes(approved.Before)) != string(rawBytes(now.Before)):
		what, detail = "the target: "+strings.Join(action.DescribeDifferences(approved.Before, now.Before), "; "), v1alpha1.DetailTargetChanged
	case approved.PolicyHash != now.PolicyHash:
		what = "the policies"
	}
	return execution.Failure{
		Reason: v1alpha1.ReasonPlanStale, Detail: detail,
		Message: action.TruncateText(fmt.Sprintf("the plan is stale, changed since planning: %s. Nothing was changed. Create the execution again to have the new plan approved", what), maxMessage),
	}
}
