package sentinel

// An index is a hash table of memory entries in one piece: no pointers for the
// garbage collector to follow, and half the room of a map, which counts in a
// pod that watches a million resources. The zero value is empty.
//
// It probes linearly. Keys are hashes already, so their low bits say where an
// entry would best stand.
type index struct {
	slots []slot // a power of two of them, or none
	n     int    // how many are taken
}

// A slot is free if its key is 0.
type slot struct {
	key memoryKey
	memoryEntry
}

// smallest is how many slots an index has at least, once it has any.
const smallest = 1 << 8

// get returns the entry of a key, nil if there is none. It is valid until the
// index changes.
func (x *index) get(k memoryKey) *memoryEntry {
	if x.n == 0 {
		return nil
	}
	if s := &x.slots[x.find(k)]; s.key == k {
		return &s.memoryEntry
	}
	return nil
}

// find is where the entry of a key stands, or else the free slot for it.
func (x *index) find(k memoryKey) int {
	i := x.home(k)
	for x.slots[i].key != k && x.slots[i].key != 0 {
		i = x.after(i)
	}
	return i
}

func (x *index) home(k memoryKey) int { return int(k & memoryKey(len(x.slots)-1)) } //nolint:gosec // within the slots

func (x *index) after(i int) int { return (i + 1) & (len(x.slots) - 1) }

// add makes room for an entry that is not there yet and returns it.
func (x *index) add(k memoryKey) *memoryEntry {
	if x.n >= len(x.slots)/8*7 {
		x.resize(max(smallest, 2*len(x.slots)))
	}
	s := &x.slots[x.find(k)]
	s.key = k
	x.n++
	return &s.memoryEntry
}

func (x *index) resize(size int) {
	old := x.slots
	x.slots = make([]slot, size)
	for _, s := range old {
		if s.key != 0 {
			x.slots[x.find(s.key)] = s
		}
	}
}

// remove frees a slot, and moves up what would not be found behind a free one.
func (x *index) remove(i int) {
	mask := len(x.slots) - 1
	for j := x.after(i); x.slots[j].key != 0; j = x.after(j) {
		if (j-x.home(x.slots[j].key))&mask >= (j-i)&mask {
			x.slots[i], i = x.slots[j], j
		}
	}
	x.slots[i] = slot{}
	x.n--
}

// removeNear removes some entry, one that stands near where k would.
func (x *index) removeNear(k memoryKey) {
	i := x.home(k)
	for x.slots[i].key == 0 {
		i = x.after(i)
	}
	x.remove(i)
}

// removeIf removes what a function says, and gives back room that is no longer
// needed.
func (x *index) removeIf(stale func(*memoryEntry) bool) {
	for i := 0; i < len(x.slots); {
		if s := &x.slots[i]; s.key != 0 && stale(&s.memoryEntry) {
			x.remove(i) // and look at what has moved here
			continue
		}
		i++
	}
	size := len(x.slots)
	for size > smallest && x.n < size/8 {
		size /= 2
	}
	if size < len(x.slots) {
		x.resize(size)
	}
}
