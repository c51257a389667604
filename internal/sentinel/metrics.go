package sentinel

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// everything is the shard of a sentinel without a selector.
const everything = "all"

const (
	namespace = "hyperfleet"
	subsystem = "sentinel"
)

// Values of the label operation.
const (
	opFetchResources = "fetch_resources"
	opConfigLoad     = "config_load"
)

// metrics are the metrics of one sentinel. Every series has the labels shard and resource_type,
// which do not change while it runs. All other labels come from closed sets, and their series exist
// from the start.
type metrics struct {
	key        metricsKey
	reg        prometheus.Registerer
	registered []prometheus.Collector
	broker     *prometheus.CounterVec
	inFlight   atomic.Pointer[func() int] // of the current publisher

	pending       prometheus.Gauge
	published     prometheus.Counter
	skippedReady  prometheus.Counter
	skippedOthers prometheus.Counter
	deferredReady prometheus.Counter
	deferredOther prometheus.Counter
	deferredNow   prometheus.Gauge
	duration      prometheus.Histogram
	apiErrors     prometheus.Counter
	configErrors  prometheus.Counter
	brokerErrors  prometheus.Counter

	oldestUnreconciled prometheus.Gauge
	lastGoodRound      prometheus.Gauge
	overruns           prometheus.Counter
	publishDuration    prometheus.Histogram
	retries            prometheus.Counter
	payloadProblems    prometheus.Counter
	duplicates         prometheus.Counter
	unselected         prometheus.Counter
	memoryEntries      prometheus.Gauge
	indexBytes         prometheus.Gauge
	lastFullSweep      prometheus.Gauge
	budget             prometheus.Gauge
	changes            prometheus.Counter
	reconnects         prometheus.Counter
	resyncs            prometheus.Counter
	reloads            prometheus.Counter
	lastReload         prometheus.Gauge
	modes              map[Mode]prometheus.Gauge
	decisions          [decision.NumReasons]prometheus.Counter
	publishedBy        [decision.NumReasons]prometheus.Counter
	warnings           [decision.NumWarnings]prometheus.Counter
	faults             [source.NumFaults]prometheus.Counter
}

// A metricsKey holds the labels that all metrics of a sentinel share.
type metricsKey struct{ shard, resourceType string }

// A metricFactory creates and registers metrics, and collects the errors.
type metricFactory struct {
	reg        prometheus.Registerer
	labels     prometheus.Labels
	registered []prometheus.Collector
	errs       []error
}

// takeOverOrRegisterMetrics registers the metrics of the sentinel. If its predecessor has the same
// labels, it continues the metrics of the predecessor; otherwise it unregisters them.
func takeOverOrRegisterMetrics(s *Sentinel, deps Deps) (*metrics, error) {
	key := metricsKey{shard: cmp.Or(s.selector.String(), everything), resourceType: s.cfg.ResourceType}
	if s.part != "" {
		key.shard += " " + s.part
	}
	inFlight := deps.Publisher.InFlight
	predecessor := deps.Predecessor
	var m *metrics
	if predecessor != nil && predecessor.metrics.key == key {
		m = predecessor.metrics
	} else {
		registered, err := registerMetrics(deps.Registerer, key, inFlight)
		if err != nil {
			return nil, err
		}
		if predecessor != nil {
			predecessor.metrics.unregisterAll()
		}
		m = registered
	}
	if predecessor != nil {
		predecessor.closed.Store(true) // the predecessor no longer owns its metrics
	}
	m.brokerErrors = m.broker.WithLabelValues(deps.BrokerType)
	m.inFlight.Store(&inFlight)
	return m, nil
}

