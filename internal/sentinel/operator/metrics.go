package operator

import (
	"cmp"
	"errors"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// LabelConfig is the label with the name of a SentinelConfig. All metrics of a sentinel have it if
// a process runs several, and the metrics of a group always have it.
const LabelConfig = "config"

// metricLabels holds the two labels that all metrics have.
type metricLabels struct{ shard, resourceType string }

// metricLabelsOf returns the labels of an instance: those of its sentinel's metrics, or those of
// configurations that are not loaded.
func metricLabelsOf(s InstanceState) metricLabels {
	w := metricLabels{shard: cmp.Or(s.Selector, "all"), resourceType: cmp.Or(s.ResourceType, sentinel.ResourceTypeUnknown)}
	if s.Changes == 0 {
		w.shard = sentinel.ShardNotLoaded
	}
	return w
}

// objectCounts counts the objects with and without a sentinel, by what they watch.
type objectCounts map[metricLabels]struct{ served, unserved int }

// configs is the metric of the SentinelConfigs that a process runs. The metrics of a sentinel do
// not exist without a sentinel.
type configs struct{ count func() objectCounts }

//nolint:gochecknoglobals // it is a constant
var configsDesc = prometheus.NewDesc("hyperfleet_sentinel_configs",
	"Number of SentinelConfig objects for which this process has to run a sentinel, by state: running (perhaps with an earlier generation of the object) or not_running.",
	[]string{"shard", "resource_type", "state"}, nil)

// Describe sends the description of the metric.
func (configs) Describe(to chan<- *prometheus.Desc) { to <- configsDesc }

// Collect counts the objects.
func (c configs) Collect(to chan<- prometheus.Metric) {
	for w, n := range c.count() {
		to <- prometheus.MustNewConstMetric(configsDesc, prometheus.GaugeValue, float64(n.served), w.shard, w.resourceType, "running")
		to <- prometheus.MustNewConstMetric(configsDesc, prometheus.GaugeValue, float64(n.unserved), w.shard, w.resourceType, "not_running")
	}
}

// newEventCounter returns the counter of Kubernetes events about SentinelConfigs.
func newEventCounter() *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: "hyperfleet", Subsystem: "sentinel", Name: "config_events_total",
		Help: "Total number of Kubernetes events that the sentinel emitted about SentinelConfig objects, by reason, such as ConfigInvalid. Without permission to create events, the sentinel logs them instead and counts them too.",
	}, []string{"shard", "resource_type", "reason"})
}

// RegisterPlaceholderMetrics registers the metrics of an operator with one object that does not exist, for the
// reference of metrics.
func RegisterPlaceholderMetrics(reg prometheus.Registerer) error {
	missing := configs{func() objectCounts {
		return objectCounts{{shard: sentinel.ShardNotLoaded, resourceType: sentinel.ResourceTypeUnknown}: {unserved: 1}}
	}}
	events := newEventCounter()
	events.WithLabelValues(sentinel.ShardNotLoaded, sentinel.ResourceTypeUnknown, eventNotLoaded)
	return errors.Join(reg.Register(missing), reg.Register(events))
}

// countServedAndUnservedConfigs counts the objects with and without a sentinel. The configured object counts
// even if it does not exist. Without any objects there is one line of zeros.
func (r *memberSet) countServedAndUnservedConfigs() objectCounts {
	all := objectCounts{}
	r.forEachMember(func(m *member) {
		s := m.instance.CurrentState()
		w := metricLabelsOf(s)
		n := all[w]
		if s.InForce != 0 && s.Failure == nil {
			n.served++
		} else {
			n.unserved++
		}
		all[w] = n
	})
	if len(all) == 0 {
		none := metricLabels{shard: sentinel.ShardNotLoaded, resourceType: sentinel.ResourceTypeUnknown}
		n := all[none]
		if r.cfg.Name != "" {
			n.unserved++
		}
		all[none] = n
	}
	return all
}
