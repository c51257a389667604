package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// dryRunTimeout limits a dry run in a Job, from the start of its container. Until the container
// starts, it counts from the creation of the Job.
const dryRunTimeout = 30 * time.Second

// checkRetryDelay is the delay before checks that could not run are retried.
const checkRetryDelay = 2 * time.Second

// acceptAndValidate moves a new execution to phase validating and checks it. Both are one write if
// the checks need not wait.
func (r *reconciler) acceptAndValidate(ctx context.Context, t *reconcileState) error {
	if request, err := action.Parse(&t.ke.Spec); err == nil {
		t.ke.Status.Target = formatTarget(request.Target)
	}
	enterPhase(t, v1alpha1.PhaseValidating)
	return r.validateExecution(ctx, t)
}

// validateExecution runs the checks and computes the plan.
func (r *reconciler) validateExecution(ctx context.Context, t *reconcileState) error {
	if t.ke.Spec.Cancel {
		failExecution(t, cancelledFailure(t.ke))
		return nil
	}
	if verified, err := r.verifyRequesterAndParameters(ctx, t); err != nil || !verified {
		return err
	}
	if refusal := r.inlineForbidden(t.ke); refusal != nil {
		failExecution(t, *refusal)
		return nil
	}
	dry, waits, failed, err := r.finishDryRunJob(ctx, t)
	if err != nil || waits {
		return err
	}
	if failed != nil {
		t.ke.Status.ValidationResults = withValidationTime(t.ke.Status.ValidationResults, t.now)
		failExecution(t, *failed)
		return nil
	}
	out, err := r.check.Check(ctx, t.ke, dry, t.now)
	t.now = r.now() // the checks take time
	storeKilledResults(&t.ke.Status, out.Results.PreConditionResults, out.Results.PostConditionResults)
	if err != nil {
		return r.retryOrFailCheck(ctx, t, err)
	}
	return r.handleOutcome(ctx, t, out)
}

// handleOutcome applies the outcome of the checks.
func (r *reconciler) handleOutcome(ctx context.Context, t *reconcileState, out check.Outcome) error {
	s := &t.ke.Status
	if out.Target != "" {
		s.Target = out.Target
	}
	switch {
	case out.Failed != nil:
		s.Plan = out.Plan
		s.ValidationResults = withValidationTime(&out.Results, t.now)
		s.ValidationTime = newTime(t.now)
		failExecution(t, *out.Failed)
	case out.NeedDryRunJob:
		return r.startDryRunJob(ctx, t, out.Plan)
	case out.Wait > 0:
		if c := findCondition(s, v1alpha1.ConditionValidated); c == nil || c.Reason != "WaitingForPreconditions" { // only once, to avoid a write per reconcile
			s.ValidationResults = &out.Results
			s.Message, s.ReasonDetail = "waiting for preconditions to pass", ""
			setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, "WaitingForPreconditions", s.Message)
		}
		if request, err := action.Parse(&t.ke.Spec); err == nil {
			r.targets.watchTarget(nameOf(t.ke), request.Target)
		}
		t.requeueIn(out.Wait)
	default:
		return r.acceptPlan(ctx, t, out)
	}
	return nil
}

// acceptPlan stores a plan that passed all checks and starts the next step.
func (r *reconciler) acceptPlan(ctx context.Context, t *reconcileState, out check.Outcome) error {
	s := &t.ke.Status
	s.Plan = out.Plan
	s.ValidationResults = withValidationTime(&out.Results, t.now)
	s.ValidationTime = newTime(t.now)
	pending := execution.InitialApprovalStatus(out.Decision, nil)
	s.Approval = &pending
	s.Message, s.ReasonDetail = out.Plan.Impact.Description, ""
	setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionTrue, "ChecksPassed", "all checks passed")
	enterPhase(t, v1alpha1.PhaseValidated)
	t.addAfterWrite(func(ctx context.Context) {
		r.warnFailedOptional(ctx, t.ke, "PreconditionWarning", "precondition", out.Results.PreConditionResults)
		for _, w := range out.Warnings {
			r.events.emitWarning(t.ke, "PolicyWarning", w)
		}
	})
	switch { // a next step without side effects joins this write
	case needsApproval(t.ke):
		r.requestApproval(t)
	case t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly:
		completeDryRun(t)
	case r.isInline(t.ke):
		t.checked = true
		return r.tryLaunchAction(ctx, t)
	}
	return nil
}

