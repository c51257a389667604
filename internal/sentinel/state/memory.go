package state

import (
	"hash/maphash"
	"math"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// forgetAfterLaps is the number of laps after which an unused entry is removed. Its resource was
// not due in these laps: it was answered, or is gone.
const forgetAfterLaps = 3

// A Memory stores which events a sentinel has published, so that it does not repeat events. Create
// it with NewMemory. It is safe for concurrent use. The caller numbers rounds, ascending. Laps are
// complete lists and end with EndLapAndEvictUnused. An interrupted round must not make the memory
// forget.
//
// It holds resources that are due: their last event, and since when they wait. It is
// bounded, and only prevents repetitions: a forgotten event, or one lost with the process,
// is published once more, under the same id.
type Memory struct {
	mu      sync.Mutex
	entries FlatMap[memoryEntry]
	limit   int
	laps    uint32 // number of complete lists

	seed maphash.Seed
	// born is the origin of the times of entries. It has a monotonic clock reading, so that setting
	// the wall clock changes nothing.
	born time.Time
}

// A ResourceKey represents a resource's id and is never 0. It uses a secret seed, so that nobody
// can construct two ids with the same key; a collision by chance is practically impossible.
type ResourceKey uint64

type memoryEntry struct {
	// Times count from the creation of the memory. 0 means never.

	generation     int64         // of the last event
	confirmedAt    time.Duration // when that was confirmed
	unobservedFrom time.Duration // since when no adapter has observed the generation, or answeredMark
	firstSeen      time.Duration // when a resource without any time was first read

	// The generations are compact forms.

	observed uint32 // observed generation at the time unobservedFrom
	inFlight uint32 // generation of an event in flight; 0 means none

	attemptRound uint32 // round of the last attempt to publish
	usedInLap    uint32 // last lap in which the entry was used
}

const (
	// answeredMark is the value of unobservedFrom for a resource whose event was answered.
	answeredMark = time.Duration(math.MinInt64)

	// keepAnswered is how long such an entry is kept, because data that was requested before the
	// answer may still arrive.
	keepAnswered = time.Minute
)

// compactGeneration returns a compact form of a generation, which is never 0.
func compactGeneration(generation int64) (nonZero uint32) {
	return uint32(generation)<<1 | 1 //nolint:gosec // the low bits tell generations apart that follow each other
}

// NewMemory returns a memory of at most limit resources.
func NewMemory(limit int) *Memory {
	return &Memory{
		limit: limit,
		seed:  maphash.MakeSeed(),
		// Slightly in the past, so that no stored time is 0.
		born: time.Now().Add(-1),
	}
}

// SetLimitAndEvict changes the maximum number of remembered resources.
func (m *Memory) SetLimitAndEvict(limit int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.limit = limit
	for near := uint64(0); m.entries.Len() > limit; near++ {
		m.entries.EvictOneNear(near)
	}
}

// ResetWaitTimes forgets since when resources wait for their adapters. The caller uses it when its
// selection of resources has changed.
func (m *Memory) ResetWaitTimes() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for e := range m.entries.AllValues {
		e.unobservedFrom = 0
	}
}

// HashID returns the key of an id.
func (m *Memory) HashID(id []byte) ResourceKey {
	return ResourceKey(max(1, maphash.Bytes(m.seed, id)))
}

// A PublishState is what the memory knows about a resource.
type PublishState struct {
	Last decision.ConfirmedEvent

	// Claimed says that an event was already tried in this round: the resource was read twice,
	// because pages shift while they are read.
	Claimed bool

	// InFlight says that an event about this generation is in flight.
	InFlight bool // or about a newer one
}

// RecallPublishState returns the memory's state of a resource. The API returned the generation for
// a request at requestedAt.
func (m *Memory) RecallPublishState(key ResourceKey, generation int64, requestedAt time.Time, round uint32) PublishState {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.entries.Get(uint64(key))
	if e == nil {
		return PublishState{}
	}
	e.usedInLap = m.laps
	// A newer generation was confirmed after this one was requested.
	overtaken := e.generation > generation && e.confirmedAt > requestedAt.Sub(m.born)
	remembered := PublishState{
		Claimed:  e.attemptRound == round,
		InFlight: e.inFlight >= compactGeneration(generation) || overtaken,
	}
	if e.confirmedAt != 0 {
		remembered.Last = decision.ConfirmedEvent{Generation: e.generation, At: m.born.Add(e.confirmedAt)}
	}
	return remembered
}

// MarkInFlight records an attempt to publish an event about a generation in this round.
func (m *Memory) MarkInFlight(key ResourceKey, generation int64, round uint32) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.upsertEntry(key)
	e.attemptRound = round
	e.inFlight = compactGeneration(generation)
}

