package audit

import (
	"cmp"
	"errors"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const metricsPrefix = "kubernetesexecution_audit_"

// forgetAfter is the time after which a failed write is no longer counted unless it is retried.
// Another process retries it then, or the execution is gone.
const forgetAfter = 2 * time.Minute

// A failureClass is the cause of a failed write. The set is closed, because it is a metric label.
type failureClass string

const (
	failureUnavailable failureClass = "unavailable"
	failureTimeout     failureClass = "timeout"
	failureRefused     failureClass = "refused" // refused by the store: rights or content
)

func classifyWriteError(err error) failureClass {
	switch {
	case errors.Is(err, errAppendTimeout):
		return failureTimeout
	case errors.Is(err, ErrUnavailable):
		return failureUnavailable
	}
	return failureRefused
}

// metrics are the metrics of an auditor.
type metrics struct {
	attempts map[bool]prometheus.Counter // by success
	failures map[failureClass]prometheus.Counter
	duration prometheus.Histogram
	broken   prometheus.Gauge

	mu      sync.Mutex
	waiting map[string]wait // by execution UID
}

// A wait describes records of an execution that are not written yet.
type wait struct {
	records      int
	since, tried time.Time
}

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		attempts: map[bool]prometheus.Counter{},
		failures: map[failureClass]prometheus.Counter{},
		waiting:  map[string]wait{},
		duration: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: metricsPrefix + "storage_duration_seconds", Help: "Duration of writes to the audit database in seconds, including failed writes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		broken: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: metricsPrefix + "verification_failed", Help: "1 if the last verification found changed, removed or inserted records in the audit database, 0 otherwise.",
		}),
	}
	attempts := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metricsPrefix + "storage_attempts_total", Help: "Total number of writes to the audit database, by status: success or failure. One write contains the records of one or more KubernetesExecutions.",
	}, []string{"status"})
	failures := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: metricsPrefix + "storage_failures_total", Help: "Total number of failed writes to the audit database, by error_type: unavailable, timeout or refused (by the database). The controller retries failed writes.",
	}, []string{"error_type"})
	m.attempts[true], m.attempts[false] = attempts.WithLabelValues("success"), attempts.WithLabelValues("failure")
	for _, c := range []failureClass{failureUnavailable, failureTimeout, failureRefused} {
		m.failures[c] = failures.WithLabelValues(string(c))
	}
	pending := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricsPrefix + "pending_records", Help: "Number of audit records that are currently waiting to be written to the audit database.",
	}, func() float64 { records, _ := m.countPendingAndDropStale(); return float64(records) })
	lag := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: metricsPrefix + "lag_seconds", Help: "Longest time that any audit record has been waiting to be written to the audit database, in seconds; 0 if no record is waiting.",
	}, func() float64 { _, longest := m.countPendingAndDropStale(); return longest.Seconds() })
	var errs []error
	for _, c := range []prometheus.Collector{attempts, failures, m.duration, m.broken, pending, lag} {
		errs = append(errs, reg.Register(c))
	}
	return m, errors.Join(errs...)
}

// observeWrite counts one write.
func (m *metrics) observeWrite(took time.Duration, err error) {
	m.duration.Observe(took.Seconds())
	m.attempts[err == nil].Inc()
	if err != nil {
		m.failures[classifyWriteError(err)].Inc()
	}
}

// setVerificationFailedGauge records the result of a verification.
func (m *metrics) setVerificationFailedGauge(broken *Break) {
	if broken != nil {
		m.broken.Set(1)
	} else {
		m.broken.Set(0)
	}
}

// markWaiting notes that records of an execution could not be written.
func (m *metrics) markWaiting(uid string, records int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	since := cmp.Or(m.waiting[uid].since, now)
	m.waiting[uid] = wait{records: records, since: since, tried: now}
}

// clearWaiting removes an execution whose records were written.
func (m *metrics) clearWaiting(uid string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.waiting, uid)
}

// countPendingAndDropStale returns the number of waiting records and the longest wait.
func (m *metrics) countPendingAndDropStale() (records int, longestWait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	for uid, w := range m.waiting {
		if now.Sub(w.tried) > forgetAfter {
			delete(m.waiting, uid)
			continue
		}
		records += w.records
		longestWait = max(longestWait, now.Sub(w.since))
	}
	return records, longestWait
}
