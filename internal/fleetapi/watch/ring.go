package watch

import (
	"slices"
	"sync"

	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
)

// A ring is the last changes of the feed, without a gap between them. Who is
// behind its floor has missed some and reads the feed.
type ring struct {
	mostEntries, mostBytes int

	mu      sync.Mutex
	live    bool          // somebody reads the feed and adds what comes
	away    bool          // the feed cannot be read just now
	floor   feed.Position // all changes behind it, up to head, are in the list
	head    feed.Cursor
	list    []*entry // by position
	bytes   int
	renewed chan struct{} // closed when there is something new
}

func newRing(mostEntries, mostBytes int) *ring {
	return &ring{mostEntries: mostEntries, mostBytes: mostBytes, renewed: make(chan struct{})}
}

// A view is what a watcher finds in the ring.
type view struct {
	// live is false while nobody reads the feed.
	live bool
	// missed says that changes are gone that the watcher has not seen.
	missed bool
	// away says that the feed cannot be read, so that head says nothing about
	// what is true now.
	away bool
	// entries are the next ones. They lead to the head unless there are more
	// than were asked for.
	entries []*entry
	head    feed.Cursor
	more    bool
	// renewed is closed when it is worth looking again.
	renewed <-chan struct{}
}

// viewAfter gives what comes behind a place, at most as many entries as fit into
// the buffer, and no more than so many bytes but for the last one's.
func (r *ring) viewAfter(at feed.Cursor, buffer []*entry, mostBytes int) view {
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
	first, _ := slices.BinarySearchFunc(r.list, at.Position, func(e *entry, at feed.Position) int {
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

// resetAt empties the ring: the next changes added are those behind the
// place.
func (r *ring) resetAt(at feed.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.live, r.away, r.floor, r.head, r.list, r.bytes = true, false, at.Position, at, nil, 0
	r.replaceChanged()
}

// appendEntries appends the changes up to a place, and drops the oldest ones that there
// is no room for.
func (r *ring) appendEntries(entries []*entry, head feed.Cursor) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away, r.head = false, head
	if len(entries) == 0 {
		return // nobody has to wake up for this
	}
	for _, e := range entries {
		r.list = append(r.list, e)
		r.bytes += e.sizeBytes()
	}
	for len(r.list) > r.mostEntries || r.bytes > r.mostBytes {
		r.floor = r.list[0].at
		r.bytes -= r.list[0].sizeBytes()
		r.list[0] = nil // the array behind the slice lives on
		r.list = r.list[1:]
	}
	r.replaceChanged()
}

// markUnavailable says that the feed cannot be read for now.
func (r *ring) markUnavailable() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.away = true
}

// clearAll lets go of everything: nobody watches.
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
