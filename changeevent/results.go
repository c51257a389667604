package changeevent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// reportResults counts, logs and reports the result of each event once.
func (c *client) reportResults(batch []item, v verdict) {
	now := time.Now()
	for i := range batch {
		e := &batch[i].event
		c.countEvent(e.Action, v, now)
		c.logResult(detached{c.root, batch[i].ctx}, e, v)
		c.notifySender(e, v, now)
	}
}

// countEvent counts the result of one event. With SenderRetries, a failed attempt is
// counted as a failure, and the event only when it is settled.
func (c *client) countEvent(action string, v verdict, now time.Time) {
	returned := c.cfg.SenderRetries && !v.isFinal()
	c.tally.countResult(v, returned, now)
	c.metrics.countResult(action, v, returned)
}

// notifySender calls OnDelivery, if set, and recovers from a panic in it.
func (c *client) notifySender(e *ChangeEvent, v verdict, now time.Time) {
	if e.OnDelivery == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(c.root, "change event callback panicked", "err", fmt.Sprint(p), "action", e.Action)
		}
	}()
	e.OnDelivery(Delivery{ID: idOf(e), Class: v.class, Permanent: v.permanent, Status: v.status, Attempts: v.attempts, At: now})
}

// logResult logs the result of an event. Delivered events are logged at debug level, and
// failures at a limited rate.
func (c *client) logResult(ctx context.Context, e *ChangeEvent, v verdict) {
	if v.class == "" {
		if c.log.Enabled(ctx, slog.LevelDebug) {
			c.log.DebugContext(ctx, "change event delivered",
				"action", e.Action, "cluster", e.Cluster, "node", e.NodeName, "event_id", idOf(e), "status", v.status, "attempts", v.attempts)
		}
		return
	}
	unsaid, ok := c.lines.allowLine(v.class, time.Now())
	if !ok {
		return
	}
	c.log.ErrorContext(ctx, "change event not delivered",
		"reason", explainClass(v.class), "error_class", v.class, "action", e.Action, "cluster", e.Cluster, "node", e.NodeName, "subject", e.Subject,
		"event_id", idOf(e), "status", v.status, "attempts", v.attempts, "response", shortenLine(v.text), "suppressed", unsaid)
}

// explainClass describes an error class for the person who has to fix it.
func explainClass(class Class) string {
	switch class {
	case ClassRedirect:
		return "the sink redirects; redirects are not followed"
	case ClassClientError:
		return "the sink rejected the request"
	case ClassUnauthorized, ClassForbidden:
		return "authentication failed: the sink rejected the credential"
	case ClassNotFound:
		return "the sink does not know the cluster or the path"
	case ClassGone:
		return "the sink URL is gone"
	case ClassRateLimited:
		return "the sink limits the request rate"
	case ClassServerError:
		return "the sink failed"
	case ClassConnection:
		return "the connection to the sink failed"
	case ClassDNS:
		return "the host name of the sink did not resolve"
	case ClassTLS:
		return "the TLS connection to the sink failed"
	case ClassTimeout:
		return "the sink did not respond in time"
	case ClassAddressDenied:
		return "the address of the sink is not allowed"
	case ClassEncode:
		return "the event cannot be encoded in the format of the sink"
	case ClassQueueFull:
		return "events arrive faster than the sink accepts them; the queue is full"
	case ClassClosed:
		return "the client was already closed"
	case ClassShutdown:
		return "the client was closed before the sink responded"
	case ClassExpired:
		return "the event is older than max_age"
	}
	return string(class)
}

const (
	// linesEvery is the period of the rate limit for log lines of a class.
	linesEvery = time.Minute
	// linesAtOnce is the number of log lines of a class in that period. It is enough to
	// name the nodes of a small incident.
	linesAtOnce = 10
)

// A limiter prevents a sink that is down from filling the log.
type limiter struct {
	mu      sync.Mutex
	classes map[Class]*lineCount
}

type lineCount struct {
	since        time.Time
	said, unsaid int
}

// allowLine reports whether a line may be logged, and how many lines were suppressed
// before.
func (l *limiter) allowLine(class Class, now time.Time) (unsaid int, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.classes == nil {
		l.classes = make(map[Class]*lineCount)
	}
	n := l.classes[class]
	if n == nil {
		n = new(lineCount)
		l.classes[class] = n
	}
	if now.Sub(n.since) >= linesEvery {
		n.since, n.said = now, 0
	}
	if n.said == linesAtOnce {
		n.unsaid++
		return 0, false
	}
	n.said++
	unsaid, n.unsaid = n.unsaid, 0
	return unsaid, true
}
