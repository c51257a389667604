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
	"github.com/fleetloop/fleetloop/internal/execution/approval"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// dryRunTimeout bounds a dry run in a Job, from the start of its container, and
// for one that does not start from the Job's.
const dryRunTimeout = 30 * time.Second

// checkAgain is when checks are tried again that could not be made.
const checkAgain = 2 * time.Second

// begin takes an execution up, and checks it. Where that is all there is to wait
// for, it is one write.
func (r *reconciler) begin(ctx context.Context, t *turn) error {
	if request, err := action.Parse(&t.ke.Spec); err == nil {
		t.ke.Status.Target = targetOf(request.Target)
	}
	enter(t, v1alpha1.PhaseValidating)
	return r.validate(ctx, t)
}

// validate checks, and makes the plan.
func (r *reconciler) validate(ctx context.Context, t *turn) error {
	if t.ke.Spec.Cancel {
		fail(t, cancelled(t.ke))
		return nil
	}
	if verified, err := r.verifyRequest(ctx, t); err != nil || !verified {
		return err
	}
	if refusal := r.notInline(t.ke); refusal != nil {
		fail(t, *refusal)
		return nil
	}
	dry, waits, failed, err := r.dryRun(ctx, t)
	if err != nil || waits {
		return err
	}
	if failed != nil {
		t.ke.Status.ValidationResults = ended(t.ke.Status.ValidationResults, t.now)
		fail(t, *failed)
		return nil
	}
	out, err := r.check.Check(ctx, t.ke, dry, t.now)
	t.now = r.now() // it took its time
	keepKilled(&t.ke.Status, out.Results.PreConditionResults, out.Results.PostConditionResults)
	if err != nil {
		return r.uncheckable(ctx, t, err)
	}
	return r.checked(ctx, t, out)
}

// checked goes on from what the checks gave.
func (r *reconciler) checked(ctx context.Context, t *turn, out check.Outcome) error {
	s := &t.ke.Status
	if out.Target != "" {
		s.Target = out.Target
	}
	switch {
	case out.Failed != nil:
		s.Plan = out.Plan
		s.ValidationResults = ended(&out.Results, t.now)
		s.ValidationTime = at(t.now)
		fail(t, *out.Failed)
	case out.NeedDryRunJob:
		return r.startDryRun(ctx, t, out.Plan)
	case out.Wait > 0:
		if c := condition(s, v1alpha1.ConditionValidated); c == nil || c.Reason != "WaitingForPreconditions" { // once: each look would be a write
			s.ValidationResults = &out.Results
			s.Message, s.ReasonDetail = "waiting for preconditions to pass", ""
			setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, "WaitingForPreconditions", s.Message)
		}
		if request, err := action.Parse(&t.ke.Spec); err == nil {
			r.targets.follow(nameOf(t.ke), request.Target)
		}
		t.wait(out.Wait)
	default:
		return r.valid(ctx, t, out)
	}
	return nil
}

// valid goes on with a plan that may be carried out.
func (r *reconciler) valid(ctx context.Context, t *turn, out check.Outcome) error {
	s := &t.ke.Status
	s.Plan = out.Plan
	s.ValidationResults = ended(&out.Results, t.now)
	s.ValidationTime = at(t.now)
	pending := approval.Begin(out.Decision, nil)
	s.Approval = &pending
	s.Message, s.ReasonDetail = out.Plan.Impact.Description, ""
	setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionTrue, "ChecksPassed", "all checks passed")
	enter(t, v1alpha1.PhaseValidated)
	t.afterwards(func(ctx context.Context) {
		r.warnOf(ctx, t.ke, "PreconditionWarning", "precondition", out.Results.PreConditionResults)
		for _, w := range out.Warnings {
			r.tell.warn(t.ke, "PolicyWarning", w)
		}
	})
	switch { // where nothing is done before the next write, that is this one
	case asksFirst(t.ke):
		r.ask(t)
	case t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly:
		tried(t)
	case r.inProcess(t.ke):
		t.checked = true
		return r.launch(ctx, t)
	}
	return nil
}

// warnOf tells of conditions that do not hold and are not required.
func (r *reconciler) warnOf(ctx context.Context, ke *v1alpha1.KubernetesExecution, reason, what string, results []v1alpha1.ConditionResult) {
	for _, c := range results {
		if c.Passed || c.Required {
			continue
		}
		r.log.WarnContext(ctx, "optional condition failed", "execution", key(ke), "kind", what, "condition", c.ConditionType, "message", c.ErrorMessage)
		r.tell.warn(ke, reason, fmt.Sprintf("%s %q failed: %s", what, c.ConditionType, c.ErrorMessage))
	}
}

