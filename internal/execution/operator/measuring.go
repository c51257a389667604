package operator

import (
	"context"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

// measuredChecker is a checker that counts conditions and dry runs.
type measuredChecker struct {
	checker
	metrics *metrics
}

// Check runs the checks and counts them.
func (c measuredChecker) Check(ctx context.Context, ke *v1alpha1.KubernetesExecution, dry *action.Result, now time.Time) (check.Outcome, error) {
	out, err := c.checker.Check(ctx, ke, dry, now)
	c.metrics.countCheck(ke, out)
	return out, err
}

// Replan computes the plan again and counts the checks.
func (c measuredChecker) Replan(ctx context.Context, ke *v1alpha1.KubernetesExecution, now time.Time) (check.Outcome, error) {
	out, err := c.checker.Replan(ctx, ke, now)
	c.metrics.countCheck(ke, out)
	return out, err
}

// EvaluatePostConditions evaluates the postconditions and counts them.
func (c measuredChecker) EvaluatePostConditions(ctx context.Context, ke *v1alpha1.KubernetesExecution, actionEnded, now time.Time) (results []v1alpha1.ConditionResult, wait time.Duration, err error) {
	results, wait, err = c.checker.EvaluatePostConditions(ctx, ke, actionEnded, now)
	c.metrics.countEvaluations("postcondition", results)
	return results, wait, err
}

// countCheck counts the conditions and the dry run of a check.
func (m *metrics) countCheck(ke *v1alpha1.KubernetesExecution, out check.Outcome) {
	m.countEvaluations("precondition", out.Results.PreConditionResults)
	if out.TrialTook > 0 {
		m.dryRunTook.WithLabelValues(actionLabel(ke)).Observe(out.TrialTook.Seconds())
	}
}

// countEvaluations counts evaluations of conditions by result.
func (m *metrics) countEvaluations(kind string, results []v1alpha1.ConditionResult) {
	for _, c := range results {
		result := "failed"
		switch {
		case c.Passed:
			result = "passed"
		case !c.Evaluated:
			result = "error"
		}
		m.conditions.WithLabelValues(kind, result).Inc()
	}
}

// timedJobs measures how long the creation of Jobs takes.
type timedJobs struct {
	jobs
	metrics *metrics
}

// CreateOrGet creates a Job and measures the duration.
func (j timedJobs) CreateOrGet(ctx context.Context, ke *v1alpha1.KubernetesExecution, made *batchv1.Job) (*batchv1.Job, error) {
	begin := time.Now()
	stored, err := j.jobs.CreateOrGet(ctx, ke, made)
	j.metrics.jobTook.Observe(time.Since(begin).Seconds())
	return stored, err
}
