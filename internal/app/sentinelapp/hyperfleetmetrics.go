package sentinelapp

import (
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/telemetry"
	"github.com/fleetloop/fleetloop/internal/version"
)

// HyperFleetMetricsPath serves the metrics with the names and labels of the public HyperFleet
// sentinel.
const HyperFleetMetricsPath = "/metrics/hyperfleet"

// HyperFleetMetrics configures these metrics.
type HyperFleetMetrics struct {
	// Enabled serves the metrics. They have a separate path, because most names are also names of
	// the standard metrics, with other labels.
	Enabled bool `key:"hyperfleet_metrics" env:"SENTINEL_HYPERFLEET_METRICS" default:"false" doc:"Also serve the metrics at /metrics/hyperfleet, with the names and labels of the public HyperFleet sentinel."`
}

// serveIfEnabled serves the metrics of a process if they are enabled.
func (h HyperFleetMetrics) serveIfEnabled(p *process.Process) {
	if !h.Enabled {
		return
	}
	build := version.Get()
	p.HandleOnMetricsServer(HyperFleetMetricsPath, telemetry.MetricsHandler(prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := p.Metrics.Gather()
		return convertToPublicMetrics(families, build.Version), err
	})))
}

// metricAlias maps a metric of the public sentinel to its source metric.
type metricAlias struct {
	name, of, help string

	// label is the label beside the common ones. value computes its value from the labels of the
	// source; not ok drops the series. Empty means no such label.
	label string
	value func(ours map[string]string) (value string, ok bool)
}

// listMetricAliases returns the metrics of the public sentinel.
func listMetricAliases() []metricAlias {
	reason := func(of map[string]string) (string, bool) { return of["reason"], true }
	return []metricAlias{
		{name: "pending_resources", of: "published_cache_entries", help: "Number of resources for which the sentinel published an event and no adapter (a controller that reconciles the resource) has reported a status since."},
		{name: "events_published_total", of: "events_published_by_reason_total", help: "Total number of CloudEvents that the sentinel published and the message broker confirmed.", label: "reason", value: reason},
		{
			name: "resources_skipped_total", of: "decisions_total", help: "Total number of times that the sentinel decided to publish no event for a resource, by reason.", label: "reason",
			value: func(of map[string]string) (string, bool) { return of["reason"], isSkipReason(of["reason"]) },
		},
		{name: "poll_duration_seconds", of: "reconcile_duration_seconds", help: "Duration of polls in seconds. In a poll the sentinel reads resources from the fleet API and publishes events for those that need one."},
		{
			name: "api_errors_total", of: "api_errors_total", help: "Total number of failed requests of the sentinel to the fleet API.", label: "error_type",
			value: func(of map[string]string) (string, bool) { return "fetch_error", of["operation"] == "fetch_resources" },
		},
		{
			name: "broker_errors_total", of: "broker_errors_total", help: "Total number of times that the sentinel failed to publish a CloudEvent to the message broker, after all retries within one poll.", label: "error_type",
			value: func(map[string]string) (string, bool) { return "publish_error", true },
		},
	}
}

// isSkipReason reports whether a reason means that no event is published.
func isSkipReason(reason string) bool {
	for r := range decision.NumReasons {
		if reason == r.String() {
			return !r.Publishes()
		}
	}
	return false
}

const metricPrefix = "hyperfleet_sentinel_"

// convertToPublicMetrics converts metrics to the families of the public sentinel.
func convertToPublicMetrics(ours []*dto.MetricFamily, release string) []*dto.MetricFamily {
	byName := map[string]*dto.MetricFamily{}
	for _, f := range ours {
		byName[strings.TrimPrefix(f.GetName(), metricPrefix)] = f
	}
	standard := []*dto.LabelPair{newLabelPair("component", "sentinel"), newLabelPair("version", release)}
	var out []*dto.MetricFamily
	for _, a := range listMetricAliases() {
		if family := a.buildFamily(byName[a.of], standard); len(family.GetMetric()) > 0 {
			out = append(out, family)
		}
	}
	if oldest := findOldestPollTime(byName["last_successful_poll_timestamp_seconds"]); oldest > 0 {
		out = append(out, &dto.MetricFamily{
			Name: new(metricPrefix + "last_successful_poll_timestamp_seconds"), Type: dto.MetricType_GAUGE.Enum(),
			Help:   new("Unix time of the last successful poll, in seconds. If the process runs several sentinels, the value is the oldest of their times."),
			Metric: []*dto.Metric{{Label: standard, Gauge: &dto.Gauge{Value: &oldest}}},
		})
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

func (a metricAlias) buildFamily(source *dto.MetricFamily, standardLabels []*dto.LabelPair) *dto.MetricFamily {
	family := &dto.MetricFamily{Name: new(metricPrefix + a.name), Help: &a.help, Type: source.GetType().Enum()}
	for _, m := range source.GetMetric() {
		ours := map[string]string{}
		for _, l := range m.GetLabel() {
			ours[l.GetName()] = l.GetValue()
		}
		labels := append(slices.Clone(standardLabels),
			newLabelPair("resource_type", ours["resource_type"]),
			newLabelPair("resource_selector", strings.ReplaceAll(ours["shard"], "=", ":")))
		if config, ok := ours[operator.LabelConfig]; ok { // keeps the series of two SentinelConfigs apart
			labels = append(labels, newLabelPair(operator.LabelConfig, config))
		}
		if a.label != "" {
			value, ok := a.value(ours)
			if !ok {
				continue
			}
			labels = append(labels, newLabelPair(a.label, value))
		}
		slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
		family.Metric = append(family.Metric, &dto.Metric{Label: labels, Counter: m.Counter, Gauge: m.Gauge, Histogram: m.Histogram})
	}
	return family
}

// findOldestPollTime returns the oldest end of a last successful round among all sentinels. It is 0 if a
// sentinel has had none.
func findOldestPollTime(lastRounds *dto.MetricFamily) (unixSeconds float64) {
	var oldest float64
	for i, m := range lastRounds.GetMetric() {
		if at := m.GetGauge().GetValue(); i == 0 || at < oldest {
			oldest = at
		}
	}
	return oldest
}

func newLabelPair(name, value string) *dto.LabelPair {
	return &dto.LabelPair{Name: &name, Value: &value}
}