// uncheckable keeps trying what could not be checked, for as long as that makes
// sense, and has it be seen.
func (r *reconciler) uncheckable(ctx context.Context, t *turn, err error) error {
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
	known := condition(&t.ke.Status, v1alpha1.ConditionValidated)
	if known != nil && known.Reason == reason && !t.now.Before(known.LastTransitionTime.Add(r.cfg.CheckTimeout)) {
		fail(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: detail,
			Message: fmt.Sprintf("the controller failed for %s to run the checks: %v", r.cfg.CheckTimeout, err),
		})
		return nil
	}
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) && (known == nil || known.Reason != reason) &&
		t.now.Before(since(t.ke, v1alpha1.PhaseValidating, t.now).Add(longest(t.ke.Spec.PreConditions)+r.cfg.CheckTimeout)) {
		r.log.DebugContext(ctx, "condition evaluation deferred", "execution", key(t.ke), "err", err)
		t.wait(retry.After) // and is not written: it happens to each of many
		return nil
	}
	r.log.WarnContext(ctx, "execution check failed, retrying", "execution", key(t.ke), "err", err)
	if known == nil || known.Reason != reason { // once: each look would be a write
		dropCondition(&t.ke.Status, v1alpha1.ConditionValidated) // its time is when the trouble began
		t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, bounded("the controller failed to run the checks and retries: "+err.Error(), maxMessage)
		setCondition(t, v1alpha1.ConditionValidated, metav1.ConditionUnknown, reason, t.ke.Status.Message)
	}
	t.wait(againAfter(err))
	return nil
}

// againAfter is when checks are tried again that could not be made.
func againAfter(err error) time.Duration {
	if retry := (*execution.RetryError)(nil); errors.As(err, &retry) {
		return max(retry.After, checkAgain)
	}
	return checkAgain
}

// dryRun gives the result of a dry run that was made in a Job, if there is one.
func (r *reconciler) dryRun(ctx context.Context, t *turn) (dry *action.Result, waits bool, failed *execution.Failure, err error) {
	j, err := r.jobs.Job(ctx, t.ke, job.Name(t.ke.UID, v1alpha1.PurposeDryRun, 1), false)
	if err != nil || j == nil {
		return nil, false, nil, err
	}
	o, err := r.observe(ctx, t, j)
	if err != nil {
		return nil, false, nil, err
	}
	if o.Result != nil && (o.State == job.Succeeded || o.State == job.Failed) {
		return o.Result, false, nil, r.expire(ctx, j)
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
		t.until(end)
		return nil, true, nil, nil
	}
	return nil, false, failed, errors.Join(r.jobs.Patch(ctx, j, map[string]any{"suspend": true}), r.expire(ctx, j))
}

// startDryRun has a Job try the plan out.
func (r *reconciler) startDryRun(ctx context.Context, t *turn, plan *v1alpha1.Plan) error {
	j, err := job.Build(t.ke, plan, v1alpha1.PurposeDryRun, 1, r.cfg.Job)
	if err != nil {
		fail(t, execution.Failure{Reason: v1alpha1.ReasonDryRunFailed, Message: err.Error()})
		return nil //nolint:nilerr // the execution ends with it
	}
	if _, err := r.jobs.Create(ctx, t.ke, j); err != nil {
		return r.uncheckable(ctx, t, err)
	}
	t.wait(dryRunTimeout)
	return nil
}

// observe looks at a Job and its Pods.
func (r *reconciler) observe(ctx context.Context, t *turn, j *batchv1.Job) (job.Observation, error) {
	pods, err := r.jobs.Pods(ctx, j, false)
	if err != nil {
		return job.Observation{}, err
	}
	o := job.Observe(j, pods, t.now)
	if o.State != job.Failed || o.Result != nil {
		return o, nil
	}
	// What left no word may have left one of which the cache does not know yet.
	if pods, err = r.jobs.Pods(ctx, j, true); err != nil {
		return job.Observation{}, err
	}
	return job.Observe(j, pods, t.now), nil
}

// periodAgain is how often an execution that waits for an approval is compared with
// the period of the guard: after a gap, whoever approves needs the new plan hash.
const periodAgain = 30 * time.Second

