package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/approval"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// runName is the name of the Job that runs an execution.
func runName(ke *v1alpha1.KubernetesExecution) string {
	return job.Name(ke.UID, v1alpha1.PurposeExecute, 1)
}

// adopt takes over a Job that was made just before the operator that made it
// ended. Its status was not written, but the action is under way.
func (r *reconciler) adopt(ctx context.Context, t *turn) (taken bool, err error) {
	r.mu.Lock()
	live := r.launched[t.ke.UID] // the cache may not have it yet
	r.mu.Unlock()
	j, err := r.jobs.Job(ctx, t.ke, runName(t.ke), live)
	if err != nil || j == nil {
		return false, err
	}
	plan, err := planOf(j)
	if err != nil {
		return false, fmt.Errorf("read what Job %q runs: %w", j.Name, err)
	}
	t.ke.Status.Plan = plan
	r.takeIn(t)
	r.running(t, j)
	return true, nil
}

// takeIn has the gate count an execution that is under way whatever it says.
func (r *reconciler) takeIn(t *turn) {
	if r.enterGate(t).In {
		return
	}
	c := r.claim(t.ke)
	r.gate.Forget(c.UID)
	r.gate.Restore([]gate.Claim{c}, nil)
}

// planOf is the plan that a Job runs.
func planOf(j *batchv1.Job) (*v1alpha1.Plan, error) {
	for _, c := range j.Spec.Template.Spec.Containers {
		for _, e := range c.Env {
			if e.Name == "ACTION_PLAN" {
				var p v1alpha1.Plan
				return &p, json.Unmarshal([]byte(e.Value), &p)
			}
		}
	}
	return nil, fmt.Errorf("it has no plan")
}

// launch has the action be done, when it is its turn and the plan still holds.
func (r *reconciler) launch(ctx context.Context, t *turn) error {
	s := &t.ke.Status
	if t.ke.Spec.DryRun == v1alpha1.DryRunOnly { // as the whole controller may have been told meanwhile
		tried(t)
		return nil
	}
	if v := r.enterGate(t); !v.In {
		r.queue(t, v)
		return nil
	}
	r.mu.Lock()
	_, unsure := r.begun[t.ke.UID] // it may act already, see outside
	r.mu.Unlock()
	defer func() {
		if !t.atGate && !unsure {
			r.gate.Forget(t.ke.UID)
		}
	}()
	if holds, err := r.stillHolds(ctx, t); err != nil || !holds {
		return err
	}
	if !unsure && r.gate.Stats().Stopped { // which took its time
		r.gate.Forget(t.ke.UID)
		if v := r.enterGate(t); !v.In {
			r.queue(t, v)
			return nil
		}
	}
	// From here on there may be an effect. What it was must not go unrecorded.
	if r.cfg.Audited {
		status := *s.DeepCopy()
		if err := r.executions.SetFinalizer(ctx, t.ke, true); err != nil {
			return fresh(err)
		}
		t.ke.Status = status
	}
	var err error
	t.atGate, err = r.start(ctx, t)
	return err
}

// stillHolds makes the plan anew that was made before the execution waited, and
// says whether it is to be carried out. Where it is not, the status says why.
func (r *reconciler) stillHolds(ctx context.Context, t *turn) (bool, error) {
	if t.checked {
		return true, nil
	}
	s := &t.ke.Status
	out, err := r.check.Replan(ctx, t.ke, t.now)
	if err != nil {
		return false, r.unavailable(ctx, t, fmt.Errorf("the plan cannot be made anew: %w", err))
	}
	switch approved := s.Approval != nil && s.Approval.Required; {
	case out.Failed != nil:
		s.ValidationResults = merged(s.ValidationResults, out.Results)
		fail(t, *out.Failed)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash && approved:
		fail(t, stale(s.Plan, out.Plan))
		return false, nil
	case approved && approval.Stricter(*s.Approval, out.Decision):
		fail(t, execution.Failure{
			Reason: v1alpha1.ReasonPlanStale, Detail: v1alpha1.Detail(v1alpha1.ReasonPlanStale),
			Message: "the policies want it approved by more people, or by others, than when it was planned. Nothing was done. Create the execution anew to have it approved by them",
		})
		return false, nil
	case !approved && out.Decision.RequireApproval: // the policy was changed meanwhile
		r.replanned(t, out)
		r.ask(t)
		return false, nil
	case out.Plan.Hash != s.Plan.Hash:
		r.replanned(t, out)
	}
	s.Plan.Target = out.Plan.Target // by now it may have another version and generation
	return true, nil
}

