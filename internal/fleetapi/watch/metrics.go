package watch

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

type metrics struct {
	watchers  prometheus.Gauge
	events    *prometheus.CounterVec
	changed   prometheus.Counter
	removed   prometheus.Counter
	bookmarks prometheus.Counter
	fallbacks prometheus.Counter
	lastRead  prometheus.Gauge
}

func newMetrics(r prometheus.Registerer, prefix string) (*metrics, error) {
	m := &metrics{
		watchers: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_watchers",
			Help: "Number of watch requests to the fleet API that are currently open.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_watch_events_total",
			Help: "Total number of events that the fleet API sent in response to watch requests, by type: changed, removed or bookmark (no change, only the current position in the list of changes).",
		}, []string{"type"}),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_watch_cache_misses_total",
			Help: "Total number of times that the fleet API read changes for a watch request from the database instead of from its cache of recent changes. It does so if the client asks for changes that are older than those in the cache.",
		}),
		lastRead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_watch_last_poll_timestamp_seconds",
			Help: "Unix time at which the fleet API last polled the database for changes to send to watch requests, in seconds; 0 before the first poll. The time does not advance while no watch request is open.",
		}),
	}
	for _, c := range []prometheus.Collector{m.watchers, m.events, m.fallbacks, m.lastRead} {
		if err := r.Register(c); err != nil {
			return nil, fmt.Errorf("register metrics: %w", err)
		}
	}
	m.changed = m.events.WithLabelValues(string(v1.WatchChanged))
	m.removed = m.events.WithLabelValues(string(v1.WatchRemoved))
	m.bookmarks = m.events.WithLabelValues(string(v1.WatchBookmark))
	return m, nil
}

// countSentEvents counts the events of a batch. Counting each event separately would make all watchers
// contend for one memory word.
func (m *metrics) countSentEvents(b *frameBatch) {
	if b.changed > 0 {
		m.changed.Add(float64(b.changed))
	}
	if b.removed > 0 {
		m.removed.Add(float64(b.removed))
	}
	if b.bookmarks > 0 {
		m.bookmarks.Add(float64(b.bookmarks))
	}
}
