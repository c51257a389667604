package source

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"strconv"
	"time"
)

// A pageWalk is one walk through the pages.
type pageWalk struct {
	server  *server
	read    func(Page) (Envelope, error)
	changed bool // use entity tags
	again   bool // the next page restarts the list

	// missed is the number of consecutive wrong guesses.
	missed int

	// rest is the number of resources after the last page by id.
	rest int64

	// milestone is an earlier place, to detect tokens that form a cycle.
	milestone Place
	pages     int

	// first is the first id of the last page by number.
	first []byte
}

// maxMissed is the number of wrong guesses after which a walk stops guessing.
const maxMissed = 2

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
	at, err := w.server.probeAndResolveStart(ctx, start)
	if err != nil {
		return at, err
	}
	var spare []byte
	pg := w.fetchPage(ctx, at, nil)
	defer func() { pg.closeRest() }()
	for {
		if pg.err != nil {
			instead, ok, err := w.adaptToRefusal(ctx, pg)
			if err != nil || !ok {
				return pg.At, err
			}
			pg = w.fetchPage(ctx, instead, spare)
			continue
		}
		expected, ahead := w.prefetchNextPage(ctx, pg.Page, spare)
		w.again = false
		env, err := w.read(pg.Page)
		if err != nil {
			cancel()
		}
		pg.closeRest()
		pg.Rest = nil
		early := <-ahead // always wait: the request may be writing into spare
		if err != nil {
			early.discardPage()
			return pg.At, fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, pg.At, err)
		}
		at, more, err := w.rememberPageAndAdvance(ctx, pg.Page, env)
		if err != nil || !more {
			early.discardPage()
			return pg.At, err
		}
		if early != nil && at == expected {
			spare, pg, w.missed = pg.Body, *early, 0
			continue
		}
		if early != nil {
			early.discardPage()
			w.missed++
		}
		pg = w.fetchPage(ctx, at, pg.Body)
	}
}

// rememberPageAndAdvance returns the place after a page, and false at the end of the list.
func (w *pageWalk) rememberPageAndAdvance(ctx context.Context, pg Page, env Envelope) (next Place, more bool, err error) {
	known, ok := w.server.tags[pg.At]
	if pg.Unchanged && ok {
		known.walk = w.server.walks
		w.server.tags[pg.At] = known
		if known.last {
			return Place{}, false, nil
		}
		return known.next, true, w.detectTokenCycle(pg.At, known.next)
	}
	at, more, err := w.nextPlaceOrRestart(ctx, pg.At, env)
	if err != nil || !w.changed || w.again {
		return at, more, err
	}
	if ok && !known.last && (known.next != at || !more) {
		delete(w.server.tags, known.next)
	}
	delete(w.server.tags, pg.At)
	if pg.Tag != "" && len(w.server.tags) < maxRemembered {
		w.server.tags[pg.At] = rememberedPage{tag: pg.Tag, items: env.Items, next: at, last: !more, walk: w.server.walks}
	}
	return at, more, nil
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

// forgetUnreadPages removes the pages that the last walk did not read.
func (v *server) forgetUnreadPages() {
	maps.DeleteFunc(v.tags, func(_ Place, r rememberedPage) bool { return r.walk != v.walks })
}

// nextPlaceOrRestart returns the place after a page that was read, and false at the end.
func (w *pageWalk) nextPlaceOrRestart(ctx context.Context, current Place, env Envelope) (next Place, more bool, err error) {
	switch {
	case env.Bare:
		return Place{}, false, nil
	case current.way == byNumber:
		if current.page > 1 && len(env.First) > 0 && bytes.Equal(env.First, w.first) {
			return Place{}, false, fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, current, errSamePage)
		}
		w.first = append(w.first[:0], env.First...)
		next, more := nextPlaceByNumber(current, env)
		return next, more, nil
	case current.way == byID:
		next, more, sound := w.server.traits.nextPlaceByID(current, env)
		if !sound {
			w.again = true
			w.server.fallBackToPageNumbers(ctx, "its pages are not sorted by id")
			return w.server.firstPlace(), true, nil
		}
		w.rest = env.Total - int64(env.Items)
		return next, more, nil
	case env.Continue != "":
		w.server.setFlavour(FlavourFleetloop)
		next := Place{after: env.Continue}
		return next, true, w.detectTokenCycle(current, next)
	case current.after == "" && env.Total > int64(env.Items):
		// The server counts more resources than it sent and returns no token: it does not support
		// tokens.
		w.again = true
		if err := w.server.detectPagingWithoutTokens(ctx); err != nil {
			return Place{}, false, fmt.Errorf("list %s: find the page after %s: %w", w.server.cfg.Collection, current, err)
		}
		return w.server.firstPlace(), true, nil
	case env.Cursor != "":
		w.server.setFlavour(FlavourFleetloop)
	}
	return Place{}, false, nil
}