// warnFailedOptional logs and emits a warning for each optional condition that failed.
func (r *reconciler) warnFailedOptional(ctx context.Context, ke *v1alpha1.KubernetesExecution, eventReason, conditionKind string, results []v1alpha1.ConditionResult) {
	for _, c := range results {
		if c.Passed || c.Required {
			continue
		}
		r.log.WarnContext(ctx, "optional condition failed", "execution", logKey(ke), "kind", conditionKind, "condition", c.ConditionType, "message", c.ErrorMessage)
		r.events.emitWarning(ke, eventReason, fmt.Sprintf("%s %q failed: %s", conditionKind, c.ConditionType, c.ErrorMessage))
	}
}

// retryOrFailCheck retries checks that could not run, up to Config.CheckTimeout, and shows the error in
// the status.
func (r *reconciler) retryOrFailCheck(ctx context.Context, t *reconcileState, err error) error {
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
	if known != nil && known.Reason == reason && !t.now.Before(known.LastTransitionTime.Add(r.cfg.CheckTimeout)) {
		failExecution(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: detail,
			Message: fmt.Sprintf("the controller failed for %s to run the checks: %v", r.cfg.CheckTimeout, err),
		})
		return nil
	}
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) && (known == nil || known.Reason != reason) &&
		t.now.Before(phaseStart(t.ke, v1alpha1.PhaseValidating, t.now).Add(maxConditionTimeout(t.ke.Spec.PreConditions)+r.cfg.CheckTimeout)) {
		r.log.DebugContext(ctx, "condition evaluation deferred", "execution", logKey(t.ke), "err", err)
		t.requeueIn(retry.After) // not written to the status, because it affects many executions at once
		return nil
	}
	r.log.WarnContext(ctx, "execution check failed, retrying", "execution", logKey(t.ke), "err", err)
	if known == nil || known.Reason != reason { // only once, to avoid a write per reconcile
		removeCondition(&t.ke.Status, v1alpha1.ConditionValidated) // its transition time is when the errors began
		t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, truncateText("the controller failed to run the checks and retries: "+err.Error(), maxMessage)
		setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, reason, t.ke.Status.Message)
	}
	t.requeueIn(checkRetryAfter(err))
	return nil
}

// checkRetryAfter returns the delay before checks that could not run are retried.
func checkRetryAfter(err error) time.Duration {
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) {
		return max(retry.After, checkRetryDelay)
	}
	return checkRetryDelay
}

// finishDryRunJob returns the result of the dry run in a Job, if such a Job exists.
func (r *reconciler) finishDryRunJob(ctx context.Context, t *reconcileState) (dry *action.Result, waits bool, failed *execution.Failure, err error) {
	j, err := r.jobs.Job(ctx, t.ke, job.Name(t.ke.UID, v1alpha1.PurposeDryRun, 1), false)
	if err != nil || j == nil {
		return nil, false, nil, err
	}
	o, err := r.observeJob(ctx, t, j)
	if err != nil {
		return nil, false, nil, err
	}
	if o.Result != nil && (o.State == job.Succeeded || o.State == job.Failed) {
		return o.Result, false, nil, r.setJobTTL(ctx, j)
	}
	began := j.CreationTimestamp.Time
	detail, what := v1alpha1.DetailExecutorUnavailable, "did not start"
	if o.Started != nil {
		began, detail, what = *o.Started, v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), "did not finish"
	}
	switch end := began.Add(dryRunTimeout); {
	case o.State == job.Failed:
		failed = &execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Detail: o.Failure.Detail, Message: o.Failure.Message}
	case !t.now.Before(end):
		failed = &execution.Failure{
			Reason: v1alpha1.ReasonDryRunFailed, Detail: detail,
			Message: fmt.Sprintf("dry run %s within %s: see Job %q", what, dryRunTimeout, j.Name),
		}
	default:
		t.requeueAt(end)
		return nil, true, nil, nil
	}
	return nil, false, failed, errors.Join(r.jobs.Patch(ctx, j, map[string]any{"suspend": true}), r.setJobTTL(ctx, j))
}

