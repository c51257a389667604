package changeevent

import (
	"sync/atomic"
	"time"
)

// Stats is the state of a client. Sent is the sum of Succeeded, Failed, Dropped,
// ReturnedToSender and Pending, exactly so while no event is being processed.
type Stats struct {
	// Sink is Config.Name.
	Sink string `json:"sink"`
	// Format is Config.Format.
	Format Format `json:"format"`

	// Sent is the number of events for the sink, including events after Close.
	Sent uint64 `json:"sent"`
	// Succeeded is the number of events that the sink accepted.
	Succeeded uint64 `json:"succeeded"`
	// Failed is the number of events that the sink rejected or that did not reach it.
	Failed uint64 `json:"failed"`
	// Dropped is the number of events that the client discarded before a response.
	Dropped uint64 `json:"dropped"`
	// ReturnedToSender is the number of events that the sender retries
	// (Config.SenderRetries).
	ReturnedToSender uint64 `json:"returnedToSender,omitempty"`
	// Retries is the number of requests that were sent again.
	Retries uint64 `json:"retries"`
	// Pending is the number of events that are queued or being sent.
	Pending int `json:"pending"`
	// OldestPendingAge is the age of the oldest pending event.
	OldestPendingAge time.Duration `json:"oldestPendingAgeNanoseconds"`

	// LastSuccess and LastFailure are the times of the last results. Zero means none.
	LastSuccess time.Time `json:"lastSuccess,omitzero"`
	LastFailure time.Time `json:"lastFailure,omitzero"`
	// LastErrorClass is the error class of the last failure.
	LastErrorClass Class `json:"lastErrorClass,omitempty"`
	// FailuresByClass counts failed, dropped and returned events by error class.
	FailuresByClass map[Class]uint64 `json:"failuresByClass,omitempty"`

	// UnreadableFiles lists the configured files that cannot be read, with the
	// error: endpoint, auth_token, routing_key, signing_key or ca. The last
	// content that was read stays in use.
	UnreadableFiles map[string]string `json:"unreadableFiles,omitempty"`
	// PausedUntil is the end of a pause that the sink asked for. Zero means no pause.
	PausedUntil time.Time `json:"pausedUntil,omitzero"`
	// WaitingForFiles reports that a required file was never readable, so that
	// events are queued but not sent.
	WaitingForFiles bool `json:"waitingForFiles,omitempty"`
}

// StatsOf returns the state of a client of this package. For any other client,
// and for a disabled one, it returns false.
func StatsOf(c Client) (stats Stats, ok bool) {
	own, ok := c.(*client)
	if !ok || own == nil {
		return Stats{}, false
	}
	return own.currentStats(time.Now()), true
}

func (c *client) currentStats(now time.Time) Stats {
	t := c.results.tally
	s := Stats{
		Sink: c.cfg.Name, Format: c.cfg.Format,
		Succeeded: t.succeeded.Load(), Failed: t.failed.Load(), Dropped: t.dropped.Load(), ReturnedToSender: t.returned.Load(), Retries: t.retries.Load(),
		LastSuccess: timeFromUnixNano(t.lastSuccess.Load()), WaitingForFiles: c.keys.current.Load() == nil,
	}
	if until, ok := c.pace.pausedUntil(); ok {
		s.PausedUntil = until
	}
	for f, err := range c.keys.lastErrorByFile() {
		if err == nil {
			continue
		}
		if s.UnreadableFiles == nil {
			s.UnreadableFiles = make(map[string]string)
		}
		s.UnreadableFiles[f.String()] = err.Error()
	}
	for class, n := range t.classes {
		count, last := n.n.Load(), timeFromUnixNano(n.last.Load())
		if count == 0 {
			continue
		}
		if s.FailuresByClass == nil {
			s.FailuresByClass = make(map[Class]uint64)
		}
		s.FailuresByClass[class] = count
		if last.After(s.LastFailure) {
			s.LastFailure, s.LastErrorClass = last, class
		}
	}
	for _, shard := range c.shards {
		n, oldest, sent := shard.pendingStats(now)
		s.Pending, s.OldestPendingAge, s.Sent = s.Pending+n, max(s.OldestPendingAge, oldest), s.Sent+sent
	}
	return s
}

func timeFromUnixNano(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// A resultCounters counts the results of events. It is lock-free, because senders count, too.
type resultCounters struct {
	succeeded, failed, dropped, returned, retries atomic.Uint64
	lastSuccess                                   atomic.Int64 // in Unix nanoseconds
	classes                                       map[Class]*classTally
}

type classTally struct {
	n    atomic.Uint64
	last atomic.Int64
}

func newResultCounters() *resultCounters {
	t := &resultCounters{classes: make(map[Class]*classTally)}
	for _, class := range Classes() {
		t.classes[class] = new(classTally)
	}
	return t
}

// Classes returns all error classes.
func Classes() []Class {
	return []Class{
		ClassRedirect, ClassClientError, ClassUnauthorized, ClassForbidden, ClassNotFound, ClassGone, ClassRateLimited,
		ClassServerError, ClassConnection, ClassDNS, ClassTLS, ClassTimeout, ClassAddressDenied,
		ClassEncode, ClassQueueFull, ClassClosed, ClassShutdown, ClassExpired,
	}
}

func (t *resultCounters) countResult(result deliveryResult, returnedToSender bool, now time.Time) {
	switch {
	case result.class == "":
		t.lastSuccess.Store(now.UnixNano())
		t.succeeded.Add(1)
		return
	case returnedToSender:
		t.returned.Add(1)
	case result.isDroppedByClient():
		t.dropped.Add(1)
	default:
		t.failed.Add(1)
	}
	n := t.classes[result.class]
	n.last.Store(now.UnixNano())
	n.n.Add(1)
}