// detectTokenCycle detects tokens that form a cycle, with Brent's algorithm: it compares with a
// milestone that moves ever more rarely.
func (w *pageWalk) detectTokenCycle(current, next Place) error {
	w.pages++
	if next == current || next == w.milestone {
		return fmt.Errorf("list %s: after %s: %w", w.server.cfg.Collection, current, errEndless)
	}
	if w.pages&(w.pages-1) == 0 {
		w.milestone = next
	}
	return nil
}

func nextPlaceByNumber(current Place, env Envelope) (next Place, more bool) {
	next = Place{way: byNumber, page: current.page + 1, size: current.size}
	if current.page == 1 && env.Items < current.size && int64(env.Items) < env.Total {
		next.size = env.Items // the maximum page size of the server
	}
	switch {
	case env.Items == 0:
		return next, false
	case env.Total >= 0:
		return next, int64(current.page)*int64(next.size) < env.Total
	}
	return next, env.Items >= current.size
}

// fetchPage reads the page at a place into the capacity of buf.
func (w *pageWalk) fetchPage(ctx context.Context, at Place, buf []byte) fetchedPage {
	var etag string
	if w.changed {
		etag = w.server.tags[at].tag
	}
	pg := fetchedPage{Page: Page{At: at, Asked: time.Now(), First: !at.Later(), Filtered: w.server.traits.filtersAll()}}
	pg.Body, pg.Rest, pg.Tag, pg.cause = w.server.requestPage(ctx, w.buildPageQuery(at), etag, buf)
	if pg.cause != nil {
		pg.err = fmt.Errorf("list %s: read %s: %w", w.server.cfg.Collection, at, pg.cause)
		return pg
	}
	if etag != "" && pg.Tag == etag && len(pg.Body) == 0 {
		pg.Unchanged, pg.Items = true, w.server.tags[at].items
	}
	return pg
}

