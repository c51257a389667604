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
	"github.com/fleetloop/fleetloop/internal/execution/roles"
)

// parseAndCheckRequest is the first step: it validates the action, its parameters, the cluster and the
// execution to roll back.
func (r *round) parseAndCheckRequest(ctx context.Context) error {
	request, err := action.Parse(&r.ke.Spec)
	if err != nil {
		detail := v1alpha1.DetailInvalidParameters
		if _, unknown := errors.AsType[*action.UnknownError](err); unknown {
			detail = v1alpha1.DetailUnknownAction
		}
		r.out.failValidation(detail, "%v", err)
		return nil
	}
	r.request = request
	r.account = account{
		identities: r.checker.deps.Identities,
		namespace:  r.checker.cfg.Namespace,
		request:    request,
		out:        &r.out,
	}
	r.out.Target = formatTargetPath(request.Target)
	ownCluster := r.checker.cfg.ClusterName
	if cluster := r.ke.Spec.TargetCluster; cluster != "" && cluster != ownCluster {
		r.out.failValidation(v1alpha1.DetailInvalidParameters,
			"targetCluster is %q, but this controller serves cluster %q: create the execution in the target cluster",
			cluster, ownCluster)
		return nil
	}
	if err := r.findAndCheckOriginal(ctx); err != nil || r.out.Failed != nil {
		return err
	}
	r.out.Results.ParameterValidation = true
	return nil
}

// checkRequesterAndAccountRights is the second step: it checks the requester and the rights of the account.
func (r *round) checkRequesterAndAccountRights(ctx context.Context) error {
	a := r.request.Action
	may, err := r.checker.mayRequest(ctx, r.ke)
	if err != nil {
		return err
	}
	if !may {
		user := r.ke.Spec.RequestedBy
		r.requesterDenied = true
		r.out.Results.RBACValidation = false
		r.out.failValidation(v1alpha1.DetailRBACDenied, "%s is not allowed to request %s in namespace %q: "+
			"a role must grant the verb %s on %s with the resource name %s. "+
			"Bind such a role to %s and create the execution again",
			user, r.ke.Spec.Action, r.checker.cfg.Namespace,
			v1alpha1.VerbExecute, v1alpha1.Resource, r.ke.Spec.Action, user)
		return nil
	}
	if a.NoJob { // the action needs no cluster access
		r.account.permitted = true
		r.out.Results.RBACValidation = true
		return nil
	}
	exists, err := r.checker.deps.Identities.AccountExists(ctx, a)
	if err != nil {
		return err
	}
	if !exists {
		r.account.failMissingAccount()
		return nil
	}
	denied, err := r.account.listMissingRights(ctx)
	if err != nil {
		return err
	}
	if len(denied) > 0 {
		r.account.failMissingRights(denied)
		return nil
	}
	r.account.permitted, r.out.Results.RBACValidation = true, true
	return nil
}

// mayRequest reports whether the requester may still request the action. The API server checked it when
// the request arrived, but rights can be withdrawn, and without the guard it was not checked. The
// groups of a person are those recorded by the request. Without recorded groups, the check of a
// person is skipped if the API server has verified the request.
func (c *Checker) mayRequest(ctx context.Context, ke *v1alpha1.KubernetesExecution) (may bool, err error) {
	user := ke.Spec.RequestedBy
	groups := ke.Spec.RequesterGroups
	verified := ke.Status.VerifiedRequest != nil
	_, isServiceAccount := roles.AccountGroups(user)
	switch {
	case user == "":
		return true, nil
	case verified && !isServiceAccount && len(groups) == 0:
		return true, nil
	case !verified: // anybody could have recorded the groups
		groups = nil
	}
	return c.deps.Identities.MayRequest(ctx, user, groups, ke.Spec.Action)
}

// checkPolicy is the fourth step, after planAndCheckTarget: it asks whether the policy allows the request.
func (r *round) checkPolicy(ctx context.Context) error {
	if err := r.gatherClusterState(ctx); err != nil {
		return err
	}
	r.input = r.state.Input()
	return r.evaluatePolicy(ctx)
}

