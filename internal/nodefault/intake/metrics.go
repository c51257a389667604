package intake

import (
	"context"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A Kind is a way in. There are no others.
type Kind string

// The ways in.
const (
	KindConditions   Kind = "conditions"
	KindHealthEvents Kind = "health_events"
	KindAlertmanager Kind = "alertmanager"
	KindGRPC         Kind = "grpc"
)

// Metrics count reports.
type Metrics struct {
	reports *prometheus.CounterVec
}

// NewMetrics makes metrics in a registry; nil is none.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{reports: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fleetloop_node_fault_reports_total",
		Help: "Total number of reports about node faults that node-fault-controller received, by kind of source (conditions, health_events, alertmanager or grpc) and result.",
	}, []string{"source_kind", "result"})}
	if reg != nil {
		reg.MustRegister(m.reports)
	}
	return m
}

// Refused counts reports that never came to a store.
func (m *Metrics) Refused(kind Kind, err error) {
	m.reports.WithLabelValues(string(kind), resultLabel(err)).Inc()
}

// Counted is a store that counts what comes to it by one way.
func (m *Metrics) Counted(kind Kind, s Store) Store { return &counted{m, kind, s} }

type counted struct {
	metrics *Metrics
	kind    Kind
	store   Store
}

// Apply stores and counts.
func (c *counted) Apply(ctx context.Context, reports []nodefault.Report) error {
	err := c.store.Apply(ctx, reports)
	for _, e := range Each(err, len(reports)) {
		c.metrics.reports.WithLabelValues(string(c.kind), resultLabel(e)).Inc()
	}
	return err //nolint:wrapcheck // it is a store like the one within
}

// resultLabel is the error as a label.
func resultLabel(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.Is(err, ErrUnknownNode):
		return "unknown_node"
	case errors.Is(err, ErrInvalid):
		return "invalid"
	case errors.Is(err, ErrFull):
		return "too_many_faults"
	case errors.Is(err, ErrBusy):
		return "queue_full"
	}
	return "unavailable"
}
