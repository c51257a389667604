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

// adoptExistingJob takes over an existing Job whose creation the status does not show. The operator
// that created it ended before the status write. Without such a Job, it proceeds.
func (l *launch) adoptExistingJob(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	j, err := l.runs.findActionJob(ctx, state.ke)
	if err != nil || j == nil {
		return true, err
	}
	plan, err := decodeJobPlan(j)
	if err != nil {
		return false, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
	}
	state.ke.Status.Plan = plan
	l.slots.forceEnter(state.ke, state.now)
	enterExecutingPhase(state, v1alpha1.ExecutionResults{JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob})
	return false, nil
}

// launchIfInline starts an inline action whose checks have just passed.
func (l *launch) launchIfInline(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if !l.runsInline(state.ke) {
		return false, nil // a Job starts once the plan is written
	}
	state.checked = true
	return l.launchIfAdmitted(ctx, state)
}

// launchIfAdmitted starts the action if the gate admits it and the plan is still current.
func (l *launch) launchIfAdmitted(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	if !l.enterGate(state) {
		return false, nil
	}
	// If this process remembers an inline run, an earlier write may have started the action although
	// its response was lost. The action then keeps its slot, see releaseUnusedGateSlot.
	_, mayRunInline := l.runs.getInlineRun(state.ke.UID)
	defer func() {
		if !state.atGate && !mayRunInline {
			l.slots.gate.Forget(state.ke.UID)
		}
	}()

	mayRun, err := l.replanAndRecheckApproval(ctx, state)
	if err != nil || !mayRun {
		return false, err
	}
	if !mayRunInline && l.slots.gate.Stats().Stopped { // the stop came while the plan was checked
		l.slots.gate.Forget(state.ke.UID)
		if !l.enterGate(state) {
			return false, nil
		}
	}
	if err := l.writer.addFinalizerBeforeEffects(ctx, state); err != nil {
		return false, err
	}
	state.atGate, err = l.startAction(ctx, state)
	return false, err
}

// enterGate reports whether the gate admits an execution. If not, the execution waits at the gate, or
// fails if the gate refuses it.
func (l *launch) enterGate(state *reconcileState) (admitted bool) {
	verdict := l.slots.enter(state.ke, state.now)
	switch {
	case verdict.In:
		return true
	case verdict.Failed:
		l.failRefused(state, verdict)
		return false
	}
	state.atGate = true
	l.setQueuedCondition(state, verdict)
	if verdict.After > 0 {
		state.requeueIn(verdict.After)
	}
	return false
}

// failRefused ends an execution that the gate refuses for good.
func (l *launch) failRefused(state *reconcileState, verdict execution.GateVerdict) {
	state.atGate = false
	state.addAfterWrite(func(context.Context) { l.metrics.countStartBlocked(verdict.Detail) })
	reason := v1alpha1.ReasonExecutionTimeout
	if verdict.Detail == v1alpha1.DetailCircuitOpen {
		reason = v1alpha1.ReasonValidationError
	}
	failExecution(state, execution.Failure{Reason: reason, Detail: verdict.Detail, Message: verdict.Message})
}

// setQueuedCondition writes to the status why an execution waits at the gate. It writes each reason once,
// because the queue changes all the time.
func (l *launch) setQueuedCondition(state *reconcileState, verdict execution.GateVerdict) {
	status := &state.ke.Status
	reason := toConditionReason(verdict.Detail)
	if queued := findCondition(status, v1alpha1.ConditionQueued); queued != nil && queued.Reason == reason {
		return
	}
	status.ReasonDetail = verdict.Detail
	status.Message = verdict.Message
	setCondition(state, v1alpha1.ConditionQueued, metav1.ConditionTrue, reason, verdict.Message)
	state.addAfterWrite(func(context.Context) {
		l.metrics.countStartBlocked(verdict.Detail)
		l.events.emitNormal(state.ke, reason, verdict.Message)
	})
}

