package changeevent

import (
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// The values of the label status.
const (
	statusSuccess = "success"
	statusFailed  = "failed"
	statusDropped = "dropped"
)

// The namespaces of the metrics: one for the pipeline whose actions they count, one for
// the client.
const (
	namespacePipeline = "nvsentinel"
	namespaceClient   = "fleetloop"
	subsystem         = "change_events"
)

// metrics holds the metrics of one sink. Clients with the same registerer share the
// vectors.
//
// Each event that the sink receives is counted once in events when it is settled. If it
// was not delivered, it is also counted once in failures. So the failures of an action
// are its failed and dropped events, plus the failed attempts of events that the sender
// retries (Config.SenderRetries).
type metrics struct {
	events   *prometheus.CounterVec
	failures *prometheus.CounterVec
	retries  prometheus.Counter
	took     prometheus.Observer
	queues   *queueCollector

	succeeded sync.Map // counters of events by action, because a lookup by labels is slow
}

// newMetrics creates the metrics of a client and registers those that are not registered
// yet.
func newMetrics(reg prometheus.Registerer, sink string, c *client) (*metrics, error) {
	events, errEvents := registerOrReuse(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespacePipeline, Subsystem: subsystem, Name: "total",
		Help: "Total number of change events that this process delivered or stopped trying to deliver, by action (such as cordon) and status: success, failed (the last request failed) or dropped (this process discarded the event, for example because its queue was full).",
	}, []string{"action", "status"}))
	failures, errFailures := registerOrReuse(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespacePipeline, Subsystem: subsystem, Name: "failed_total",
		Help: "Total number of change events that this process could not deliver, by action (such as cordon) and error (such as timeout). If an event is sent again later and fails again, it is counted again.",
	}, []string{"action", "error"}))
	retries, errRetries := registerOrReuse(reg, prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespaceClient, Subsystem: subsystem, Name: "retries_total",
		Help: "Total number of times that this process repeated a failed HTTP request to a sink. A sink is the HTTP endpoint that receives change events.",
	}, []string{"sink"}))
	took, errTook := registerOrReuse(reg, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: namespaceClient, Subsystem: subsystem, Name: "send_duration_seconds",
		Help:    "Duration of the HTTP requests that send change events to a sink, in seconds. Failed requests are included.",
		Buckets: []float64{0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30},
	}, []string{"sink"}))
	q, errQueues := registerOrReuse(reg, newQueueCollector())
	if err := errors.Join(errEvents, errFailures, errRetries, errTook, errQueues); err != nil {
		return nil, err
	}
	q.addClient(sink, c)
	return &metrics{
		events:   events,
		failures: failures,
		retries:  retries.WithLabelValues(sink),
		took:     took.WithLabelValues(sink),
		queues:   q,
	}, nil
}

// registerOrReuse registers a collector, or returns the registered one.
func registerOrReuse[C prometheus.Collector](reg prometheus.Registerer, c C) (C, error) {
	if reg == nil {
		return c, nil
	}
	err := reg.Register(c)
	if there, ok := errors.AsType[prometheus.AlreadyRegisteredError](err); ok {
		if existing, same := there.ExistingCollector.(C); same {
			return existing, nil
		}
	}
	return c, err
}

func (m *metrics) countResult(action string, result deliveryResult, returnedToSender bool) {
	action = actionLabel(action)
	switch {
	case returnedToSender:
	case result.class == "":
		m.countSuccess(action)
		return
	case result.isDroppedByClient():
		m.events.WithLabelValues(action, statusDropped).Inc()
	default:
		m.events.WithLabelValues(action, statusFailed).Inc()
	}
	m.failures.WithLabelValues(action, string(result.class)).Inc()
}

func (m *metrics) countSuccess(action string) {
	counter, ok := m.succeeded.Load(action)
	if !ok {
		counter, _ = m.succeeded.LoadOrStore(action, m.events.WithLabelValues(action, statusSuccess))
	}
	if c, ok := counter.(prometheus.Counter); ok {
		c.Inc()
	}
}

// stopCollecting removes a closed client from the collected metrics.
func (m *metrics) stopCollecting(c *client) { m.queues.removeClient(c) }

