package sentinel

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
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

// metrics are those of one sentinel. Every series has the labels shard and
// resource_type, which do not change while it runs; all others come from
// closed sets, and their series are there from the start.
type metrics struct {
	key        metricsKey
	reg        prometheus.Registerer
	registered []prometheus.Collector
	broker     *prometheus.CounterVec
	inFlight   atomic.Pointer[func() int] // of the publisher that is in use

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
	faults             [scan.NumFaults]prometheus.Counter
}

// A metricsKey are the labels of all of a sentinel's metrics.
type metricsKey struct{ shard, resourceType string }

// A factory makes metrics and registers them, and keeps the errors.
type factory struct {
	reg        prometheus.Registerer
	labels     prometheus.Labels
	registered []prometheus.Collector
	errs       []error
}

// claimMetrics registers the metrics of the sentinel, or goes on with those of
// its predecessor if they have the same labels. Those with others end.
func (s *Sentinel) claimMetrics(deps Deps) (*metrics, error) {
	key := metricsKey{shard: cmp.Or(s.selector.String(), everything), resourceType: s.cfg.ResourceType}
	if s.part != "" {
		key.shard += " " + s.part
	}
	var m *metrics
	if p := deps.Predecessor; p != nil && p.metrics.key == key {
		m = p.metrics
	} else {
		var err error
		if m, err = newMetrics(deps.Registerer, key); err != nil {
			return nil, err
		}
		if p != nil {
			p.metrics.unregister()
		}
	}
	if p := deps.Predecessor; p != nil {
		p.closed.Store(true) // they are not its own any more
	}
	m.brokerErrors = m.broker.WithLabelValues(deps.BrokerType)
	inFlight := deps.Publisher.InFlight
	m.inFlight.Store(&inFlight)
	return m, nil
}

func newMetrics(reg prometheus.Registerer, key metricsKey) (*metrics, error) {
	f := &factory{reg: reg, labels: prometheus.Labels{"shard": key.shard, "resource_type": key.resourceType}}
	api := f.apiErrors()
	m := &metrics{
		key: key, reg: reg,
		broker: f.counters("broker_errors_total", "Events that were given up for a round.", "broker_type"),

		pending:      f.gauge("pending_resources", "Resources in this shard, as of the last complete round."),
		published:    f.counter("events_published_total", "Events that the broker confirmed."),
		deferredNow:  f.gauge("deferred_resources", "Resources that are due and were left to a later round, as of the last complete round."),
		duration:     f.histogram("reconcile_duration_seconds", "Time spent in one round.", prometheus.ExponentialBuckets(0.01, 2, 16)),
		apiErrors:    api.WithLabelValues(opFetchResources),
		configErrors: api.WithLabelValues(opConfigLoad), // of the custom resource; there from the start

		oldestUnreconciled: f.gauge("oldest_unreconciled_generation_seconds", "For how long the resource that has waited longest has had a generation that its adapters have not observed; 0 if there is none."),
		lastGoodRound:      f.gauge("last_successful_round_timestamp_seconds", "When the last round ended in which the API told all that was asked and publishing did not fail."),
		overruns:           f.counter("round_overruns_total", "Rounds that took longer than the poll interval."),
		publishDuration:    f.histogram("publish_duration_seconds", "From the first attempt to the broker's confirm.", prometheus.ExponentialBuckets(0.0005, 2, 16)),
		retries:            f.counter("publish_retries_total", "Attempts to publish after the first."),
		payloadProblems:    f.counter("payload_problems_total", "Values of message_data that could not be made, such as missing fields."),
		duplicates:         f.counter("duplicate_resources_total", "Resources that a list held twice and that were due."),
		unselected:         f.counter("unselected_resources_total", "Resources that the API served although the selector does not match them."),
		memoryEntries:      f.gauge("memory_entries", "Resources that are due and remembered."),
		indexBytes:         f.gauge("index_bytes", "Memory that the index of due times takes; 0 while everything is listed in every round."),
		lastFullSweep:      f.gauge("last_full_sweep_timestamp_seconds", "When everything was last listed from the beginning to the end."),
		budget:             f.gauge("publish_budget_events_per_second", "How many events per second may be published for ages just now; changed generations do not wait for it."),
		changes:            f.counter("changes_received_total", "Changes that the API told of, by a watch or when asked."),
		reconnects:         f.counter("watch_ends_total", "Watches that ended and were begun again."),
		resyncs:            f.counter("resyncs_total", "Times that the place among the changes was lost and everything listed for it."),
		reloads:            f.counter("config_reloads_total", "Times that the configuration was read anew."),
		lastReload:         f.gauge("config_last_reload_successful", "1 if the last change of the configuration is in force, 0 if it was refused and what was configured before goes on."),
		modes:              map[Mode]prometheus.Gauge{},
	}
	m.skippedReady, m.skippedOthers = f.byReadyState("resources_skipped_total", "Resources that were skipped because they were not due.")
	m.deferredReady, m.deferredOther = f.byReadyState("resources_deferred_total", "Resources that were due and left to a later round, because a round publishes no more than publish.catch_up_floor and publish.catch_up_factor allow; counted in each round that leaves them.")
	m.lastReload.Set(1)
	f.add(prometheus.NewGaugeFunc(prometheus.GaugeOpts(f.opts("in_flight_confirms", "Events that wait for the broker's confirm.")),
		func() float64 { return float64((*m.inFlight.Load())()) }))

	m.addVectors(f)
	m.registered = f.registered
	if err := errors.Join(f.errs...); err != nil {
		m.unregister()
		return nil, fmt.Errorf("register metrics: %w", err)
	}
	return m, nil
}

