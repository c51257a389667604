package sampleadapter

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/adapter"
)

// A result is the result of one cloud event: a reported outcome, or one of these.
type result string

const (
	resultDiscarded result = "discarded"
	resultGone      result = "gone"
	resultIgnored   result = "ignored"
	resultRefused   result = "rejected"
	resultFailed    result = "failed"
)

type metrics struct {
	events *prometheus.CounterVec
	paused prometheus.Gauge
}

// newMetrics registers one adapter's metrics. The adapters of a process share
// a registry, so the adapter is a constant label.
func newMetrics(reg prometheus.Registerer, name string) (metrics, error) {
	labels := prometheus.Labels{"adapter": name}
	m := metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "fleetloop_sample_adapter_events_total",
			Help:        "Total number of CloudEvents that the sample adapter (an example controller) handled, by result. If the fleet API stored the status report of the adapter: the reported status (available, waiting, transient_error or finalized). If not: discarded (for example, the API has a newer report), rejected (the API rejected a request; not retried), gone (the resource does not exist), ignored (not an event about a resource) or failed (another error; retried).",
			ConstLabels: labels,
		}, []string{"result"}),
		paused: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "fleetloop_sample_adapter_paused",
			Help:        "1 if the sample adapter (an example controller) is paused and handles no CloudEvents, 0 otherwise.",
			ConstLabels: labels,
		}),
	}
	for _, r := range []result{
		result(outcomeAvailable), result(outcomeWaiting), result(outcomeTransient), result(outcomeFinalized),
		resultDiscarded, resultGone, resultIgnored, resultRefused, resultFailed,
	} {
		m.events.WithLabelValues(string(r))
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.events, m.paused} {
		if err := reg.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register metrics of sample adapter %q: %w", name, err)
		}
	}
	return m, nil
}

// countResult counts the result of an event that had one.
func (m metrics) countResult(r adapter.Result) {
	counted := resultFailed
	switch r.Outcome {
	case adapter.OutcomeReported:
		counted = result(outcomeOf(r.Report))
	case adapter.OutcomeDiscarded:
		counted = resultDiscarded
	case adapter.OutcomeGone:
		counted = resultGone
	case adapter.OutcomeIgnored:
		counted = resultIgnored
	case adapter.OutcomeRejected:
		counted = resultRefused
	case adapter.OutcomeFailed, adapter.OutcomeDeadLettered, adapter.OutcomeUnavailable:
	case adapter.OutcomeDuplicate, adapter.OutcomePostponed, adapter.OutcomeStopped:
		return
	}
	m.events.WithLabelValues(string(counted)).Inc()
}

func (m metrics) setPaused(paused bool) {
	if paused {
		m.paused.Set(1)
	} else {
		m.paused.Set(0)
	}
}
