package operator

import (
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// LabelConfig is the label with the name of a SentinelConfig. All metrics of a
// sentinel have it where a process runs several, and those of a group always.
const LabelConfig = "config"

// metrics count the SentinelConfigs that a process is to run. What a sentinel
// does is told by its own metrics, which are not there without one.
type metrics struct{ served, unserved prometheus.Collector }

// newMetrics makes metrics of what count tells when they are read.
func newMetrics(count func() (served, unserved int)) *metrics {
	gauge := func(state string, value func() int) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Namespace: "hyperfleet", Subsystem: "sentinel", Name: "configs",
			Help:        "SentinelConfigs that this process is to run: served while a sentinel runs for it, under its last generation or an earlier one, else unserved.",
			ConstLabels: prometheus.Labels{"state": state},
		}, func() float64 { return float64(value()) })
	}
	return &metrics{
		served:   gauge("served", func() int { served, _ := count(); return served }),
		unserved: gauge("unserved", func() int { _, unserved := count(); return unserved }),
	}
}

func (m *metrics) register(reg prometheus.Registerer) error {
	if err := errors.Join(reg.Register(m.served), reg.Register(m.unserved)); err != nil {
		return fmt.Errorf("register metrics: %w", err)
	}
	return nil
}

func (m *metrics) unregister(reg prometheus.Registerer) {
	reg.Unregister(m.served)
	reg.Unregister(m.unserved)
}

// Describe registers the metrics of an operator with nothing to run: for the
// reference of metrics.
func Describe(reg prometheus.Registerer) error {
	return newMetrics(func() (served, unserved int) { return 0, 0 }).register(reg)
}

// count counts the objects with and without a sentinel. The one that is asked
// for by name counts although there is no such object.
func (r *roster) count() (served, unserved int) {
	known := 0
	r.each(func(m *member) {
		known++
		if s := m.instance.State(); s.InForce != 0 && s.Failure == nil {
			served++
		}
	})
	if r.cfg.Name != "" {
		known = max(known, 1)
	}
	return served, known - served
}
