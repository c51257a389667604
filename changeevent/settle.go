package changeevent

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// settle counts, logs and tells what became of events: once for each.
func (c *client) settle(batch []item, v verdict) {
	now := time.Now()
	for i := range batch {
		e := &batch[i].event
		c.count(e.Action, v, now)
		c.report(detached{c.root, batch[i].ctx}, e, v)
		c.tell(e, v, now)
	}
}

// count counts one event. One that its sender sends again is counted then, and
// its failure now.
func (c *client) count(action string, v verdict, now time.Time) {
	returned := c.cfg.Resends && !v.final()
	c.tally.count(v, returned, now)
	c.metrics.count(action, v, returned)
}

// tell calls back whoever sent an event.
func (c *client) tell(e *ChangeEvent, v verdict, now time.Time) {
	if e.OnDelivery == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.log.ErrorContext(c.root, "callback of a change event panicked", "err", fmt.Sprint(p), "action", e.Action)
		}
	}()
	e.OnDelivery(Delivery{ID: idOf(e), Class: v.class, Permanent: v.permanent, Status: v.status, Attempts: v.attempts, At: now})
}

// report logs what became of an event: each that was delivered at debug, and of
// those that were not, as many as somebody reads.
func (c *client) report(ctx context.Context, e *ChangeEvent, v verdict) {
	if v.class == "" {
		if c.log.Enabled(ctx, slog.LevelDebug) {
			c.log.DebugContext(ctx, "change event delivered",
				"action", e.Action, "cluster", e.Cluster, "node", e.NodeName, "event_id", idOf(e), "status", v.status, "attempts", v.attempts)
		}
		return
	}
	unsaid, ok := c.lines.allow(v.class, time.Now())
	if !ok {
		return
	}
	c.log.ErrorContext(ctx, "change event not delivered",
		"why", explain(v.class), "class", v.class, "action", e.Action, "cluster", e.Cluster, "node", e.NodeName, "subject", e.Subject,
		"event_id", idOf(e), "status", v.status, "attempts", v.attempts, "answer", quote(v.text), "unsaid_before", unsaid)
}

// explain is a class in the words of whoever has to mend it.
func explain(class Class) string {
	switch class {
	case ClassRedirect:
		return "the sink redirects, which is not followed"
	case ClassClientError:
		return "the sink refuses the request"
	case ClassUnauthorized, ClassForbidden:
		return "authentication failed: the sink does not accept the credential"
	case ClassNotFound:
		return "the sink does not know the cluster or the path"
	case ClassGone:
		return "the sink has been retired"
	case ClassRateLimited:
		return "the sink asks for fewer requests"
	case ClassServerError:
		return "the sink has failed"
	case ClassConnection:
		return "no connection to the sink"
	case ClassDNS:
		return "the name of the sink was not resolved"
	case ClassTLS:
		return "no secure connection to the sink"
	case ClassTimeout:
		return "the sink has not answered in time"
	case ClassRefused:
		return "the address of the sink is not allowed"
	case ClassEncode:
		return "the event cannot be written in the format of the sink"
	case ClassQueueFull:
		return "events come faster than the sink takes them"
	case ClassClosed:
		return "the client was closed before"
	case ClassShutdown:
		return "the client was closed before the sink answered"
	case ClassExpired:
		return "the event is too old to be of use"
	}
	return string(class)
}

const (
	// linesEvery is how long one who reads the log is left alone with a class.
	linesEvery = time.Minute
	// linesAtOnce is how many lines a class has in that time: enough to name the
	// nodes of a small incident.
	linesAtOnce = 10
)

// A limiter keeps a sink that is down from filling the log.
type limiter struct {
	mu      sync.Mutex
	classes map[Class]*lineCount
}

type lineCount struct {
	since        time.Time
	said, unsaid int
}

// allow says whether there may be a line, and how many there were not before.
func (l *limiter) allow(class Class, now time.Time) (unsaid int, ok bool) {
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