// requestPage sends one request with a timeout. See Lister.ListPageIf.
func (v *server) requestPage(ctx context.Context, query url.Values, etag string, buf []byte) (body []byte, rest io.ReadCloser, tag string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	if v.cfg.Timeout > 0 {
		defer time.AfterFunc(v.cfg.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	body, rest, tag, err = v.src.ListPageIf(ctx, v.cfg.Collection, query, etag, buf)
	if err != nil {
		err = addContextCause(ctx, err)
		cancel(nil)
		return nil, nil, "", err
	}
	if rest == nil {
		cancel(nil)
		return body, nil, tag, nil
	}
	return body, endingBody{rest, cancel}, tag, nil
}

// addContextCause adds the cause to an error of a request whose context has ended.
func addContextCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// An endingBody is the rest of a page that cancels its context when it is closed.
type endingBody struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (e endingBody) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}

// buildPageQuery returns the parameters of the page at a place.
func (w *pageWalk) buildPageQuery(at Place) url.Values {
	q := url.Values{}
	s := &w.server.traits
	if s.labels != "" {
		q.Set("labels", s.labels)
	}
	search := s.search
	switch at.way {
	case byToken:
		q.Set("limit", strconv.Itoa(w.server.cfg.PageSize))
		if at.after != "" {
			q.Set("continue", at.after)
		}
	case byNumber:
		setPageAndSize(q, at.page, at.size)
		if s.order {
			q.Set("order", "id")
		}
	case byID:
		setPageAndSize(q, 1, w.server.pageSize())
		q.Set("order", "id")
		if at.after != "" {
			search = joinAnd(search, searchIDsAfter(at.after))
		}
	}
	if search != "" {
		q.Set("search", search)
	}
	return q
}

// setPageAndSize requests a page by number. The public API has had two names for the size.
func setPageAndSize(q url.Values, page, size int) {
	q.Set("page", strconv.Itoa(page))
	q.Set("size", strconv.Itoa(size))
	q.Set("pageSize", strconv.Itoa(size))
}

// adaptToRefusal finds another way to request a page that was refused. It returns false if there is
// none, or if the error has another cause.
func (w *pageWalk) adaptToRefusal(ctx context.Context, pg fetchedPage) (retryAt Place, retry bool, err error) {
	if !isRequestRefused(pg.err) || ctx.Err() != nil {
		return Place{}, false, pg.err
	}
	s := w.server.traits
	if s.way == byToken {
		if w.server.cfg.Flavour != FlavourAuto || pg.At.Later() || *w.server.flavour.Load() == FlavourFleetloop {
			return Place{}, false, pg.err
		}
		if err := w.server.probeCapabilities(ctx); err != nil {
			return Place{}, false, errors.Join(pg.err, err)
		}
		return w.server.firstPlace(), true, nil
	}
	if !w.server.shrinkPageSizeToStatedLimit(pg.cause) {
		switch {
		case s.way == byID:
			w.server.fallBackToPageNumbers(ctx, "it rejects a search for greater ids")
		case s.search != "" || s.labels != "":
			s.search, s.labels, s.part = "", "", false
			w.server.setTraitsAndForgetPages(s)
			w.server.logCapabilitiesIfChanged(ctx)
		case s.order:
			s.order = false
			w.server.setTraitsAndForgetPages(s)
		case !w.server.shrinkPageSize(0):
			return Place{}, false, pg.err
		}
		return w.server.firstPlace(), true, nil
	}
	if s.way == byID {
		return pg.At, true, nil
	}
	return w.server.firstPlace(), true, nil
}

// prefetchNextPage starts to fetch the page that probably comes next. The channel yields the page,
// or nil if the next page cannot be guessed.
func (w *pageWalk) prefetchNextPage(ctx context.Context, pg Page, buf []byte) (expected Place, page <-chan *fetchedPage) {
	ahead := make(chan *fetchedPage, 1)
	at, ok := guessNextPlace(pg)
	if pg.At.way == byID && w.rest <= int64(w.server.pageSize()) {
		ok = false // this is probably the last page
	}
	if !ok || w.missed >= maxMissed {
		ahead <- nil
		return Place{}, ahead
	}
	go func() {
		next := w.fetchPage(ctx, at, buf)
		ahead <- &next
	}()
	return at, ahead
}

// guessNextPlace searches the end of this page for the parameter of the next page. The next page
// can then be fetched while this one is read. The guess may be wrong. The end of a page that comes
// in two parts has not arrived yet.
func guessNextPlace(pg Page) (next Place, ok bool) {
	if pg.Rest != nil {
		return Place{}, false
	}
	name, tail := `"continue":"`, 4096
	switch pg.At.way {
	case byID: // the id of the last item, if it is its first field
		name, tail = `},{"id":"`, len(pg.Body)
	case byNumber:
		return Place{}, false
	case byToken:
	}
	end := pg.Body[max(0, len(pg.Body)-tail):]
	_, text, ok := bytes.Cut(end[max(0, bytes.LastIndex(end, []byte(name))):], []byte(name))
	text, _, closed := bytes.Cut(text, []byte(`"`))
	if !ok || !closed || len(text) == 0 || bytes.IndexByte(text, '\\') >= 0 {
		return Place{}, false
	}
	return Place{way: pg.At.way, after: string(text)}, true
}
