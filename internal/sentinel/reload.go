package sentinel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// Whoever reads the configuration makes the sentinels and knows what became of
// it; they have the series. What was configured before is what runs after a
// change that was refused.

// ConfigReloaded counts a change of the configuration that is in force now.
func (s *Sentinel) ConfigReloaded() {
	s.metrics.reloads.Inc()
	s.metrics.lastReload.Set(1)
}

// ConfigRefused notes that the last change of the configuration was not taken.
func (s *Sentinel) ConfigRefused() { s.metrics.lastReload.Set(0) }

// ConfigNotLoaded counts that the configuration could not be read.
func (s *Sentinel) ConfigNotLoaded() { s.metrics.configErrors.Inc() }

// The labels of what is not loaded. A sentinel has neither: its shard is a
// selector, and its resource type a collection.
const (
	ShardNotLoaded      = "not loaded"
	ResourceTypeUnknown = "unknown"
)

// LoadErrors count configurations that could not be loaded while no sentinel
// runs whose metrics could: as api_errors_total with the operation config_load,
// of the shard ShardNotLoaded. It is safe for concurrent use.
type LoadErrors struct {
	reg prometheus.Registerer

	mu     sync.Mutex
	series map[string]*prometheus.CounterVec // by resource type
}

// NewLoadErrors makes a counter that registers its series as they are needed.
// Without a Registerer nothing is counted.
func NewLoadErrors(reg prometheus.Registerer) *LoadErrors {
	return &LoadErrors{reg: reg, series: map[string]*prometheus.CounterVec{}}
}

// Count counts a failure. The resource type is what the configuration says,
// as far as it is known: any that is no collection counts as unknown.
func (l *LoadErrors) Count(resourceType string) error {
	if l.reg == nil {
		return nil
	}
	if _, ok := singularOf(resourceType); !ok {
		resourceType = ResourceTypeUnknown
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	series := l.series[resourceType]
	if series == nil {
		f := &factory{reg: l.reg, labels: prometheus.Labels{"shard": ShardNotLoaded, "resource_type": resourceType}}
		series = f.apiErrors()
		if err := errors.Join(f.errs...); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
		l.series[resourceType] = series
	}
	series.WithLabelValues(opConfigLoad).Inc()
	return nil
}

// Clear takes the series away, because a sentinel with its own runs, or nothing
// is to be loaded any more.
func (l *LoadErrors) Clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, series := range l.series {
		l.reg.Unregister(series)
	}
	clear(l.series)
}
