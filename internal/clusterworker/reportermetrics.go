package clusterworker

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// A reportResult is the result of a due report.
type reportResult string

const (
	resultStored  reportResult = "stored"
	resultIgnored reportResult = "ignored"
	resultRefused reportResult = "rejected"
	resultGone    reportResult = "not_found"
	resultFailed  reportResult = "failed"
	resultUnseen  reportResult = "awaiting_status"
	resultUntried reportResult = "never_synced"
)

// isFleetAPIAnswer reports whether the fleet API gave a meaningful answer.
func (r reportResult) isFleetAPIAnswer() bool {
	return r == resultStored || r == resultIgnored || r == resultRefused || r == resultGone
}

type reporterMetrics struct{ reports *prometheus.CounterVec }

func registerReporterMetrics(reg prometheus.Registerer) (*reporterMetrics, error) {
	m := &reporterMetrics{reports: prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "fleetloop", Subsystem: "clusterworker", Name: "reports_total",
		Help: "Total number of times that a status report about a cluster was due, by result. Sent to the fleet API: stored, ignored (for example, the API has a newer report), not_found (the API has no such cluster), rejected (the API refused the report, for example as invalid) or failed (a temporary error; retried). Not sent: awaiting_status (a new leader has not read the Shoot yet) or never_synced (no sync of the cluster was tried yet).",
	}, []string{"result"})}
	for _, r := range []reportResult{resultStored, resultIgnored, resultRefused, resultGone, resultFailed, resultUnseen, resultUntried} {
		m.reports.WithLabelValues(string(r))
	}
	if reg == nil {
		return m, nil
	}
	if err := reg.Register(m.reports); err != nil {
		return nil, fmt.Errorf("register fleet API reporter metrics: %w", err)
	}
	return m, nil
}

// countReport counts a result. It is empty for a report that was not made because of
// the shutdown.
func (m *reporterMetrics) countReport(r reportResult) {
	if r != "" {
		m.reports.WithLabelValues(string(r)).Inc()
	}
}
