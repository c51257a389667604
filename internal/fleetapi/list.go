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

func (ls listRoutes) newListOrChangesHandler(k *kind) handler {
	buffers := sync.Pool{New: func() any { return new([]byte) }}
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		if asksForChanges(r.URL.Query()) {
			return ls.api.serveChangesOrWatch(w, r, k, who)
		}
		rd, err := ls.preparePageRequest(r, k, who)
		if err != nil {
			return err
		}
		have := rest.ParseETagList(r.Header.Values("If-None-Match"))
		tag, err := ls.findUnchangedETag(r.Context(), rd, have)
		if err != nil {
			return err
		}
		if tag != "" {
			writeNotModified(w, tag)
			return nil
		}
		buffer := buffers.Get().(*[]byte) //nolint:errcheck // nothing else is put in
		p := pageEncoder{b: append((*buffer)[:0], `{"items":[`...)}
		err = ls.listAndEncodePageRows(r.Context(), rd, &p)
		if err == nil {
			err = p.finishPageJSON(rd)
		}
		switch {
		case err != nil:
		case have.Any: // any existing page matches
			writeNotModified(w, ls.computePageETag(rd, &p))
		default:
			w.Header().Set("Etag", ls.computePageETag(rd, &p))
			writeJSON(w, http.StatusOK, p.b)
		}
		if cap(p.b) <= maxKeptBuffer {
			*buffer = p.b
			buffers.Put(buffer)
		}
		return err
	}
}

// writeNotModified answers that the client's page is current.
func writeNotModified(w http.ResponseWriter, etag string) {
	w.Header().Set("Etag", etag)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotModified)
}

// A walker identifies a client that pages by number.
type walker struct{ subject, addr string }

// A pageRequest is a page read in progress.
type pageRequest struct {
	*listParameters

	query Query
	// show is the maximum number of rows in the page.
	show int

	// For a numbered page: the client, and where the page begins if the walker's last page ended
	// there.
	who     walker
	walk    rest.QueryDigest
	walking bool
	start   Position
	// startAt is start as encoded by appendEncodedPosition.
	startAt string
}

// preparePageRequest determines the page that a request selects, and where it begins.
func (ls listRoutes) preparePageRequest(r *http.Request, k *kind, principal auth.Principal) (*pageRequest, error) {
	l, err := parseListParameters(k, r.URL.Query())
	if err != nil {
		return nil, err
	}
	if l.scope, err = authorizeList(principal); err != nil {
		return nil, err
	}
	if parent := r.PathValue("parent"); parent != "" {
		if err := ls.limitToExistingParent(r.Context(), l, parent); err != nil {
			return nil, err
		}
	}
	rd := &pageRequest{listParameters: l, query: l.query, show: l.size}
	switch {
	case l.ids:
		rd.show = len(l.query.IDs)
		rd.query.Limit = rd.show
	case l.keyset:
		rd.query.Limit = l.size + 1 // the extra row shows whether there is another page
		rd.query.After, err = l.parseContinueToken()
	default:
		rd.query.Limit, rd.query.Count = l.size, true
		rd.who, rd.walk = walker{principal.Actor(), r.RemoteAddr}, l.computeQueryDigest(principal.Actor())
		rd.startAt, rd.walking = ls.api.walks.FindPageStart(rd.walk, rd.who.addr, l.page, time.Now())
		if rd.walking {
			rd.start, _ = decodePosition([]byte(rd.startAt), l.query.Order) // the order is part of the walk, so it matches
			rd.query.After = rd.start
		} else {
			rd.query.Offset = int64(l.page-1) * int64(l.size)
		}
	}
	return rd, err
}

// limitToExistingParent limits a list to the children of a resource, which must exist.
func (ls listRoutes) limitToExistingParent(ctx context.Context, request *listParameters, parentID string) error {
	id, err := parseResourceID(request.kind.parent, parentID)
	if err != nil {
		return err
	}
	_, err = ls.api.store.Get(ctx, request.scope, Key{request.kind.parent.name, id})
	if errors.Is(err, ErrNotFound) {
		return newNotFoundError(request.kind.parent, id)
	}
	request.query.ParentID = id
	return err
}

// A pageEncoder is a page under construction.
type pageEncoder struct {
	b    []byte
	rows int
	last Position // of the last row in b
	from Page
}

