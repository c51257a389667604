package changes

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
)

// sinkConfigValid collects for each sink whether its configuration is valid.
type sinkConfigValid struct{ sinks *Sinks }

//nolint:gochecknoglobals // a description, made once
var sinkConfigValidDesc = prometheus.NewDesc(
	"fleetloop_change_events_sink_config_valid",
	"1 if this process can send change events to a sink; 0 if the configuration of the sink is invalid, or if the process has never been able to read a required file. A sink is the HTTP endpoint that receives change events.",
	[]string{"sink"},
	nil,
)

// Describe implements prometheus.Collector.
func (sinkConfigValid) Describe(ch chan<- *prometheus.Desc) { ch <- sinkConfigValidDesc }

// Collect implements prometheus.Collector.
func (u sinkConfigValid) Collect(ch chan<- prometheus.Metric) {
	for _, sink := range u.sinks.list {
		stats, isValid := changeevent.StatsOf(sink.Client) // an invalid sink has none
		value := 0.0
		if isValid && !stats.WaitingForFiles {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(sinkConfigValidDesc, prometheus.GaugeValue, value, sink.Name)
	}
}