// evaluatePolicy evaluates the policy with the present input.
func (r *round) evaluatePolicy(ctx context.Context) error {
	decision, err := r.checker.deps.Policy.Decide(ctx, r.input)
	if err != nil {
		if ctx.Err() != nil || errors.Is(err, execution.ErrNoPolicies) {
			return fmt.Errorf("evaluate policy: %w", err)
		}
		r.out.Results.PolicyValidation = &v1alpha1.PolicyValidation{EvaluatedAt: toAPITime(r.now)}
		r.out.failValidation(v1alpha1.DetailPolicyUnavailable,
			"the policy returned no decision, so the controller denies the execution: %v", err)
		return nil
	}
	decision = execution.ExcludeRequesterOfAgent(decision, r.ke)
	if r.out.Decision.RequireDryRun { // a dry run that the first evaluation required stays required
		decision.RequireDryRun = true
	}
	r.out.Decision = decision
	r.out.Results.PolicyValidation = &v1alpha1.PolicyValidation{
		PolicyName:       decision.PolicyName,
		PolicyHash:       decision.PolicyHash,
		Mode:             decision.Mode,
		Allowed:          decision.Allow,
		RequiredApproval: decision.RequireApproval,
		RequiredDryRun:   decision.RequireDryRun,
		Violations:       decision.Violations,
		Warnings:         decision.Warnings,
		EvaluatedAt:      toAPITime(r.now),
	}
	if !decision.Allow {
		r.out.failValidation(v1alpha1.DetailPolicyDenied, "%s", denialMessage(decision))
		return nil
	}
	r.out.Warnings = append([]string{}, decision.Warnings...)

	// The policy is part of the plan, and so is the period for which an approval is valid.
	r.plan.PolicyHash = decision.PolicyHash
	if before := r.ke.Status.Plan; r.replan && before != nil {
		r.plan.AdmissionPolicyPeriod = before.AdmissionPolicyPeriod
	}
	r.plan.Hash = action.HashPlanEffect(r.plan)
	return nil
}

// denialMessage formats the denial of a policy.
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

// recordImpactAndDryRunIfRequired is the fifth step: it makes a dry run if the policy or the request
// requires one. It runs after the sixth step, which is cheaper.
func (r *round) recordImpactAndDryRunIfRequired(ctx context.Context) error {
	r.out.Plan = r.plan
	impact := r.plan.Impact
	r.out.Results.DryRunResults = &v1alpha1.DryRunResults{EstimatedImpact: &impact, Warnings: []string{}}
	mode := r.ke.Spec.DryRunMode
	requested := mode == v1alpha1.DryRunAlways || mode == v1alpha1.DryRunOnly
	required := requested || r.out.Decision.RequireDryRun
	if !required || !supportsDryRun(r.request.Action) {
		return nil
	}
	return r.runOrRequestDryRun(ctx)
}

// supportsDryRun reports whether the action supports a dry run.
func supportsDryRun(a *action.Action) bool { return !a.ReadOnly && !a.NoJob }

// runOrRequestDryRun makes the dry run, or requests it in a Job.
func (r *round) runOrRequestDryRun(ctx context.Context) error {
	switch {
	case r.dry != nil && r.dry.DryRun != nil && r.dry.PlanHash != r.plan.Hash:
		r.out.failWithReason(v1alpha1.ReasonDryRunFailed, v1alpha1.DetailTargetChanged,
			"%s or the policy changed during the dry run: create the execution again", formatTarget(r.request.Target))
		return nil
	case r.dry != nil:
		r.out.recordDryRun(*r.dry, r.request, r.plan)
		return nil
	case r.checker.cfg.DryRunExecutor == DryRunJob:
		r.out.NeedDryRunJob = true
		return nil
	}

	// The dry run repeats the reads that made the plan, and gets the same answers.
	replayClient := r.client
	replayClient.Dynamic = r.seen.newReplayOnceClient()
	result := action.DryRun(ctx, replayClient, r.plan, action.Run{
		Subject:  planSubject(r.ke),
		Attempt:  1,
		Deadline: time.Now().Add(dryRunTimeout),
	})
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("dry-run %s: %w", r.request.Action.Name, context.Cause(ctx))
	case result.Code.Retry():
		return fmt.Errorf("dry-run %s: %s", r.request.Action.Name, result.Message)
	case result.Code == action.CodeForbidden:
		// The rights may have been withdrawn since they were cached. A missing right is a better
		// explanation than the response of the API server.
		explained, err := r.account.recheckRightsUncached(ctx)
		if err != nil || explained {
			return err
		}
	}
	r.out.recordDryRun(result, r.request, r.plan)
	return nil
}

