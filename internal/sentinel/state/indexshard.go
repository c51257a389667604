package state

import (
	"hash/maphash"
	"maps"
	"math/bits"
	"slices"
	"unsafe"
)

// An indexShard is a table in three columns, without pointers for the garbage collector to follow.
// It probes linearly from the slot that the hash of an id gives. Ids cannot be chosen to collide,
// because the hash has a secret seed.
type indexShard struct {
	ids   [][16]byte
	due   []uint32 // neverDue in free slots, so that a scan reads only this column
	state []slotState
	seed  maphash.Seed
	texts *textIDs // shared by all shards
	n     int
	ready int

	// earliest is a time before which nothing is due. All resources may be due later, which the
	// next scan finds out.
	earliest uint32
}

type slotState uint8

const (
	slotTaken   slotState = 1 << iota // the slot holds a resource
	slotReady                         // the resource is ready
	slotTouched                       // a source has updated it since the sweep began
	slotHanded                        // TakeOverdue returned it, and no source has updated it since
	slotNamed                         // its id is not a UUID: the slot has a hash of it
	slotUrgent                        // it comes before others
)

const (
	// minShardSlots is the minimum number of slots of a shard that has any. A shard doubles its
	// slots while there are at most small of them. Each shard then has a few more slots than the
	// one before, so that not all grow at the same number of resources.
	minShardSlots   = 4
	smallShardSlots = 32
	// At most 85 % of the slots are used. A table that grows by a fifth has at least 70 % of them
	// in use afterwards.
	maxShardFill = 85
)

func newIndexShard(seed maphash.Seed, texts *textIDs) indexShard {
	return indexShard{seed: seed, texts: texts, earliest: neverDue}
}

// findOrInsert finds the resource of a key, or inserts it.
func (s *indexShard) findOrInsert(key indexKey, id []byte) (slot int, found bool) {
	if slot, found = s.findKeyOrFreeSlot(key); found {
		return slot, true
	}
	if (s.n+1)*100 > len(s.ids)*maxShardFill {
		s.rehashTo(computeGrownSize(len(s.ids), key.shard))
		slot, _ = s.findKeyOrFreeSlot(key)
	}
	s.ids[slot] = key.id
	s.state[slot] = slotTaken | key.kind
	if key.kind == slotNamed {
		s.texts.addID(key.id, string(id))
	}
	s.n++
	return slot, false
}

// computeGrownSize returns the next number of slots of a shard.
func computeGrownSize(slots int, shard uint8) (grownSlots int) {
	if slots >= smallShardSlots {
		return slots * 6 / 5
	}
	stagger := smallShardSlots / 5 * int(shard) / indexShards
	return max(minShardSlots, min(2*slots, smallShardSlots+stagger))
}

// findKeyOrFreeSlot returns the slot of a key, or the free slot for it. A shard without slots has
// neither.
func (s *indexShard) findKeyOrFreeSlot(key indexKey) (slot int, found bool) {
	if len(s.ids) == 0 {
		return 0, false
	}
	slot = s.homeSlot(key.id)
	for s.state[slot]&slotTaken != 0 {
		if s.ids[slot] == key.id && s.state[slot]&slotNamed == key.kind {
			return slot, true
		}
		slot = s.nextSlot(slot)
	}
	return slot, false
}

// isUnchangedSinceTaken reports whether TakeOverdue returned the resource with this retry time, and no
// source has updated it since.
func (s *indexShard) isUnchangedSinceTaken(slot int, retryStep uint32) bool {
	return s.state[slot]&slotHanded != 0 && s.due[slot] == retryStep
}

// overwriteEntry overwrites the due time and the class of a resource, and marks it as touched.
func (s *indexShard) overwriteEntry(slot int, dueStep uint32, class DueClass) {
	if s.state[slot]&slotReady != 0 {
		s.ready--
	}
	s.state[slot] = s.state[slot]&(slotTaken|slotNamed) | slotTouched
	switch class {
	case ClassReady:
		s.state[slot] |= slotReady
		s.ready++
	case ClassUrgent:
		s.state[slot] |= slotUrgent
	case ClassNotReady: // has no flag
	}
	s.due[slot] = dueStep
	s.earliest = min(s.earliest, dueStep)
}

// bringDueForward makes a resource due at a time, unless it is due earlier.
func (s *indexShard) bringDueForward(slot int, dueStep uint32) {
	s.due[slot] = min(s.due[slot], dueStep)
	s.earliest = min(s.earliest, dueStep)
}