func registerMetrics(reg prometheus.Registerer, key metricsKey, inFlight func() int) (*metrics, error) {
	f := &metricFactory{reg: reg, labels: prometheus.Labels{"shard": key.shard, "resource_type": key.resourceType}}
	api := f.registerAPIErrors()
	m := &metrics{
		key: key, reg: reg,
		broker: f.registerCounterVec("broker_errors_total", "Total number of times that the sentinel failed to publish a CloudEvent to the message broker, after all retries within one poll. The sentinel tries again in the next poll.", "broker_type"),

		pending:      f.registerGauge("pending_resources", "Number of resources that this shard watches, whether or not they need an event, as of the last completed poll."),
		published:    f.registerCounter("events_published_total", "Total number of CloudEvents that the sentinel published and the message broker confirmed."),
		deferredNow:  f.registerGauge("deferred_resources", "Number of resources that needed an event in the last completed poll, but that the sentinel deferred to a later poll because of its limit on events per second."),
		duration:     f.registerHistogram("reconcile_duration_seconds", "Duration of polls in seconds. In a poll the sentinel reads resources from the fleet API and publishes events for those that need one.", prometheus.ExponentialBuckets(0.01, 2, 16)),
		apiErrors:    api.WithLabelValues(opFetchResources),
		configErrors: api.WithLabelValues(opConfigLoad), // for the custom resource; exists from the start

		oldestUnreconciled: f.registerGauge("oldest_unreconciled_generation_seconds", "Longest time that any resource has been waiting for its adapters (the controllers that reconcile it) to observe its current generation, in seconds; 0 if no resource is waiting."),
		lastGoodRound:      f.registerGauge("last_successful_poll_timestamp_seconds", "Unix time of the last successful poll of the sentinel, in seconds; 0 before the first. A poll fails if the sentinel cannot read the resources, or if it cannot publish any of the events that are due. A poll that publishes only some of these events is successful."),
		overruns: f.registerCounter("poll_overruns_total",
			"Total number of polls that took longer than the poll interval of the sentinel."),
		publishDuration: f.registerHistogram("publish_duration_seconds", "Time from the first attempt to publish a CloudEvent until the message broker confirms the event, in seconds.", prometheus.ExponentialBuckets(0.0005, 2, 16)),
		retries:         f.registerCounter("publish_retries_total", "Total number of times that the sentinel tried again to publish a CloudEvent to the message broker after a failed attempt."),
		payloadProblems: f.registerCounter("payload_field_errors_total", "Total number of fields of messageData that the sentinel could not evaluate, for example because the resource lacks a value. The setting messageData defines the data of the CloudEvents."),
		duplicates:      f.registerCounter("duplicate_resources_total", "Total number of times that the fleet API returned a resource twice in one list. Only resources that needed an event are counted."),
		unselected:      f.registerCounter("selector_mismatches_total", "Total number of resources that the fleet API returned although they do not match the label selector of the sentinel. The sentinel skips them."),
		memoryEntries:   f.registerGauge("published_cache_entries", "Number of resources in the sentinel's cache of recently published events. The cache prevents a second event before an adapter (a controller that reconciles the resource) reports a status."),
		indexBytes:      f.registerGauge("schedule_index_bytes", "Memory, in bytes, that holds the time of the next event of each resource. The value is 0 while the sentinel reads the fleet API in mode sweep (see hyperfleet_sentinel_source_mode), because it stores no such times in that mode."),
		lastFullSweep:   f.registerGauge("last_full_sweep_timestamp_seconds", "Unix time at which the sentinel last finished listing all resources, in seconds; 0 before the first time."),
		budget:          f.registerGauge("publish_budget_events_per_second", "Current limit on the events that the sentinel publishes for unchanged resources, in events per second. A resource needs such an event if the last status report about it is too old. The limit does not delay events for changed resources."),
		changes:         f.registerCounter("changes_received_total", "Total number of resource changes that the sentinel received from the fleet API. The counter increases only in the source modes watch and cursor; in the modes sweep and etag, the sentinel lists all resources instead."),
		reconnects:      f.registerCounter("watch_reconnects_total", "Total number of times that the sentinel restarted its watch on the fleet API after the watch ended."),
		resyncs:         f.registerCounter("resyncs_total", "Total number of times that the sentinel listed all resources again, because the fleet API no longer had all changes since the last read."),
		reloads:         f.registerCounter("config_reloads_total", "Total number of times that the sentinel reloaded its configuration because it had changed. Rejected changes are not counted."),
		lastReload:      f.registerGauge("config_last_reload_successful", "1 if the sentinel uses the latest configuration, 0 if it rejected the latest configuration and still uses the previous one."),
		modes:           map[Mode]prometheus.Gauge{},
	}
	m.skippedReady, m.skippedOthers = f.registerReadyStateCounters("resources_skipped_total", "Total number of times that the sentinel checked a resource and published no event, because it was too early for one, by ready_state of the resource: ready or not_ready.")
	m.deferredReady, m.deferredOther = f.registerReadyStateCounters("resources_deferred_total", "Total number of times that the sentinel deferred the event of a resource to a later poll because of its limit on events per second, by ready_state of the resource: ready or not_ready.")
	m.lastReload.Set(1)
	m.inFlight.Store(&inFlight) // before it is registered, because a scrape can come at once
	f.registerCollector(prometheus.NewGaugeFunc(prometheus.GaugeOpts(f.buildOpts("in_flight_events", "Number of CloudEvents that the sentinel has sent and that are waiting for the confirmation of the message broker.")),
		func() float64 { return float64((*m.inFlight.Load())()) }))

	m.registerVectors(f)
	m.registered = f.registered
	if err := errors.Join(f.errs...); err != nil {
		m.unregisterAll()
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// registerVectors creates the metrics with a label from a closed set, each with all its series.
func (m *metrics) registerVectors(f *metricFactory) {
	modes := prometheus.NewGaugeVec(prometheus.GaugeOpts(f.buildOpts("source_mode", "1 for the mode in which the sentinel currently reads the fleet API, 0 for the other modes. The modes are sweep (list all resources), etag (list all, but transfer only changed pages), cursor (list the changes since the last poll) and watch (receive a stream of changes).")), []string{"mode"})
	f.registerCollector(modes)
	for _, mode := range []Mode{ModeSweep, ModeETag, ModeCursor, ModeWatch} {
		m.modes[mode] = modes.WithLabelValues(string(mode))
	}
	decisions := f.registerCounterVec("decisions_total", "Total number of times that the sentinel decided to publish or to skip an event for a resource, by reason, such as 'max age expired (ready)' (publish) or 'max age not expired' (skip).", "reason")
	publishedBy := f.registerCounterVec("events_published_by_reason_total", "Total number of CloudEvents that the sentinel published and the message broker confirmed, by the reason to publish, such as 'max age expired (ready)' (the last status report was too old).", "reason")
	for r := range decision.NumReasons {
		m.decisions[r] = decisions.WithLabelValues(r.String())
		if r.Publishes() {
			m.publishedBy[r] = publishedBy.WithLabelValues(r.String())
		}
	}
	warnings := f.registerCounterVec("resource_warnings_total", "Total number of times that the sentinel found unexpected content in a resource, such as a status time in the future, by warning. The sentinel still decides whether to publish an event for the resource.", "warning")
	for w := decision.WarningNone + 1; w < decision.NumWarnings; w++ {
		m.warnings[w] = warnings.WithLabelValues(w.String())
	}
	faults := f.registerCounterVec("decode_errors_total", "Total number of resources that the sentinel could not decode completely from a response of the fleet API, by reason: not_an_object, missing_id or wrong_type (the sentinel skips the resource), or invalid_time or unknown_status (the sentinel uses the resource).", "reason")
	for fault := source.FaultNone + 1; fault < source.NumFaults; fault++ {
		m.faults[fault] = faults.WithLabelValues(fault.String())
	}
}

// registerReadyStateCounters creates a counter for ready resources and one for all others.
func (f *metricFactory) registerReadyStateCounters(name, help string) (ready, others prometheus.Counter) {
	c := f.registerCounterVec(name, help, "ready_state")
	return c.WithLabelValues("ready"), c.WithLabelValues("not_ready")
}

// registerAPIErrors creates the counter that a sentinel and LoadErrors share.
func (f *metricFactory) registerAPIErrors() *prometheus.CounterVec {
	return f.registerCounterVec("api_errors_total", "Total number of failed requests of the sentinel, by operation: fetch_resources (requests to the fleet API) or config_load (reads of its SentinelConfig or Secrets).", "operation")
}

// unregisterAll removes the metrics from the registry.
func (m *metrics) unregisterAll() {
	for _, c := range m.registered {
		m.reg.Unregister(c)
	}
}

func (f *metricFactory) buildOpts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, ConstLabels: f.labels}
}

