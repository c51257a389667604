package listing

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

	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A walk is one pass through the pages.
type walk struct {
	*Walker
	read    func(Page) (scan.Envelope, error)
	changed bool // ask by tags
	again   bool // the next page begins anew

	// missed counts the guesses in a row that were wrong.
	missed int

	// rest is how many resources stand behind the last page by id.
	rest int64
}

// maxMissed is how many guesses may be wrong before a walk stops guessing.
const maxMissed = 2

// A fetched page, or why it could not be.
type fetched struct {
	Page
	err error

	// cause is err in the server's words alone.
	cause error
}

// discardPage drops a page that is not read, if there is one.
func (f *fetched) discardPage() {
	if f != nil {
		f.closeRest()
	}
}

// walkPages walks. See Walk.
func (w *walk) walkPages(ctx context.Context, start Place) (Place, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.milestone, w.pages, w.first = Place{}, 0, w.first[:0]
	at, err := w.resolveStart(ctx, start)
	if err != nil {
		return at, err
	}
	var spare []byte
	pg := w.fetchPage(ctx, at, nil)
	defer func() { pg.closeRest() }()
	for {
		if pg.err != nil {
			instead, ok, err := w.recoverRefused(ctx, pg)
			if err != nil || !ok {
				return pg.At, err
			}
			pg = w.fetchPage(ctx, instead, spare)
			continue
		}
		expected, ahead := w.readAhead(ctx, pg.Page, spare)
		w.again = false
		env, err := w.read(pg.Page)
		if err != nil {
			cancel()
		}
		pg.closeRest()
		pg.Rest = nil
		early := <-ahead // always: it may be writing into spare
		if err != nil {
			early.discardPage()
			return pg.At, fmt.Errorf("list %s: read %s: %w", w.cfg.Collection, pg.At, err)
		}
		at, more, err := w.followPage(ctx, pg.Page, env)
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

// followPage is the place after a page, and false at the end of the list.
func (w *walk) followPage(ctx context.Context, pg Page, env scan.Envelope) (Place, bool, error) {
	known, ok := w.tags[pg.At]
	if pg.Unchanged && ok {
		known.walk = w.walks
		w.tags[pg.At] = known
		if known.last {
			return Place{}, false, nil
		}
		return known.next, true, w.detectCycle(pg.At, known.next)
	}
	at, more, err := w.nextPlace(ctx, pg.At, env)
	if err != nil || !w.changed || w.again {
		return at, more, err
	}
	if ok && !known.last && (known.next != at || !more) {
		delete(w.tags, known.next)
	}
	delete(w.tags, pg.At)
	if pg.Tag != "" && len(w.tags) < maxRemembered {
		w.tags[pg.At] = remembered{tag: pg.Tag, items: env.Items, next: at, last: !more, walk: w.walks}
	}
	return at, more, nil
}

// maxRemembered bounds the pages whose tags are kept. A list that has more is
// read in full from there on.
const maxRemembered = 1 << 16

// A remembered page is what the last walk knew of it. A server that says that
// the page has not changed says the same of all of this, for it stands in the
// page.
type remembered struct {
	tag   string
	items int
	next  Place
	last  bool
	walk  uint32 // that saw it last
}

// forgetPages drops the pages that the walk which has just ended did not meet.
func (w *Walker) forgetPages() {
	maps.DeleteFunc(w.tags, func(_ Place, r remembered) bool { return r.walk != w.walks })
}

// nextPlace is the place after a page that was read, and false at the end.
func (w *walk) nextPlace(ctx context.Context, at Place, env scan.Envelope) (Place, bool, error) {
	switch {
	case env.Bare:
		return Place{}, false, nil
	case at.way == byNumber:
		if at.page > 1 && len(env.First) > 0 && bytes.Equal(env.First, w.first) {
			return Place{}, false, fmt.Errorf("list %s: read %s: %w", w.cfg.Collection, at, errSamePage)
		}
		w.first = append(w.first[:0], env.First...)
		next, more := nextByNumber(at, env)
		return next, more, nil
	case at.way == byID:
		next, more, sound := w.server.nextByID(at, env)
		if !sound {
			w.again = true
			w.fallBack(ctx, "its pages are not sorted by id")
			return w.firstPlace(), true, nil
		}
		w.rest = env.Total - int64(env.Items)
		return next, more, nil
	case env.Continue != "":
		w.setFlavour(FlavourFleetloop)
		next := Place{after: env.Continue}
		return next, true, w.detectCycle(at, next)
	case at.after == "" && env.Total > int64(env.Items):
		// The server counts more than it sent and names no place to go on
		// at: it does not know tokens.
		w.again = true
		if err := w.adoptPaging(ctx); err != nil {
			return Place{}, false, fmt.Errorf("list %s: find the page after %s: %w", w.cfg.Collection, at, err)
		}
		return w.firstPlace(), true, nil
	case env.Cursor != "":
		w.setFlavour(FlavourFleetloop)
	}
	return Place{}, false, nil
}

// detectCycle finds tokens that go in circles, in Brent's way: it compares with a
// milestone that moves on ever more rarely.
func (w *walk) detectCycle(at, next Place) error {
	w.pages++
	if next == at || next == w.milestone {
		return fmt.Errorf("list %s: after %s: %w", w.cfg.Collection, at, errEndless)
	}
	if w.pages&(w.pages-1) == 0 {
		w.milestone = next
	}
	return nil
}

func nextByNumber(at Place, env scan.Envelope) (Place, bool) {
	next := Place{way: byNumber, page: at.page + 1, size: at.size}
	if at.page == 1 && env.Items < at.size && int64(env.Items) < env.Total {
		next.size = env.Items // the server gives no more than that at a time
	}
	switch {
	case env.Items == 0:
		return next, false
	case env.Total >= 0:
		return next, int64(at.page)*int64(next.size) < env.Total
	}
	return next, env.Items >= at.size
}

// fetchPage reads the page at a place into the room of buf.
func (w *walk) fetchPage(ctx context.Context, at Place, buf []byte) fetched {
	var etag string
	if w.changed {
		etag = w.tags[at].tag
	}
	pg := fetched{Page: Page{At: at, Asked: time.Now(), First: !at.Later(), Filtered: w.server.filtersAll()}}
	pg.Body, pg.Rest, pg.Tag, pg.cause = w.getPage(ctx, w.pageQuery(at), etag, buf)
	if pg.cause != nil {
		pg.err = fmt.Errorf("list %s: read %s: %w", w.cfg.Collection, at, pg.cause)
		return pg
	}
	if etag != "" && pg.Tag == etag && len(pg.Body) == 0 {
		pg.Unchanged, pg.Items = true, w.tags[at].items
	}
	return pg
}

// getPage does one request within its time. See Source.ListPageIf.
func (w *Walker) getPage(ctx context.Context, q url.Values, etag string, buf []byte) (body []byte, rest io.ReadCloser, tag string, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	if w.cfg.Timeout > 0 {
		defer time.AfterFunc(w.cfg.Timeout, func() { cancel(errTimeout) }).Stop()
	}
	body, rest, tag, err = w.src.ListPageIf(ctx, w.cfg.Collection, q, etag, buf)
	if err != nil {
		err = w.withTimeoutCause(ctx, err)
		cancel(nil)
		return nil, nil, "", err
	}
	if rest == nil {
		cancel(nil)
		return body, nil, tag, nil
	}
	return body, ending{rest, cancel}, tag, nil
}

// getOne reads one resource within its time.
func (w *Walker) getOne(ctx context.Context, id string, buf []byte) ([]byte, error) {
	if w.cfg.Timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, w.cfg.Timeout, errTimeout)
		defer cancel()
	}
	body, err := w.src.ListPage(ctx, w.cfg.Collection+"/"+url.PathEscape(id), nil, buf)
	if err != nil {
		return nil, w.withTimeoutCause(ctx, err)
	}
	return body, nil
}

