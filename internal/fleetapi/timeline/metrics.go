package timeline

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of the timeline. The outcomes are a closed set.
type metrics struct {
	stored, known, different prometheus.Counter
}

func newMetrics(r prometheus.Registerer) (*metrics, error) {
	events := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fleetloop_timeline_events_received_total",
		Help: "Total number of change events that the fleet API received, by result: stored, duplicate (the event is already stored) or conflict (a different event with the same ID is already stored).",
	}, []string{"result"})
	if err := r.Register(events); err != nil {
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return &metrics{
		stored: events.WithLabelValues("stored"), known: events.WithLabelValues("duplicate"), different: events.WithLabelValues("conflict"),
	}, nil
}

func (m *metrics) countOutcomes(outcomes []Outcome) {
	for _, o := range outcomes {
		switch o {
		case Stored:
			m.stored.Inc()
		case Known:
			m.known.Inc()
		case Different:
			m.different.Inc()
		}
	}
}
