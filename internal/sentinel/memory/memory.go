// Package memory keeps what a sentinel has announced, so that it does not
// repeat itself.
//
// It holds resources that are due: what was announced of them, and since when
// they wait. It is bounded, and only ever saves a repeat: what is forgotten, or
// lost with the process, is announced once more, under the same id.
package memory

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/flat"
)

// forgetAfter is after how many laps in which a resource was not
// due its entry is dropped: it was answered, or is gone.
const forgetAfter = 3

// A Memory is made with New. It is safe for concurrent use. Rounds are
// numbered by the caller, ascending; laps, which are complete lists, end with
// Sweep. A round that broke off must not make it forget.
type Memory struct {
	mu      sync.Mutex
	entries flat.Map[entry]
	limit   int
	laps    uint32 // complete lists

	seed maphash.Seed
	// born is what the times of entries count from. It carries the monotonic
	// clock, so that setting the wall clock changes nothing.
	born time.Time
}

// A Key stands for a resource's id and is never 0. It is made with a
// secret seed, so that nobody can make two ids that meet; by chance they do not.
type Key uint64

type entry struct {
	generation int64         // that was announced last
	at         time.Duration // when that was confirmed; 0 is never
	waiting    time.Duration // since when no adapter has observed the generation; see StuckSince
	first      time.Duration // when a resource without any time was first met; 0 is never
	observed   uint32        // the generation that had been observed by then, the low bits
	flying     uint32        // the mark of the generation of which an event is on its way; 0 is none
	claimed    uint32        // the round in which an event was last tried
	touched    uint32        // the last lap in which the entry was of use
}

// answered stands in waiting for a resource whose announcement was answered. It
// is kept for a while: what was asked for before the answer may still come by.
const (
	answeredMark = time.Duration(math.MinInt64)
	keepAnswered = time.Minute
)

// generationMark stands for a generation in less room, and is never 0.
func generationMark(generation int64) uint32 {
	return uint32(generation)<<1 | 1 //nolint:gosec // the low bits tell generations apart that follow each other
}

// New makes a memory of at most limit resources.
func New(limit int) *Memory {
	return &Memory{
		limit: limit,
		seed:  maphash.MakeSeed(),
		// A moment ago, so that no time of ours is 0.
		born: time.Now().Add(-1),
	}
}

// Resize changes how many resources are remembered at most.
func (m *Memory) Resize(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = limit
	for near := uint64(0); m.entries.Len() > limit; near++ {
		m.entries.RemoveNear(near)
	}
}

// Restart forgets since when resources wait for their adapters, for a caller
// who does not look after the same ones any more.
func (m *Memory) Restart() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range m.entries.All {
		e.waiting = 0
	}
}

// Key is what stands for an id.
func (m *Memory) Key(id []byte) Key {
	return Key(max(1, maphash.Bytes(m.seed, id)))
}

// A Recollection is what the memory has of a resource.
type Recollection struct {
	Last decision.Announcement

	// Claimed says that an event was tried in this round already: the resource
	// is met twice, because pages shift while they are read.
	Claimed bool

	// InFlight says that an event about this generation is on its way.
	InFlight bool // or about a newer one
}

// Recall gives what there is of a resource, of which the API said at some time
// that it has a generation.
func (m *Memory) Recall(k Key, generation int64, asked time.Time, round uint32) Recollection {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(k))
	if e == nil {
		return Recollection{}
	}
	e.touched = m.laps
	overtaken := e.generation > generation && e.at > asked.Sub(m.born)
	was := Recollection{Claimed: e.claimed == round, InFlight: e.flying >= generationMark(generation) || overtaken}
	if e.at != 0 {
		was.Last = decision.Announcement{Generation: e.generation, At: m.born.Add(e.at)}
	}
	return was
}

// Claim notes that an event about a generation is tried in this round.
func (m *Memory) Claim(k Key, generation int64, round uint32) {
	m.updateEntry(k, func(e *entry) { e.claimed, e.flying = round, generationMark(generation) })
}

// Confirm notes that a broker has the event about a generation, which the API
// was asked for some time ago.
func (m *Memory) Confirm(k Key, generation int64, asked time.Time) {
	at := time.Since(m.born)
	m.updateEntry(k, func(e *entry) {
		e.clearInFlight(generation)
		if e.at > asked.Sub(m.born) && e.generation > generation {
			return // overtaken: a newer generation was asked for later and confirmed earlier
		}
		e.generation, e.at = generation, at
		if e.waiting == answeredMark {
			e.waiting = 0
		}
	})
}

// Fail notes that an event about a generation was given up.
func (m *Memory) Fail(k Key, generation int64) {
	m.updateEntry(k, func(e *entry) { e.clearInFlight(generation) })
}

func (e *entry) clearInFlight(generation int64) {
	if e.flying == generationMark(generation) {
		e.flying = 0
	}
}

// StuckSince is since when the adapters of a resource have not observed its
// generation: since is what the API says, and where that moves on with every
// patch, when it was first so.
func (m *Memory) StuckSince(k Key, observed int64, since time.Time) time.Time {
	m.updateEntry(k, func(e *entry) {
		if e.waiting == 0 || e.waiting == answeredMark || e.observed != generationMark(observed) {
			e.observed, e.waiting = generationMark(observed), since.Sub(m.born)
		}
		since = m.born.Add(e.waiting)
	})
	return since
}

// FirstSeen is when a resource was first asked for here.
func (m *Memory) FirstSeen(k Key, now time.Time) time.Time {
	m.updateEntry(k, func(e *entry) {
		if e.first == 0 {
			e.first = now.Sub(m.born)
		}
		now = m.born.Add(e.first)
	})
	return now
}

func (m *Memory) updateEntry(k Key, change func(*entry)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(k))
	if e == nil {
		if m.entries.Len() >= m.limit {
			m.entries.RemoveNear(uint64(k))
		}
		e = m.entries.Add(uint64(k))
	}
	e.touched = m.laps
	change(e)
}

// Observed notes that adapters have observed a resource's generation.
func (m *Memory) Observed(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries.Get(uint64(k)); e != nil {
		e.waiting = 0
	}
}

// ForgetAnnouncement notes that a resource is not due, or gone: what was announced of it
// is forgotten, some time later or at once.
func (m *Memory) ForgetAnnouncement(k Key, gone bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(k))
	switch {
	case e == nil:
	case gone:
		m.entries.Remove(uint64(k))
	default:
		e.waiting = answeredMark
	}
}

// ReleaseResource notes that a resource is for another to look after. When it was
// announced stays known, for a while: it may come back.
func (m *Memory) ReleaseResource(k Key) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries.Get(uint64(k)); e != nil && e.waiting != 0 {
		e.waiting = answeredMark
	}
}

// Oldest is for how long the resource has waited that has waited longest for
// adapters to observe its generation.
func (m *Memory) Oldest(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	var longest time.Duration
	m.entries.RemoveIf(func(e *entry) bool {
		return e.waiting == answeredMark && e.first == 0 && e.flying == 0 && now.Sub(m.born)-e.at > keepAnswered
	})
	for e := range m.entries.All {
		if e.waiting != 0 && e.waiting != answeredMark {
			longest = max(longest, now.Sub(m.born)-e.waiting)
		}
	}
	return longest
}

// Sweep ends a lap. It forgets what was of no use for some, and returns what is left.
func (m *Memory) Sweep() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.laps++
	m.entries.RemoveIf(func(e *entry) bool { return m.laps-e.touched >= forgetAfter })
	return m.entries.Len()
}

// Len is how many resources are remembered.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries.Len()
}
