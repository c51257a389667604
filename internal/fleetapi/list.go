package fleetapi

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// maxKeptBuffer is the maximum size of a page buffer that is reused.
const maxKeptBuffer = 1 << 20

// listRoutes serve the lists of each kind.
type listRoutes struct{ api *API }

func (ls listRoutes) list(k *kind) handler {
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		if wantsChanges(r.URL.Query()) {
			return ls.api.serveChanges(w, r, k, who)
		}
		rd, err := ls.parseListRequest(r, k, who)
		if err != nil {
			return err
		}
		have := rest.ParseETags(r.Header.Values("If-None-Match"))
		tag, err := ls.matchingETag(r.Context(), rd, have)
		if err != nil {
			return err
		}
		if tag != "" {
			notModified(w, tag)
			return nil
		}
		buffer := buffers.Get().(*[]byte) //nolint:errcheck // nothing else is put in
		p := page{b: append((*buffer)[:0], `{"items":[`...)}
		err = ls.readRows(r.Context(), rd, &p)
		if err == nil {
			err = p.finishPage(rd)
		}
		switch {
		case err != nil:
		case have.Any: // any existing page matches
			notModified(w, ls.pageETag(rd, &p))
		default:
			w.Header().Set("Etag", ls.pageETag(rd, &p))
			writeJSON(w, http.StatusOK, p.b)
		}
		if cap(p.b) <= maxKeptBuffer {
			*buffer = p.b
			buffers.Put(buffer)
		}
		return err
	}
}

// notModified answers that the client's page is current.
func notModified(w http.ResponseWriter, tag string) {
	w.Header().Set("Etag", tag)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotModified)
}

// A walker identifies a client that pages by number.
type walker struct{ subject, addr string }

// A reading is a page read in progress.
type reading struct {
	*listing

	query Query
	// show is the maximum number of rows in the page.
	show int

	// For a numbered page: the client, and where the page begins if the walker's last page ended
	// there.
	who     walker
	walk    rest.QueryDigest
	walking bool
	start   Position
	// startAt is start as encoded by appendPosition.
	startAt string
}

// parseListRequest determines the page that a request selects, and where it begins.
func (ls listRoutes) parseListRequest(r *http.Request, k *kind, who auth.Principal) (*reading, error) {
	l, err := parseListing(k, r.URL.Query())
	if err != nil {
		return nil, err
	}
	if l.scope, err = listScope(who); err != nil {
		return nil, err
	}
	if parent := r.PathValue("parent"); parent != "" {
		if err := ls.narrowToParent(r.Context(), l, parent); err != nil {
			return nil, err
		}
	}
	rd := &reading{listing: l, query: l.query, show: l.size}
	switch {
	case l.ids:
		rd.show = len(l.query.IDs)
		rd.query.Limit = rd.show
	case l.keyset:
		rd.query.Limit = l.size + 1 // the extra row shows whether there is another page
		rd.query.After, err = l.parseContinueToken()
	default:
		rd.query.Limit, rd.query.Count = l.size, true
		rd.who, rd.walk = walker{who.Subject, r.RemoteAddr}, l.queryDigest(who.Subject)
		rd.startAt, rd.walking = ls.api.walks.FindStart(rd.walk, rd.who.addr, l.page, time.Now())
		if rd.walking {
			rd.start, _ = readPosition([]byte(rd.startAt), l.query.Order) // the order is part of the walk, so it matches
			rd.query.After = rd.start
		} else {
			rd.query.Offset = int64(l.page-1) * int64(l.size)
		}
	}
	return rd, err
}

// narrowToParent limits a list to the children of a resource, which must exist.
func (ls listRoutes) narrowToParent(ctx context.Context, l *listing, parent string) error {
	id, err := parseID(l.kind.parent, parent)
	if err != nil {
		return err
	}
	_, err = ls.api.store.Get(ctx, l.scope, Key{l.kind.parent.name, id})
	if errors.Is(err, ErrNotFound) {
		return notFound(l.kind.parent, id)
	}
	l.query.ParentID = id
	return err
}

// A page is a page under construction.
type page struct {
	b    []byte
	rows int
	last Position // of the last row in b
	from Page
}