// startAction starts the action. started reports whether it may have an effect from now on, even if
// err is not nil.
func (l *launch) startAction(ctx context.Context, state *reconcileState) (started bool, err error) {
	if a, _ := action.Find(state.ke.Spec.Action); a == nil {
		failExecution(state, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailUnknownAction,
			Message: fmt.Sprintf(
				"this version of the controller has no action %q: 'fleetloop exec actions' lists the available actions",
				state.ke.Spec.Action,
			),
		})
		return false, nil
	}
	if allowed, err := l.failIfInlineNotAllowed(ctx, state); !allowed { // the configuration may have changed
		return false, err
	}

	// An inline action only starts to run in phase executing, once this write has succeeded.
	if l.runsInline(state.ke) {
		l.runs.inline.Store(state.ke.UID, inlineRun{})
		enterExecutingPhase(state, v1alpha1.ExecutionResults{Mode: v1alpha1.ExecuteInline})
		return true, nil
	}
	return l.startJob(ctx, state)
}

// startJob creates the Job that runs the action. started is as of startAction.
func (l *launch) startJob(ctx context.Context, state *reconcileState) (mayHaveStarted bool, err error) {
	built, err := job.Build(state.ke, state.ke.Status.Plan, v1alpha1.PurposeExecute, 1, l.cfg.Job)
	if err != nil {
		failExecution(state, execution.Failure{
			Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: err.Error(),
		})
		return false, nil //nolint:nilerr // the execution ends with it
	}

	// The launch is remembered before the request, because its response may be lost. If this process
	// launched a Job before, that Job is gone, and the execution may have ended with it. The object
	// that was read is stale then, and a write fails.
	_, launchedBefore := l.runs.launched.Swap(state.ke.UID, true)
	if launchedBefore {
		if err := l.writer.writeStatus(ctx, state.ke); err != nil {
			return true, err
		}
	}
	j, err := l.runs.jobs.CreateOrGet(ctx, state.ke, built)
	if err != nil {
		l.metrics.jobs.WithLabelValues("failed").Inc()
		refused := isDefinitelyRefused(err)
		if refused && !launchedBefore {
			l.runs.launched.Delete(state.ke.UID)
		}
		return !refused, l.retryOrFailStart(ctx, state, fmt.Errorf("create the Job: %w", err))
	}

	// A Job that already existed may run an earlier plan. The status shows the plan that runs.
	if j.Annotations[v1alpha1.AnnotationPlan] != state.ke.Status.Plan.Hash {
		if state.ke.Status.Plan, err = decodeJobPlan(j); err != nil {
			return true, fmt.Errorf("read the plan in Job %q: %w", j.Name, err)
		}
	}
	l.metrics.jobs.WithLabelValues("created").Inc()
	enterExecutingPhase(state, v1alpha1.ExecutionResults{JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob})
	return true, nil
}

// retryOrFailStart retries a start that cannot succeed at present, and fails the execution after a timeout.
func (l *launch) retryOrFailStart(ctx context.Context, state *reconcileState, cause error) error {
	failure, err := l.retries.requeueOrFail(ctx, state, cause)
	if failure != nil {
		failExecution(state, *failure)
	}
	return err
}

// isDefinitelyRefused reports whether the API server certainly did not execute a request.
func isDefinitelyRefused(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	if code == http.StatusRequestTimeout { // the API server may still execute the request
		return false
	}
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError
}

// enterExecutingPhase sets in the status that the action runs. run names the Job, if any, and the mode.
func enterExecutingPhase(state *reconcileState, run v1alpha1.ExecutionResults) {
	status := &state.ke.Status
	run.PlanHash = status.Plan.Hash
	run.StartTime = toAPITime(state.now)
	status.ExecutionResults = &run
	status.JobName = run.JobName
	status.Message = ""
	status.ReasonDetail = ""
	removeCondition(status, v1alpha1.ConditionQueued)
	enterPhase(state, v1alpha1.PhaseExecuting)
}

