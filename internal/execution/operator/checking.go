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

// startValidating moves a new execution to phase validating. The checks join its write unless they
// have to wait.
func startValidating(_ context.Context, t *reconcileState) (proceed bool, err error) {
	if request, err := action.Parse(&t.ke.Spec); err == nil {
		t.ke.Status.Target = formatTarget(request.Target)
	}
	enterPhase(t, v1alpha1.PhaseValidating)
	return true, nil
}

// failIfCancelled ends an execution that is cancelled before its action starts.
func failIfCancelled(_ context.Context, t *reconcileState) (proceed bool, err error) {
	if t.ke.Spec.Cancel {
		failExecution(t, cancelledFailure(t.ke))
		return false, nil
	}
	return true, nil
}

// completeIfDryRun ends an execution that requested only a dry run. The controller may also have
// switched to dry-run mode.
func completeIfDryRun(_ context.Context, t *reconcileState) (proceed bool, err error) {
	if t.ke.Spec.DryRunMode != v1alpha1.DryRunOnly {
		return true, nil
	}
	s := &t.ke.Status
	s.Outcome, s.ReasonDetail = v1alpha1.OutcomeSucceeded, ""
	s.Message = "dry run: " + s.Plan.Impact.Description
	setCondition(t, v1alpha1.ConditionSucceeded, metav1.ConditionTrue, v1alpha1.ConditionReasonDryRun, s.Message)
	enterPhase(t, v1alpha1.PhaseCompleted)
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
func (v *validation) requeueUntilDryRunJobEnds(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	dry, until, failed, err := v.runs.pollDryRunJob(ctx, t.ke, t.now)
	switch {
	case err != nil:
		return false, err
	case failed != nil:
		ensureValidationResults(&t.ke.Status).ValidationTime = toAPITime(t.now)
		failExecution(t, *failed)
		return false, nil
	case !until.IsZero():
		t.requeueAt(until)
		return false, nil
	}
	t.dryRun = dry
	return true, nil
}

// runChecks makes the checks and computes the plan. It proceeds if a plan passed.
func (v *validation) runChecks(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	out, err := v.check.Check(ctx, t.ke, t.dryRun, t.now)
	t.now = v.now() // the checks take time
	storeKilledResults(&t.ke.Status, out.Results.PreConditionResults, out.Results.PostConditionResults)
	if err != nil {
		return false, v.retryOrFailCheck(ctx, t, err)
	}
	s := &t.ke.Status
	if out.Target != "" {
		s.Target = out.Target
	}
	switch {
	case out.Failed != nil:
		storePlanAndResults(t, out)
		failExecution(t, *out.Failed)
		return false, nil
	case out.NeedDryRunJob:
		return false, v.startDryRunJob(ctx, t, out.Plan)
	case out.Wait > 0:
		v.setCheckWaitAndWatchTarget(t, out)
		return false, nil
	}
	v.acceptPlan(t, out)
	return true, nil
}

// setCheckWaitAndWatchTarget waits for preconditions that do not pass yet, or for a target that its controller has not
// observed.
func (v *validation) setCheckWaitAndWatchTarget(t *reconcileState, out check.Outcome) {
	s := &t.ke.Status
	reason, message := "WaitingForPreconditions", "waiting for preconditions to pass"
	if out.WaitsForTarget {
		reason, message = "WaitingForTarget", "waiting until the controller of the target has observed its latest change"
	}
	if c := findCondition(s, v1alpha1.ConditionValidated); c == nil || c.Reason != reason { // only once, to avoid a write per reconcile
		s.ValidationResults = &out.Results
		s.Message, s.ReasonDetail = message, ""
		setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, reason, s.Message)
	}
	if request, err := action.Parse(&t.ke.Spec); err == nil {
		v.targets.watchTarget(nameOf(t.ke), request.Target)
	}
	t.requeueIn(out.Wait)
}

// acceptPlan stores a plan that passed all checks.
func (v *validation) acceptPlan(t *reconcileState, out check.Outcome) {
	s := &t.ke.Status
	storePlanAndResults(t, out)
	pending := execution.InitialApprovalStatus(out.Decision, nil)
	s.Approval = &pending
	s.Message, s.ReasonDetail = out.Plan.Impact.Description, ""
	setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionTrue, "ChecksPassed", "all checks passed")
	enterPhase(t, v1alpha1.PhaseValidated)
	t.addAfterWrite(func(ctx context.Context) {
		v.events.warnFailedOptionalConditions(ctx, t.ke, "Precondition", out.Results.PreConditionResults)
		for _, w := range out.Warnings {
			v.events.emitWarning(t.ke, "PolicyWarning", w)
		}
	})
}

// storePlanAndResults stores the plan and the results of final checks.
func storePlanAndResults(t *reconcileState, out check.Outcome) {
	s := &t.ke.Status
	s.Plan, s.ValidationResults, s.ValidationTime = out.Plan, &out.Results, toAPITime(t.now)
	s.ValidationResults.ValidationTime = toAPITime(t.now)
}

