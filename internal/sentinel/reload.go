package sentinel

import (
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"
)

// The caller that reads the configuration creates the sentinels and knows whether a reload
// succeeded; the sentinels own the series. After a refused change the previous configuration stays
// in force.

// RecordConfigReload counts a change of the configuration that is now in force.
func (s *Sentinel) RecordConfigReload() {
	s.metrics.reloads.Inc()
	s.metrics.lastReload.Set(1)
}

// RecordConfigRefused records that the last change of the configuration was refused.
func (s *Sentinel) RecordConfigRefused() { s.metrics.lastReload.Set(0) }

// CountConfigNotLoaded counts a configuration that could not be read.
func (s *Sentinel) CountConfigNotLoaded() { s.metrics.configErrors.Inc() }

// The labels of configurations that are not loaded. No sentinel has them, because its shard is a
// selector and its resource type a collection.
const (
	ShardNotLoaded      = "not loaded"
	ResourceTypeUnknown = "unknown"
)

// LoadErrors counts configurations that could not be loaded while no sentinel runs that could count
// them. It uses the metric api_errors_total with the operation config_load and the shard
// ShardNotLoaded. It is safe for concurrent use.
type LoadErrors struct {
	reg prometheus.Registerer

	mu     sync.Mutex
	series map[string]*prometheus.CounterVec // by resource type
}

// NewLoadErrors returns a counter that registers its series on demand. Without a Registerer it
// counts nothing.
func NewLoadErrors(reg prometheus.Registerer) *LoadErrors {
	return &LoadErrors{reg: reg, series: map[string]*prometheus.CounterVec{}}
}

// CountLoadFailure counts a failure. The resource type is that of the configuration, as far as it
// is known. A type that is not a collection counts as unknown.
func (l *LoadErrors) CountLoadFailure(resourceType string) (registerErr error) {
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
		f := &metricFactory{reg: l.reg, labels: prometheus.Labels{"shard": ShardNotLoaded, "resource_type": resourceType}}
		series = f.registerAPIErrors()
		if err := errors.Join(f.errs...); err != nil {
			return fmt.Errorf("register metrics: %w", err)
		}
		l.series[resourceType] = series
	}
	series.WithLabelValues(opConfigLoad).Inc()
	return nil
}

// UnregisterSeries removes the series, because a sentinel with its own series runs, or nothing is
// left to load.
func (l *LoadErrors) UnregisterSeries() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, series := range l.series {
		l.reg.Unregister(series)
	}
	clear(l.series)
}
