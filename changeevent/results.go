package changeevent

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// A reporter counts the results of events, logs them and reports them to the senders.
type reporter struct {
	senderRetries bool // Config.SenderRetries
	log           *slog.Logger
	metrics       *metrics
	tally         *resultCounters
	lines         logLimiter
	root          context.Context //nolint:containedctx // it ends with the client
}

// countLogAndReportResults counts, logs and reports the result of each event once.
func (r *reporter) countLogAndReportResults(batch []item, result deliveryResult) {
	now := time.Now()
	for i := range batch {
		e := &batch[i].event
		r.countEventResult(e.Action, result, now)
		r.logResult(contextWithValuesOf{r.root, batch[i].ctx}, e, result)
		r.callOnDelivery(e, result, now)
	}
}

// countEventResult counts the result of one event. With SenderRetries, a failed attempt is
// counted as a failure, and the event only when it is settled.
func (r *reporter) countEventResult(action string, result deliveryResult, now time.Time) {
	returned := r.senderRetries && !result.isFinalForSender()
	r.tally.countResult(result, returned, now)
	r.metrics.countResult(action, result, returned)
}

// countRetry counts a repeated request.
func (r *reporter) countRetry() {
	r.metrics.retries.Inc()
	r.tally.retries.Add(1)
}

// callOnDelivery calls OnDelivery, if set, and recovers from a panic in it.
func (r *reporter) callOnDelivery(e *ChangeEvent, result deliveryResult, now time.Time) {
	if e.OnDelivery == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			r.log.ErrorContext(r.root, "change event callback panicked", "err", fmt.Sprint(p), "action", e.Action)
		}
	}()
	e.OnDelivery(Delivery{
		ID:        idOrDerived(e),
		Class:     result.class,
		Permanent: result.permanent,
		Status:    result.status,
		Attempts:  result.attempts,
		At:        now,
	})
}

// logResult logs the result of an event. Delivered events are logged at debug level, and
// failures at a limited rate.
func (r *reporter) logResult(ctx context.Context, e *ChangeEvent, result deliveryResult) {
	if result.class == "" {
		if r.log.Enabled(ctx, slog.LevelDebug) {
			r.log.DebugContext(ctx, "change event delivered",
				"action", e.Action, "cluster", e.Cluster, "node", e.NodeName,
				"event_id", idOrDerived(e), "status", result.status, "attempts", result.attempts)
		}
		return
	}
	suppressed, allowed := r.lines.allowLine(result.class, time.Now())
	if !allowed {
		return
	}
	r.log.ErrorContext(ctx, "change event not delivered",
		"reason", describeClass(result.class), "error_class", result.class,
		"action", e.Action, "cluster", e.Cluster, "node", e.NodeName, "subject", e.Subject,
		"event_id", idOrDerived(e), "status", result.status, "attempts", result.attempts,
		"response", sanitizeAndShortenLine(result.text), "suppressed", suppressed)
}

// logOverflows logs how many events were dropped from full queues since the count logged,
// and returns the new count. It does not log each event, because there may be as many as
// were sent.
func (r *reporter) logOverflows(alreadyLogged uint64) (nowLogged uint64) {
	dropped := r.tally.classes[ClassQueueFull].n.Load()
	if dropped == alreadyLogged {
		return alreadyLogged
	}
	if _, allowed := r.lines.allowLine(ClassQueueFull, time.Now()); !allowed {
		return alreadyLogged
	}
	r.log.ErrorContext(r.root, "change events not delivered",
		"reason", describeClass(ClassQueueFull), "error_class", ClassQueueFull, "count", dropped-alreadyLogged)
	return dropped
}

// describeClass describes an error class for the person who has to fix it.
func describeClass(class Class) string {
	return cmp.Or(map[Class]string{
		ClassRedirect:      "the sink redirects; redirects are not followed",
		ClassClientError:   "the sink rejected the request",
		ClassUnauthorized:  "authentication failed: the sink rejected the credential",
		ClassForbidden:     "authentication failed: the sink rejected the credential",
		ClassNotFound:      "the sink does not know the cluster or the path",
		ClassGone:          "the sink URL is gone",
		ClassRateLimited:   "the sink limits the request rate",
		ClassServerError:   "the sink failed",
		ClassConnection:    "the connection to the sink failed",
		ClassDNS:           "the host name of the sink did not resolve",
		ClassTLS:           "the TLS connection to the sink failed",
		ClassTimeout:       "the sink did not respond in time",
		ClassAddressDenied: "the address of the sink is not allowed",
		ClassEncode:        "the event cannot be encoded in the format of the sink",
		ClassQueueFull:     "events arrive faster than the sink accepts them; the queue is full",
		ClassClosed:        "the client was already closed",
		ClassShutdown:      "the client was closed before the sink responded",
		ClassExpired:       "the event is older than max_age",
	}[class], string(class))
}

const (
	// linesEvery is the period of the rate limit for log lines of a class.
	linesEvery = time.Minute
	// linesAtOnce is the number of log lines of a class in that period. It is enough to
	// name the nodes of a small incident.
	linesAtOnce = 10
)

// A logLimiter prevents a sink that is down from filling the log.
type logLimiter struct {
	mu      sync.Mutex
	classes map[Class]*lineCount
}

type lineCount struct {
	since              time.Time // start of the period
	logged, suppressed int
}

// allowLine reports whether a line may be logged, and how many lines were suppressed
// before.
func (l *logLimiter) allowLine(class Class, now time.Time) (suppressed int, allowed bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.classes == nil {
		l.classes = make(map[Class]*lineCount)
	}
	count := l.classes[class]
	if count == nil {
		count = new(lineCount)
		l.classes[class] = count
	}
	if now.Sub(count.since) >= linesEvery {
		count.since, count.logged = now, 0
	}
	if count.logged == linesAtOnce {
		count.suppressed++
		return 0, false
	}
	count.logged++
	suppressed = count.suppressed
	count.suppressed = 0
	return suppressed, true
}