func (f *metricFactory) registerCollector(c prometheus.Collector) {
	if err := f.reg.Register(c); err != nil {
		f.errs = append(f.errs, err)
		return
	}
	f.registered = append(f.registered, c)
}

func (f *metricFactory) registerGauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts(f.buildOpts(name, help)))
	f.registerCollector(g)
	return g
}

func (f *metricFactory) registerCounter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts(f.buildOpts(name, help)))
	f.registerCollector(c)
	return c
}

func (f *metricFactory) registerCounterVec(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts(f.buildOpts(name, help)), []string{label})
	f.registerCollector(c)
	return c
}

func (f *metricFactory) registerHistogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, ConstLabels: f.labels, Buckets: buckets,
	})
	f.registerCollector(h)
	return h
}

// setModeGauges records the mode in the metrics.
func (m *metrics) setModeGauges(current Mode) {
	m.modes[current].Set(1)
	for mode, gauge := range m.modes {
		if mode != current {
			gauge.Set(0)
		}
	}
}

// A tally counts within one page and is added to the metrics at the end of the page. This avoids
// most of the cost of the metrics.
type tally struct {
	decisions    [decision.NumReasons]int
	warnings     [decision.NumWarnings]int
	faults       [source.NumFaults]int
	skippedReady int
	skippedOther int
	duplicates   int
	unselected   int
}

func (m *metrics) addAndResetTally(t *tally) {
	addToCounters(m.decisions[:], t.decisions[:])
	addToCounters(m.warnings[:], t.warnings[:])
	addToCounters(m.faults[:], t.faults[:])
	addIfPositive(m.skippedReady, t.skippedReady)
	addIfPositive(m.skippedOthers, t.skippedOther)
	addIfPositive(m.duplicates, t.duplicates)
	addIfPositive(m.unselected, t.unselected)
	*t = tally{}
}

func addToCounters(counters []prometheus.Counter, counts []int) {
	for i, count := range counts {
		addIfPositive(counters[i], count)
	}
}

func addIfPositive(counter prometheus.Counter, n int) {
	if n > 0 {
		counter.Add(float64(n))
	}
}
