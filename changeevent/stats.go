package changeevent

import (
	"sync/atomic"
	"time"
)

// Stats say how a client stands. Sent is Succeeded, Failed, Dropped, Returned and
// Pending together, exactly so when nothing is under way.
type Stats struct {
	Sink   string `json:"sink"`
	Format Format `json:"format"`

	// Sent is how often an event was sent that the sink is to have, those that
	// came after Close included.
	Sent uint64 `json:"sent"`
	// Succeeded were taken by the sink.
	Succeeded uint64 `json:"succeeded"`
	// Failed were refused by the sink, or did not get there.
	Failed uint64 `json:"failed"`
	// Dropped were given up by the client before there was an answer.
	Dropped uint64 `json:"dropped"`
	// Returned were given back to the sender, which sends them again
	// (Config.Resends).
	Returned uint64 `json:"returned,omitempty"`
	// Retries are requests that were sent again.
	Retries uint64 `json:"retries"`
	// Pending wait, or are being sent.
	Pending int `json:"pending"`
	// Oldest is how long the oldest of those has been there.
	Oldest time.Duration `json:"oldest"`

	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
	// LastClass is why the last one failed that did.
	LastClass Class `json:"lastClass,omitempty"`
	// Failures are the failed, dropped and returned ones by why.
	Failures map[Class]uint64 `json:"failures,omitempty"`

	// Unreadable are the files of the configuration that cannot be read, by what
	// they hold: endpoint, auth_token, routing_key, signing_key, ca. What was read
	// before stays in force.
	Unreadable map[string]string `json:"unreadable,omitempty"`
	// HeldUntil is until when the sink asks to be left alone. Zero is that it does
	// not.
	HeldUntil time.Time `json:"heldUntil,omitzero"`
	// Waits says that one of them never could be, so that nothing is sent yet.
	Waits bool `json:"waits,omitempty"`
}

// StatsOf says how a client of this package stands. Of another, and of one that
// does nothing, it says false.
func StatsOf(c Client) (Stats, bool) {
	own, ok := c.(*client)
	if !ok || own == nil {
		return Stats{}, false
	}
	return own.stats(time.Now()), true
}

func (c *client) stats(now time.Time) Stats {
	t := c.tally
	s := Stats{
		Sink: c.cfg.Name, Format: c.cfg.Format,
		Succeeded: t.succeeded.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load(), Returned: t.returned.Load(), Retries: t.retries.Load(),
		LastSuccess: unixNano(t.lastSuccess.Load()), Waits: c.keys.current.Load() == nil,
	}
	if until, ok := c.held(); ok {
		s.HeldUntil = until
	}
	for f, err := range c.keys.unreadable() {
		if err == nil {
			continue
		}
		if s.Unreadable == nil {
			s.Unreadable = make(map[string]string)
		}
		s.Unreadable[f.String()] = err.Error()
	}
	for class, n := range t.classes {
		count, last := n.n.Load(), unixNano(n.last.Load())
		if count == 0 {
			continue
		}
		if s.Failures == nil {
			s.Failures = make(map[Class]uint64)
		}
		s.Failures[class] = count
		if last.After(s.LastFailure) {
			s.LastFailure, s.LastClass = last, class
		}
	}
	for _, shard := range c.shards {
		n, oldest, sent := shard.pending(now)
		s.Pending, s.Oldest, s.Sent = s.Pending+n, max(s.Oldest, oldest), s.Sent+sent
	}
	return s
}

func unixNano(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// A tally counts what became of events. It has no lock, as senders count, too.
type tally struct {
	succeeded, failed, dropped, returned, retries atomic.Uint64
	lastSuccess                                   atomic.Int64 // in nanoseconds since 1970
	classes                                       map[Class]*classTally
}

type classTally struct {
	n    atomic.Uint64
	last atomic.Int64
}

func newTally() *tally {
	t := &tally{classes: make(map[Class]*classTally)}
	for _, class := range Classes() {
		t.classes[class] = new(classTally)
	}
	return t
}

// Classes are all classes there are.
func Classes() []Class {
	return []Class{
		ClassRedirect, ClassClientError, ClassUnauthorized, ClassForbidden, ClassNotFound, ClassGone, ClassRateLimited,
		ClassServerError, ClassConnection, ClassDNS, ClassTLS, ClassTimeout, ClassRefused,
		ClassEncode, ClassQueueFull, ClassClosed, ClassShutdown, ClassExpired,
	}
}

func (t *tally) count(v verdict, returned bool, now time.Time) {
	switch {
	case v.class == "":
		t.lastSuccess.Store(now.UnixNano())
		t.succeeded.Add(1)
		return
	case returned:
		t.returned.Add(1)
	case v.dropped():
		t.dropped.Add(1)
	default:
		t.failed.Add(1)
	}
	n := t.classes[v.class]
	n.last.Store(now.UnixNano())
	n.n.Add(1)
}