// addVectors makes the metrics with a label from a closed set, each with all its
// series.
func (m *metrics) addVectors(f *factory) {
	modes := prometheus.NewGaugeVec(prometheus.GaugeOpts(f.opts("source_mode", "1 for the mode in which changes are learned of, 0 for the others.")), []string{"mode"})
	f.add(modes)
	for _, mode := range []Mode{ModeSweep, ModeETag, ModeCursor, ModeWatch} {
		m.modes[mode] = modes.WithLabelValues(string(mode))
	}
	decisions := f.counters("decisions_total", "Decisions, by reason.", "reason")
	publishedBy := f.counters("events_published_by_reason_total", "Events that the broker confirmed, by the reason for publishing them.", "reason")
	for r := range decision.NumReasons {
		m.decisions[r] = decisions.WithLabelValues(r.String())
		if r.Publishes() {
			m.publishedBy[r] = publishedBy.WithLabelValues(r.String())
		}
	}
	warnings := f.counters("warnings_total", "Oddities of resources that did not stop a decision.", "warning")
	for w := decision.WarningNone + 1; w < decision.NumWarnings; w++ {
		m.warnings[w] = warnings.WithLabelValues(w.String())
	}
	faults := f.counters("decode_errors_total", "Resources that could not be read, or not in all.", "fault")
	for fault := scan.FaultNone + 1; fault < scan.NumFaults; fault++ {
		m.faults[fault] = faults.WithLabelValues(fault.String())
	}
}

// byReadyState makes a counter of resources that are ready, and of others.
func (f *factory) byReadyState(name, help string) (ready, others prometheus.Counter) {
	c := f.counters(name, help, "ready_state")
	return c.WithLabelValues("ready"), c.WithLabelValues("not_ready")
}

// apiErrors makes the counter that a sentinel and LoadErrors share.
func (f *factory) apiErrors() *prometheus.CounterVec {
	return f.counters("api_errors_total", "Errors of the fleet API, and of loading the configuration, by operation.", "operation")
}

// unregister takes the metrics away.
func (m *metrics) unregister() {
	for _, c := range m.registered {
		m.reg.Unregister(c)
	}
}

func (f *factory) opts(name, help string) prometheus.Opts {
	return prometheus.Opts{Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, ConstLabels: f.labels}
}

func (f *factory) add(c prometheus.Collector) {
	if err := f.reg.Register(c); err != nil {
		f.errs = append(f.errs, err)
		return
	}
	f.registered = append(f.registered, c)
}

func (f *factory) gauge(name, help string) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts(f.opts(name, help)))
	f.add(g)
	return g
}

func (f *factory) counter(name, help string) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts(f.opts(name, help)))
	f.add(c)
	return c
}

func (f *factory) counters(name, help, label string) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts(f.opts(name, help)), []string{label})
	f.add(c)
	return c
}

func (f *factory) histogram(name, help string, buckets []float64) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace, Subsystem: subsystem, Name: name, Help: help, ConstLabels: f.labels, Buckets: buckets,
	})
	f.add(h)
	return h
}

// mode notes how changes are learned of from now on.
func (m *metrics) mode(now Mode) {
	m.modes[now].Set(1)
	for mode, gauge := range m.modes {
		if mode != now {
			gauge.Set(0)
		}
	}
}

// A tally counts within a page; it is added to the metrics at its end, which
// spares most of their cost.
type tally struct {
	decisions    [decision.NumReasons]int
	warnings     [decision.NumWarnings]int
	faults       [scan.NumFaults]int
	skippedReady int
	skippedOther int
	duplicates   int
	unselected   int
}

func (m *metrics) add(t *tally) {
	addEach(m.decisions[:], t.decisions[:])
	addEach(m.warnings[:], t.warnings[:])
	addEach(m.faults[:], t.faults[:])
	addTo(m.skippedReady, t.skippedReady)
	addTo(m.skippedOthers, t.skippedOther)
	addTo(m.duplicates, t.duplicates)
	addTo(m.unselected, t.unselected)
	*t = tally{}
}

func addEach(counters []prometheus.Counter, counts []int) {
	for i, n := range counts {
		addTo(counters[i], n)
	}
}

func addTo(c prometheus.Counter, n int) {
	if n > 0 {
		c.Add(float64(n))
	}
}