// startDryRunJob creates the Job that runs the plan as a dry run.
func (r *reconciler) startDryRunJob(ctx context.Context, t *reconcileState, plan *v1alpha1.Plan) error {
	j, err := job.Build(t.ke, plan, v1alpha1.PurposeDryRun, 1, r.cfg.Job)
	if err != nil {
		failExecution(t, execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Message: err.Error()})
		return nil //nolint:nilerr // the execution ends with it
	}
	if _, err := r.jobs.CreateOrGet(ctx, t.ke, j); err != nil {
		return r.retryOrFailCheck(ctx, t, err)
	}
	t.requeueIn(dryRunTimeout)
	return nil
}

// observeJob derives the state of a Job from the Job and its Pods.
func (r *reconciler) observeJob(ctx context.Context, t *reconcileState, j *batchv1.Job) (job.Observation, error) {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return job.Observation{}, err
	}
	o := job.Observe(j, pods, t.now)
	if o.State != job.Failed || o.Result != nil {
		return o, nil
	}
	// The cache may not have the result yet, so read the Pods from the host cluster.
	if pods, err = r.jobs.Pods(ctx, j, true); err != nil {
		return job.Observation{}, err
	}
	return job.Observe(j, pods, t.now), nil
}

// periodCheckInterval is how often a waiting approval is compared with the period of the guard.
// After a gap, approvers need the new plan hash.
const periodCheckInterval = 30 * time.Second

// launchOnceApproved evaluates the approvals and launches the action once the plan is approved.
func (r *reconciler) launchOnceApproved(ctx context.Context, t *reconcileState) error {
	if taken, err := r.adoptJob(ctx, t); err != nil || taken {
		return err
	}
	if t.ke.Spec.Cancel {
		failExecution(t, cancelledFailure(t.ke))
		return nil
	}
	if verified, err := r.verifyRequesterAndParameters(ctx, t); err != nil || !verified {
		return err
	}
	period, missing := r.admissionPolicyPeriod(ctx, t.ke)
	if p := t.ke.Status.Plan; missing == nil && p != nil && p.AdmissionPolicyPeriod != period.ID {
		r.requestApproval(t)
		t.requeueIn(periodCheckInterval)
		t.requeueAt(t.ke.Status.Approval.Deadline.Time)
		return nil
	}
	status, failed, until := execution.DecideApproval(t.ke, missing, t.now)
	before := t.ke.Status.Approval
	t.ke.Status.Approval = &status
	switch {
	case failed != nil:
		if status.State == v1alpha1.ApprovalRejected {
			setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Rejected", failed.Message)
			r.recordDecision(t, v1alpha1.Reject)
		} else {
			setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Expired", failed.Message)
		}
		failExecution(t, *failed)
		return nil
	case missing != nil || status.State != v1alpha1.ApprovalApproved:
		r.setPendingApproval(t, missing, until)
		return nil
	}
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionTrue, "Approved", approvedByText(status))
	if before == nil || before.State != v1alpha1.ApprovalApproved {
		t.ke.Status.ReasonDetail, t.ke.Status.Message = "", approvedByText(status)
		r.recordDecision(t, v1alpha1.Approve)
		t.continueNow = true // the approval is written before the Job is created: a Job must not outlive its operator without an approval
		return nil
	}
	return r.tryLaunchAction(ctx, t)
}

