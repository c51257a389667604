package rest

import (
	"container/list"
	"sync"
	"time"
)

// Bounds of the memory of PageWalks.
const (
	// PageWalkAge is the maximum time between two pages of a walk.
	PageWalkAge = 2 * time.Minute

	maxWalkedQueries = 4096
	maxWalkClients   = 16 // simultaneous clients of one query
)

// PageWalks remembers the last page of clients that request consecutive numbered pages. The next page then begins where
// the last one ended, whatever rows have come or gone in between. A page that a client did not reach by such a walk has
// no recorded start and is counted from the beginning.
//
// P is a position in an order; its zero value is the beginning. The zero value is ready to use. It
// holds a bounded number of positions and evicts the oldest.
type PageWalks[P comparable] struct {
	mu      sync.Mutex
	queries map[QueryDigest]*list.Element // of *walkedQuery[P]
	recent  list.List                     // the most recently used in front
}

type walkedQuery[P comparable] struct {
	query QueryDigest
	walks []pageWalk[P]
}

// A pageWalk records the last page that a client received.
type pageWalk[P comparable] struct {
	client     string
	page       int
	start, end P
	seen       time.Time
}

// FindPageStart returns the position after which a page begins. The client, such as an address,
// distinguishes walks of the same query; a client whose address changed continues the walk that
// most recently saw the previous page.
func (w *PageWalks[P]) FindPageStart(query QueryDigest, client string, page int, now time.Time) (start P, known bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	var best *pageWalk[P]
	if e, ok := w.queries[query]; ok && page > 1 {
		walks := asWalkedQuery[P](e.Value).walks
		for i := range walks {
			c := &walks[i]
			if !c.isSameOrNextPage(page) || now.Sub(c.seen) > PageWalkAge {
				continue
			}
			var counted P // its start is unknown
			if c.page == page && c.start == counted {
				continue
			}
			if best == nil || isBetterWalk(c, best, client) {
				best = c
			}
		}
	}
	switch {
	case best == nil:
		var none P
		return none, false
	case best.page == page:
		return best.start, true
	}
	return best.end, true
}

// RecordPage records that a client received a page, with the start and the end of the page.
func (w *PageWalks[P]) RecordPage(query QueryDigest, client string, page int, start, end P, now time.Time) { //nolint:revive // the arguments are the fields of one walk
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := pageWalk[P]{client: client, page: page, start: start, end: end, seen: now}
	e, ok := w.queries[query]
	if !ok {
		e = w.recent.PushFront(&walkedQuery[P]{query: query})
		if w.queries == nil {
			w.queries = make(map[QueryDigest]*list.Element)
		}
		w.queries[query] = e
		w.evictLeastRecentQueryIfFull()
	}
	w.recent.MoveToFront(e)
	q := asWalkedQuery[P](e.Value)
	oldest := 0
	for i := range q.walks {
		if q.walks[i].client == client && (page == 1 || q.walks[i].isSameOrNextPage(page)) {
			q.walks[i] = seen
			return
		}
		if q.walks[i].seen.Before(q.walks[oldest].seen) {
			oldest = i
		}
	}
	if len(q.walks) < maxWalkClients {
		q.walks = append(q.walks, seen)
		return
	}
	q.walks[oldest] = seen
}

func asWalkedQuery[P comparable](element any) *walkedQuery[P] { return element.(*walkedQuery[P]) } //nolint:errcheck // nothing else is put in

// evictLeastRecentQueryIfFull evicts the least recently used query if there are too many.
func (w *PageWalks[P]) evictLeastRecentQueryIfFull() {
	if w.recent.Len() <= maxWalkedQueries {
		return
	}
	last := w.recent.Back()
	delete(w.queries, asWalkedQuery[P](w.recent.Remove(last)).query)
}

// isSameOrNextPage reports whether the page is the next one, or the same again.
func (c *pageWalk[P]) isSameOrNextPage(page int) bool { return page == c.page+1 || page == c.page }

// isBetterWalk prefers the client's own walk, then the one seen last.
func isBetterWalk[P comparable](candidate, current *pageWalk[P], client string) bool {
	if (candidate.client == client) != (current.client == client) {
		return candidate.client == client
	}
	return candidate.seen.After(current.seen)
}
