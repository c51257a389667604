package index

import (
	"maps"
	"math/bits"
	"slices"
	"unsafe"
)

// A shard is a table in three columns, without pointers for the garbage collector to follow. It
// probes linearly from the slot that the hash of an id gives. Ids cannot be chosen to collide,
// because the hash has a secret seed.
type shard struct {
	ids   [][16]byte
	due   []uint32 // never in free slots, so that a scan reads only this column
	state []state
	n     int

	// earliest is a time before which nothing is due. All resources may be due later, which the
	// next scan finds out.
	earliest uint32
}

type state uint8

const (
	taken   state = 1 << iota // the slot holds a resource
	ready                     // the resource is ready
	touched                   // a source has updated it since the sweep began
	handed                    // Take returned it, and no source has updated it since
	named                     // its id is not a UUID: the slot has a hash of it
	urgent                    // it comes before others
)

const (
	// smallest is the minimum number of slots of a shard that has any. A shard doubles its slots
	// while there are at most small of them. Each shard then has a few more slots than the one
	// before, so that not all grow at the same number of resources.
	smallest = 4
	small    = 32
	// At most 85 % of the slots are used. A table that grows by a fifth has at least 70 % of them
	// in use afterwards.
	fullest = 85
)

// findOrInsert finds the resource of a key, or inserts it.
func (x *Index) findOrInsert(k key, id []byte) (s *shard, i int, found bool) {
	s = &x.shards[k.shard]
	if i, found = x.findSlot(s, k); found {
		return s, i, true
	}
	if (s.n+1)*100 > len(s.ids)*fullest {
		x.resizeShard(s, nextSize(len(s.ids), k.shard))
		i, _ = x.findSlot(s, k)
	}
	s.ids[i], s.state[i] = k.id, taken|k.kind
	if k.kind == named {
		x.texts.addText(k.id, string(id))
	}
	s.n++
	x.n++
	return s, i, false
}

// nextSize returns the next number of slots of a shard.
func nextSize(size int, shard uint8) int {
	if size < small {
		return max(smallest, min(2*size, small+small/5*int(shard)/shards))
	}
	return size * 6 / 5
}

// findSlot returns the slot of a key, or the free slot for it. A shard without slots has neither.
func (x *Index) findSlot(s *shard, k key) (i int, found bool) {
	if len(s.ids) == 0 {
		return 0, false
	}
	i = x.homeSlot(s, k.id)
	for s.state[i]&taken != 0 {
		if s.ids[i] == k.id && s.state[i]&named == k.kind {
			return i, true
		}
		i = s.nextSlot(i)
	}
	return i, false
}

// writeEntry overwrites the entry of a resource.
func (x *Index) writeEntry(s *shard, i int, due uint32, class Class) {
	if s.state[i]&ready != 0 {
		x.ready--
	}
	s.state[i] = s.state[i]&(taken|named) | touched
	switch class {
	case Ready:
		s.state[i] |= ready
		x.ready++
	case Urgent:
		s.state[i] |= urgent
	case NotReady:
	}
	s.due[i] = due
	s.earliest = min(s.earliest, due)
}

// bringForward makes a resource due at a time, unless it is due earlier.
func (s *shard) bringForward(i int, due uint32) {
	s.due[i] = min(s.due[i], due)
	s.earliest = min(s.earliest, due)
}

// removeSlot frees a slot, and moves up entries that could not be found behind a free one.
func (x *Index) removeSlot(s *shard, i int) {
	if s.state[i]&ready != 0 {
		x.ready--
	}
	if s.state[i]&named != 0 {
		x.texts.removeText(s.ids[i])
	}
	size := len(s.ids)
	distance := func(from, to int) int { return (to - from + size) % size }
	for j := s.nextSlot(i); s.state[j]&taken != 0; j = s.nextSlot(j) {
		if distance(x.homeSlot(s, s.ids[j]), j) >= distance(i, j) {
			s.ids[i], s.due[i], s.state[i] = s.ids[j], s.due[j], s.state[j]
			i = j
		}
	}
	s.ids[i], s.due[i], s.state[i] = [16]byte{}, never, 0
	s.n--
	x.n--
}

// shrinkShard shrinks a shard if less than half of it is used.
func (x *Index) shrinkShard(s *shard) {
	switch {
	case s.n == 0:
		*s = shard{earliest: never}
	case len(s.ids) > 2*small && s.n < len(s.ids)/2:
		x.resizeShard(s, s.n*100/fullest*6/5+1)
	}
}

// resizeShard resizes a shard to that many slots, or the few more that fit into the allocated
// memory.
func (x *Index) resizeShard(s *shard, size int) {
	old := *s
	s.ids = slices.Grow([][16]byte(nil), size)
	size = cap(s.ids)
	s.ids = s.ids[:size]
	s.due = slices.Grow([]uint32(nil), size)[:size]
	s.state = slices.Grow([]state(nil), size)[:size]
	for i := range s.due {
		s.due[i] = never
	}
	for j, st := range old.state {
		if st&taken == 0 {
			continue
		}
		i := x.homeSlot(s, old.ids[j])
		for s.state[i] != 0 {
			i = s.nextSlot(i)
		}
		s.ids[i], s.due[i], s.state[i] = old.ids[j], old.due[j], st
	}
}

// homeSlot returns the preferred slot of an id: its hash, scaled to the number of slots, which need
// not be a power of two.
func (x *Index) homeSlot(s *shard, id [16]byte) int {
	high, _ := bits.Mul64(x.hashID(id), uint64(len(s.ids)))
	return int(high) //nolint:gosec // less than the slots
}

func (s *shard) nextSlot(i int) int {
	if i++; i < len(s.ids) {
		return i
	}
	return 0
}

// texts holds the ids that are not UUIDs, by their hash.
type texts struct {
	byHash map[[16]byte]string
	widest int // largest number of entries so far: a map never shrinks
	chars  int
}

func (t *texts) addText(hash [16]byte, id string) {
	if t.byHash == nil {
		t.byHash = map[[16]byte]string{}
	}
	t.byHash[hash] = id
	t.widest = max(t.widest, len(t.byHash))
	t.chars += len(id)
}

func (t *texts) removeText(hash [16]byte) {
	t.chars -= len(t.byHash[hash])
	delete(t.byHash, hash)
	if t.widest < 2*small || len(t.byHash) > t.widest/4 {
		return
	}
	smaller := make(map[[16]byte]string, 2*len(t.byHash))
	maps.Copy(smaller, t.byHash)
	t.byHash, t.widest = smaller, 2*len(smaller)
}

func (t *texts) sizeBytes() int {
	// Maps are between 7/16 and 7/8 full.
	return t.chars + t.widest*3/2*int(unsafe.Sizeof([16]byte{})+unsafe.Sizeof(""))
}