// admissionPolicyPeriod returns the period without a gap in which approvals are checked, or the
// reason why none exists. If the execution has approvals, the period is confirmed after they were
// read.
func (r *reconciler) admissionPolicyPeriod(ctx context.Context, ke *v1alpha1.KubernetesExecution) (guard.Period, error) {
	if len(ke.Spec.Approvals) == 0 && !ke.Spec.ApprovalReceived {
		return r.guard.Period()
	}
	return r.guard.Confirm(ctx)
}

// setPendingApproval writes which approval is missing, or why an approval does not count, to the
// status.
func (r *reconciler) setPendingApproval(t *reconcileState, approversUnverified error, until time.Time) {
	detail, waiting := execution.DescribePendingApproval(t.ke, approversUnverified)
	t.requeueIn(periodCheckInterval)
	if approversUnverified != nil {
		t.requeueIn(10 * time.Second)
	}
	t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, waiting
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", waiting)
	if !until.IsZero() {
		t.requeueAt(until)
	}
}

// proceedValidated takes the next step for a plan that passed the checks.
func (r *reconciler) proceedValidated(ctx context.Context, t *reconcileState) error {
	if taken, err := r.adoptJob(ctx, t); err != nil || taken {
		return err
	}
	if t.ke.Spec.Cancel {
		failExecution(t, cancelledFailure(t.ke))
		return nil
	}
	if verified, err := r.verifyRequesterAndParameters(ctx, t); err != nil || !verified {
		return err
	}
	switch {
	case t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly:
		completeDryRun(t)
	case needsApproval(t.ke):
		r.requestApproval(t)
	default:
		return r.tryLaunchAction(ctx, t)
	}
	return nil
}

// needsApproval reports whether a validated execution waits for an approval next.
func needsApproval(ke *v1alpha1.KubernetesExecution) bool {
	a := ke.Status.Approval
	return ke.Spec.DryRunMode != v1alpha1.DryRunOnly && a != nil && a.Required && a.State != v1alpha1.ApprovalApproved
}

// requestApproval asks for an approval, for the first time or again after a gap of the guard.
// Earlier approvals do not count, because they cannot name the new plan hash.
func (r *reconciler) requestApproval(t *reconcileState) {
	s := &t.ke.Status
	again := s.Phase == v1alpha1.PhaseWaitingApproval
	period, missing := r.guard.Period()
	s.Plan.AdmissionPolicyPeriod = period.ID
	s.Plan.Hash = action.Hash(s.Plan)
	a := s.Approval
	a.State, a.CountedDecisions, a.DecidedAt, a.ReceivedTooEarly = v1alpha1.ApprovalPending, nil, nil, t.ke.Spec.ApprovalReceived
	timeout := r.cfg.ApprovalTimeout
	if own := t.ke.Spec.ApprovalTimeout; own != nil && own.Duration > 0 {
		timeout = own.Duration
	}
	a.Deadline = newTime(t.now.Add(timeout).Add(time.Second - 1)) // API times have no fractions of a second
	s.ReasonDetail, s.Message = execution.DescribePendingApproval(t.ke, missing)
	if again {
		s.Message = "the admission policies changed, so earlier approvals are no longer valid; " + s.Message
	}
	removeCondition(s, v1alpha1.ConditionQueued)
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", s.Message)
	if !again {
		enterPhase(t, v1alpha1.PhaseWaitingApproval)
	}
	t.addAfterWrite(func(context.Context) {
		r.events.emitNormal(t.ke, "ApprovalRequired", fmt.Sprintf("%s; to approve: fleetloop approve %s -n %s", s.Message, t.ke.Name, t.ke.Namespace))
	})
}
