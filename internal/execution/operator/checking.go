package operator

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// checkRetryDelay is the delay before checks that could not run are retried.
const checkRetryDelay = 2 * time.Second

// startValidating moves a new execution to phase validating. The steps of that phase follow in the same
// write. An invalid request has no target yet; the checks report why.
func startValidating(_ context.Context, state *reconcileState) (proceed bool, err error) {
	if request, err := action.Parse(&state.ke.Spec); err == nil {
		state.ke.Status.Target = formatTarget(request.Target)
	}
	enterPhase(state, v1alpha1.PhaseValidating)
	return true, nil
}

// failIfCancelled ends an execution that is cancelled before its action starts.
func failIfCancelled(_ context.Context, state *reconcileState) (proceed bool, err error) {
	if state.ke.Spec.Cancel {
		failExecution(state, cancelledFailure(state.ke))
		return false, nil
	}
	return true, nil
}

// completeIfDryRun ends an execution that requested only a dry run. The controller may also have
// switched to dry-run mode.
func completeIfDryRun(_ context.Context, state *reconcileState) (proceed bool, err error) {
	if state.ke.Spec.DryRunMode != v1alpha1.DryRunOnly {
		return true, nil
	}
	status := &state.ke.Status
	status.Outcome = v1alpha1.OutcomeSucceeded
	status.ReasonDetail = ""
	status.Message = "dry run: " + status.Plan.Impact.Description
	setCondition(state, v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ConditionReasonDryRun, status.Message)
	enterPhase(state, v1alpha1.PhaseCompleted)
	return false, nil
}

// validation checks executions and stores their plans.
type validation struct {
	cfg     *Config
	check   *measuredChecker
	guard   admissionGuard
	runs    *runs
	targets targetWatcher
	events  *eventEmitter
	log     *slog.Logger
	now     func() time.Time
}

// requeueUntilDryRunJobEnds waits for the dry run in a Job, if one was started.
func (v *validation) requeueUntilDryRunJobEnds(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	result, waitUntil, failure, err := v.runs.pollOrStopDryRunJob(ctx, state.ke, state.now)
	switch {
	case err != nil:
		return false, err
	case failure != nil:
		ensureValidationResults(&state.ke.Status).ValidationTime = toAPITime(state.now)
		failExecution(state, *failure)
		return false, nil
	case !waitUntil.IsZero():
		state.requeueAt(waitUntil)
		return false, nil
	}
	state.dryRun = result // nil if no Job was started
	return true, nil
}

// runChecks makes the checks and computes the plan. It proceeds if a plan passed.
func (v *validation) runChecks(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	status := &state.ke.Status
	outcome, err := v.check.Check(ctx, state.ke, state.dryRun, state.now)
	state.now = v.now() // the checks take time
	storeResultsIfNewlyKilled(status, outcome.Results.PreConditionResults, outcome.Results.PostConditionResults)
	if err != nil {
		return false, v.retryOrFailCheck(ctx, state, err)
	}
	if outcome.Target != "" {
		status.Target = outcome.Target
	}
	switch {
	case outcome.Failed != nil:
		storePlanAndResults(state, outcome)
		failExecution(state, *outcome.Failed)
		return false, nil
	case outcome.NeedDryRunJob:
		return false, v.startDryRunJob(ctx, state, outcome.Plan)
	case outcome.Wait > 0:
		setCheckWaitStatus(state, outcome)
		v.watchRequestedTarget(state.ke)
		state.requeueIn(outcome.Wait)
		return false, nil
	}
	v.acceptPlan(state, outcome)
	return true, nil
}

// setCheckWaitStatus writes to the status what the checks wait for: preconditions that do not pass yet, or a
// target whose controller has not observed its latest change. It writes each reason once, because a
// write per reconcile would be too many.
func setCheckWaitStatus(state *reconcileState, outcome check.Outcome) {
	reason := "WaitingForPreconditions"
	message := "waiting for preconditions to pass"
	if outcome.WaitsForTarget {
		reason = "WaitingForTarget"
		message = "waiting until the controller of the target has observed its latest change"
	}
	status := &state.ke.Status
	if validated := findCondition(status, v1alpha1.ConditionValidated); validated != nil && validated.Reason == reason {
		return
	}
	status.ValidationResults = &outcome.Results
	status.Message = message
	status.ReasonDetail = ""
	setCondition(state, v1alpha1.ConditionValidated, metav1.ConditionUnknown, reason, message)
}

