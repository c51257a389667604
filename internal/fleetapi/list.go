package fleetapi

import (
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// maxKeptBuffer is the maximum size of a page buffer that is reused.
const maxKeptBuffer = 1 << 20

// listRoutes serve the lists of a kind.
type listRoutes struct {
	api  *API
	kind *kind
}

func (ls listRoutes) serveListOrChanges(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	if asksForChanges(r.URL.Query()) {
		return ls.api.serveChangesOrWatch(w, r, ls.kind, principal)
	}
	return ls.servePage(w, r, principal)
}

func (ls listRoutes) servePage(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	request, err := ls.preparePageRequest(r, principal)
	if err != nil {
		return err
	}
	ifNoneMatch := rest.ParseETagList(r.Header.Values("If-None-Match"))
	tag, err := ls.findUnchangedETag(r.Context(), request, ifNoneMatch)
	if err != nil {
		return err
	}
	if tag != "" {
		writeNotModified(w, tag)
		return nil
	}
	page := pageEncoder{json: append(ls.api.takePageBuffer(), `{"items":[`...)}
	defer func() { ls.api.keepPageBuffer(page.json) }()
	if err := ls.listAndEncodeRows(r.Context(), request, &page); err != nil {
		return err
	}
	if err := page.finishJSON(request); err != nil {
		return err
	}
	tag = ls.computePageETag(request, &page)
	if ifNoneMatch.Any { // any existing page matches
		writeNotModified(w, tag)
		return nil
	}
	w.Header().Set("Etag", tag)
	rest.WriteJSON(w, http.StatusOK, page.json)
	return nil
}

func (a *API) takePageBuffer() []byte {
	if buffer, ok := a.pageBuffers.Get().(*[]byte); ok {
		return *buffer
	}
	return nil
}

func (a *API) keepPageBuffer(buffer []byte) {
	if cap(buffer) <= maxKeptBuffer {
		buffer = buffer[:0]
		a.pageBuffers.Put(&buffer)
	}
}

// writeNotModified answers that the client's page is current.
func writeNotModified(w http.ResponseWriter, etag string) {
	w.Header().Set("Etag", etag)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusNotModified)
}

// A pageRequest is a page to read.
type pageRequest struct {
	*listParameters

	// maxRows is the maximum number of rows in the page. The query may ask for one more.
	maxRows int
	walk    numberedWalk
}

// A numberedWalk is the place of a numbered page in the walk of a client through the pages of a query. It is the zero
// value for other pages.
type numberedWalk struct {
	query  rest.QueryDigest
	client string
	// known reports whether the client's last page ended at start, where this page begins. Otherwise the rows before
	// the page are counted.
	known        bool
	start        Position
	encodedStart string
}

// preparePageRequest determines the page that a request selects, and where it begins.
func (ls listRoutes) preparePageRequest(r *http.Request, principal auth.Principal) (*pageRequest, error) {
	l, err := parseListParameters(ls.kind, r.URL.Query())
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
	request := &pageRequest{listParameters: l, maxRows: l.size}
	switch {
	case l.ids:
		request.maxRows = len(l.query.IDs)
		request.query.Limit = request.maxRows
	case l.keyset:
		request.query.Limit = l.size + 1 // the extra row shows whether there is another page
		request.query.After, err = l.parseContinueToken()
	default:
		ls.setNumberedPageStart(request, principal.Actor(), r.RemoteAddr)
	}
	return request, err
}

// limitToExistingParent limits a list to the children of a resource, which must exist.
func (ls listRoutes) limitToExistingParent(ctx context.Context, request *listParameters, parentID string) error {
	parentKind := ls.kind.parent
	id, err := parseResourceID(parentKind, parentID)
	if err != nil {
		return err
	}
	_, err = ls.api.store.Get(ctx, request.scope, Key{parentKind.name, id})
	if errors.Is(err, ErrNotFound) {
		return newNotFoundError(parentKind, id)
	}
	request.query.ParentID = id
	return err
}

// setNumberedPageStart lets a page begin where the client's last page ended. If that is not known, it counts rows.
func (ls listRoutes) setNumberedPageStart(request *pageRequest, subject, client string) {
	walk := numberedWalk{query: request.computeQueryDigest(subject), client: client}
	walk.encodedStart, walk.known = ls.api.walks.FindPageStart(walk.query, client, request.page, time.Now())
	request.query.Limit, request.query.Count = request.size, true
	if walk.known {
		walk.start, _ = decodePosition([]byte(walk.encodedStart), request.query.Order) // the order is part of the query, so it matches
		request.query.After = walk.start
	} else {
		request.query.Offset = int64(request.page-1) * int64(request.size)
	}
	request.walk = walk
}

// recordPage records where a numbered page ended, so that the client's next page begins there.
func (ls listRoutes) recordPage(request *pageRequest, encodedEnd string) {
	ls.api.walks.RecordPage(request.walk.query, request.walk.client, request.page, request.walk.encodedStart, encodedEnd, time.Now())
}

