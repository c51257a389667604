package simulation

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Version is one committed state of a resource. Updated and LastUpdated are the served times, by
// the API's clock; At is by the sentinel's clock.
type Version struct {
	At       time.Time
	Resource string

	Gone    bool // the resource does not exist from now on
	Matches bool // matches the selector

	Generation  int64
	Observed    int64
	Phase       string
	Updated     time.Time
	LastUpdated time.Time
}

// isUnobserved reports whether no adapter has observed the generation.
func (v *Version) isUnobserved() bool { return v.Generation > v.Observed }

// isWatched reports whether the sentinel watches the resource.
func (v *Version) isWatched() bool { return !v.Gone && v.Matches }

// An Event is a cloud event that the broker stored.
type Event struct {
	At        time.Time // time of storage
	Life      int       // life of the sentinel that sent it
	Attempted time.Time // first attempt of this life for this id
	Confirmed time.Time // when the sentinel got the confirmation; zero if it did not

	ID          string
	Resource    string
	Decided     time.Time // time of the decision, according to the sentinel
	Reason      string
	Generation  int64
	Phase       string
	Updated     time.Time // state of the resource that the sentinel had read
	LastUpdated time.Time
}

// A Strike is a fault with an effect, from its first moment to its last.
type Strike struct {
	What     string
	From, To time.Time
}

// A Life is a sentinel from its start to its end. Sentinels that continue from each other form one
// line, which has the number of the first of them.
type Life struct {
	Number  int
	Line    int
	Started time.Time
	Told    time.Time // time of the stop request; zero while it runs
	Ended   time.Time
	Crash   bool
}

// A line is a message for the report of a broken promise.
type line struct {
	at       time.Time
	resource string // empty for messages that concern all
	text     string
}

// A History records a simulation. It is safe for concurrent use while it is written.
type History struct {
	mu       sync.Mutex
	begin    time.Time
	versions map[string][]Version
	handed   map[string][]time.Time
	events   []*Event
	strikes  []Strike
	lives    []*Life
	faults   []string
	lines    []line
	quiet    bool
}

// New returns an empty history that begins now.
func New() *History {
	return &History{begin: time.Now(), versions: map[string][]Version{}, handed: map[string][]time.Time{}}
}

// Quiet drops all messages, for histories that are too long for them.
func (h *History) Quiet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = true
}

// Begin returns the start of the history.
func (h *History) Begin() time.Time { return h.begin }

// RecordVersion records a version.
func (h *History) RecordVersion(v Version, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[v.Resource] = append(h.versions[v.Resource], v)
	h.addNote(v.Resource, "%s: generation %d observed %d %s matches=%t gone=%t reported %s", why, v.Generation, v.Observed, v.Phase, v.Matches, v.Gone, h.secondsSince(v.LastUpdated))
}

// RecordEvent records an event that the broker has stored. Confirm records that the sentinel knows.
func (h *History) RecordEvent(e *Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	h.addNote(e.Resource, "stored %s of life %d: generation %d, %s", e.ID, e.Life, e.Generation, e.Reason)
}

// RecordConfirm records that the sentinel got the confirmation of a stored event.
func (h *History) RecordConfirm(e *Event, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Confirmed = at
}

// RecordHandover records that a resource belongs to another sentinel from now on.
func (h *History) RecordHandover(resource string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handed[resource] = append(h.handed[resource], time.Now())
	h.addNote(resource, "another sentinel's")
}

// RecordStrike records a fault with an effect.
func (h *History) RecordStrike(what string, from, to time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strikes = append(h.strikes, Strike{What: what, From: from, To: to})
	h.addNote("", "strike: %s, over at %s", what, h.secondsSince(to))
}

// RecordStart records the start of a sentinel, and whether it continues from another.
func (h *History) RecordStart(from *Life) *Life {
	h.mu.Lock()
	defer h.mu.Unlock()
	l := &Life{Number: len(h.lives) + 1, Line: len(h.lives) + 1, Started: time.Now()}
	if from != nil {
		l.Line = from.Line
	}
	h.lives = append(h.lives, l)
	h.addNote("", "life %d begins, of the line of %d", l.Number, l.Line)
	return l
}

// RecordStopRequest records a stop request to a sentinel, or its crash.
func (h *History) RecordStopRequest(l *Life, crash bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Told, l.Crash = time.Now(), crash
	h.addNote("", "life %d is told to stop, crash=%t", l.Number, crash)
}

// RecordEnd records the end of a sentinel.
func (h *History) RecordEnd(l *Life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Ended = time.Now()
	h.addNote("", "life %d has ended", l.Number)
}

// RecordFault records an error that is independent of the checker.
func (h *History) RecordFault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	h.faults = append(h.faults, text)
	h.addNote("", "wrong: %s", text)
}

// Note records a message for the report of a broken promise.
func (h *History) Note(resource, format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.addNote(resource, format, args...)
}

func (h *History) addNote(resource, format string, args ...any) {
	if h.quiet {
		return
	}
	h.lines = append(h.lines, line{at: time.Now(), resource: resource, text: fmt.Sprintf(format, args...)})
}

// secondsSince returns a time in the format of the history: seconds from its beginning.
func (h *History) secondsSince(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%.3f", t.Sub(h.begin).Seconds())
}

// Events returns the stored events in order.
func (h *History) Events() []*Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Tail returns the end of the history up to a time, for one resource and with messages that concern
// all.
func (h *History) Tail(resource string, until time.Time, lines int) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	var tail []string
	for _, l := range slices.Backward(h.lines) {
		if l.at.After(until) || l.resource != "" && resource != "" && l.resource != resource {
			continue
		}
		if tail = append(tail, fmt.Sprintf("%10s %.8s %s", h.secondsSince(l.at), l.resource, l.text)); len(tail) == lines {
			break
		}
	}
	slices.Reverse(tail)
	return strings.Join(tail, "\n")
}