// watchRequestedTarget wakes an execution when the target that it requests changes.
func (v *validation) watchRequestedTarget(ke *v1alpha1.KubernetesExecution) {
	if request, err := action.Parse(&ke.Spec); err == nil {
		v.targets.watchTarget(nameOf(ke), request.Target)
	}
}

// acceptPlan stores a plan that passed all checks.
func (v *validation) acceptPlan(state *reconcileState, outcome check.Outcome) {
	storePlanAndResults(state, outcome)
	status := &state.ke.Status
	approval := execution.InitialApprovalStatus(outcome.Decision, nil)
	status.Approval = &approval
	status.Message = outcome.Plan.Impact.Description
	status.ReasonDetail = ""
	setCondition(state, v1alpha1.ConditionValidated, metav1.ConditionTrue, "ChecksPassed", "all checks passed")
	enterPhase(state, v1alpha1.PhaseValidated)
	state.addAfterWrite(func(ctx context.Context) {
		v.events.warnFailedOptionalConditions(ctx, state.ke, "Precondition", outcome.Results.PreConditionResults)
		for _, warning := range outcome.Warnings {
			v.events.emitWarning(state.ke, "PolicyWarning", warning)
		}
	})
}

// storePlanAndResults stores the plan and the results of final checks.
func storePlanAndResults(state *reconcileState, outcome check.Outcome) {
	validatedAt := toAPITime(state.now)
	outcome.Results.ValidationTime = validatedAt
	status := &state.ke.Status
	status.Plan = outcome.Plan
	status.ValidationResults = &outcome.Results
	status.ValidationTime = validatedAt
}

// startDryRunJob creates the Job that runs the plan as a dry run.
func (v *validation) startDryRunJob(ctx context.Context, state *reconcileState, plan *v1alpha1.Plan) error {
	j, err := job.Build(state.ke, plan, v1alpha1.PurposeDryRun, 1, v.cfg.Job)
	if err != nil {
		failExecution(state, execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Message: err.Error()})
		return nil //nolint:nilerr // the execution ends with it
	}
	if _, err := v.runs.jobs.CreateOrGet(ctx, state.ke, j); err != nil {
		return v.retryOrFailCheck(ctx, state, err)
	}
	state.requeueIn(dryRunTimeout)
	return nil
}

// checkError is the reason of the condition Validated while the checks cannot run.
const checkError = "CheckError"

// retryOrFailCheck retries checks that could not run, up to Config.CheckTimeout, and shows the error in
// the status.
func (v *validation) retryOrFailCheck(ctx context.Context, state *reconcileState, err error) error {
	if ctx.Err() != nil {
		return err
	}
	status := &state.ke.Status
	detail := checkErrorDetail(err)
	validated := findCondition(status, v1alpha1.ConditionValidated)
	errorShown := validated != nil && validated.Reason == checkError

	// The transition time of the condition is when the errors began.
	if errorShown && !state.now.Before(validated.LastTransitionTime.Add(v.cfg.CheckTimeout)) {
		failExecution(state, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: detail,
			Message: fmt.Sprintf("the controller failed for %s to run the checks: %v", v.cfg.CheckTimeout, err),
		})
		return nil
	}

	// A lack of places for conditions affects many executions at once. To write it to the status of
	// each would overload the API server, so it is shown only if it lasts.
	retry, lacksPlace := errors.AsType[*execution.RetryError](err)
	if lacksPlace && !errorShown && state.now.Before(v.deferredChecksEnd(state)) {
		v.log.DebugContext(ctx, "condition evaluation deferred", "execution", logKey(state.ke), "err", err)
		state.requeueIn(retry.After)
		return nil
	}

	v.log.WarnContext(ctx, "execution check failed, retrying", "execution", logKey(state.ke), "err", err)
	if !errorShown { // only once, to avoid a write per reconcile
		removeCondition(status, v1alpha1.ConditionValidated) // so that its transition time is now
		status.ReasonDetail = detail
		status.Message = action.TruncateText("the controller failed to run the checks and retries: "+err.Error(), maxMessage)
		setCondition(state, v1alpha1.ConditionValidated, metav1.ConditionUnknown, checkError, status.Message)
	}
	state.requeueIn(checkRetryDelayFor(err))
	return nil
}