// tried ends an execution that was to be tried out and no more.
func tried(t *turn) {
	s := &t.ke.Status
	s.Outcome, s.ReasonDetail = v1alpha1.OutcomeSucceeded, ""
	s.Message = "dry run: " + s.Plan.Impact.Description
	setCondition(t, v1alpha1.ConditionSucceeded, metav1.ConditionTrue, "DryRun", s.Message)
	enter(t, v1alpha1.PhaseCompleted)
}

// start begins the action. It says whether there may be an effect from now on,
// even where it gives an error.
func (r *reconciler) start(ctx context.Context, t *turn) (started bool, err error) {
	a, _ := action.Find(t.ke.Spec.Action)
	switch {
	case a == nil:
		fail(t, execution.Failure{
			Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailUnknownAction,
			Message: fmt.Sprintf("action %q is no longer in the catalogue", t.ke.Spec.Action),
		})
		return false, nil
	case r.notInline(t.ke) != nil: // the controller was told otherwise meanwhile
		fail(t, *r.notInline(t.ke))
		return false, nil
	case r.inProcess(t.ke):
		r.mu.Lock()
		r.begun[t.ke.UID] = begun{}
		r.mu.Unlock()
		t.ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
			Mode: v1alpha1.ExecuteInline, PlanHash: t.ke.Status.Plan.Hash, StartTime: at(t.now),
		}
		r.executing(t)
		return true, nil
	}
	built, err := job.Build(t.ke, t.ke.Status.Plan, v1alpha1.PurposeExecute, 1, r.cfg.Job)
	if err != nil {
		fail(t, execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: err.Error()})
		return false, nil //nolint:nilerr // the execution ends with it
	}
	r.mu.Lock()
	again := r.launched[t.ke.UID]
	r.launched[t.ke.UID] = true // even if the answer is lost
	r.mu.Unlock()
	if again { // and it is gone: was it stored that it runs, and what was read is older?
		if err := r.write(ctx, t.ke); err != nil {
			return true, err
		}
	}
	j, err := r.jobs.Create(ctx, t.ke, built)
	if err != nil {
		r.metrics.jobs.WithLabelValues("failed").Inc()
		if refused(err) && !again {
			r.mu.Lock()
			delete(r.launched, t.ke.UID)
			r.mu.Unlock()
		}
		return !refused(err), r.unavailable(ctx, t, fmt.Errorf("the Job cannot be made: %w", err))
	}
	if j.Annotations[v1alpha1.AnnotationPlan] != t.ke.Status.Plan.Hash { // one was there that nobody knew of
		if t.ke.Status.Plan, err = planOf(j); err != nil {
			return true, fmt.Errorf("read what Job %q runs: %w", j.Name, err)
		}
	}
	r.metrics.jobs.WithLabelValues("created").Inc()
	r.running(t, j)
	return true, nil
}

