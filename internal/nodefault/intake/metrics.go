package intake

import (
	"context"
	"errors"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A Kind is the kind of a source. Its values are a closed set.
type Kind string

// The kinds of sources.
const (
	KindConditions   Kind = "conditions"
	KindHealthEvents Kind = "health_events"
	KindAlertmanager Kind = "alertmanager"
	KindGRPC         Kind = "grpc"
)

// Metrics counts reports.
type Metrics struct {
	reports *prometheus.CounterVec
}

// NewMetrics creates metrics and registers them. A nil registerer means that they are not
// registered.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{reports: prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fleetloop_node_fault_reports_total",
		Help: "Total number of reports about node faults that node-fault-controller received, by source_kind (conditions, health_events, alertmanager or grpc) and result: stored, invalid, unknown_node, too_many_faults (of one node), outdated (older than the last report), queue_full or unavailable (the report could not be stored).",
	}, []string{"source_kind", "result"})}
	if reg != nil {
		reg.MustRegister(m.reports)
	}
	return m
}

// NewCountingStore returns a store that counts the reports of one kind of source.
func (m *Metrics) NewCountingStore(kind Kind, s Store) *CountingStore {
	return &CountingStore{store: s, kind: kind, reports: m.reports}
}

// A CountingStore stores reports and counts the results.
type CountingStore struct {
	store   Store
	kind    Kind
	reports *prometheus.CounterVec
}

// Apply stores and counts reports.
func (c *CountingStore) Apply(ctx context.Context, reports []nodefault.Report) error {
	err := c.store.Apply(ctx, reports)
	for _, e := range SplitReportErrors(err, len(reports)) {
		c.countResult(e)
	}
	return err //nolint:wrapcheck // it is a store like the one within
}

// storeEvents stores the valid events, counts all events, and returns the error of each.
func (c *CountingStore) storeEvents(ctx context.Context, events []eventOrError) []error {
	now := time.Now()
	errs := make([]error, len(events))
	var reports []nodefault.Report
	var eventIndexes []int // by report
	for i, e := range events {
		report, err := e.event.ToReport(now)
		if e.err != nil { // it could not be decoded
			err = e.err
		}
		if err != nil {
			c.countResult(err)
			errs[i] = err
			continue
		}
		reports = append(reports, report)
		eventIndexes = append(eventIndexes, i)
	}
	if len(reports) == 0 {
		return errs
	}
	for n, err := range SplitReportErrors(c.Apply(ctx, reports), len(reports)) {
		errs[eventIndexes[n]] = err
	}
	return errs
}

// countResult counts one report, stored if err is nil.
func (c *CountingStore) countResult(err error) {
	c.reports.WithLabelValues(string(c.kind), reportResultLabel(err)).Inc()
}

// reportResultLabel returns the label of a result.
func reportResultLabel(err error) string {
	switch {
	case err == nil:
		return "stored"
	case errors.Is(err, ErrUnknownNode):
		return "unknown_node"
	case errors.Is(err, ErrInvalid):
		return "invalid"
	case errors.Is(err, ErrFull):
		return "too_many_faults"
	case errors.Is(err, ErrOutdated):
		return "outdated"
	case errors.Is(err, ErrBusy):
		return "queue_full"
	}
	return "unavailable"
}
