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

// addToMetricsServerIfEnabled serves the metrics of a process if they are enabled.
func (h HyperFleetMetrics) addToMetricsServerIfEnabled(p *process.Process) {
	if !h.Enabled {
		return
	}
	build := version.Get()
	gatherer := prometheus.GathererFunc(func() ([]*dto.MetricFamily, error) {
		families, err := p.Metrics.Gather()
		return convertToPublicMetrics(families, build.Version), err
	})
	p.HandleOnMetricsServer(HyperFleetMetricsPath, telemetry.MetricsHandler(gatherer))
}

// metricAlias maps a metric of the public sentinel to its source metric.
type metricAlias struct {
	name, source string // without metricPrefix
	help         string

	// label is the label beside the common ones. Empty means no such label.
	label string
	// value returns the value of label from the labels of a source series. If ok is false, the
	// public sentinel does not count what the series counts, and the metric does not have it.
	value func(sourceLabels map[string]string) (value string, ok bool)
}

// listMetricAliases returns the metrics of the public sentinel.
func listMetricAliases() []metricAlias {
	return []metricAlias{
		{
			name:   "pending_resources",
			source: "published_cache_entries",
			help:   "Number of resources for which the sentinel published an event and no adapter (a controller that reconciles the resource) has reported a status since.",
		},
		{
			name:   "events_published_total",
			source: "events_published_by_reason_total",
			help:   "Total number of CloudEvents that the sentinel published and the message broker confirmed.",
			label:  "reason",
			value:  anyReason,
		},
		{
			name:   "resources_skipped_total",
			source: "decisions_total",
			help:   "Total number of times that the sentinel decided to publish no event for a resource, by reason.",
			label:  "reason",
			value:  skipReasonOnly,
		},
		{
			name:   "poll_duration_seconds",
			source: "reconcile_duration_seconds",
			help:   "Duration of polls in seconds. In a poll the sentinel reads resources from the fleet API and publishes events for those that need one.",
		},
		{
			name:   "api_errors_total",
			source: "api_errors_total",
			help:   "Total number of failed requests of the sentinel to the fleet API.",
			label:  "error_type",
			value:  fetchErrorOnly,
		},
		{
			name:   "broker_errors_total",
			source: "broker_errors_total",
			help:   "Total number of times that the sentinel failed to publish a CloudEvent to the message broker, after all retries within one poll.",
			label:  "error_type",
			value:  alwaysPublishError,
		},
	}
}

func anyReason(sourceLabels map[string]string) (reason string, ok bool) {
	return sourceLabels["reason"], true
}

// skipReasonOnly drops the decisions to publish an event.
func skipReasonOnly(sourceLabels map[string]string) (reason string, ok bool) {
	reason = sourceLabels["reason"]
	return reason, isSkipReason(reason)
}

// fetchErrorOnly drops the errors that do not come from the fleet API, but from reading a
// configuration.
func fetchErrorOnly(sourceLabels map[string]string) (errorType string, ok bool) {
	return "fetch_error", sourceLabels["operation"] == "fetch_resources"
}

func alwaysPublishError(map[string]string) (errorType string, ok bool) {
	return "publish_error", true
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
		if family := a.buildFamily(byName[a.source], standard); len(family.GetMetric()) > 0 {
			out = append(out, family)
		}
	}
	if oldest := findOldestPollTime(byName["last_successful_poll_timestamp_seconds"]); oldest > 0 {
		out = append(out, &dto.MetricFamily{
			Name: new(metricPrefix + "last_successful_poll_timestamp_seconds"), Type: dto.MetricType_GAUGE.Enum(),
			Help: new(
				"Unix time of the last successful poll, in seconds. If the process runs several sentinels, the value is the oldest of their times.",
			),
			Metric: []*dto.Metric{{Label: standard, Gauge: &dto.Gauge{Value: &oldest}}},
		})
	}
	slices.SortFunc(out, func(a, b *dto.MetricFamily) int { return strings.Compare(a.GetName(), b.GetName()) })
	return out
}

// buildFamily returns the metric of the public sentinel, with the values of its source metric.
func (a metricAlias) buildFamily(source *dto.MetricFamily, standardLabels []*dto.LabelPair) *dto.MetricFamily {
	family := &dto.MetricFamily{Name: new(metricPrefix + a.name), Help: &a.help, Type: source.GetType().Enum()}
	for _, m := range source.GetMetric() {
		labels, ok := a.labelsOf(m, standardLabels)
		if !ok {
			continue // the public sentinel does not count what this series counts
		}
		family.Metric = append(family.Metric, &dto.Metric{Label: labels, Counter: m.Counter, Gauge: m.Gauge, Histogram: m.Histogram})
	}
	return family
}

// labelsOf returns the public labels of a source series, sorted by name. If ok is false, the metric
// does not have the series.
func (a metricAlias) labelsOf(source *dto.Metric, standardLabels []*dto.LabelPair) (labels []*dto.LabelPair, ok bool) {
	sourceLabels := map[string]string{}
	for _, l := range source.GetLabel() {
		sourceLabels[l.GetName()] = l.GetValue()
	}
	labels = append(slices.Clone(standardLabels),
		newLabelPair("resource_type", sourceLabels["resource_type"]),
		newLabelPair("resource_selector", strings.ReplaceAll(sourceLabels["shard"], "=", ":")))
	if config, ok := sourceLabels[operator.LabelConfig]; ok { // keeps the series of two SentinelConfigs apart
		labels = append(labels, newLabelPair(operator.LabelConfig, config))
	}
	if a.label != "" {
		value, ok := a.value(sourceLabels)
		if !ok {
			return nil, false
		}
		labels = append(labels, newLabelPair(a.label, value))
	}
	slices.SortFunc(labels, func(a, b *dto.LabelPair) int { return strings.Compare(a.GetName(), b.GetName()) })
	return labels, true
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
