package sentinel

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
)

// A scrapedRegistry is scraped after each registration.
type scrapedRegistry struct {
	*prometheus.Registry
	tb testing.TB
}

func (r scrapedRegistry) Register(c prometheus.Collector) error {
	err := r.Registry.Register(c)
	if _, scrape := r.Gather(); scrape != nil {
		r.tb.Errorf("scrape: %v", scrape)
	}
	return err
}

// TestScrapeDuringRegistration holds that each metric has a value as soon as it is registered.
func TestScrapeDuringRegistration(t *testing.T) {
	t.Parallel()
	if _, err := registerMetrics(scrapedRegistry{prometheus.NewRegistry(), t}, metricsKey{shard: "all", resourceType: "clusters"}, func() int { return 0 }); err != nil {
		t.Fatal(err)
	}
}
