package changes_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
)

// wantConfigValid holds which sinks a process reports with a valid configuration.
func wantConfigValid(t *testing.T, p *process.Process, want map[string]float64) {
	t.Helper()
	families, err := p.Metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "fleetloop_change_events_sink_config_valid" {
			for _, m := range f.GetMetric() {
				got[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("sinks with a valid configuration (-want +got):\n%s", diff)
	}
}

// TestDescribe holds that the reference of metrics has those of change events.
func TestDescribe(t *testing.T) {
	t.Parallel()
	reg := prometheus.NewRegistry()
	if err := changes.RegisterMetrics(reg); err != nil {
		t.Fatal(err)
	}
	if err := changes.RegisterMetrics(reg); err != nil {
		t.Errorf("a second time: %v", err)
	}
}
