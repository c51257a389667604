package action

import (
	"context"
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// resultVersion is the version of Result.
const resultVersion = 1

// Execute executes a plan. It rejects a plan whose hash does not match.
func Execute(ctx context.Context, c Client, p *v1alpha1.Plan, r Run) Result {
	r.dry = false
	return attemptPlan(ctx, c, p, r)
}

// DryRun sends the requests of a plan with dryRun=All, so that they are validated and admitted but
// not stored. Read-only actions have no dry run.
func DryRun(ctx context.Context, c Client, p *v1alpha1.Plan, r Run) Result {
	r.dry = true
	impact := p.Impact
	if a, known := Find(p.Action); known && (a.ReadOnly || a.NoJob) {
		now := time.Now().UTC()
		return Result{
			Version:  resultVersion,
			Attempt:  max(1, r.Attempt),
			PlanHash: p.Hash,
			Started:  now,
			Ended:    now,
			DryRun:   &v1alpha1.DryRunResults{Success: true, EstimatedImpact: &impact, Warnings: []string{}},
		}
	}
	result := attemptPlan(ctx, c, p, r)

	// The API server answered as if it had stored the changes, so the report lists some.
	result.Changed = false
	result.Resources = nil
	result.Count = 0
	result.DryRun = &v1alpha1.DryRunResults{
		Performed:       true,
		Success:         result.Code == CodeOK,
		EstimatedImpact: &impact,
		Warnings:        append([]string{}, result.Warnings...), // must not be null
	}
	if result.Code != CodeOK {
		result.DryRun.Errors = []string{result.Message}
	}
	return result
}

// attemptPlan makes one attempt and fills the common fields of its result.
func attemptPlan(ctx context.Context, c Client, p *v1alpha1.Plan, r Run) Result {
	started := time.Now().UTC()
	ctx, collector := withWarningCollector(ctx)
	if !r.Deadline.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadlineCause(ctx, r.Deadline, errDeadline)
		defer cancel()
	}
	result := verifyAndRunPlan(ctx, c, p, r)
	result.Version = resultVersion
	result.Attempt = max(1, r.Attempt)
	result.PlanHash = p.Hash
	result.Started = started
	result.Ended = time.Now().UTC()
	result.Warnings = append(result.Warnings, collector.takeWarnings()...)
	if c.Warnings != nil {
		result.Warnings = append(result.Warnings, c.Warnings()...)
	}
	result.Warnings = limitWarnings(result.Warnings)
	result.Count = max(result.Count, int32(len(result.Resources))) //nolint:gosec // at most maxResources
	return result
}

// limitWarnings returns as many warnings as fit and the number of the others. A drain causes a
// warning for each blocked Pod.
func limitWarnings(warnings []string) []string {
	if len(warnings) <= maxWarnings {
		return warnings
	}
	kept := warnings[: maxWarnings-1 : maxWarnings-1]
	return append(kept, fmt.Sprintf("and %d more", len(warnings)-len(kept)))
}

// verifyAndRunPlan validates a plan and runs its action.
func verifyAndRunPlan(ctx context.Context, c Client, p *v1alpha1.Plan, r Run) Result {
	a, parsed, err := verifyAndParsePlan(p)
	if err != nil {
		return Result{Code: CodeInvalid, Message: TruncateText(err.Error(), maxMessage)}
	}
	return a.kind.runPlan(ctx, c, p, parsed, r)
}

// verifyAndParsePlan returns the action and parameters of a plan.
func verifyAndParsePlan(p *v1alpha1.Plan) (a *Action, parsed any, err error) {
	hash := HashPlanEffect(p)
	if hash == "" || hash != p.Hash {
		return nil, nil, fmt.Errorf("the plan has hash %s, but its content has hash %s", p.Hash, hash)
	}
	a, known := Find(p.Action)
	if !known || a.Name != p.Action { // plans do not use aliases
		return nil, nil, &UnknownError{Name: p.Action, Nearest: nearestName(p.Action, namesAndAliases())}
	}
	if p.Parameters == nil {
		return nil, nil, &InvalidError{Action: a.Name, Problems: []string{"the plan has no parameters"}}
	}
	parameters, err := decodeObject(p.Parameters.Raw)
	if err != nil {
		return nil, nil, &InvalidError{Action: a.Name, Problems: []string{"parameters: must be an object"}}
	}
	request, problems := a.parseRequest(parseInput{asked: a.Name, parameters: parameters})
	if len(problems) > 0 {
		return nil, nil, &InvalidError{Action: a.Name, Problems: problems}
	}
	planned := p.Target
	named := request.Target
	sameKind := named.APIVersion == planned.APIVersion && named.Kind == planned.Kind
	if !sameKind || named.Namespace != planned.Namespace || named.Name != planned.Name {
		return nil, nil, fmt.Errorf("the plan is for %s %s/%s, but its parameters name %s",
			planned.Kind, planned.Namespace, planned.Name, formatTarget(named))
	}
	if planned.Kind != "" && planned.UID == "" && !a.kind.targetOptional() {
		return nil, nil, fmt.Errorf("the plan has no UID of its target %s", formatTarget(named))
	}
	return a, request.parsed, nil
}
