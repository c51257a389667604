package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check/facts"
	"github.com/fleetloop/fleetloop/internal/execution/identity"
)

// parameters is the first step: is it an action, and asked for rightly?
func (r *round) parameters(ctx context.Context) error {
	request, err := action.Parse(&r.ke.Spec)
	if err != nil {
		detail := v1alpha1.DetailInvalidParameters
		if unknown := (*action.UnknownError)(nil); errors.As(err, &unknown) {
			detail = v1alpha1.DetailUnknownAction
		}
		r.failWith(detail, "%v", err)
		return nil
	}
	r.request = request
	r.out.Target = objectPath(request.Target)
	if c := r.ke.Spec.TargetCluster; c != "" && c != r.cfg.ClusterName {
		r.failWith(v1alpha1.DetailInvalidParameters, "targetCluster is %q, but this controller serves cluster %q: create the execution in the target cluster", c, r.cfg.ClusterName)
		return nil
	}
	if err := r.checkRollback(ctx); err != nil || r.out.Failed != nil {
		return err
	}
	r.out.Results.ParameterValidation = true
	return nil
}

// checkRights is the second: may the requester ask for it, and the action's account do
// it?
func (r *round) checkRights(ctx context.Context) error {
	a := r.request.Action
	if err := r.requester(ctx); err != nil || r.out.Failed != nil {
		return err
	}
	if a.NoJob { // nothing is reached for
		r.permitted, r.out.Results.RBACValidation = true, true
		return nil
	}
	exists, err := r.deps.Identities.Exists(ctx, a)
	if err != nil {
		return err
	}
	if !exists {
		r.failMissingAccount()
		return nil
	}
	denied, err := r.missingRights(ctx)
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		r.failRights(denied)
		return nil
	}
	r.permitted, r.out.Results.RBACValidation = true, true
	return nil
}

// missingRights are the rights that the request needs and its account does not have.
func (r *round) missingRights(ctx context.Context) ([]action.Right, error) {
	if r.request.Action.NoJob {
		return nil, nil
	}
	return r.deps.Identities.Denied(ctx, r.request.Action, r.request.Rights())
}

// requester asks whether who asks may still do so. The API server did when the request
// came, and rights can be withdrawn; where the guard is off nobody has asked yet. The
// groups of a person are those that the request recorded. Without them nothing is
// learned of a person about whose request the API server was asked.
func (r *round) requester(ctx context.Context) error {
	user, groups := r.ke.Spec.RequestedBy, r.ke.Spec.RequesterGroups
	_, account := identity.AccountGroups(user)
	switch verified := r.ke.Status.VerifiedRequest != nil; {
	case user == "", verified && !account && len(groups) == 0:
		return nil
	case !verified: // nobody has checked that they are in these groups
		groups = nil
	}
	may, err := r.deps.Identities.MayRequest(ctx, user, groups, r.ke.Spec.Action)
	if err != nil || may {
		return err
	}
	r.stranger, r.out.Results.RBACValidation = true, false
	r.failWith(v1alpha1.DetailRBACDenied, "%s is not allowed to request %s in namespace %q: a role must grant the verb %s on %s with the resource name %s. Bind such a role to %s and create the execution again",
		user, r.ke.Spec.Action, r.cfg.Namespace, v1alpha1.VerbExecute, v1alpha1.Resource, r.ke.Spec.Action, user)
	return nil
}

// checkPolicy is the fourth: does the policy allow what is asked for? The third is
// target.
func (r *round) checkPolicy(ctx context.Context) error {
	if err := r.gatherState(ctx); err != nil {
		return err
	}
	r.input = r.state.Input()
	return r.decidePolicy(ctx)
}

// decidePolicy asks the policy, of what is known by now.
func (r *round) decidePolicy(ctx context.Context) error {
	d, err := r.deps.Policy.Decide(ctx, r.input)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, execution.ErrNoPolicies) {
			return fmt.Errorf("evaluate policy: %w", err)
		}
		r.out.Results.PolicyValidation = &v1alpha1.PolicyValidation{EvaluatedAt: apiTime(r.now)}
		r.failWith(v1alpha1.DetailPolicyUnavailable, "the policy returned no decision, so the controller denies the execution: %v", err)
		return nil
	}
	d.RequireDryRun = d.RequireDryRun || r.out.Decision.RequireDryRun
	r.out.Decision = d
	r.out.Results.PolicyValidation = &v1alpha1.PolicyValidation{
		PolicyName: d.PolicyName, Allowed: d.Allow, RequiredApproval: d.RequireApproval, RequiredDryRun: d.RequireDryRun,
		Violations: d.Violations, Warnings: d.Warnings, PolicyHash: d.PolicyHash, Mode: d.Mode, EvaluatedAt: apiTime(r.now),
	}
	if !d.Allow {
		r.failWith(v1alpha1.DetailPolicyDenied, "%s", denialMessage(d))
		return nil
	}
	r.out.Warnings = append([]string{}, d.Warnings...)
	r.plan.PolicyHash = d.PolicyHash
	if before := r.ke.Status.Plan; r.replan && before != nil { // an approval is for one period
		r.plan.AdmissionPolicyPeriod = before.AdmissionPolicyPeriod
	}
	r.plan.Hash = action.Hash(r.plan)
	return nil
}

// denialMessage is why the policy does not allow it.
func denialMessage(d execution.Decision) string {
	name := d.PolicyName
	if name == "" {
		name = "the policy"
	}
	if len(d.Violations) == 0 {
		return name + " denies the execution without a reason"
	}
	return name + " denies the execution: " + strings.Join(d.Violations, "; ")
}

