package executionapp

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// registerPoliciesMissingMetric registers a metric that shows when approvals are rejected because no admission policy
// checks the approver. Without it, only the log and waiting users would show this.
func registerPoliciesMissingMetric(reg prometheus.Registerer, missing func() error) error {
	return reg.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "kubernetesexecution_admission_policies_missing",
		Help: "1 if the ValidatingAdmissionPolicies that verify requesters and approvers are missing, changed, disabled or not checked yet, 0 otherwise. While the value is 1, the controller accepts no approvals.",
	}, func() float64 {
		if missing() != nil {
			return 1
		}
		return 0
	}))
}

// timedEvaluator measures the evaluation time of conditions.
type timedEvaluator struct {
	execution.Conditions

	took *prometheus.HistogramVec
}

func newTimedEvaluator(reg prometheus.Registerer, conditions execution.Conditions) (timedEvaluator, error) {
	took := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name:    "kubernetesexecution_condition_evaluation_duration_seconds",
		Help:    "Duration of evaluations of the preconditions and postconditions of KubernetesExecutions, in seconds, by result: passed, failed, error, killed (CPU or memory limit exceeded) or deferred (all evaluator processes were busy).",
		Buckets: prometheus.ExponentialBuckets(1e-3, 2, 14),
	}, []string{"result"})
	return timedEvaluator{conditions, took}, reg.Register(took)
}

// ReservePlace reserves a place that measures, and counts requests without a free place.
func (c timedEvaluator) ReservePlace(requester string) (execution.Place, error) {
	p, err := c.Conditions.ReservePlace(requester)
	if err != nil {
		c.took.WithLabelValues("deferred").Observe(0)
		return nil, err
	}
	return timedEvaluationPlace{p, c.took}, nil
}

// timedEvaluationPlace is a place that measures evaluations.
type timedEvaluationPlace struct {
	execution.Place

	took *prometheus.HistogramVec
}

// EvaluateModule evaluates a condition and measures the time.
func (p timedEvaluationPlace) EvaluateModule(
	ctx context.Context,
	module string,
	input any,
	now time.Time,
) (passed bool, message string, err error) {
	begin := time.Now()
	passed, message, err = p.Place.EvaluateModule(ctx, module, input, now)
	p.took.WithLabelValues(evaluationResult(passed, err)).Observe(time.Since(begin).Seconds())
	return passed, message, err
}

// evaluationResult returns the value of the label result for an evaluation.
func evaluationResult(passed bool, err error) string {
	_, deferred := errors.AsType[*execution.RetryError](err)
	switch {
	case errors.Is(err, execution.ErrKilled):
		return "killed"
	case deferred:
		return "deferred"
	case err != nil:
		return "error"
	case passed:
		return "passed"
	}
	return "failed"
}

// registerMetrics registers the metrics of this package.
func registerMetrics(reg prometheus.Registerer) error {
	_, err := newTimedEvaluator(reg, nil)
	none := func() error { return nil }
	return errors.Join(err, registerPoliciesMissingMetric(reg, none), registerCRDOutdatedMetric(reg, none))
}
