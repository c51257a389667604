package sentinel

import (
	"hash/maphash"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/flat"
)

// forgetAfter is after how many complete rounds in which a resource was not
// due its entry is dropped: it was answered, or is gone.
const forgetAfter = 3

// A memory is what the sentinel remembers of resources that are due: what was
// announced of them and since when they wait. It is bounded, and only ever
// saves a repeat: what is forgotten, or lost with the process, is announced
// once more, under the same id.
type memory struct {
	mu      sync.Mutex
	entries flat.Map[memoryEntry]
	limit   int

	seed maphash.Seed
	// born is what the times of entries count from. It carries the monotonic
	// clock, so that setting the wall clock changes nothing.
	born time.Time
}

// A memoryKey stands for a resource's id and is never 0. It is made with a
// secret seed, so that nobody can make two ids that meet; by chance they do not.
type memoryKey uint64

type memoryEntry struct {
	generation int64         // that was announced last
	at         time.Duration // when that was confirmed; 0 is never
	waiting    time.Duration // since when no adapter has observed the generation; see stuckSince
	observed   int64         // the generation that had been observed by then
	first      time.Duration // when a resource without any time was first met; 0 is never
	claimed    uint32        // the round in which an event was last tried
	touched    uint32        // the last round in which the entry was of use
}

func newMemory(limit int) *memory {
	return &memory{
		limit: limit,
		seed:  maphash.MakeSeed(),
		// A moment ago, so that no time of ours is 0.
		born: time.Now().Add(-1),
	}
}

func (m *memory) key(id []byte) memoryKey {
	return memoryKey(max(1, maphash.Bytes(m.seed, id)))
}

// recall returns what was last announced of a resource, and whether an event
// was tried in this round already, in which case it is a duplicate: pages
// shift while they are read.
func (m *memory) recall(k memoryKey, round uint32) (last decision.Announcement, duplicate bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(k))
	if e == nil {
		return decision.Announcement{}, false
	}
	e.touched = round
	if e.at != 0 {
		last = decision.Announcement{Generation: e.generation, At: m.born.Add(e.at)}
	}
	return last, e.claimed == round
}

// claim notes that an event is tried in this round.
func (m *memory) claim(k memoryKey, round uint32) {
	m.update(k, round, func(e *memoryEntry) { e.claimed = round })
}

// confirm notes that a broker has the event about a generation.
func (m *memory) confirm(k memoryKey, generation int64, round uint32) {
	at := time.Since(m.born)
	m.update(k, round, func(e *memoryEntry) { e.generation, e.at = generation, at })
}

// stuckSince is since when the adapters of a resource have not observed its
// generation: since is what the API says, and where that moves on with every
// patch, when it was first so.
func (m *memory) stuckSince(k memoryKey, round uint32, observed int64, since time.Time) time.Time {
	m.update(k, round, func(e *memoryEntry) {
		if e.waiting == 0 || e.observed != observed {
			e.observed, e.waiting = observed, since.Sub(m.born)
		}
		since = m.born.Add(e.waiting)
	})
	return since
}

// firstSeen is when a resource was first asked for here.
func (m *memory) firstSeen(k memoryKey, round uint32, now time.Time) time.Time {
	m.update(k, round, func(e *memoryEntry) {
		if e.first == 0 {
			e.first = now.Sub(m.born)
		}
		now = m.born.Add(e.first)
	})
	return now
}

func (m *memory) update(k memoryKey, round uint32, change func(*memoryEntry)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(k))
	if e == nil {
		if m.entries.Len() >= m.limit {
			m.entries.RemoveNear(uint64(k))
		}
		e = m.entries.Add(uint64(k))
	}
	e.touched = round
	change(e)
}

// sweep forgets what was of no use for some rounds, and returns what is left.
func (m *memory) sweep(round uint32) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries.RemoveIf(func(e *memoryEntry) bool { return round-e.touched >= forgetAfter })
	return m.entries.Len()
}
