package changes

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
)

// usable collects of each sink whether it can be told anything.
type usable struct{ sinks *Sinks }

//nolint:gochecknoglobals // a description, made once
var usableDesc = prometheus.NewDesc("fleetloop_change_events_sink_usable",
	"1 if a sink can receive change events, 0 if its configuration is invalid or a required file has never been readable.", []string{"sink"}, nil)

// Describe is that of prometheus.Collector.
func (usable) Describe(ch chan<- *prometheus.Desc) { ch <- usableDesc }

// Collect is that of prometheus.Collector.
func (u usable) Collect(ch chan<- prometheus.Metric) {
	for _, sink := range u.sinks.list {
		stats, is := changeevent.StatsOf(sink.Client)
		value := 0.0
		if is && !stats.WaitingForFiles {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(usableDesc, prometheus.GaugeValue, value, sink.Name)
	}
}