// readRows appends the rows of a page.
func (ls listRoutes) readRows(ctx context.Context, rd *reading, p *page) (err error) {
	if rd.walking {
		p.last = rd.start
	}
	p.from, err = ls.api.store.List(ctx, rd.scope, rd.query, func(r *Record) error {
		if p.rows++; p.rows > rd.show {
			return nil
		}
		if p.rows > 1 {
			p.b = append(p.b, ',')
		}
		p.b = rd.fields.appendTo(p.b, r, rd.kind)
		p.last = recordPosition(r, rd.query.Order)
		return nil
	})
	if err == nil && rd.page > 0 && (rd.walking || rd.page == 1 || p.rows > 0) {
		ls.api.walks.RecordPage(rd.walk, rd.who.addr, rd.page, rd.startAt, string(appendPosition(nil, p.last)), time.Now())
	}
	return err
}

// finishPage appends the members that follow the rows.
func (p *page) finishPage(rd *reading) error {
	p.b = append(p.b, ']')
	if rd.page > 0 {
		p.b = strconv.AppendInt(append(p.b, `,"page":`...), int64(rd.page), 10)
	}
	p.b = strconv.AppendInt(append(p.b, `,"size":`...), int64(min(p.rows, rd.show)), 10)
	if rd.page > 0 {
		p.b = strconv.AppendInt(append(p.b, `,"total":`...), p.from.Count, 10)
	}
	if rd.keyset {
		p.b = append(append(p.b, `,"cursor":"`...), p.from.State.Cursor().String()...)
		p.b = append(p.b, '"')
	}
	if rd.keyset && p.rows > rd.show {
		token, err := rd.continueToken(p.last)
		if err != nil {
			return err
		}
		p.b = append(append(p.b, `,"continue":"`...), token...)
		p.b = append(p.b, '"')
	}
	p.b = append(p.b, '}')
	return nil
}

// matchingETag returns the tag of a page that the client already has, or "". It reads only the changes
// and not the page: the page follows from the changes, its start, and the program version.
func (ls listRoutes) matchingETag(ctx context.Context, rd *reading, have rest.ETagList) (tag string, err error) {
	if !have.Given {
		return "", nil
	}
	state, err := ls.api.store.State(ctx, rd.kind.name)
	if err != nil {
		return "", err
	}
	prefix := ls.pageDigest(rd, &state)
	if have.Any && rd.page == 0 {
		return rest.QuoteETag(prefix), nil
	}
	tag, ok := have.Find(func(value string) bool { return value == prefix || rd.page > 0 && strings.HasPrefix(value, prefix+".") })
	if !ok {
		return "", nil
	}
	if rd.page > 0 {
		end, ok := decodePosition(tag[min(len(prefix)+1, len(tag)):], rd.query.Order)
		if !ok {
			return "", nil
		}
		ls.api.walks.RecordPage(rd.walk, rd.who.addr, rd.page, rd.startAt, end, time.Now())
	}
	return rest.QuoteETag(tag), nil
}

// decodePosition returns the position at the end of a tag, as encoded by appendPosition. A tag that
// this API did not issue has none.
func decodePosition(text string, order []Order) (position string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(text)
	if err == nil {
		_, ok = readPosition(b, order)
	}
	return string(b), ok
}

// pageETag returns the ETag of a page. The tag of a numbered page includes where the page ended, so
// that a client that has this page can continue from there without reading it again.
func (ls listRoutes) pageETag(rd *reading, p *page) string {
	tag := ls.pageDigest(rd, &p.from.State)
	if rd.page > 0 {
		tag += "." + base64.RawURLEncoding.EncodeToString(appendPosition(nil, p.last))
	}
	return rest.QuoteETag(tag)
}

// pageDigest returns a digest of everything that the bytes of a page depend on.
func (ls listRoutes) pageDigest(rd *reading, state *watch.FeedState) string {
	of := rd.queryDigest("")
	d := rest.DigestQuery(ls.api.version, string(of[:]), rd.token, strconv.FormatBool(rd.keyset), strconv.Itoa(rd.page), strconv.Itoa(rd.size),
		strconv.FormatBool(rd.walking), rd.startAt, string(state.Append(nil)))
	return base64.RawURLEncoding.EncodeToString(d[:16])
}
