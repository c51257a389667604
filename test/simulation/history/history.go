// Package history holds what happened in a simulated world, and holds it
// against what the sentinel promises.
//
// A History takes down versions of resources as the API committed them, events
// as the broker stored them, faults as they struck, and the lives of the
// sentinel. It knows nothing of how the sentinel works: Check sees what a user
// could have seen.
package history

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// A Version is one committed state of a resource. Updated and LastUpdated are
// the times as served, so by the API's clock; At is by the sentinel's.
type Version struct {
	At       time.Time
	Resource string

	Gone    bool // no such resource from now on
	Matches bool // the selector

	Generation  int64
	Observed    int64
	Phase       string
	Updated     time.Time
	LastUpdated time.Time
}

// isUnobserved reports whether no adapter has observed the generation.
func (v *Version) isUnobserved() bool { return v.Generation > v.Observed }

// isWatched reports whether the resource is the sentinel's business.
func (v *Version) isWatched() bool { return !v.Gone && v.Matches }

// An Event is one cloud event as the broker stored it.
type Event struct {
	At        time.Time // when it was stored
	Life      int       // of the sentinel that sent it
	Attempted time.Time // when this life first tried an event of this id
	Confirmed time.Time // when the sentinel heard of it; zero if it never did

	ID          string
	Resource    string
	Decided     time.Time // when the sentinel decided to send it, as it says
	Reason      string
	Generation  int64
	Phase       string
	Updated     time.Time // what the sentinel had seen of the resource
	LastUpdated time.Time
}

// A Strike is a fault that did harm, from the first moment of it to the last.
type Strike struct {
	What     string
	From, To time.Time
}

// A Life is a sentinel from its start to its end. Those that go on from each
// other are of one line, which has the number of the first of them.
type Life struct {
	Number  int
	Line    int
	Started time.Time
	Told    time.Time // to stop; zero while it runs
	Ended   time.Time
	Crash   bool
}

// A line is something to read when a promise was broken.
type line struct {
	at       time.Time
	resource string // empty for what concerns all
	text     string
}

// A History is safe for concurrent use while it is written.
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

// Quiet keeps nothing to read, for histories that are too long for that.
func (h *History) Quiet() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.quiet = true
}

// Begin is when the history began.
func (h *History) Begin() time.Time { return h.begin }

// Commit takes down a version.
func (h *History) Commit(v Version, why string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.versions[v.Resource] = append(h.versions[v.Resource], v)
	h.addNote(v.Resource, "%s: generation %d observed %d %s matches=%t gone=%t reported %s", why, v.Generation, v.Observed, v.Phase, v.Matches, v.Gone, h.secondsSince(v.LastUpdated))
}

// Store takes down an event that the broker has; Confirm that the sentinel
// heard so.
func (h *History) Store(e *Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.events = append(h.events, e)
	h.addNote(e.Resource, "stored %s of life %d: generation %d, %s", e.ID, e.Life, e.Generation, e.Reason)
}

// Confirm takes down that the sentinel heard of an event that was stored.
func (h *History) Confirm(e *Event, at time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e.Confirmed = at
}

// Hand takes down that a resource is another sentinel's from now on.
func (h *History) Hand(resource string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.handed[resource] = append(h.handed[resource], time.Now())
	h.addNote(resource, "another sentinel's")
}

// Strike takes down a fault that did harm.
func (h *History) Strike(what string, from, to time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.strikes = append(h.strikes, Strike{What: what, From: from, To: to})
	h.addNote("", "strike: %s, over at %s", what, h.secondsSince(to))
}

// Start takes down that a sentinel begins, and whether it goes on from another.
func (h *History) Start(from *Life) *Life {
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

// Tell takes down that a sentinel is told to stop, or dies.
func (h *History) Tell(l *Life, crash bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Told, l.Crash = time.Now(), crash
	h.addNote("", "life %d is told to stop, crash=%t", l.Number, crash)
}

// End takes down that a sentinel has ended.
func (h *History) End(l *Life) {
	h.mu.Lock()
	defer h.mu.Unlock()
	l.Ended = time.Now()
	h.addNote("", "life %d has ended", l.Number)
}

// Fault takes down something that is wrong whatever the checker finds.
func (h *History) Fault(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	text := fmt.Sprintf(format, args...)
	h.faults = append(h.faults, text)
	h.addNote("", "wrong: %s", text)
}

// Note takes down something to read when a promise was broken.
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

// secondsSince is a time as the history shows it: seconds from its beginning.
func (h *History) secondsSince(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return fmt.Sprintf("%.3f", t.Sub(h.begin).Seconds())
}

// Events are the events that were stored, in that order.
func (h *History) Events() []*Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.events)
}

// Tail is the end of the history up to a time, of one resource and of what
// concerns all.
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