// MarkConfirmedUnlessOvertaken records that a broker has the event about a generation, which was requested from
// the API at requestedAt.
func (m *Memory) MarkConfirmedUnlessOvertaken(key ResourceKey, generation int64, requestedAt time.Time) {
	confirmedAt := time.Since(m.born)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.upsertEntry(key)
	e.clearInFlightOf(generation)
	overtaken := e.generation > generation && e.confirmedAt > requestedAt.Sub(m.born)
	if overtaken {
		return // a newer generation was requested later and confirmed earlier
	}
	e.generation, e.confirmedAt = generation, confirmedAt
	if e.unobservedFrom == answeredMark {
		e.unobservedFrom = 0
	}
}

// MarkFailed records that the attempts to publish an event about a generation ended without success.
func (m *Memory) MarkFailed(key ResourceKey, generation int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.upsertEntry(key).clearInFlightOf(generation)
}

// clearInFlightOf records that no event about a generation is in flight any more.
func (e *memoryEntry) clearInFlightOf(generation int64) {
	if e.inFlight == compactGeneration(generation) {
		e.inFlight = 0
	}
}

// RecordUnobservedSince returns since when the adapters of a resource have not observed its
// generation. This is the time since from the API or, if that moves with every patch, the time when
// this was first the case.
func (m *Memory) RecordUnobservedSince(key ResourceKey, observedGeneration int64, since time.Time) (firstSince time.Time) {
	observed := compactGeneration(observedGeneration)
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.upsertEntry(key)
	isFirst := e.unobservedFrom == 0 || e.unobservedFrom == answeredMark
	if isFirst || e.observed != observed {
		e.observed, e.unobservedFrom = observed, since.Sub(m.born)
	}
	return m.born.Add(e.unobservedFrom)
}

// RecordFirstSeen returns when a resource was first requested.
func (m *Memory) RecordFirstSeen(key ResourceKey, now time.Time) (firstSeen time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	e := m.upsertEntry(key)
	if e.firstSeen == 0 {
		e.firstSeen = now.Sub(m.born)
	}
	return m.born.Add(e.firstSeen)
}

// upsertEntry returns the entry of a resource, and marks it as used. If there is none, it inserts an
// empty one, and evicts another at the limit. The caller holds the lock.
func (m *Memory) upsertEntry(key ResourceKey) *memoryEntry {
	e := m.entries.Get(uint64(key))
	if e == nil {
		if m.entries.Len() >= m.limit {
			m.entries.EvictOneNear(uint64(key))
		}
		e = m.entries.InsertZero(uint64(key))
	}
	e.usedInLap = m.laps
	return e
}

// ClearUnobserved records that adapters have observed a resource's generation.
func (m *Memory) ClearUnobserved(key ResourceKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries.Get(uint64(key)); e != nil {
		e.unobservedFrom = 0
	}
}

// ScheduleForget records that a resource is not due. Its last event is forgotten some time later.
func (m *Memory) ScheduleForget(key ResourceKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries.Get(uint64(key)); e != nil {
		e.unobservedFrom = answeredMark
	}
}

// ForgetResource forgets a resource that is gone.
func (m *Memory) ForgetResource(key ResourceKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.entries.RemoveKey(uint64(key))
}

// ScheduleForgetIfWaiting records that a resource belongs to another replica. The time of its event
// is kept for a while, because the resource may come back.
func (m *Memory) ScheduleForgetIfWaiting(key ResourceKey) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.entries.Get(uint64(key)); e != nil && e.unobservedFrom != 0 {
		e.unobservedFrom = answeredMark
	}
}

// PurgeExpiredAndGetLongestWait forgets the events that were answered some time ago. It returns the
// longest time that any resource has waited for adapters to observe its generation.
func (m *Memory) PurgeExpiredAndGetLongestWait(now time.Time) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	elapsed := now.Sub(m.born)
	m.entries.RemoveIf(func(e *memoryEntry) bool {
		isAnswered := e.unobservedFrom == answeredMark && e.inFlight == 0
		return isAnswered && e.firstSeen == 0 && elapsed-e.confirmedAt > keepAnswered
	})
	var longest time.Duration
	for e := range m.entries.AllValues {
		if e.unobservedFrom != 0 && e.unobservedFrom != answeredMark {
			longest = max(longest, elapsed-e.unobservedFrom)
		}
	}
	return longest
}

// EndLapAndEvictUnused ends a lap. It removes entries that were unused for several laps, and
// returns the number of those that are left.
func (m *Memory) EndLapAndEvictUnused() (remaining int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.laps++
	m.entries.RemoveIf(func(e *memoryEntry) bool { return m.laps-e.usedInLap >= forgetAfterLaps })
	return m.entries.Len()
}

// Len returns the number of remembered resources.
func (m *Memory) Len() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.entries.Len()
}