// failIfInlineNotAllowed refuses to run an action inline that is not allowed to.
func (l *launch) failIfInlineNotAllowed(_ context.Context, state *reconcileState) (proceed bool, err error) {
	a, known := action.Find(state.ke.Spec.Action)
	requested := state.ke.Spec.ExecutionMode == v1alpha1.ExecuteInline
	if !requested || !known || a.NoJob || slices.Contains(l.cfg.Inline, a.Name) {
		return true, nil
	}
	failExecution(state, execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters,
		Message: fmt.Sprintf("action %q is not allowed to run inline: omit spec.executionMode, "+
			"or add the action to --inline-actions of the controller", a.Name),
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

// replanAndRecheckApproval computes the plan again after a wait and reports whether it may run. If not, the status
// shows why.
func (l *launch) replanAndRecheckApproval(ctx context.Context, state *reconcileState) (mayRun bool, err error) {
	if state.checked {
		return true, nil
	}
	status := &state.ke.Status
	outcome, err := l.check.Replan(ctx, state.ke, state.now)
	if err != nil {
		return false, l.retryOrFailStart(ctx, state, fmt.Errorf("compute the plan again: %w", err))
	}
	if outcome.Failed != nil {
		status.ValidationResults = keepFirstConditionAndDryRunResults(status.ValidationResults, outcome.Results)
		failExecution(state, *outcome.Failed)
		return false, nil
	}
	storeResultsIfNewlyKilled(status, outcome.Results.PreConditionResults, nil)

	planChanged := outcome.Plan.Hash != status.Plan.Hash
	approved := status.Approval != nil && status.Approval.Required
	switch {
	case approved && planChanged:
		failExecution(state, stalePlanFailure(status.Plan, outcome.Plan))
		return false, nil
	case approved && execution.RequiresStricterApproval(*status.Approval, outcome.Decision):
		failExecution(state, stricterApprovalFailure())
		return false, nil
	case !approved && outcome.Decision.RequireApproval: // the policy has changed
		replaceUnapprovedPlan(state, outcome)
		l.approval.requestOrRenewApproval(state)
		return false, nil
	case planChanged:
		replaceUnapprovedPlan(state, outcome)
	}
	status.Plan.Target = outcome.Plan.Target // version and generation may have changed
	return true, nil
}

// replaceUnapprovedPlan replaces a plan that is not approved.
func replaceUnapprovedPlan(state *reconcileState, outcome check.Outcome) {
	status := &state.ke.Status
	status.Plan = outcome.Plan
	status.ValidationResults = keepFirstConditionAndDryRunResults(status.ValidationResults, outcome.Results)
	if outcome.Decision.RequireApproval {
		pending := execution.InitialApprovalStatus(outcome.Decision, nil)
		status.Approval = &pending
	}
}

// stricterApprovalFailure is the failure of an approved plan that now needs another approval.
func stricterApprovalFailure() execution.Failure {
	return execution.Failure{
		Reason: v1alpha1.ReasonPlanStale, Detail: v1alpha1.Detail(v1alpha1.ReasonPlanStale),
		Message: "the policies now require more or other approvers than when the plan was made. " +
			"Nothing was changed. Create the execution again to request their approval",
	}
}

// stalePlanFailure describes how the current plan differs from the approved one.
func stalePlanFailure(approved, current *v1alpha1.Plan) execution.Failure {
	detail := v1alpha1.Detail(v1alpha1.ReasonPlanStale)
	var changed string
	switch {
	case approved.Target.UID != current.Target.UID:
		detail = v1alpha1.DetailTargetChanged
		changed = "the target, now another object with the same name"
	case string(rawBytes(approved.Before)) != string(rawBytes(current.Before)):
		detail = v1alpha1.DetailTargetChanged
		changed = "the target: " + strings.Join(action.DescribeDifferences(approved.Before, current.Before), "; ")
	case approved.PolicyHash != current.PolicyHash:
		changed = "the policies"
	default:
		changed = "its steps"
	}
	message := fmt.Sprintf("the plan is stale, changed since planning: %s. Nothing was changed. "+
		"Create the execution again to have the new plan approved", changed)
	return execution.Failure{
		Reason: v1alpha1.ReasonPlanStale, Detail: detail, Message: action.TruncateText(message, maxMessage),
	}
}