// startDryRunJob creates the Job that runs the plan as a dry run.
func (v *validation) startDryRunJob(ctx context.Context, t *reconcileState, plan *v1alpha1.Plan) error {
	j, err := job.Build(t.ke, plan, v1alpha1.PurposeDryRun, 1, v.cfg.Job)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Message: err.Error()})
		return nil //nolint:nilerr // the execution ends with it
	}
	if _, err := v.runs.jobs.CreateOrGet(ctx, t.ke, j); err != nil {
		return v.retryOrFailCheck(ctx, t, err)
	}
	t.requeueIn(dryRunTimeout)
	return nil
}

// retryOrFailCheck retries checks that could not run, up to Config.CheckTimeout, and shows the error in
// the status.
func (v *validation) retryOrFailCheck(ctx context.Context, t *reconcileState, err error) error {
	if ctx.Err() != nil {
		return err
	}
	detail := v1alpha1.DetailExecutorUnavailable
	switch {
	case errors.Is(err, execution.ErrNoPolicies):
		detail = v1alpha1.DetailPolicyUnavailable
	case guard.IsUnknown(err):
		detail = v1alpha1.DetailAdmissionPoliciesMissing
	}
	const reason = "CheckError"
	known := findCondition(&t.ke.Status, v1alpha1.ConditionValidated)
	if known != nil && known.Reason == reason && !t.now.Before(known.LastTransitionTime.Add(v.cfg.CheckTimeout)) {
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: detail,
			Message: fmt.Sprintf("the controller failed for %s to run the checks: %v", v.cfg.CheckTimeout, err),
		})
		return nil
	}
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) && (known == nil || known.Reason != reason) &&
		t.now.Before(execution.PhaseStartOrNow(t.ke, v1alpha1.PhaseValidating, t.now).Add(maxConditionTimeout(t.ke.Spec.PreConditions)+v.cfg.CheckTimeout)) {
		v.log.DebugContext(ctx, "condition evaluation deferred", "execution", logKey(t.ke), "err", err)
		t.requeueIn(retry.After) // not written to the status, because it affects many executions at once
		return nil
	}
	v.log.WarnContext(ctx, "execution check failed, retrying", "execution", logKey(t.ke), "err", err)
	if known == nil || known.Reason != reason { // only once, to avoid a write per reconcile
		removeCondition(&t.ke.Status, v1alpha1.ConditionValidated) // its transition time is when the errors began
		t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, action.TruncateText("the controller failed to run the checks and retries: "+err.Error(), maxMessage)
		setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, reason, t.ke.Status.Message)
	}
	t.requeueIn(checkRetryDelayFor(err))
	return nil
}

// checkRetryDelayFor returns the delay before checks that could not run are retried.
func checkRetryDelayFor(err error) time.Duration {
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) {
		return max(retry.After, checkRetryDelay)
	}
	return checkRetryDelay
}

// verifyRequest checks whether the API server verified the requester and whether the request is
// unchanged. If not, it fails the execution.
func (v *validation) verifyRequest(ctx context.Context, t *reconcileState) (proceed bool, err error) {
	parameters, err := hashParameters(t.ke)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters, Message: err.Error()})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	switch known := t.ke.Status.VerifiedRequest; {
	case known == nil:
		return v.verifyNewRequest(ctx, t, parameters)
	case known.ParametersHash != parameters: // the schema cannot detect it, and the guard had a gap
		failUnverified(t, "spec.parameters were changed while the admission policies were not in force")
		return false, nil
	}
	return true, nil
}

// verifyNewRequest verifies a request that has not been verified yet.
func (v *validation) verifyNewRequest(ctx context.Context, t *reconcileState, parametersSum string) (proceed bool, err error) {
	period, err := v.guard.Confirm(ctx)
	switch created := t.ke.CreationTimestamp.Time; {
	case errors.Is(err, guard.ErrOff):
		return true, nil
	case err != nil && guard.IsUnknown(err) && t.ke.Status.Phase == v1alpha1.PhaseValidating:
		return false, v.retryOrFailCheck(ctx, t, err)
	case err != nil && guard.IsUnknown(err):
		t.requeueIn(checkRetryDelay)
		return false, nil
	case err != nil:
		failUnverified(t, fmt.Sprintf("the admission policies did not verify the requester: %v", err))
		return false, nil
	case !period.Covers(created):
		failUnverified(t, fmt.Sprintf("the execution was created at %s, but the admission policies have been continuously in force only since %s", created.UTC().Format(time.RFC3339), period.Since.UTC().Format(time.RFC3339)))
		return false, nil
	}
	t.ke.Status.VerifiedRequest = &v1alpha1.VerifiedRequest{AdmissionPolicyPeriod: period.ID, ParametersHash: parametersSum}
	return true, nil
}

// failUnverified fails an execution whose requester may not be the named one.
func failUnverified(t *reconcileState, why string) {
	failExecution(t, execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailRequesterUnverified,
		Message: "the requester is not verified, so nothing was changed: " + why + ". Create it again once the admission policies are in force",
	})
}

// hashParameters returns the SHA-256 of the normalized parameters.
func hashParameters(ke *v1alpha1.KubernetesExecution) (string, error) {
	if ke.Spec.Parameters == nil || len(ke.Spec.Parameters.Raw) == 0 {
		return "", nil
	}
	var parameters any
	if err := json.Unmarshal(ke.Spec.Parameters.Raw, &parameters); err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	text, err := json.Marshal(parameters)
	if err != nil {
		return "", fmt.Errorf("read spec.parameters: %w", err)
	}
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:]), nil
}
