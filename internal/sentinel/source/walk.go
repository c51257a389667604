package source

import (
	"bytes"
	"context"
	"fmt"
	"maps"
)

// A pageWalk is one walk through the pages.
type pageWalk struct {
	server  *server
	read    func(Page) (Envelope, error)
	useTags bool // request only the pages whose entity tag has changed

	// restarted says that the next page is the first one again.
	restarted bool

	// wrongGuesses is the number of consecutive wrong guesses of the next page.
	wrongGuesses int

	// remaining is the number of resources after the last page by id.
	remaining int64

	// milestone is an earlier place, and tokens the number of tokens, to detect tokens that form a
	// cycle.
	milestone Place
	tokens    int

	// firstID is the first id of the last page by number.
	firstID []byte
}

// A fetchedPage is a page, or the error of the request.
type fetchedPage struct {
	Page
	err error

	// cause is the server's error without context.
	cause error
}

// discardPage closes a page that is not read, if there is one.
func (f *fetchedPage) discardPage() {
	if f != nil {
		f.closeRest()
	}
}

// walkPages implements FetchResources.
func (w *pageWalk) walkPages(ctx context.Context, start Place) (stopped Place, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	first, err := w.server.probeAndResolveStart(ctx, start)
	if err != nil {
		return first, err
	}
	// Two buffers take turns: one holds the page being read, and spare receives the next one.
	var spare []byte
	page := w.fetchPage(ctx, first, nil)
	defer func() { page.closeRest() }()
	for {
		if page.err != nil {
			retryAt, retry, err := w.adaptToRefusal(ctx, page)
			if err != nil || !retry {
				return page.At, err
			}
			page = w.fetchPage(ctx, retryAt, spare)
			continue
		}

		// Read the page while the next one is fetched.
		guessed, prefetch := w.prefetchNextPage(ctx, page.Page, spare)
		w.restarted = false
		envelope, err := w.read(page.Page)
		if err != nil {
			cancel() // the next page is not needed
		}
		page.closeRest()
		page.Rest = nil
		prefetched := <-prefetch // always wait: the request may be writing into spare
		if err != nil {
			prefetched.discardPage()
			return page.At, fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, page.At, err)
		}

		// Advance to the next page, which may have been fetched already.
		next, more, err := w.rememberPageAndAdvance(ctx, page.Page, envelope)
		if err != nil || !more {
			prefetched.discardPage()
			return page.At, err
		}
		if prefetched != nil && next == guessed {
			w.wrongGuesses = 0
			spare, page = page.Body, *prefetched
			continue
		}
		if prefetched != nil {
			w.wrongGuesses++
			prefetched.discardPage()
		}
		page = w.fetchPage(ctx, next, page.Body)
	}
}

// rememberPageAndAdvance remembers the tag of a page if the walk uses tags. It returns the place
// after the page, and false at the end of the list.
func (w *pageWalk) rememberPageAndAdvance(
	ctx context.Context, page Page, envelope Envelope,
) (next Place, more bool, err error) {
	known, isKnown := w.server.tags[page.At]
	if page.Unchanged && isKnown {
		known.walk = w.server.walks
		w.server.tags[page.At] = known
		if known.last {
			return Place{}, false, nil
		}
		return known.next, true, w.detectTokenCycle(page.At, known.next)
	}

	next, more, err = w.nextPlaceOrRestartDifferently(ctx, page.At, envelope)
	if err != nil || !w.useTags || w.restarted {
		return next, more, err
	}
	w.server.replaceRememberedPage(page, rememberedPage{
		tag:   page.Tag,
		items: envelope.Items,
		next:  next,
		last:  !more,
		walk:  w.server.walks,
	})
	return next, more, nil
}

// maxRemembered limits the number of pages whose tags are stored. Further pages of the list are
// read in full.
const maxRemembered = 1 << 16

// A rememberedPage is the state of a page in the last walk. If the server reports that the page
// has not changed, all of this is still true, because it is part of the page.
type rememberedPage struct {
	tag   string
	items int
	next  Place
	last  bool
	walk  uint32 // the last walk that read it
}

// replaceRememberedPage replaces what is known about a page that has changed. If its next page is
// another one now, the previous next page is forgotten.
func (v *server) replaceRememberedPage(page Page, replacement rememberedPage) {
	previous, isKnown := v.tags[page.At]
	hasOtherNext := previous.next != replacement.next || replacement.last
	if isKnown && !previous.last && hasOtherNext {
		delete(v.tags, previous.next)
	}
	delete(v.tags, page.At)
	if replacement.tag != "" && len(v.tags) < maxRemembered {
		v.tags[page.At] = replacement
	}
}