// approve waits for an approval.
func (r *reconciler) approve(ctx context.Context, t *turn) error {
	if taken, err := r.adopt(ctx, t); err != nil || taken {
		return err
	}
	if t.ke.Spec.Cancel {
		fail(t, cancelled(t.ke))
		return nil
	}
	if verified, err := r.verifyRequest(ctx, t); err != nil || !verified {
		return err
	}
	period, missing := r.admissionPolicyPeriod(ctx, t.ke)
	if p := t.ke.Status.Plan; missing == nil && p != nil && p.AdmissionPolicyPeriod != period.ID {
		r.ask(t)
		t.wait(periodAgain)
		t.until(t.ke.Status.Approval.Deadline.Time)
		return nil
	}
	status, failed, until := approval.Decide(t.ke, missing, t.now)
	before := t.ke.Status.Approval
	t.ke.Status.Approval = &status
	switch {
	case failed != nil:
		if status.State == v1alpha1.ApprovalRejected {
			setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Rejected", failed.Message)
			r.decided(t, v1alpha1.Reject)
		} else {
			setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Expired", failed.Message)
		}
		fail(t, *failed)
		return nil
	case missing != nil || status.State != v1alpha1.ApprovalApproved:
		r.pending(t, missing, until)
		return nil
	}
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionTrue, "Approved", approvedBy(status))
	if before == nil || before.State != v1alpha1.ApprovalApproved {
		t.ke.Status.ReasonDetail, t.ke.Status.Message = "", approvedBy(status)
		r.decided(t, v1alpha1.Approve)
		t.onward = true // once it is written: a Job whose maker dies must not be one that nobody has approved
		return nil
	}
	return r.launch(ctx, t)
}

// admissionPolicyPeriod is the time without a gap in which approvals are checked, or why
// there is none. Where there are any, it is looked at after them.
func (r *reconciler) admissionPolicyPeriod(ctx context.Context, ke *v1alpha1.KubernetesExecution) (guard.Period, error) {
	if len(ke.Spec.Approvals) == 0 && !ke.Spec.ApprovalReceived {
		return r.guard.Period()
	}
	return r.guard.Confirm(ctx)
}

// pending says what an approval is waited for, or why one does not count.
func (r *reconciler) pending(t *turn, guardMissing error, until time.Time) {
	detail, waiting := approval.Waiting(t.ke, guardMissing)
	t.wait(periodAgain)
	if guardMissing != nil {
		t.wait(10 * time.Second)
	}
	t.ke.Status.ReasonDetail, t.ke.Status.Message = detail, waiting
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", waiting)
	if !until.IsZero() {
		t.until(until)
	}
}

// proceed goes on with a plan that passed the checks.
func (r *reconciler) proceed(ctx context.Context, t *turn) error {
	if taken, err := r.adopt(ctx, t); err != nil || taken {
		return err
	}
	if t.ke.Spec.Cancel {
		fail(t, cancelled(t.ke))
		return nil
	}
	if verified, err := r.verifyRequest(ctx, t); err != nil || !verified {
		return err
	}
	switch {
	case t.ke.Spec.DryRunMode == v1alpha1.DryRunOnly:
		tried(t)
	case asksFirst(t.ke):
		r.ask(t)
	default:
		return r.launch(ctx, t)
	}
	return nil
}

// asksFirst says whether what is validated waits for an approval next.
func asksFirst(ke *v1alpha1.KubernetesExecution) bool {
	a := ke.Status.Approval
	return ke.Spec.DryRunMode != v1alpha1.DryRunOnly && a != nil && a.Required && a.State != v1alpha1.ApprovalApproved
}

// ask asks for an approval: for the first time, or again where the guard had a gap
// since. What was written before does not count: it cannot name the new hash.
func (r *reconciler) ask(t *turn) {
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
	a.Deadline = at(t.now.Add(timeout).Add(time.Second - 1)) // the API's times have no fractions
	s.ReasonDetail, s.Message = approval.Waiting(t.ke, missing)
	if again {
		s.Message = "the admission policies changed, so earlier approvals are no longer valid; " + s.Message
	}
	dropCondition(s, v1alpha1.ConditionQueued)
	setCondition(t, v1alpha1.ConditionApproved, metav1.ConditionFalse, "Pending", s.Message)
	if !again {
		enter(t, v1alpha1.PhaseWaitingApproval)
	}
	t.afterwards(func(context.Context) {
		r.tell.say(t.ke, "ApprovalRequired", fmt.Sprintf("%s; to approve: fleetloop approve %s -n %s", s.Message, t.ke.Name, t.ke.Namespace))
	})
}
