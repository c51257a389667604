package state

import (
	"hash/maphash"
	"iter"
	"math"
	"sync"
	"time"
	"unsafe"
)

// dueResolution is the step of times.
const dueResolution = 100 * time.Millisecond

// Times count steps from long before the creation of the index, so that resources that were due
// then keep their order.
const (
	birthStep uint32 = 1 << 28 // 310 days
	lastStep  uint32 = math.MaxUint32 - 1
	neverDue  uint32 = math.MaxUint32 // the value of free slots
)

// indexShards is the number of tables. They grow one at a time, so that no growth causes a
// noticeable delay.
const indexShards = 256

// A DueIndex stores when each resource is due for its next lookup. Create it with NewDueIndex. It
// is safe for concurrent use.
//
// A sentinel that follows a change feed does not see unchanged resources, which fall due by age.
// The index stores the due time of each resource, and the sentinel regularly takes the resources
// that are due. There are no timers: the times are packed together and scanned, which takes less
// than a nanosecond for each, and nothing at all for a shard without due resources.
//
// A million resources take about 28 MB. Times are stored in steps of 100 ms, rounded up, so that no
// resource is due too early.
//
// Three sources write to the index and may disagree. The change feed has the newest data. A sweep
// reads pages that may be older than what the feed has reported meanwhile, and a lookup may be
// overtaken as well. If it is unclear which source is right, the earlier time wins: one unnecessary
// lookup costs a request, a missing one leaves a resource without events.
//
// A lookup must contain what the feed reported before its request. A page of a sweep may lack that:
// then the feed must report it once more, after the sweep has begun.
type DueIndex struct {
	clock dueClock
	seeds [3]maphash.Seed // of the slot of an id, and of both halves of its hash

	mu     sync.Mutex // not held while a function of the caller runs
	shards [indexShards]indexShard
	texts  textIDs
	sweep  uint8 // number of the last sweep
}

// NewDueIndex returns an empty index. Later times should use the same clock as born.
// now.Add(due.Sub(now)) converts a time from the API to it, and the result does not move when the
// wall clock is set.
func NewDueIndex(born time.Time) *DueIndex {
	x := &DueIndex{clock: dueClock{born: born}}
	for i := range x.seeds {
		x.seeds[i] = maphash.MakeSeed()
	}
	for i := range x.shards {
		x.shards[i] = newIndexShard(x.seeds[0], &x.texts)
	}
	return x
}

// A DueClass is the class of a resource.
type DueClass uint8

// The classes.
const (
	ClassNotReady DueClass = iota
	ClassReady
	// ClassUrgent resources come before all others that are due.
	ClassUrgent
)

