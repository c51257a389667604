package state

// A FlatMap holds values of type V by key, in a single allocation. The zero value is empty. It is
// not safe for concurrent use.
//
// It has no pointers for the garbage collector to follow, takes half the memory of a map, and
// shrinks. A sentinel of a million resources in a small pod uses it to remember them.
//
// It probes linearly. Keys must be hashes, because their low bits determine the slot; a caller that
// can choose keys can make it slow.
type FlatMap[V any] struct {
	slots []flatSlot[V] // a power of two of them, or none
	n     int           // number of used slots
}

// A flatSlot is free if its key is 0.
type flatSlot[V any] struct {
	key   uint64
	value V
}

// minFlatSlots is the minimum number of slots of a map that has any.
const minFlatSlots = 1 << 8

// Len returns the number of entries.
func (m *FlatMap[V]) Len() int { return m.n }

// Get returns the value of a key, or nil if the key is missing. It is valid until the map changes.
func (m *FlatMap[V]) Get(key uint64) *V {
	if m.n == 0 {
		return nil
	}
	if s := &m.slots[m.findKeyOrFreeSlot(key)]; s.key == key {
		return &s.value
	}
	return nil
}

// InsertZero inserts a zero value for a key and returns it as Get does. The key must not be 0 and
// must not exist yet.
func (m *FlatMap[V]) InsertZero(key uint64) *V {
	if m.n >= len(m.slots)/8*7 {
		m.rehashTo(max(minFlatSlots, 2*len(m.slots)))
	}
	s := &m.slots[m.findKeyOrFreeSlot(key)]
	s.key = key
	m.n++
	return &s.value
}

// RemoveKey removes the entry of a key, if it exists.
func (m *FlatMap[V]) RemoveKey(key uint64) {
	if m.n == 0 {
		return
	}
	if i := m.findKeyOrFreeSlot(key); m.slots[i].key == key {
		m.deleteWithBackwardShift(i)
	}
}

// AllValues yields the value of every entry. The map must not change meanwhile.
func (m *FlatMap[V]) AllValues(yield func(*V) bool) {
	for i := range m.slots {
		if s := &m.slots[i]; s.key != 0 && !yield(&s.value) {
			return
		}
	}
}

// EvictOneNear removes some entry close to the home slot of a key. The map must not be empty.
func (m *FlatMap[V]) EvictOneNear(key uint64) {
	i := m.homeSlot(key)
	for m.slots[i].key == 0 {
		i = m.nextSlot(i)
	}
	m.deleteWithBackwardShift(i)
}

// RemoveIf removes the entries for which a function returns true.
func (m *FlatMap[V]) RemoveIf(remove func(*V) bool) {
	for i := 0; i < len(m.slots); {
		s := &m.slots[i]
		if s.key == 0 || !remove(&s.value) {
			i++
			continue
		}
		m.deleteWithBackwardShift(i) // and check the entry that moved here
	}
	size := len(m.slots)
	for size > minFlatSlots && m.n < size/8 {
		size /= 2
	}
	if size < len(m.slots) {
		m.rehashTo(size)
	}
}

// findKeyOrFreeSlot returns the slot of a key, or the free slot for it.
func (m *FlatMap[V]) findKeyOrFreeSlot(key uint64) (slot int) {
	i := m.homeSlot(key)
	for m.slots[i].key != key && m.slots[i].key != 0 {
		i = m.nextSlot(i)
	}
	return i
}

func (m *FlatMap[V]) homeSlot(key uint64) (slot int) { return int(key & uint64(len(m.slots)-1)) } //nolint:gosec // within the slots

func (m *FlatMap[V]) nextSlot(slot int) int { return (slot + 1) & (len(m.slots) - 1) }

func (m *FlatMap[V]) rehashTo(slotCount int) {
	old := m.slots
	m.slots = make([]flatSlot[V], slotCount)
	for _, s := range old {
		if s.key != 0 {
			m.slots[m.findKeyOrFreeSlot(s.key)] = s
		}
	}
}

// deleteWithBackwardShift frees a slot, and moves up entries that could not be found behind a free one.
func (m *FlatMap[V]) deleteWithBackwardShift(slot int) {
	mask := len(m.slots) - 1
	distance := func(from, to int) int { return (to - from) & mask }
	for next := m.nextSlot(slot); m.slots[next].key != 0; next = m.nextSlot(next) {
		isFoundThroughSlot := distance(m.homeSlot(m.slots[next].key), next) >= distance(slot, next)
		if isFoundThroughSlot {
			m.slots[slot] = m.slots[next]
			slot = next
		}
	}
	m.slots[slot] = flatSlot[V]{}
	m.n--
}