// forgetUnreadPages removes the pages that the last walk did not read.
func (v *server) forgetUnreadPages() {
	maps.DeleteFunc(v.tags, func(_ Place, page rememberedPage) bool { return page.walk != v.walks })
}

// nextPlaceOrRestartDifferently returns the place after a page that was read, and false at the end. If the page
// shows that the server does not support the way of paging, the list restarts in another way.
func (w *pageWalk) nextPlaceOrRestartDifferently(
	ctx context.Context, current Place, envelope Envelope,
) (next Place, more bool, err error) {
	if envelope.Bare {
		return Place{}, false, nil
	}
	switch current.way {
	case byNumber:
		return w.advanceByNumber(current, envelope)
	case byID:
		next, more = w.advanceByIDOrRestartByNumber(ctx, current, envelope)
		return next, more, nil
	case byToken:
	}
	return w.advanceByTokenOrRestart(ctx, current, envelope)
}

// advanceByNumber returns the place after a page by number. A server that ignores the page number
// returns the same page twice.
func (w *pageWalk) advanceByNumber(current Place, envelope Envelope) (next Place, more bool, err error) {
	if current.page > 1 && len(envelope.First) > 0 && bytes.Equal(envelope.First, w.firstID) {
		return Place{}, false, fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, current, errSamePage)
	}
	w.firstID = append(w.firstID[:0], envelope.First...)
	next, more = nextPlaceByNumber(current, envelope)
	return next, more, nil
}

// advanceByIDOrRestartByNumber returns the place after a page by id. If the page does not match the request,
// the list restarts by number.
func (w *pageWalk) advanceByIDOrRestartByNumber(ctx context.Context, current Place, envelope Envelope) (next Place, more bool) {
	next, more, consistent := w.server.traits.nextPlaceByID(current, envelope)
	if !consistent {
		w.restarted = true
		w.server.fallBackToPageNumbers(ctx, "its pages are not sorted by id")
		return w.server.firstPlace(), true
	}
	w.remaining = envelope.Total - int64(envelope.Items)
	return next, more
}

// advanceByTokenOrRestart returns the place of the continue token. If the server does not support
// tokens, the list restarts in another way.
func (w *pageWalk) advanceByTokenOrRestart(
	ctx context.Context, current Place, envelope Envelope,
) (next Place, more bool, err error) {
	if envelope.Continue != "" {
		w.server.setFlavour(FlavourFleetloop)
		next = Place{after: envelope.Continue}
		return next, true, w.detectTokenCycle(current, next)
	}
	// A server that counts more resources than it sent, and returns no token, has no tokens.
	lacksTokens := current.after == "" && envelope.Total > int64(envelope.Items)
	if lacksTokens {
		w.restarted = true
		if err := w.server.detectPagingWithoutTokens(ctx); err != nil {
			return Place{}, false, fmt.Errorf("list %s: find the page after %s: %w", w.server.cfg.Collection, current, err)
		}
		return w.server.firstPlace(), true, nil
	}
	if envelope.Cursor != "" {
		w.server.setFlavour(FlavourFleetloop)
	}
	return Place{}, false, nil
}

// detectTokenCycle detects tokens that form a cycle, with Brent's algorithm: it compares with a
// milestone that moves ever more rarely.
func (w *pageWalk) detectTokenCycle(current, next Place) error {
	w.tokens++
	if next == current || next == w.milestone {
		return fmt.Errorf("list %s: after %s: %w", w.server.cfg.Collection, current, errEndless)
	}
	isPowerOfTwo := w.tokens&(w.tokens-1) == 0
	if isPowerOfTwo {
		w.milestone = next
	}
	return nil
}

// nextPlaceByNumber returns the place after a page by number, and false if the list ends there.
func nextPlaceByNumber(current Place, envelope Envelope) (next Place, more bool) {
	next = Place{way: byNumber, page: current.page + 1, size: current.size}
	if current.page == 1 && envelope.Items < current.size && int64(envelope.Items) < envelope.Total {
		next.size = envelope.Items // the maximum page size of the server
	}
	switch {
	case envelope.Items == 0:
		return next, false
	case envelope.Total >= 0:
		readSoFar := int64(current.page) * int64(next.size)
		return next, readSoFar < envelope.Total
	}
	return next, envelope.Items >= current.size
}
