package adapter

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// An Outcome is the outcome of one delivery of an event. The set is closed, and is a label of the
// metric fleetloop_adapter_events_total.
type Outcome string

// The outcomes.
const (
	// OutcomeReported means that the report is stored and the event is acknowledged.
	OutcomeReported Outcome = "reported"
	// OutcomeFailed means that Reconcile failed; that is reported, and the event is retried.
	OutcomeFailed Outcome = "failed"
	// OutcomeDeadLettered means that the last attempt failed; that is reported.
	OutcomeDeadLettered Outcome = "dead_lettered"
	// OutcomeDiscarded means that the fleet API has a newer report of the adapter.
	OutcomeDiscarded Outcome = "discarded"
	// OutcomeDuplicate means that an earlier evaluation covered the event.
	OutcomeDuplicate Outcome = "duplicate"
	// OutcomePostponed means that the event was returned, because a newer one of its resource waits or the fleet API
	// does not have its generation yet.
	OutcomePostponed Outcome = "postponed"
	// OutcomeGone means that the resource does not exist.
	OutcomeGone Outcome = "gone"
	// OutcomeIgnored means that the event is not about a resource of the adapter.
	OutcomeIgnored Outcome = "ignored"
	// OutcomeRejected means that the fleet API rejected a request; the event is dead-lettered.
	OutcomeRejected Outcome = "rejected"
	// OutcomeUnavailable means that the fleet API did not answer; the event is retried.
	OutcomeUnavailable Outcome = "unavailable"
	// OutcomeStopped means that the event was returned, because the adapter stopped.
	OutcomeStopped Outcome = "stopped"
)

func outcomes() []Outcome {
	return []Outcome{
		OutcomeReported, OutcomeFailed, OutcomeDeadLettered, OutcomeDiscarded, OutcomeDuplicate, OutcomePostponed,
		OutcomeGone, OutcomeIgnored, OutcomeRejected, OutcomeUnavailable, OutcomeStopped,
	}
}

type metrics struct {
	events     *prometheus.CounterVec
	duration   prometheus.Histogram
	inProgress prometheus.Gauge
}

// newMetrics registers one adapter's metrics. The adapters of a process may share a registry, so the
// adapter is a constant label.
func newMetrics(reg prometheus.Registerer, adapter string) (metrics, error) {
	labels := prometheus.Labels{"adapter": adapter}
	m := metrics{
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name:        "fleetloop_adapter_events_total",
			Help:        "Total number of deliveries of CloudEvents to the adapter, by outcome: reported, failed (reported and retried), dead_lettered (the last attempt failed), discarded (the API has a newer report), duplicate, postponed (a newer event of the resource waits, or the API lacks the generation of the event), gone (the resource does not exist), ignored (not about a resource of the adapter), rejected (the API rejected a request; dead-lettered), unavailable (the API did not answer; retried) or stopped (returned because the adapter stopped).",
			ConstLabels: labels,
		}, []string{"outcome"}),
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "fleetloop_adapter_reconcile_duration_seconds",
			Help:        "Duration of the adapter's calls of Reconcile.",
			ConstLabels: labels,
			Buckets:     []float64{.01, .05, .1, .5, 1, 5, 10, 30, 60, 300},
		}),
		inProgress: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "fleetloop_adapter_reconciles_in_progress",
			Help:        "Number of resources that the adapter evaluates at present.",
			ConstLabels: labels,
		}),
	}
	for _, o := range outcomes() {
		m.events.WithLabelValues(string(o))
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{m.events, m.duration, m.inProgress} {
		if err := reg.Register(c); err != nil {
			return metrics{}, fmt.Errorf("register metrics: %w", err)
		}
	}
	return m, nil
}
