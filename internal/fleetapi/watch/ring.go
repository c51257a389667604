package watch

import (
	"slices"
	"sync"
)

// A changeRing holds the latest changes of the feed, without a gap. A watcher behind its floor has missed
// some and reads the feed.
type changeRing struct {
	maxEntries, maxBytes int

	mu          sync.Mutex
	live        bool     // a tail reads the feed and adds changes
	unavailable bool     // the feed cannot be read at present
	floor       Position // all changes after it, up to head, are in the list
	head        Cursor
	list        []*encodedChange // by position
	bytes       int
	renewed     chan struct{} // closed when the ring changes
}

func newChangeRing(maxEntries, maxBytes int) *changeRing {
	return &changeRing{maxEntries: maxEntries, maxBytes: maxBytes, renewed: make(chan struct{})}
}

// A ringView is the state of the ring for a watcher.
type ringView struct {
	// live reports whether a tail reads the feed.
	live bool
	// missed reports whether changes that the watcher has not seen are no longer in the ring.
	missed bool
	// unavailable reports whether the feed cannot be read, so that head may be out of date.
	unavailable bool
	// entries holds the next entries. They reach the head unless more is set.
	entries []*encodedChange
	head    Cursor
	more    bool
	// renewed is closed when the ring changes.
	renewed <-chan struct{}
}

// readAfter returns the entries after a place: at most as many as fit into the buffer, and at most
// maxBytes without the last entry.
func (r *changeRing) readAfter(cursor Cursor, buffer []*encodedChange, maxBytes int) ringView {
	r.mu.Lock()
	defer r.mu.Unlock()
	v := ringView{live: r.live, unavailable: r.unavailable, head: r.head, renewed: r.renewed}
	if !r.live {
		return v
	}
	if cursor.Epoch != r.head.Epoch || cursor.Compare(r.floor) < 0 {
		v.missed = true
		return v
	}
	first, _ := slices.BinarySearchFunc(r.list, cursor.Position, func(e *encodedChange, at Position) int {
		if e.at.Compare(at) <= 0 {
			return -1
		}
		return 1
	})
	n, size := 0, 0
	for _, e := range r.list[first:] {
		if n == len(buffer) || size >= maxBytes {
			v.more = true
			break
		}
		buffer[n] = e
		n++
		size += e.estimateSize()
	}
	v.entries = buffer[:n]
	return v
}

// resetToCursor empties the ring: the next changes added are those after the place.
func (r *changeRing) resetToCursor(cursor Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.unavailable = true, false
	r.floor, r.head = cursor.Position, cursor
	r.list, r.bytes = nil, 0
	r.wakeWaiters()
}

// appendAndEvictOldest appends the changes up to a place, and drops the oldest ones that exceed the limits.
func (r *changeRing) appendAndEvictOldest(entries []*encodedChange, head Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unavailable, r.head = false, head
	if len(entries) == 0 {
		return // no watcher needs to wake up for this
	}
	for _, e := range entries {
		r.list = append(r.list, e)
		r.bytes += e.estimateSize()
	}
	for len(r.list) > r.maxEntries || r.bytes > r.maxBytes {
		r.floor = r.list[0].at
		r.bytes -= r.list[0].estimateSize()
		r.list[0] = nil // the array behind the slice stays in memory
		r.list = r.list[1:]
	}
	r.wakeWaiters()
}

// markFeedUnavailable marks the feed as unreadable until the next append.
func (r *changeRing) markFeedUnavailable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.unavailable = true
}

// clearAndDeactivate empties the ring when there are no watchers.
func (r *changeRing) clearAndDeactivate() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.list, r.bytes = false, nil, 0
	r.wakeWaiters()
}

func (r *changeRing) wakeWaiters() {
	close(r.renewed)
	r.renewed = make(chan struct{})
}
