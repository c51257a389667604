package policy

import (
	"errors"
	"time"

	"github.com/open-policy-agent/opa/v1/ast"
	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "kubernetes_executor_policy_"

// A result classifies a decision. The set is closed: it is a metric's label.
type result string

const (
	resultAllowed result = "allowed"
	resultDenied  result = "denied"
	resultPassed  result = "not_enforced" // denied, but the mode is warn or audit
	resultError   result = "error"
)

// Metrics holds the metrics of decisions and of loading. Nil disables them.
type Metrics struct {
	duration       *prometheus.HistogramVec
	evaluations    *prometheus.CounterVec
	denials        *prometheus.CounterVec
	reloads        prometheus.Counter
	reloadFailures prometheus.Counter
	info           *prometheus.GaugeVec
}

// NewMetrics registers the metrics. Their series exist from the start, except those that name a
// policy.
func NewMetrics(reg prometheus.Registerer) (*Metrics, error) {
	m := &Metrics{
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: metricsPrefix + "evaluation_duration_seconds", Help: "Duration of evaluations of the safety policies, in seconds, by result: allowed, denied, not_enforced (denied, but only by policies in mode warn or audit) or error (treated as denied). The safety policies are Rego rules that allow or deny a KubernetesExecution.", Buckets: prometheus.ExponentialBuckets(25e-6, 2, 16),
		}, []string{"result"}),
		evaluations: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "evaluation_total", Help: "Total number of evaluations of the safety policies (Rego rules that allow or deny a KubernetesExecution), by result: allowed, denied, not_enforced (denied, but only by policies in mode warn or audit) or error (treated as denied).",
		}, []string{"result"}),
		denials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: metricsPrefix + "denials_total", Help: "Total number of times that a safety policy denied a KubernetesExecution, by policy and action. A safety policy is a Rego rule that allows or denies KubernetesExecutions.",
		}, []string{"policy", "action"}),
		reloads:        prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + "reloads_total", Help: "Total number of times that the execution controller loaded a new version of the safety policies. The safety policies are Rego rules that allow or deny a KubernetesExecution."}),
		reloadFailures: prometheus.NewCounter(prometheus.CounterOpts{Name: metricsPrefix + "reload_failures_total", Help: "Total number of times that the execution controller rejected a new version of the safety policies, because it is invalid, or because its tests failed or did not finish in time. The previous version stays active."}),
		info:           prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: metricsPrefix + "info", Help: "1 for the active version of the safety policies; absent if no policies are loaded. The label hash identifies the version. The safety policies are Rego rules that allow or deny a KubernetesExecution."}, []string{"hash"}),
	}
	var errs []error
	for _, c := range []prometheus.Collector{m.duration, m.evaluations, m.denials, m.reloads, m.reloadFailures, m.info} {
		errs = append(errs, reg.Register(c))
	}
	for _, r := range []result{resultAllowed, resultDenied, resultPassed, resultError} {
		m.duration.WithLabelValues(string(r))
		m.evaluations.WithLabelValues(string(r))
	}
	return m, errors.Join(errs...)
}

func (m *Metrics) observeDecision(decision Decision, input ast.Value, err error, took time.Duration) {
	if m == nil {
		return
	}
	r := classifyDecision(decision, err)
	m.duration.WithLabelValues(string(r)).Observe(took.Seconds())
	m.evaluations.WithLabelValues(string(r)).Inc()
	if r == resultDenied {
		m.denials.WithLabelValues(decision.PolicyName, readActionName(input)).Inc()
	}
}

func classifyDecision(decision Decision, err error) result {
	switch {
	case err != nil:
		return resultError
	case !decision.Allow:
		return resultDenied
	case len(decision.Violations) > 0:
		return resultPassed
	}
	return resultAllowed
}

// readActionName returns the action's name in the catalogue, which is a closed set; the requested name is
// not.
func readActionName(input ast.Value) string {
	v, err := input.Find(ast.Ref{ast.InternedTerm("action"), ast.InternedTerm("name")})
	if err != nil {
		return ""
	}
	s, _ := v.(ast.String)
	return string(s)
}

func (m *Metrics) recordReload(loadedSet *Set, err error) {
	if m == nil {
		return
	}
	if err != nil {
		m.reloadFailures.Inc()
		return
	}
	m.reloads.Inc()
	m.info.Reset()
	m.info.WithLabelValues(loadedSet.hash).Set(1)
}

// clearLoadedInfo records that no policies are loaded.
func (m *Metrics) clearLoadedInfo() {
	if m != nil {
		m.info.Reset()
	}
}
