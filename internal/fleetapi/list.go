package fleetapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/paging"
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

// maxKeptBuffer is how large a page's buffer may be to be used again.
const maxKeptBuffer = 1 << 20

func (a *API) list(k *kind) handler {
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		l, err := parseListing(k, r.URL.Query())
		if err != nil {
			return err
		}
		if l.scope, err = reads(who); err != nil {
			return err
		}
		if parent := r.PathValue("parent"); parent != "" {
			if err := a.narrow(r.Context(), l, parent); err != nil {
				return err
			}
		}
		buffer := buffers.Get().(*[]byte) //nolint:errcheck // nothing else is put in
		p := page{b: append((*buffer)[:0], `{"items":[`...)}
		if l.keyset {
			err = a.keysetPage(r.Context(), l, &p)
		} else {
			err = a.numberedPage(r.Context(), l, walker{who.Subject, r.RemoteAddr}, &p)
		}
		if err == nil {
			writeJSON(w, http.StatusOK, p.b)
		}
		if cap(p.b) <= maxKeptBuffer {
			*buffer = p.b
			buffers.Put(buffer)
		}
		return err
	}
}

// narrow takes only the children of a resource, which has to be there.
func (a *API) narrow(ctx context.Context, l *listing, parent string) error {
	id, err := parseID(l.kind.parent, parent)
	if err != nil {
		return err
	}
	_, err = a.store.Get(ctx, l.scope, Key{l.kind.parent.name, id})
	if errors.Is(err, ErrNotFound) {
		return notFound(l.kind.parent, id)
	}
	l.query.ParentID = id
	return err
}

// A page is a page while it is written.
type page struct {
	b     []byte
	rows  int
	count int64
	last  Position // of the last row in b
}

// read appends the rows that the query finds, but no more than show of them.
func (a *API) read(ctx context.Context, l *listing, q Query, show int, p *page) (err error) {
	p.count, err = a.store.List(ctx, l.scope, q, func(r *Record) error {
		if p.rows++; p.rows > show {
			return nil
		}
		if p.rows > 1 {
			p.b = append(p.b, ',')
		}
		p.b = appendRecord(p.b, r, l.kind)
		p.last = position(r, q.Order.Column)
		return nil
	})
	return err
}

// keysetPage writes the page behind the row of the token.
func (a *API) keysetPage(ctx context.Context, l *listing, p *page) error {
	q, digest := l.query, l.digest("")
	if l.token != "" {
		id, err := paging.ParseToken(digest, l.token)
		switch {
		case errors.Is(err, paging.ErrOtherQuery):
			return problem.Query("continue", "match", l.token, "belongs to another query; go on with the parameters that it was given for, or begin anew without it")
		case err != nil:
			return problem.Query("continue", "format", l.token, "is not a token of this API; begin anew without it")
		}
		q.After.ID = id
	}
	q.Limit = l.size + 1 // the one more tells whether there is another page
	if err := a.read(ctx, l, q, l.size, p); err != nil {
		return err
	}
	p.b = append(p.b, `],"size":`...)
	p.b = strconv.AppendInt(p.b, int64(min(p.rows, l.size)), 10)
	if p.rows > l.size {
		token, err := paging.Token(digest, p.last.ID)
		if err != nil {
			return err
		}
		p.b = append(p.b, `,"continue":"`...)
		p.b = append(p.b, token...)
		p.b = append(p.b, '"')
	}
	p.b = append(p.b, '}')
	return nil
}

// A walker is a client that counts pages.
type walker struct{ subject, addr string }

// numberedPage writes the page with the number. It begins where the walker's
// last page ended, if that was the page before.
func (a *API) numberedPage(ctx context.Context, l *listing, who walker, p *page) error {
	q, digest := l.query, l.digest(who.subject)
	q.Limit, q.Count = l.size, true
	start, walking := a.walks.Start(digest, who.addr, l.page, time.Now())
	if walking {
		q.After, p.last = start, start
	} else {
		q.Offset = int64(l.page-1) * int64(l.size)
	}
	if err := a.read(ctx, l, q, l.size, p); err != nil {
		return err
	}
	if walking || l.page == 1 || p.rows > 0 {
		a.walks.Saw(digest, who.addr, l.page, start, p.last, time.Now())
	}
	p.b = append(p.b, `],"page":`...)
	p.b = strconv.AppendInt(p.b, int64(l.page), 10)
	p.b = append(p.b, `,"size":`...)
	p.b = strconv.AppendInt(p.b, int64(p.rows), 10)
	p.b = append(p.b, `,"total":`...)
	p.b = strconv.AppendInt(p.b, p.count, 10)
	p.b = append(p.b, '}')
	return nil
}

// position is where a record stands in an order by the column.
func position(r *Record, column search.Field) Position {
	p := Position{ID: r.ID}
	switch column { //nolint:exhaustive // the others are not sorted by
	case search.Name:
		p.Value = search.Value{Type: search.Text, Text: r.Name}
	case search.Generation:
		p.Value = search.Value{Type: search.Integer, Int: r.Generation}
	case search.CreatedTime:
		p.Value = search.Value{Type: search.Time, Time: r.CreatedTime}
	case search.UpdatedTime:
		p.Value = search.Value{Type: search.Time, Time: r.UpdatedTime}
	}
	return p
}