// refused says whether an API server has certainly not done what it was asked.
func refused(err error) bool {
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

// running says that a Job runs the action.
func (r *reconciler) running(t *turn, j *batchv1.Job) {
	t.ke.Status.JobName = j.Name
	t.ke.Status.ExecutionResults = &v1alpha1.ExecutionResults{
		JobName: j.Name, JobUID: j.UID, Mode: v1alpha1.ExecuteInJob,
		PlanHash: t.ke.Status.Plan.Hash, StartTime: at(t.now),
	}
	r.executing(t)
}

func (r *reconciler) executing(t *turn) {
	t.ke.Status.Message = ""
	t.ke.Status.ReasonDetail = ""
	dropCondition(&t.ke.Status, v1alpha1.ConditionQueued)
	enter(t, v1alpha1.PhaseExecuting)
	t.afterwards(func(ctx context.Context) {
		r.change(ctx, t.ke, execution.ChangeStarted, t.ke.Spec.RequestedBy, t.ke.Status.Plan.Impact.Description)
	})
}

// unavailable keeps trying what cannot be done just now, such as to make a Job
// that a quota does not allow, for as long as that makes sense, and has it be seen.
func (r *reconciler) unavailable(ctx context.Context, t *turn, cause error) error {
	if ctx.Err() != nil {
		return cause
	}
	s := &t.ke.Status
	message := bounded(cause.Error(), maxMessage)
	queued := condition(s, v1alpha1.ConditionQueued)
	if queued != nil && queued.Reason == "ExecutorUnavailable" && !t.now.Before(queued.LastTransitionTime.Add(r.cfg.CheckTimeout)) {
		// Whatever the answer to the last attempt was: is there none?
		if j, err := r.jobs.Job(ctx, t.ke, runName(t.ke), true); err != nil || j != nil {
			return err
		}
		failure := execution.Failure{Reason: v1alpha1.ReasonExecutionFailed, Detail: v1alpha1.DetailExecutorUnavailable, Message: message}
		if s.Phase == v1alpha1.PhaseExecuting { // here, where somebody may have tried before
			return r.ended(ctx, t, job.Observation{State: job.Failed, Failure: r.unheard(t, failure)})
		}
		fail(t, failure)
		return nil
	}
	s.ReasonDetail = v1alpha1.DetailExecutorUnavailable
	if queued == nil || queued.Reason != "ExecutorUnavailable" {
		dropCondition(s, v1alpha1.ConditionQueued)
		s.Message = message
		setCondition(t, v1alpha1.ConditionQueued, metav1.ConditionTrue, "ExecutorUnavailable", message)
		t.afterwards(func(ctx context.Context) {
			r.tell.warn(t.ke, "ExecutorUnavailable", message)
			r.log.WarnContext(ctx, "the action cannot be started, trying again", "execution", key(t.ke), "err", cause)
		})
	}
	t.wait(5 * time.Second)
	return nil
}

// notInline is why an execution may not run where it wants to; nil is that it may.
func (r *reconciler) notInline(ke *v1alpha1.KubernetesExecution) *execution.Failure {
	a, known := action.Find(ke.Spec.Action)
	if !known || a.NoJob || ke.Spec.ExecutionMode != v1alpha1.ExecuteInline || slices.Contains(r.cfg.Inline, a.Name) {
		return nil
	}
	return &execution.Failure{
		Reason: v1alpha1.ReasonValidationError, Detail: v1alpha1.DetailInvalidParameters,
		Message: fmt.Sprintf("action %q may not run inline: leave executionMode out, or add the action to --inline-actions of the controller", a.Name),
	}
}

// inProcess says whether an action runs here and not in a Job.
func (r *reconciler) inProcess(ke *v1alpha1.KubernetesExecution) bool {
	a, known := action.Find(ke.Spec.Action)
	switch {
	case known && a.NoJob:
		return true
	case ke.Spec.ExecutionMode != "":
		return ke.Spec.ExecutionMode == v1alpha1.ExecuteInline
	}
	return known && r.cfg.DefaultMode == v1alpha1.ExecuteInline && slices.Contains(r.cfg.Inline, a.Name)
}

// replanned puts a plan in the place of one that nobody has approved.
func (r *reconciler) replanned(t *turn, out check.Outcome) {
	t.ke.Status.Plan = out.Plan
	t.ke.Status.ValidationResults = merged(t.ke.Status.ValidationResults, out.Results)
	if out.Decision.RequireApproval {
		pending := approvalOf(out.Decision)
		t.ke.Status.Approval = &pending
	}
}

// stale says how a plan differs from the one that was approved.
func stale(approved, now *v1alpha1.Plan) execution.Failure {
	what := "what it would do"
	detail := v1alpha1.Detail(v1alpha1.ReasonPlanStale)
	switch {
	case approved.Target.UID != now.Target.UID:
		what, detail = "the target, which is another object of the same name", v1alpha1.DetailTargetChanged
	case string(raw(approved.Before)) != string(raw(now.Before)):
		what, detail = "the target: "+strings.Join(action.Differences(approved.Before, now.Before), "; "), v1alpha1.DetailTargetChanged
	case approved.PolicyHash != now.PolicyHash:
		what = "the policies"
	}
	return execution.Failure{
		Reason: v1alpha1.ReasonPlanStale, Detail: detail,
		Message: bounded(fmt.Sprintf("after the plan was made there was a change of %s. Nothing was done. Create the execution anew to have the new plan approved", what), maxMessage),
	}
}

// claim is what the gate is asked for.
func (r *reconciler) claim(ke *v1alpha1.KubernetesExecution) gate.Claim {
	p := ke.Status.Plan
	c := gate.Claim{
		UID: ke.UID, Key: nameOf(ke), Action: ke.Spec.Action, Created: ke.CreationTimestamp.Time, Rollback: ke.Spec.RollbackOf != nil,
	}
	if p != nil {
		c.Action = p.Action // the request may have used another name for it
		c.Target, c.TargetNamespace, c.Node = gate.TargetOf(p.Target), p.Target.Namespace, p.Target.Kind == "Node"
	}
	if queued := condition(&ke.Status, v1alpha1.ConditionQueued); queued != nil {
		c.Since = queued.LastTransitionTime.Time // before another operator, maybe
	}
	return c
}

func (r *reconciler) enterGate(t *turn) gate.Verdict {
	c := r.claim(t.ke)
	r.mu.Lock()
	r.claimed[c.Key] = c.UID
	r.mu.Unlock()
	return r.gate.Enter(c, t.now)
}

// forget lets go of what is known of a name, unless that is the execution that
// has it now. No UID is that there is none.
func (r *reconciler) forget(name types.NamespacedName, now types.UID) {
	r.mu.Lock()
	uid, known := r.claimed[name]
	if known && uid == now {
		r.mu.Unlock()
		return
	}
	delete(r.claimed, name)
	delete(r.launched, uid)
	delete(r.begun, uid)
	r.mu.Unlock()
	if now != "" && !known {
		return
	}
	r.targets.leave(name)
	if known {
		r.gate.Forget(uid)
	}
}

// queue has an execution wait for its turn.
func (r *reconciler) queue(t *turn, v gate.Verdict) {
	s := &t.ke.Status
	t.atGate = !v.Failed
	if v.Failed {
		t.afterwards(func(context.Context) { r.metrics.refused(v.Detail) })
		reason := v1alpha1.ReasonExecutionTimeout
		if v.Detail == v1alpha1.DetailCircuitOpen {
			reason = v1alpha1.ReasonValidationError
		}
		fail(t, execution.Failure{Reason: reason, Detail: v.Detail, Message: v.Message})
		return
	}
	reason := conditionReason(v.Detail)
	if c := condition(s, v1alpha1.ConditionQueued); c == nil || c.Reason != reason { // once: who is ahead changes all the time
		s.ReasonDetail, s.Message = v.Detail, v.Message
		setCondition(t, v1alpha1.ConditionQueued, metav1.ConditionTrue, reason, v.Message)
		t.afterwards(func(context.Context) {
			r.metrics.refused(v.Detail)
			r.tell.say(t.ke, reason, v.Message)
		})
	}
	if v.After > 0 {
		t.wait(v.After)
	}
}