// errPageFull ends the read of a page that is large enough.
var errPageFull = errors.New("the page is full")

// A pageEncoder is a page under construction.
type pageEncoder struct {
	json     []byte
	rows     int      // in the page
	full     bool     // another row was read that is not in the page
	last     Position // of the last row in the page
	snapshot Page
}

func (ls listRoutes) listAndEncodeRows(ctx context.Context, request *pageRequest, page *pageEncoder) error {
	page.last = request.walk.start
	var err error
	page.snapshot, err = ls.api.store.List(ctx, request.scope, request.query, func(record *Record) error {
		return page.addRowUnlessFull(request, record, ls.api.pageBytes)
	})
	switch {
	case errors.Is(err, errPageFull) && request.keyset:
		return nil
	case errors.Is(err, errPageFull):
		return newPageTooLargeError(request, page.rows)
	case err != nil || !request.isNumbered():
		return err
	}
	if request.walk.known || request.page == 1 || page.rows > 0 {
		ls.recordPage(request, string(appendEncodedPosition(nil, page.last)))
	}
	return nil
}

// newPageTooLargeError returns the problem of a page that cannot end early: the client would miss the other rows.
func newPageTooLargeError(request *pageRequest, fittingRows int) error {
	if request.ids {
		return rest.NewQueryError("ids", "max", "", "names large resources; give at most %d of these ids", fittingRows)
	}
	return rest.NewQueryError("size", "max", strconv.Itoa(request.size),
		"must be at most %d here, because the resources are large; or use limit and continue", fittingRows)
}

// addRowUnlessFull appends a row, or notes that there is another page. It returns errPageFull if more rows may follow.
func (p *pageEncoder) addRowUnlessFull(request *pageRequest, record *Record, maxBytes int) error {
	switch {
	case p.rows == request.maxRows:
		p.full = true
		return nil
	case p.rows > 0 && len(p.json) > maxBytes:
		p.full = true
		return errPageFull
	}
	if p.rows++; p.rows > 1 {
		p.json = append(p.json, ',')
	}
	p.json = request.fields.appendRecordFields(p.json, record, request.kind)
	p.last = newRecordPosition(record, request.query.Order)
	return nil
}

// finishJSON appends the members that follow the rows.
func (p *pageEncoder) finishJSON(request *pageRequest) error {
	p.json = append(p.json, ']')
	if request.isNumbered() {
		p.json = strconv.AppendInt(append(p.json, `,"page":`...), int64(request.page), 10)
	}
	p.json = strconv.AppendInt(append(p.json, `,"size":`...), int64(p.rows), 10)
	if request.isNumbered() {
		p.json = strconv.AppendInt(append(p.json, `,"total":`...), p.snapshot.Count, 10)
	}
	if request.keyset {
		p.json = append(append(p.json, `,"cursor":"`...), p.snapshot.State.CursorBeforePending().String()...)
		p.json = append(p.json, '"')
	}
	if p.full {
		token, err := request.newContinueToken(p.last)
		if err != nil {
			return err
		}
		p.json = append(append(p.json, `,"continue":"`...), token...)
		p.json = append(p.json, '"')
	}
	p.json = append(p.json, '}')
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
	digest := ls.computePageDigest(request, &state)
	if !request.isNumbered() {
		_, found := ifNoneMatch.FindMatchingTag(func(value string) bool { return value == digest })
		if found || ifNoneMatch.Any {
			return rest.QuoteETag(digest), nil
		}
		return "", nil
	}
	tag, found := ifNoneMatch.FindMatchingTag(func(value string) bool {
		return value == digest || strings.HasPrefix(value, digest+".")
	})
	if !found {
		return "", nil
	}
	end, ok := decodeTagPosition(strings.TrimPrefix(tag[len(digest):], "."), request.query.Order)
	if !ok {
		return "", nil
	}
	ls.recordPage(request, end)
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
	tag := ls.computePageDigest(request, &page.snapshot.State)
	if request.isNumbered() {
		tag += "." + base64.RawURLEncoding.EncodeToString(appendEncodedPosition(nil, page.last))
	}
	return rest.QuoteETag(tag)
}

// computePageDigest returns a digest of everything that the bytes of a page depend on.
func (ls listRoutes) computePageDigest(request *pageRequest, state *watch.FeedState) string {
	queryDigest := request.computeQueryDigest("")
	digest := rest.DigestQuery(
		ls.api.version, string(queryDigest[:]),
		request.token, strconv.FormatBool(request.keyset), strconv.Itoa(request.page), strconv.Itoa(request.size),
		strconv.FormatBool(request.walk.known), request.walk.encodedStart, string(state.AppendEncoded(nil)),
	)
	return base64.RawURLEncoding.EncodeToString(digest[:16])
}
