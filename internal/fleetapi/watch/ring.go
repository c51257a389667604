package watch

import (
	"slices"
	"sync"
)

// A ring holds the latest changes of the feed, without a gap. A watcher behind its floor has missed
// some and reads the feed.
type ring struct {
	mostEntries, mostBytes int

	mu      sync.Mutex
	live    bool     // a tail reads the feed and adds changes
	away    bool     // the feed cannot be read at present
	floor   Position // all changes after it, up to head, are in the list
	head    Cursor
	list    []*entry // by position
	bytes   int
	renewed chan struct{} // closed when the ring changes
}

func newRing(mostEntries, mostBytes int) *ring {
	return &ring{mostEntries: mostEntries, mostBytes: mostBytes, renewed: make(chan struct{})}
}

// A view is the state of the ring for a watcher.
type view struct {
	// live reports whether a tail reads the feed.
	live bool
	// missed reports whether changes that the watcher has not seen are no longer in the ring.
	missed bool
	// away reports whether the feed cannot be read, so that head may be out of date.
	away bool
	// entries holds the next entries. They reach the head unless more is set.
	entries []*entry
	head    Cursor
	more    bool
	// renewed is closed when the ring changes.
	renewed <-chan struct{}
}

// viewAfter returns the entries after a place: at most as many as fit into the buffer, and at most
// mostBytes without the last entry.
func (r *ring) viewAfter(at Cursor, buffer []*entry, mostBytes int) view {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := view{live: r.live, away: r.away, head: r.head, renewed: r.renewed}
	if !r.live {
		return v
	}
	if at.Epoch != r.head.Epoch || at.Compare(r.floor) < 0 {
		v.missed = true
		return v
	}
	first, _ := slices.BinarySearchFunc(r.list, at.Position, func(e *entry, at Position) int {
		if e.at.Compare(at) <= 0 {
			return -1
		}
		return 1
	})
	n, size := 0, 0
	for _, e := range r.list[first:] {
		if n == len(buffer) || size >= mostBytes {
			v.more = true
			break
		}
		buffer[n] = e
		n++
		size += e.sizeBytes()
	}
	v.entries = buffer[:n]
	return v
}

// resetAt empties the ring: the next changes added are those after the place.
func (r *ring) resetAt(at Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.away, r.floor, r.head, r.list, r.bytes = true, false, at.Position, at, nil, 0
	r.replaceChanged()
}

// appendEntries appends the changes up to a place, and drops the oldest ones that exceed the
// limits.
func (r *ring) appendEntries(entries []*entry, head Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.head = false, head
	if len(entries) == 0 {
		return // no watcher needs to wake up for this
	}
	for _, e := range entries {
		r.list = append(r.list, e)
		r.bytes += e.sizeBytes()
	}
	for len(r.list) > r.mostEntries || r.bytes > r.mostBytes {
		r.floor = r.list[0].at
		r.bytes -= r.list[0].sizeBytes()
		r.list[0] = nil // the array behind the slice stays in memory
		r.list = r.list[1:]
	}
	r.replaceChanged()
}

// markUnavailable marks the feed as unreadable until the next append.
func (r *ring) markUnavailable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = true
}

// clearAll empties the ring when there are no watchers.
func (r *ring) clearAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.list, r.bytes = false, nil, 0
	r.replaceChanged()
}

func (r *ring) replaceChanged() {
	close(r.renewed)
	r.renewed = make(chan struct{})
}
