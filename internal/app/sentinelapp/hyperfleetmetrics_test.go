package sentinelapp

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
)

// TestPublicMetricsOfSeveral holds that the series of two SentinelConfigs with
// the same selector stay apart, and that the poll that is longest ago counts.
func TestPublicMetricsOfSeveral(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	for i, config := range []string{"one", "two"} {
		labels := prometheus.Labels{operator.LabelConfig: config, "shard": "region=eu,zone in (a,b)", "resource_type": "clusters"}
		decisions := prometheus.NewCounterVec(prometheus.CounterOpts{Name: metricPrefix + "decisions_total", ConstLabels: labels}, []string{"reason"})
		decisions.WithLabelValues("max age not expired").Add(float64(i + 1))
		decisions.WithLabelValues("max age expired (ready)").Add(10)
		round := prometheus.NewGauge(prometheus.GaugeOpts{Name: metricPrefix + "last_successful_poll_timestamp_seconds", ConstLabels: labels})
		round.Set(float64(200 - i))
		reg.MustRegister(decisions, round)
	}
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range convertToPublicMetrics(families, "v1") {
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			got = append(got, fmt.Sprintf("%s%v%v", strings.TrimPrefix(f.GetName(), metricPrefix), labels, m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	slices.Sort(got)
	const rest = "reason=max age not expired resource_selector=region:eu,zone in (a,b) resource_type=clusters version=v1]"
	want := []string{
		"last_successful_poll_timestamp_seconds[component=sentinel version=v1]199",
		"resources_skipped_total[component=sentinel config=one " + rest + "1",
		"resources_skipped_total[component=sentinel config=two " + rest + "2",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("metrics (-want +got):\n%s", diff)
	}
}
