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
	slotHanded                        // Take returned it, and no source has updated it since
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
func (s *indexShard) findOrInsert(k indexKey, id []byte) (i int, found bool) {
	if i, found = s.findSlot(k); found {
		return i, true
	}
	if (s.n+1)*100 > len(s.ids)*maxShardFill {
		s.resize(nextShardSize(len(s.ids), k.shard))
		i, _ = s.findSlot(k)
	}
	s.ids[i], s.state[i] = k.id, slotTaken|k.kind
	if k.kind == slotNamed {
		s.texts.addText(k.id, string(id))
	}
	s.n++
	return i, false
}

// nextShardSize returns the next number of slots of a shard.
func nextShardSize(size int, shard uint8) int {
	if size < smallShardSlots {
		return max(minShardSlots, min(2*size, smallShardSlots+smallShardSlots/5*int(shard)/indexShards))
	}
	return size * 6 / 5
}

// findSlot returns the slot of a key, or the free slot for it. A shard without slots has neither.
func (s *indexShard) findSlot(k indexKey) (i int, found bool) {
	if len(s.ids) == 0 {
		return 0, false
	}
	i = s.homeSlot(k.id)
	for s.state[i]&slotTaken != 0 {
		if s.ids[i] == k.id && s.state[i]&slotNamed == k.kind {
			return i, true
		}
		i = s.nextSlot(i)
	}
	return i, false
}

// writeEntry overwrites the entry of a resource.
func (s *indexShard) writeEntry(i int, due uint32, class DueClass) {
	if s.state[i]&slotReady != 0 {
		s.ready--
	}
	s.state[i] = s.state[i]&(slotTaken|slotNamed) | slotTouched
	switch class {
	case ClassReady:
		s.state[i] |= slotReady
		s.ready++
	case ClassUrgent:
		s.state[i] |= slotUrgent
	case ClassNotReady:
	}
	s.due[i] = due
	s.earliest = min(s.earliest, due)
}

// bringForward makes a resource due at a time, unless it is due earlier.
func (s *indexShard) bringForward(i int, due uint32) {
	s.due[i] = min(s.due[i], due)
	s.earliest = min(s.earliest, due)
}

// removeSlot frees a slot, and moves up entries that could not be found behind a free one.
func (s *indexShard) removeSlot(i int) {
	if s.state[i]&slotReady != 0 {
		s.ready--
	}
	if s.state[i]&slotNamed != 0 {
		s.texts.removeText(s.ids[i])
	}
	size := len(s.ids)
	distance := func(from, to int) int { return (to - from + size) % size }
	for j := s.nextSlot(i); s.state[j]&slotTaken != 0; j = s.nextSlot(j) {
		if distance(s.homeSlot(s.ids[j]), j) >= distance(i, j) {
			s.ids[i], s.due[i], s.state[i] = s.ids[j], s.due[j], s.state[j]
			i = j
		}
	}
	s.ids[i], s.due[i], s.state[i] = [16]byte{}, neverDue, 0
	s.n--
}

// shrinkIfSparse shrinks a shard if less than half of it is used.
func (s *indexShard) shrinkIfSparse() {
	switch {
	case s.n == 0:
		*s = newIndexShard(s.seed, s.texts)
	case len(s.ids) > 2*smallShardSlots && s.n < len(s.ids)/2:
		s.resize(s.n*100/maxShardFill*6/5 + 1)
	}
}

// resize resizes a shard to that many slots, or the few more that fit into the allocated
// memory.
func (s *indexShard) resize(size int) {
	old := *s
	s.ids = slices.Grow([][16]byte(nil), size)
	size = cap(s.ids)
	s.ids = s.ids[:size]
	s.due = slices.Grow([]uint32(nil), size)[:size]
	s.state = slices.Grow([]slotState(nil), size)[:size]
	for i := range s.due {
		s.due[i] = neverDue
	}
	for j, st := range old.state {
		if st&slotTaken == 0 {
			continue
		}
		i := s.homeSlot(old.ids[j])
		for s.state[i] != 0 {
			i = s.nextSlot(i)
		}
		s.ids[i], s.due[i], s.state[i] = old.ids[j], old.due[j], st
	}
}

// homeSlot returns the preferred slot of an id: its hash, scaled to the number of slots, which need
// not be a power of two.
func (s *indexShard) homeSlot(id [16]byte) int {
	high, _ := bits.Mul64(maphash.Bytes(s.seed, id[:]), uint64(len(s.ids)))
	return int(high) //nolint:gosec // less than the slots
}

// idOf returns the id of the resource in a slot, as it was given.
func (s *indexShard) idOf(i int) string {
	if s.state[i]&slotNamed != 0 {
		return s.texts.byHash[s.ids[i]]
	}
	return formatUUID(s.ids[i])
}

func (s *indexShard) sizeBytes() int { return 16*cap(s.ids) + 4*cap(s.due) + cap(s.state) }

func (s *indexShard) nextSlot(i int) int {
	if i++; i < len(s.ids) {
		return i
	}
	return 0
}

// textIDs holds the ids that are not UUIDs, by their hash.
type textIDs struct {
	byHash map[[16]byte]string
	widest int // largest number of entries so far: a map never shrinks
	chars  int
}

func (t *textIDs) addText(hash [16]byte, id string) {
	if t.byHash == nil {
		t.byHash = map[[16]byte]string{}
	}
	t.byHash[hash] = id
	t.widest = max(t.widest, len(t.byHash))
	t.chars += len(id)
}

func (t *textIDs) removeText(hash [16]byte) {
	t.chars -= len(t.byHash[hash])
	delete(t.byHash, hash)
	if t.widest < 2*smallShardSlots || len(t.byHash) > t.widest/4 {
		return
	}
	smaller := make(map[[16]byte]string, 2*len(t.byHash))
	maps.Copy(smaller, t.byHash)
	t.byHash, t.widest = smaller, 2*len(smaller)
}

func (t *textIDs) sizeBytes() int {
	// Maps are between 7/16 and 7/8 full.
	return t.chars + t.widest*3/2*int(unsafe.Sizeof([16]byte{})+unsafe.Sizeof(""))
}