// deleteWithBackwardShift frees a slot, and moves up entries that could not be found behind a free one.
func (s *indexShard) deleteWithBackwardShift(slot int) {
	if s.state[slot]&slotReady != 0 {
		s.ready--
	}
	if s.state[slot]&slotNamed != 0 {
		s.texts.removeIDAndShrink(s.ids[slot])
	}
	size := len(s.ids)
	distance := func(from, to int) int { return (to - from + size) % size }
	for next := s.nextSlot(slot); s.state[next]&slotTaken != 0; next = s.nextSlot(next) {
		isFoundThroughSlot := distance(s.homeSlot(s.ids[next]), next) >= distance(slot, next)
		if isFoundThroughSlot {
			s.ids[slot], s.due[slot], s.state[slot] = s.ids[next], s.due[next], s.state[next]
			slot = next
		}
	}
	s.ids[slot], s.due[slot], s.state[slot] = [16]byte{}, neverDue, 0
	s.n--
}

// shrinkIfSparse shrinks a shard if less than half of it is used.
func (s *indexShard) shrinkIfSparse() {
	switch {
	case s.n == 0:
		*s = newIndexShard(s.seed, s.texts)
	case len(s.ids) > 2*smallShardSlots && s.n < len(s.ids)/2:
		s.rehashTo(s.n*100/maxShardFill*6/5 + 1)
	}
}

// rehashTo resizes a shard to that many slots, or the few more that fit into the allocated
// memory.
func (s *indexShard) rehashTo(minSlots int) {
	old := *s
	s.ids = slices.Grow([][16]byte(nil), minSlots)
	slots := cap(s.ids)
	s.ids = s.ids[:slots]
	s.due = slices.Grow([]uint32(nil), slots)[:slots]
	s.state = slices.Grow([]slotState(nil), slots)[:slots]
	for slot := range s.due {
		s.due[slot] = neverDue
	}
	for oldSlot, state := range old.state {
		if state&slotTaken == 0 {
			continue
		}
		slot := s.homeSlot(old.ids[oldSlot])
		for s.state[slot] != 0 {
			slot = s.nextSlot(slot)
		}
		s.ids[slot], s.due[slot], s.state[slot] = old.ids[oldSlot], old.due[oldSlot], state
	}
}

// homeSlot returns the preferred slot of an id: its hash, scaled to the number of slots, which need
// not be a power of two.
func (s *indexShard) homeSlot(id [16]byte) (slot int) {
	high, _ := bits.Mul64(maphash.Bytes(s.seed, id[:]), uint64(len(s.ids)))
	return int(high) //nolint:gosec // less than the slots
}

// idInSlot returns the id of the resource in a slot, as it was given.
func (s *indexShard) idInSlot(slot int) string {
	if s.state[slot]&slotNamed != 0 {
		return s.texts.byHash[s.ids[slot]]
	}
	return formatUUID(s.ids[slot])
}

func (s *indexShard) countBytes() int { return 16*cap(s.ids) + 4*cap(s.due) + cap(s.state) }

func (s *indexShard) nextSlot(slot int) int {
	if slot+1 == len(s.ids) {
		return 0
	}
	return slot + 1
}

// textIDs holds the ids that are not UUIDs, by their hash.
type textIDs struct {
	byHash map[[16]byte]string
	widest int // largest number of entries so far: a map never shrinks
	chars  int
}

func (t *textIDs) addID(hash [16]byte, id string) {
	if t.byHash == nil {
		t.byHash = map[[16]byte]string{}
	}
	t.byHash[hash] = id
	t.widest = max(t.widest, len(t.byHash))
	t.chars += len(id)
}

func (t *textIDs) removeIDAndShrink(hash [16]byte) {
	t.chars -= len(t.byHash[hash])
	delete(t.byHash, hash)
	if t.widest < 2*smallShardSlots || len(t.byHash) > t.widest/4 {
		return
	}
	smaller := make(map[[16]byte]string, 2*len(t.byHash))
	maps.Copy(smaller, t.byHash)
	t.byHash, t.widest = smaller, 2*len(smaller)
}

func (t *textIDs) estimateBytes() int {
	// Maps are between 7/16 and 7/8 full.
	return t.chars + t.widest*3/2*int(unsafe.Sizeof([16]byte{})+unsafe.Sizeof(""))
}
