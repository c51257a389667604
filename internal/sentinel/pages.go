package sentinel

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// A lister reads one page of a collection into dst.
type lister interface {
	ListPage(ctx context.Context, collection string, q url.Values, dst []byte) ([]byte, error)
}

var (
	errPageTimeout = errors.New("no page in time")
	errEndless     = errors.New("the list has no end: its continue tokens repeat")
	errSamePage    = errors.New("it begins as the page before: the server ignores the number and hides the rest of the list")
)

// A cursor is a place in the list. The zero value is its beginning.
type cursor struct {
	// token is the server's continue token, empty at the beginning.
	token string

	// page and size are used instead if the server does not know tokens; page
	// counts from 1, and is 0 while tokens are used.
	page, size int
}

// String is the place as errors name it.
func (c cursor) String() string {
	switch {
	case c.page > 0:
		return fmt.Sprintf("page %d of size %d", c.page, c.size)
	case c.token != "":
		return fmt.Sprintf("the page at %q", c.token)
	}
	return "the first page"
}

// A pager knows how to ask for pages and which comes next.
type pager struct {
	lister     lister
	collection string
	labels     string
	size       int
	timeout    time.Duration

	// milestone is a token seen before, to notice tokens that go in circles.
	milestone string
	pages     int

	// first is the id that the last page by number began with.
	first []byte
}

// A page is what was read at a place, or why it could not be.
type page struct {
	at   cursor
	body []byte
	err  error
}

// fetch reads the page at a place into the room of buf.
func (p *pager) fetch(ctx context.Context, at cursor, buf []byte) page {
	q := url.Values{}
	if p.labels != "" {
		q.Set("labels", p.labels)
	}
	if at.page > 0 {
		q.Set("page", strconv.Itoa(at.page))
		q.Set("size", strconv.Itoa(at.size))
	} else {
		q.Set("limit", strconv.Itoa(p.size))
	}
	if at.token != "" {
		q.Set("continue", at.token)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, p.timeout, errPageTimeout)
	defer cancel()
	body, err := p.lister.ListPage(ctx, p.collection, q, buf)
	if err != nil {
		if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
			err = fmt.Errorf("%w: %w", cause, err)
		}
		return page{at: at, err: fmt.Errorf("list %s: read %s: %w", p.collection, at, err)}
	}
	return page{at: at, body: body}
}

// beginning is where the next walk begins after one that ended at a place: by
// numbers if the server had to be asked so.
func (p *pager) beginning(ended cursor) cursor {
	if ended.page > 0 {
		return cursor{page: 1, size: p.size}
	}
	return cursor{}
}

// next is the place after a page, and false at the end of the list.
func (p *pager) next(at cursor, env scan.Envelope) (cursor, bool, error) {
	p.pages++
	switch {
	case env.Bare:
		return cursor{}, false, nil
	case at.page > 0:
		if len(env.First) > 0 && bytes.Equal(env.First, p.first) {
			return cursor{}, false, fmt.Errorf("list %s: read %s: %w", p.collection, at, errSamePage)
		}
		p.first = append(p.first[:0], env.First...)
		next, more := p.nextByNumber(at, env)
		return next, more, nil
	case env.Continue != "":
		// Brent's way to find a circle: compare with a milestone that moves
		// on ever more rarely.
		if env.Continue == at.token || env.Continue == p.milestone {
			return cursor{}, false, fmt.Errorf("list %s: after %s: %w", p.collection, at, errEndless)
		}
		if p.pages&(p.pages-1) == 0 {
			p.milestone = env.Continue
		}
		return cursor{token: env.Continue}, true, nil
	case at.token == "" && env.Total > int64(env.Items):
		// The server counts more than it sent and names no place to go on
		// at: it does not know tokens. Begin again, by numbers.
		return cursor{page: 1, size: p.size}, true, nil
	}
	return cursor{}, false, nil
}

func (p *pager) nextByNumber(at cursor, env scan.Envelope) (cursor, bool) {
	next := cursor{page: at.page + 1, size: at.size}
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

// guess looks for the token of the next page at the end of this one, so that
// it can be fetched while this one is read. It may be wrong.
func guess(pg page) (cursor, bool) {
	const name, tail = `"continue":"`, 4096
	end := pg.body[max(0, len(pg.body)-tail):]
	_, token, ok := bytes.Cut(end[max(0, bytes.LastIndex(end, []byte(name))):], []byte(name))
	token, _, closed := bytes.Cut(token, []byte(`"`))
	if pg.at.page > 0 || !ok || !closed || len(token) == 0 || bytes.IndexByte(token, '\\') >= 0 {
		return cursor{}, false
	}
	return cursor{token: string(token)}, true
}

// walk fetches pages from start on and hands them to read, in order, one ahead
// of what is being read. Read returns what the page's envelope said. Walk
// returns where it stopped, if not at the end of the list.
func (p *pager) walk(ctx context.Context, start cursor, read func(page) (scan.Envelope, error)) (cursor, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	p.milestone, p.pages, p.first = "", 0, p.first[:0]
	var spare []byte
	pg := p.fetch(ctx, start, nil)
	for {
		if pg.err != nil {
			return pg.at, pg.err
		}
		expected, ahead := p.readAhead(ctx, pg, spare)
		env, err := read(pg)
		if err != nil {
			cancel()
		}
		early := <-ahead // always: it may be writing into spare
		if err != nil {
			return pg.at, fmt.Errorf("list %s: read %s: %w", p.collection, pg.at, err)
		}
		at, more, err := p.next(pg.at, env)
		if err != nil || !more {
			return pg.at, err
		}
		if early != nil && at == expected {
			spare, pg = pg.body, *early
			continue
		}
		pg = p.fetch(ctx, at, pg.body)
	}
}

// readAhead begins to fetch the page that seems to come next. The channel
// yields it, or nil if there is nothing to go by.
func (p *pager) readAhead(ctx context.Context, pg page, buf []byte) (cursor, <-chan *page) {
	ahead := make(chan *page, 1)
	at, ok := guess(pg)
	if !ok {
		ahead <- nil
		return cursor{}, ahead
	}
	go func() {
		next := p.fetch(ctx, at, buf)
		ahead <- &next
	}()
	return at, ahead
}
