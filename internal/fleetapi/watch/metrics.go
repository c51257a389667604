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
			Help: "Watches that are open.",
		}),
		events: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: prefix + "_watch_events_total",
			Help: "Events sent to watchers, by type.",
		}, []string{"type"}),
		fallbacks: prometheus.NewCounter(prometheus.CounterOpts{
			Name: prefix + "_watch_fallbacks_total",
			Help: "Pages of changes that a watcher read from the database by itself because the last changes in memory did not reach back to it.",
		}),
		lastRead: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: prefix + "_watch_last_read_timestamp_seconds",
			Help: "When the changes were last read for all watchers; it stands still while nobody watches.",
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

// sent counts what a batch holds. Each event by itself would be a word that
// all watchers write.
func (m *metrics) sent(b *batch) {
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