// checkErrorDetail returns the detail of an error of checks that could not run.
func checkErrorDetail(err error) v1alpha1.Detail {
	switch {
	case errors.Is(err, execution.ErrNoPolicies):
		return v1alpha1.DetailPolicyUnavailable
	case guard.IsUnknown(err):
		return v1alpha1.DetailAdmissionPoliciesMissing
	}
	return v1alpha1.DetailExecutorUnavailable
}

// deferredChecksEnd returns until when checks that lack a place are deferred without a trace in the
// status.
func (v *validation) deferredChecksEnd(state *reconcileState) time.Time {
	start := execution.PhaseStartOrNow(state.ke, v1alpha1.PhaseValidating, state.now)
	return start.Add(maxConditionTimeout(state.ke.Spec.PreConditions)).Add(v.cfg.CheckTimeout)
}

// checkRetryDelayFor returns the delay before checks that could not run are retried.
func checkRetryDelayFor(err error) time.Duration {
	if retry, ok := errors.AsType[*execution.RetryError](err); ok {
		return max(retry.After, checkRetryDelay)
	}
	return checkRetryDelay
}

// verifyAdmittedByPolicies checks whether the API server verified the requester and whether the request is
// unchanged. If not, it fails the execution.
func (v *validation) verifyAdmittedByPolicies(ctx context.Context, state *reconcileState) (proceed bool, err error) {
	parametersHash, err := hashParameters(state.ke)
	if err != nil {
		failExecution(state, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters, Message: err.Error(),
		})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	verified := state.ke.Status.VerifiedRequest
	if verified == nil {
		return v.verifyPoliciesInForceAtCreation(ctx, state, parametersHash)
	}
	// The admission policies refuse such a change, but they may have had a gap, and the schema of the
	// resource cannot detect it.
	if verified.ParametersHash != parametersHash {
		failUnverified(state, "spec.parameters were changed while the admission policies were not in force")
		return false, nil
	}
	return true, nil
}

// verifyPoliciesInForceAtCreation verifies a request that has not been verified yet.
func (v *validation) verifyPoliciesInForceAtCreation(
	ctx context.Context, state *reconcileState, parametersHash string,
) (proceed bool, err error) {
	period, err := v.guard.Confirm(ctx)
	created := state.ke.CreationTimestamp.Time
	switch {
	case errors.Is(err, guard.ErrOff):
		return true, nil
	case guard.IsUnknown(err) && state.ke.Status.Phase == v1alpha1.PhaseValidating:
		return false, v.retryOrFailCheck(ctx, state, err)
	case guard.IsUnknown(err): // later phases have their own timeouts
		state.requeueIn(checkRetryDelay)
		return false, nil
	case err != nil:
		failUnverified(state, fmt.Sprintf("the admission policies did not verify the requester: %v", err))
		return false, nil
	case !period.Covers(created):
		failUnverified(state, fmt.Sprintf(
			"the execution was created at %s, but the admission policies have been continuously in force only since %s",
			created.UTC().Format(time.RFC3339), period.Since.UTC().Format(time.RFC3339),
		))
		return false, nil
	}
	state.ke.Status.VerifiedRequest = &v1alpha1.VerifiedRequest{
		AdmissionPolicyPeriod: period.ID,
		ParametersHash:        parametersHash,
	}
	return true, nil
}

// failUnverified fails an execution whose requester may not be the named one.
func failUnverified(state *reconcileState, why string) {
	failExecution(state, execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailRequesterUnverified,
		Message: "the requester is not verified, so nothing was changed: " + why +
			". Create it again once the admission policies are in force",
	})
}

// hashParameters returns the SHA-256 of the normalized parameters. It is empty if there are none.
func hashParameters(ke *v1alpha1.KubernetesExecution) (string, error) {
	if ke.Spec.Parameters == nil || len(ke.Spec.Parameters.Raw) == 0 {
		return "", nil
	}
	var parameters any
	if err := json.Unmarshal(ke.Spec.Parameters.Raw, &parameters); err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	normalized, err := json.Marshal(parameters)
	if err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	sum := sha256.Sum256(normalized)
	return hex.EncodeToString(sum[:]), nil
}
