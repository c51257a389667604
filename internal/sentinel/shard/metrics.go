package shard

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics holds the metrics of one member. Their labels come from the registerer.
type metrics struct {
	members prometheus.Gauge
	fenced  prometheus.Collector
}

func newMetrics(fenced func() bool) *metrics {
	opts := func(name, help string) prometheus.GaugeOpts {
		return prometheus.GaugeOpts{Namespace: "hyperfleet", Subsystem: "sentinel", Name: name, Help: help}
	}
	return &metrics{
		members: prometheus.NewGauge(opts("shard_members", "Number of sentinel replicas that divide the resources of a SentinelConfig among themselves, including this one; 0 if unknown.")),
		fenced: prometheus.NewGaugeFunc(opts("shard_fenced", "1 if this sentinel replica has stopped publishing because it cannot confirm through Kubernetes Leases which resources belong to it, 0 otherwise."), func() float64 {
			if fenced() {
				return 1
			}
			return 0
		}),
	}
}

func (m *metrics) registerAll(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(m.members), reg.Register(m.fenced)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregisterAll(reg prometheus.Registerer) {
	reg.Unregister(m.members)
	reg.Unregister(m.fenced)
}

// RegisterMetrics registers the metrics of a member of no group, for the reference of metrics.
func RegisterMetrics(reg prometheus.Registerer) error {
	return newMetrics(func() bool { return true }).registerAll(reg)
}