// withTimeoutCause adds why a request ended, if its context did.
func (w *Walker) withTimeoutCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// An ending is the rest of a page whose context ends with it.
type ending struct {
	io.ReadCloser
	cancel context.CancelCauseFunc
}

// Close ends the request.
func (e ending) Close() error {
	defer e.cancel(nil)
	return e.ReadCloser.Close()
}

// pageQuery are the parameters of the page at a place.
func (w *walk) pageQuery(at Place) url.Values {
	q := url.Values{}
	s := &w.server
	if s.labels != "" {
		q.Set("labels", s.labels)
	}
	search := s.search
	switch at.way {
	case byToken:
		q.Set("limit", strconv.Itoa(w.cfg.PageSize))
		if at.after != "" {
			q.Set("continue", at.after)
		}
	case byNumber:
		setPageNumber(q, at.page, at.size)
		if s.order {
			q.Set("order", "id")
		}
	case byID:
		setPageNumber(q, 1, w.pageSize())
		q.Set("order", "id")
		if at.after != "" {
			search = joinAnd(search, searchAfter(at.after))
		}
	}
	if search != "" {
		q.Set("search", search)
	}
	return q
}

// setPageNumber asks for a page by number. The public API has had two names for the
// size.
func setPageNumber(q url.Values, page, size int) {
	q.Set("page", strconv.Itoa(page))
	q.Set("size", strconv.Itoa(size))
	q.Set("pageSize", strconv.Itoa(size))
}

// readAhead begins to fetch the page that seems to come next. The channel
// yields it, or nil if there is nothing to go by.
func (w *walk) readAhead(ctx context.Context, pg Page, buf []byte) (Place, <-chan *fetched) {
	ahead := make(chan *fetched, 1)
	at, ok := guessNextPlace(pg)
	if pg.At.way == byID && w.rest <= int64(w.pageSize()) {
		ok = false // this seems to be the last page
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

// guessNextPlace looks for what the next page is asked by at the end of this one, so
// that it can be fetched while this one is read. It may be wrong. The end of a page
// that comes in two parts is not there yet.
func guessNextPlace(pg Page) (Place, bool) {
	if pg.Rest != nil {
		return Place{}, false
	}
	name, tail := `"continue":"`, 4096
	switch pg.At.way {
	case byID: // the id of the last item, if it stands first there
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