// PutNewest stores the newest state of a resource, as a change feed reports it: its due time and its
// class. A zero due means now.
func (x *DueIndex) PutNewest(id []byte, due time.Time, class DueClass) {
	key, dueStep := x.newKey(id), x.clock.stepOfDueOrNow(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	shard := &x.shards[key.shard]
	slot, _ := shard.findOrInsert(key, id)
	shard.overwriteEntry(slot, dueStep, class)
}

// MergeFromSweep stores what a sweep read about a resource. If another source has updated the
// resource since the sweep began, only an earlier time counts. A zero due means now.
func (x *DueIndex) MergeFromSweep(id []byte, due time.Time, class DueClass, sweep uint8) {
	key, dueStep := x.newKey(id), x.clock.stepOfDueOrNow(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	shard := &x.shards[key.shard]
	slot, found := shard.findOrInsert(key, id)
	mayBeOutdated := sweep != x.sweep || shard.state[slot]&slotTouched != 0
	if found && mayBeOutdated {
		shard.bringDueForward(slot, dueStep)
		return
	}
	shard.overwriteEntry(slot, dueStep, class)
}

// BeginSweep starts a sweep. An earlier sweep can then no longer be ended.
func (x *DueIndex) BeginSweep() (sweep uint8) {
	x.mu.Lock()
	x.sweep++
	sweep = x.sweep
	x.mu.Unlock()
	for i := range x.shards {
		x.clearTouchedFlags(i)
	}
	return sweep
}

// clearTouchedFlags starts a sweep in a shard. A PutNewest that comes earlier in this shard counts as
// before the sweep, because no page has been read yet.
func (x *DueIndex) clearTouchedFlags(shard int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	state := x.shards[shard].state
	for i := range state {
		state[i] &^= slotTouched
	}
}

// EndSweepAndRemoveUnseen ends a complete sweep. It removes the resources that no source has
// updated since the sweep began, and returns their number. It does nothing if another sweep was
// started meanwhile.
func (x *DueIndex) EndSweepAndRemoveUnseen(sweep uint8) (removed int) {
	for i := range x.shards {
		removed += x.removeUntouchedInShard(i, sweep)
	}
	return removed
}

func (x *DueIndex) removeUntouchedInShard(shard int, sweep uint8) (removed int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if sweep != x.sweep {
		return 0
	}
	s := &x.shards[shard]
	for i := 0; i < len(s.state); {
		isUntouched := s.state[i]&(slotTaken|slotTouched) == slotTaken
		if !isUntouched {
			i++
			continue
		}
		s.deleteWithBackwardShift(i) // and check the entry that moved here
		removed++
	}
	s.shrinkIfSparse()
	return removed
}

// TakeOverdue calls visit for overdue resources: the urgent ones, then those that are overdue
// longest, and at most limit of them. They are due once more at retryAt, which is after now, unless
// a source updates them first: a lost lookup is repeated. It returns how many they are, and what is
// overdue besides.
//
// It takes time only for the shards that have due resources, and one comparison for each of the
// others.
func (x *DueIndex) TakeOverdue(
	now time.Time, limit int, retryAt time.Time, visit func(id string),
) (taken int, remaining OverdueCount) {
	nowStep, retryStep := x.clock.roundDownToStep(now), x.clock.roundUpToStep(retryAt)
	ids, remaining := x.takeOverdueIDs(nowStep, limit, retryStep)
	for _, id := range ids {
		visit(id)
	}
	return len(ids), remaining
}

// OverdueCount counts the overdue resources that were not taken.
type OverdueCount struct{ Ready, NotReady int }

// Total returns their total number.
func (l OverdueCount) Total() (resources int) { return l.Ready + l.NotReady }

// takeOverdueIDs implements TakeOverdue under the lock.
func (x *DueIndex) takeOverdueIDs(nowStep uint32, limit int, retryStep uint32) (ids []string, remaining OverdueCount) {
	x.mu.Lock()
	defer x.mu.Unlock()
	queue := overdueQueue{shards: &x.shards, limit: max(0, limit), before: neverDue}
	for i := range x.shards {
		if x.shards[i].earliest <= nowStep {
			queue.countAndKeepMostOverdue(i, nowStep)
		}
	}
	queue.sortAndTrimToLimit()

	remaining = queue.overdue
	for _, taken := range queue.found {
		shard := &x.shards[taken.shard]
		if shard.state[taken.slot]&slotReady != 0 {
			remaining.Ready--
		} else {
			remaining.NotReady--
		}
		shard.state[taken.slot] |= slotHanded
		shard.due[taken.slot] = retryStep
		shard.earliest = min(shard.earliest, retryStep)
		ids = append(ids, shard.idInSlot(int(taken.slot)))
	}
	return ids, remaining
}

// ListNotDue returns the resources that are not due yet, and when they will be. The index is not locked
// while the caller processes them.
func (x *DueIndex) ListNotDue(now time.Time) iter.Seq2[string, time.Time] {
	return func(yield func(string, time.Time) bool) {
		nowStep := x.clock.roundDownToStep(now)
		for shard := range x.shards {
			for _, entry := range x.listNotDueInShard(shard, nowStep) {
				if !yield(entry.id, x.clock.timeOfStep(entry.dueStep)) {
					return
				}
			}
		}
	}
}

// A waitingEntry is not due yet.
type waitingEntry struct {
	id      string
	dueStep uint32
}

func (x *DueIndex) listNotDueInShard(shard int, nowStep uint32) (entries []waitingEntry) {
	x.mu.Lock()
	defer x.mu.Unlock()
	s := &x.shards[shard]
	for slot, dueStep := range s.due {
		if s.state[slot]&slotTaken != 0 && dueStep > nowStep {
			entries = append(entries, waitingEntry{id: s.idInSlot(slot), dueStep: dueStep})
		}
	}
	return entries
}

// MergeLookupResult stores the result of a lookup of a resource that TakeOverdue returned with the
// same retryAt. The result replaces the entry unless another source has updated it since; then the
// earlier time wins. A resource that was removed meanwhile stays removed. A zero due means now.
func (x *DueIndex) MergeLookupResult(id []byte, due time.Time, class DueClass, retryAtWhenTaken time.Time) {
	key, dueStep := x.newKey(id), x.clock.stepOfDueOrNow(due)
	x.mu.Lock()
	defer x.mu.Unlock()
	shard := &x.shards[key.shard]
	slot, found := shard.findKeyOrFreeSlot(key)
	if !found {
		return
	}
	if shard.isUnchangedSinceTaken(slot, x.clock.roundUpToStep(retryAtWhenTaken)) {
		shard.overwriteEntry(slot, dueStep, class)
		return
	}
	shard.state[slot] |= slotTouched // a lookup proves existence as well as a page does
	shard.bringDueForward(slot, dueStep)
}

// RemoveUnlessUpdated removes a resource that a lookup did not find. TakeOverdue must have returned
// it with the same retryAt. RemoveUnlessUpdated does nothing if another source has updated the
// resource since: it may have come back.
func (x *DueIndex) RemoveUnlessUpdated(id []byte, retryAtWhenTaken time.Time) (removed bool) {
	key := x.newKey(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	shard := &x.shards[key.shard]
	slot, found := shard.findKeyOrFreeSlot(key)
	if !found || !shard.isUnchangedSinceTaken(slot, x.clock.roundUpToStep(retryAtWhenTaken)) {
		return false
	}
	shard.deleteWithBackwardShift(slot)
	shard.shrinkIfSparse()
	return true
}

// RemoveResource removes a resource, if it exists.
func (x *DueIndex) RemoveResource(id []byte) {
	key := x.newKey(id)
	x.mu.Lock()
	defer x.mu.Unlock()
	shard := &x.shards[key.shard]
	if slot, found := shard.findKeyOrFreeSlot(key); found {
		shard.deleteWithBackwardShift(slot)
		shard.shrinkIfSparse()
	}
}

// Len returns the number of resources.
func (x *DueIndex) Len() int { return x.sumOverShards(func(s *indexShard) int { return s.n }) }

// CountReady returns the number of ready resources.
func (x *DueIndex) CountReady() int {
	return x.sumOverShards(func(s *indexShard) int { return s.ready })
}

// EstimateMemoryBytes returns the memory that the index holds. The share of ids that are not UUIDs
// is an estimate.
func (x *DueIndex) EstimateMemoryBytes() int {
	tables := x.sumOverShards((*indexShard).countBytes)
	x.mu.Lock()
	defer x.mu.Unlock()
	return int(unsafe.Sizeof(*x)) + tables + x.texts.estimateBytes()
}

// sumOverShards adds up a number of each shard.
func (x *DueIndex) sumOverShards(count func(*indexShard) int) (sum int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range x.shards {
		sum += count(&x.shards[i])
	}
	return sum
}

// A dueClock converts times to steps.
type dueClock struct {
	born time.Time // has a monotonic clock reading, if there is one
}

// stepOfDueOrNow returns the first step that is not before a due time.
func (c dueClock) stepOfDueOrNow(due time.Time) (step uint32) {
	if due.IsZero() {
		due = time.Now()
	}
	return c.roundUpToStep(due)
}

// roundUpToStep returns the first step that is not before a time.
func (c dueClock) roundUpToStep(t time.Time) (step uint32) {
	return c.roundDownToStep(t.Add(dueResolution - 1))
}

// roundDownToStep returns the last step that is not after a time.
func (c dueClock) roundDownToStep(t time.Time) (step uint32) {
	sinceBirth := t.Sub(c.born)
	steps := int64(sinceBirth / dueResolution)
	if sinceBirth%dueResolution < 0 {
		steps-- // a division rounds towards zero
	}
	steps += int64(birthStep)
	return uint32(min(max(0, steps), int64(lastStep)))
}

// timeOfStep returns the time of a step.
func (c dueClock) timeOfStep(step uint32) time.Time {
	return c.born.Add(time.Duration(int64(step)-int64(birthStep)) * dueResolution)
}
