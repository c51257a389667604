// Package flat is a hash table in one piece.
//
// It has no pointers for the garbage collector to follow, takes half the room
// of a map, and gives room back. That is what a sentinel of a million resources
// in a small pod remembers them in.
//
// It probes linearly. Keys are hashes, so their low bits say where an entry
// would best stand; whoever can choose them can make it slow.
package flat

// A Map has values of type V by key. The zero value is empty. It is not safe
// for concurrent use.
type Map[V any] struct {
	slots []slot[V] // a power of two of them, or none
	n     int       // how many are taken
}

// A slot is free if its key is 0.
type slot[V any] struct {
	key   uint64
	value V
}

// smallest is how many slots a map has at least, once it has any.
const smallest = 1 << 8

// Len is how many entries there are.
func (m *Map[V]) Len() int { return m.n }

// Get returns the value of a key, nil if there is none. It is valid until the
// map changes.
func (m *Map[V]) Get(key uint64) *V {
	if m.n == 0 {
		return nil
	}
	if s := &m.slots[m.findSlot(key)]; s.key == key {
		return &s.value
	}
	return nil
}

// Add makes a zero value for a key, which is not 0 and not there yet, and
// returns it as Get does.
func (m *Map[V]) Add(key uint64) *V {
	if m.n >= len(m.slots)/8*7 {
		m.resizeTo(max(smallest, 2*len(m.slots)))
	}
	s := &m.slots[m.findSlot(key)]
	s.key = key
	m.n++
	return &s.value
}

// Remove removes the entry of a key, if there is one.
func (m *Map[V]) Remove(key uint64) {
	if m.n == 0 {
		return
	}
	if i := m.findSlot(key); m.slots[i].key == key {
		m.removeSlot(i)
	}
}

// All yields the value of every entry. The map must not change meanwhile.
func (m *Map[V]) All(yield func(*V) bool) {
	for i := range m.slots {
		if s := &m.slots[i]; s.key != 0 && !yield(&s.value) {
			return
		}
	}
}

// RemoveNear removes some entry, one that stands near where that of a key
// would. There must be one.
func (m *Map[V]) RemoveNear(key uint64) {
	i := m.homeSlot(key)
	for m.slots[i].key == 0 {
		i = m.nextSlot(i)
	}
	m.removeSlot(i)
}

// RemoveIf removes the entries that a function is true for.
func (m *Map[V]) RemoveIf(stale func(*V) bool) {
	for i := 0; i < len(m.slots); {
		if s := &m.slots[i]; s.key != 0 && stale(&s.value) {
			m.removeSlot(i) // and look at what has moved here
			continue
		}
		i++
	}
	size := len(m.slots)
	for size > smallest && m.n < size/8 {
		size /= 2
	}
	if size < len(m.slots) {
		m.resizeTo(size)
	}
}

// findSlot is where the entry of a key stands, or else the free slot for it.
func (m *Map[V]) findSlot(key uint64) int {
	i := m.homeSlot(key)
	for m.slots[i].key != key && m.slots[i].key != 0 {
		i = m.nextSlot(i)
	}
	return i
}

func (m *Map[V]) homeSlot(key uint64) int { return int(key & uint64(len(m.slots)-1)) } //nolint:gosec // within the slots

func (m *Map[V]) nextSlot(i int) int { return (i + 1) & (len(m.slots) - 1) }

func (m *Map[V]) resizeTo(size int) {
	old := m.slots
	m.slots = make([]slot[V], size)
	for _, s := range old {
		if s.key != 0 {
			m.slots[m.findSlot(s.key)] = s
		}
	}
}

// removeSlot frees a slot, and moves up what would not be found behind a free one.
func (m *Map[V]) removeSlot(i int) {
	mask := len(m.slots) - 1
	for j := m.nextSlot(i); m.slots[j].key != 0; j = m.nextSlot(j) {
		if (j-m.homeSlot(m.slots[j].key))&mask >= (j-i)&mask {
			m.slots[i], i = m.slots[j], j
		}
	}
	m.slots[i] = slot[V]{}
	m.n--
}