// actionLabel returns an action that this package defines, or "other". Callers may use
// any action, and each would be a series.
func actionLabel(action string) string {
	switch action {
	case ActionCordon, ActionUncordon, ActionDrainStarted, ActionDrainCompleted, ActionDrainFailed,
		ActionRebootRequested, ActionTerminateRequested, ActionRebootExecuted, ActionTerminateExecuted,
		ActionRebootSent, ActionTerminateSent, ActionRebootFailed, ActionTerminateFailed, ActionDrainCancelled, ActionSupportRequired,
		ActionShootCreated, ActionShootUpdated, ActionShootDeleted, ActionShootReady, ActionShootFailed,
		ActionExecutionStarted, ActionExecutionSucceeded, ActionExecutionFailed,
		ActionExecutionApproved, ActionExecutionRejected, ActionExecutionRolledBack,
		ActionClusterCreated, ActionClusterChanged, ActionClusterDeleted:
		return action
	}
	if isOptionalAction(action) {
		return action
	}
	return "other"
}

// isOptionalAction reports whether an action is optional.
func isOptionalAction(action string) bool {
	return action == ActionOverrideDetected || action == ActionBudgetExhausted
}

// queueCollector collects the state of clients at each scrape, which costs senders nothing.
// Clients with the same name are added up.
type queueCollector struct {
	length, oldest, success, unreadable *prometheus.Desc

	mu    sync.Mutex
	sinks map[*client]string
}

func newQueueCollector() *queueCollector {
	desc := func(name, help string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespaceClient, subsystem, name), help, []string{"sink"}, nil)
	}
	return &queueCollector{
		length:  desc("queue_length", "Number of change events that are currently queued for a sink or being sent to it. A sink is the HTTP endpoint that receives change events."),
		oldest:  desc("oldest_pending_age_seconds", "Longest time that any change event has been waiting for its delivery to the sink, in seconds; 0 if none is waiting. A sink is the HTTP endpoint that receives change events."),
		success: desc("last_success_timestamp_seconds", "Unix time at which a sink last accepted a change event, in seconds; absent before the first. A sink is the HTTP endpoint that receives change events."),
		unreadable: prometheus.NewDesc(prometheus.BuildFQName(namespaceClient, subsystem, "sink_file_unreadable"),
			"1 if this process cannot read a file that it needs to send change events to a sink, 0 otherwise. The label file names what the file contains: endpoint, auth_token, routing_key, signing_key or ca. The process uses the content that it read last; if it has never read the file, change events wait.", []string{"sink", "file"}, nil),
		sinks: make(map[*client]string),
	}
}

func (q *queueCollector) addClient(sink string, c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.sinks[c] = sink
}

func (q *queueCollector) removeClient(c *client) {
	q.mu.Lock()
	defer q.mu.Unlock()
	delete(q.sinks, c)
}

// Describe implements prometheus.Collector.
func (q *queueCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- q.length
	ch <- q.oldest
	ch <- q.success
	ch <- q.unreadable
}

// Collect implements prometheus.Collector.
func (q *queueCollector) Collect(ch chan<- prometheus.Metric) {
	q.mu.Lock()
	bySink := make(map[string]Stats, len(q.sinks))
	files := make(map[[2]string]float64) // by sink and file
	now := time.Now()
	for c, sink := range q.sinks {
		all, one := bySink[sink], c.currentStats(now)
		all.Pending += one.Pending
		all.OldestPendingAge = max(all.OldestPendingAge, one.OldestPendingAge)
		if one.LastSuccess.After(all.LastSuccess) {
			all.LastSuccess = one.LastSuccess
		}
		bySink[sink] = all
		for f, err := range c.keys.lastErrorByFile() {
			name := [2]string{sink, f.String()}
			files[name] = max(files[name], boolToGauge(err != nil))
		}
	}
	q.mu.Unlock()
	for sink, s := range bySink {
		gauge := func(d *prometheus.Desc, value float64) {
			ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, value, sink) //nolint:promlinter // it does not find the name here
		}
		gauge(q.length, float64(s.Pending))
		gauge(q.oldest, s.OldestPendingAge.Seconds())
		if !s.LastSuccess.IsZero() {
			gauge(q.success, float64(s.LastSuccess.UnixNano())/1e9)
		}
	}
	for name, value := range files {
		ch <- prometheus.MustNewConstMetric(q.unreadable, prometheus.GaugeValue, value, name[0], name[1]) //nolint:promlinter // it does not find the name here
	}
}

func boolToGauge(is bool) float64 {
	if is {
		return 1
	}
	return 0
}