// dryRun is the fifth step, after the sixth since that one costs less: does it
// succeed when it is tried out?
func (r *round) dryRun(ctx context.Context) error {
	r.out.Plan = r.plan
	impact := r.plan.Impact
	r.out.Results.DryRunResults = &v1alpha1.DryRunResults{EstimatedImpact: &impact, Warnings: []string{}}
	asked := r.out.Decision.RequireDryRun || r.ke.Spec.DryRunMode == v1alpha1.DryRunAlways || r.ke.Spec.DryRunMode == v1alpha1.DryRunOnly
	if !asked || !r.hasDryRun() {
		return nil
	}
	return r.tryOut(ctx)
}

// hasDryRun says whether there is something to try out.
func (r *round) hasDryRun() bool { return !r.request.Action.ReadOnly && !r.request.Action.NoJob }

// tryOut tries the plan out, or has a Job do so.
func (r *round) tryOut(ctx context.Context) error {
	switch {
	case r.dry != nil && r.dry.DryRun != nil && r.dry.PlanHash != r.plan.Hash:
		r.failFor(v1alpha1.ReasonDryRunFailed, v1alpha1.DetailTargetChanged,
			"%s or the policy changed during the dry run: create the execution again", objectName(r.request.Target))
		return nil
	case r.dry != nil:
		r.recordDryRun(*r.dry)
		return nil
	case r.cfg.DryRunExecutor == DryRunJob:
		r.out.NeedDryRunJob = true
		return nil
	}
	result := r.dryRunInline(ctx)
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("dry-run %s: %w", r.request.Action.Name, context.Cause(ctx))
	case result.Code.Retry():
		return fmt.Errorf("dry-run %s: %s", r.request.Action.Name, result.Message)
	case result.Code == action.CodeForbidden:
		if known, err := r.recheckRights(ctx); err != nil || known {
			return err
		}
	}
	r.recordDryRun(result)
	return nil
}

// dryRunInline tries the plan out here.
func (r *round) dryRunInline(ctx context.Context) action.Result {
	c := r.client
	c.Dynamic = r.seen.cachedClient()
	return action.DryRun(ctx, c, r.plan, action.Run{Subject: r.planSubject(), Attempt: 1, Deadline: time.Now().Add(dryRunTimeout)})
}

// recordDryRun takes what a trial gave.
func (r *round) recordDryRun(result action.Result) {
	r.out.TrialTook = result.Ended.Sub(result.Started)
	results := result.DryRun
	if results == nil { // it ended before it began
		results = &v1alpha1.DryRunResults{Performed: true, Errors: []string{result.Message}}
	}
	if results.EstimatedImpact == nil {
		impact := r.plan.Impact
		results.EstimatedImpact = &impact
	}
	if results.Warnings == nil {
		results.Warnings = []string{}
	}
	r.out.Results.DryRunResults = results
	if result.Code == action.CodeOK && results.Success {
		return
	}
	results.Success = false
	detail := v1alpha1.Detail(v1alpha1.ReasonDryRunFailed)
	if result.Code == action.CodeGuard {
		detail = v1alpha1.DetailTargetChanged
	}
	message := result.Message
	if message == "" {
		message = strings.Join(results.Errors, "; ")
	}
	r.failFor(v1alpha1.ReasonDryRunFailed, detail, "dry run of %s on %s failed: %s", r.request.Action.Name, objectName(r.request.Target), message)
}

// carryOver takes from the status what is not done again. What was found out
// about another plan says nothing of this one.
func (r *round) carryOver(ctx context.Context) error {
	r.out.Plan = r.plan
	before := r.ke.Status.ValidationResults
	if before == nil {
		return nil
	}
	dry := before.DryRunResults.DeepCopy()
	if p := r.ke.Status.Plan; dry == nil || !dry.Performed || p == nil || p.Hash == r.plan.Hash {
		r.out.Results.DryRunResults = dry
		return nil
	}
	if r.cfg.DryRunExecutor == DryRunJob {
		r.failFor(v1alpha1.ReasonPlanStale, v1alpha1.Detail(v1alpha1.ReasonPlanStale),
			"%s changed after the dry run of %s: create the execution again", objectName(r.request.Target), r.request.Action.Name)
		return nil
	}
	return r.tryOut(ctx)
}

// policyOfPlan is the fourth step once more: does the policy allow what is going
// to be done? It may want to have it tried out only now that it knows.
func (r *round) policyOfPlan(ctx context.Context) error {
	for {
		dry := r.out.Results.DryRunResults
		r.input.Plan = facts.Plan(r.plan, dry)
		if err := r.decidePolicy(ctx); err != nil || r.out.Failed != nil {
			return err
		}
		switch {
		case !r.out.Decision.RequireDryRun || dry != nil && dry.Performed || !r.hasDryRun():
			return nil
		case r.replan:
			r.failFor(v1alpha1.ReasonPlanStale, v1alpha1.Detail(v1alpha1.ReasonPlanStale),
				"the policy changed and now requires a dry run of %s: create the execution again", r.request.Action.Name)
			return nil
		}
		if err := r.tryOut(ctx); err != nil || r.out.Failed != nil || r.out.NeedDryRunJob {
			return err
		}
		if dry = r.out.Results.DryRunResults; dry == nil || !dry.Performed { // it cannot be asked for ever
			r.failFor(v1alpha1.ReasonDryRunFailed, "", "the policy requires a dry run of %s, but its result is missing: create the execution again", r.request.Action.Name)
			return nil
		}
	}
}