// listAndEncodePageRows appends the rows of a page.
func (ls listRoutes) listAndEncodePageRows(ctx context.Context, request *pageRequest, into *pageEncoder) (err error) {
	if request.walking {
		into.last = request.start
	}
	into.from, err = ls.api.store.List(ctx, request.scope, request.query, func(r *Record) error {
		if into.rows++; into.rows > request.show {
			return nil
		}
		if into.rows > 1 {
			into.b = append(into.b, ',')
		}
		into.b = request.fields.appendRecordFields(into.b, r, request.kind)
		into.last = newRecordPosition(r, request.query.Order)
		return nil
	})
	if err == nil && request.page > 0 && (request.walking || request.page == 1 || into.rows > 0) {
		ls.api.walks.RecordPage(request.walk, request.who.addr, request.page, request.startAt, string(appendEncodedPosition(nil, into.last)), time.Now())
	}
	return err
}

// finishPageJSON appends the members that follow the rows.
func (p *pageEncoder) finishPageJSON(request *pageRequest) error {
	p.b = append(p.b, ']')
	if request.page > 0 {
		p.b = strconv.AppendInt(append(p.b, `,"page":`...), int64(request.page), 10)
	}
	p.b = strconv.AppendInt(append(p.b, `,"size":`...), int64(min(p.rows, request.show)), 10)
	if request.page > 0 {
		p.b = strconv.AppendInt(append(p.b, `,"total":`...), p.from.Count, 10)
	}
	if request.keyset {
		p.b = append(append(p.b, `,"cursor":"`...), p.from.State.CursorBeforePending().String()...)
		p.b = append(p.b, '"')
	}
	if request.keyset && p.rows > request.show {
		token, err := request.newContinueToken(p.last)
		if err != nil {
			return err
		}
		p.b = append(append(p.b, `,"continue":"`...), token...)
		p.b = append(p.b, '"')
	}
	p.b = append(p.b, '}')
	return nil
}

// findUnchangedETag returns the tag of a page that the client already has, or "". It reads only the changes
// and not the page: the page follows from the changes, its start, and the program version.
func (ls listRoutes) findUnchangedETag(ctx context.Context, request *pageRequest, ifNoneMatch rest.ETagList) (tag string, err error) {
	if !ifNoneMatch.Given {
		return "", nil
	}
	state, err := ls.api.store.ReadFeedState(ctx, request.kind.name)
	if err != nil {
		return "", err
	}
	prefix := ls.computePageDigest(request, &state)
	if ifNoneMatch.Any && request.page == 0 {
		return rest.QuoteETag(prefix), nil
	}
	tag, ok := ifNoneMatch.FindMatchingTag(func(value string) bool {
		return value == prefix || request.page > 0 && strings.HasPrefix(value, prefix+".")
	})
	if !ok {
		return "", nil
	}
	if request.page > 0 {
		end, ok := decodeTagPosition(tag[min(len(prefix)+1, len(tag)):], request.query.Order)
		if !ok {
			return "", nil
		}
		ls.api.walks.RecordPage(request.walk, request.who.addr, request.page, request.startAt, end, time.Now())
	}
	return rest.QuoteETag(tag), nil
}

// decodeTagPosition returns the position at the end of a tag, as encoded by appendEncodedPosition. A tag that
// this API did not issue has none.
func decodeTagPosition(encoded string, order []Order) (position string, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(encoded)
	if err == nil {
		_, ok = decodePosition(b, order)
	}
	return string(b), ok
}

// computePageETag returns the ETag of a page. The tag of a numbered page includes where the page ended, so
// that a client that has this page can continue from there without reading it again.
func (ls listRoutes) computePageETag(request *pageRequest, page *pageEncoder) string {
	tag := ls.computePageDigest(request, &page.from.State)
	if request.page > 0 {
		tag += "." + base64.RawURLEncoding.EncodeToString(appendEncodedPosition(nil, page.last))
	}
	return rest.QuoteETag(tag)
}

// computePageDigest returns a digest of everything that the bytes of a page depend on.
func (ls listRoutes) computePageDigest(request *pageRequest, state *watch.FeedState) string {
	of := request.computeQueryDigest("")
	d := rest.DigestQuery(ls.api.version, string(of[:]), request.token, strconv.FormatBool(request.keyset), strconv.Itoa(request.page), strconv.Itoa(request.size),
		strconv.FormatBool(request.walking), request.startAt, string(state.AppendEncoded(nil)))
	return base64.RawURLEncoding.EncodeToString(d[:16])
}