// recordDryRun records the result of a dry run.
func (o *Outcome) recordDryRun(result action.Result, request action.Request, plan *v1alpha1.Plan) {
	o.TrialTook = result.Ended.Sub(result.Started)
	results := result.DryRun
	if results == nil { // it failed before it started
		results = &v1alpha1.DryRunResults{Performed: true, Errors: []string{result.Message}}
	}
	if results.EstimatedImpact == nil {
		impact := plan.Impact
		results.EstimatedImpact = &impact
	}
	if results.Warnings == nil {
		results.Warnings = []string{}
	}
	o.Results.DryRunResults = results
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
	o.failWithReason(v1alpha1.ReasonDryRunFailed, detail, "dry run of %s on %s failed: %s",
		request.Action.Name, formatTarget(request.Target), message)
}

// reuseOrRepeatDryRun takes the result of the dry run from the status. If that was of another plan, the
// dry run is repeated.
func (r *round) reuseOrRepeatDryRun(ctx context.Context) error {
	r.out.Plan = r.plan
	before := r.ke.Status.ValidationResults
	if before == nil {
		return nil
	}
	earlier := before.DryRunResults.DeepCopy()
	earlierPlan := r.ke.Status.Plan
	ofThisPlan := earlierPlan == nil || earlierPlan.Hash == r.plan.Hash
	if earlier == nil || !earlier.Performed || ofThisPlan {
		r.out.Results.DryRunResults = earlier
		return nil
	}
	if r.checker.cfg.DryRunExecutor == DryRunJob {
		r.out.failWithReason(v1alpha1.ReasonPlanStale, v1alpha1.Detail(v1alpha1.ReasonPlanStale),
			"%s changed after the dry run of %s: create the execution again", formatTarget(r.request.Target), r.request.Action.Name)
		return nil
	}
	return r.runOrRequestDryRun(ctx)
}

// checkPlanPolicyWithDryRun repeats the fourth step with the plan as input. The policy may require a dry run
// only now that it sees the plan.
func (r *round) checkPlanPolicyWithDryRun(ctx context.Context) error {
	for {
		r.input.Plan = PlanInput(r.plan, r.out.Results.DryRunResults)
		if err := r.evaluatePolicy(ctx); err != nil || r.out.Failed != nil {
			return err
		}
		dryRunMissing := r.out.Decision.RequireDryRun && !r.isDryRunPerformed()
		if !dryRunMissing || !supportsDryRun(r.request.Action) {
			return nil
		}
		if r.replan {
			r.out.failWithReason(v1alpha1.ReasonPlanStale, v1alpha1.Detail(v1alpha1.ReasonPlanStale),
				"the policy changed and now requires a dry run of %s: create the execution again", r.request.Action.Name)
			return nil
		}
		if err := r.runOrRequestDryRun(ctx); err != nil || r.out.Failed != nil || r.out.NeedDryRunJob {
			return err
		}
		if !r.isDryRunPerformed() { // do not repeat the dry run forever
			r.out.failWithReason(v1alpha1.ReasonDryRunFailed, "",
				"the policy requires a dry run of %s, but its result is missing: create the execution again",
				r.request.Action.Name)
			return nil
		}
	}
}

// isDryRunPerformed reports whether the outcome has the result of a dry run.
func (r *round) isDryRunPerformed() bool {
	dryRun := r.out.Results.DryRunResults
	return dryRun != nil && dryRun.Performed
}
