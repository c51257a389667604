package fleetapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A changesRequest is a parsed request for changes.
type changesRequest struct {
	kind   *kind
	scope  Scope
	labels selector.Selector
	// after is the cursor to begin after, nil for now.
	after *watch.Cursor
	limit int
	// watch reports whether the client also wants future changes.
	watch bool
}

// asksForChanges reports whether a request on a collection asks for changes and not
// for a page.
func asksForChanges(query url.Values) bool {
	wanted, err := strconv.ParseBool(query.Get("watch"))
	return query.Has("changed_since") || query.Has("watch") && (wanted || err != nil)
}

// parseChangesRequest parses the parameters of a request for changes. It refuses a parameter that has no
// effect on changes, because the answer would not match the request.
func parseChangesRequest(r *http.Request, k *kind) (*changesRequest, error) {
	v := r.URL.Query()
	if err := checkQueryParameters(v, "labels", "changed_since", "watch", "limit"); err != nil {
		return nil, err
	}
	f := &changesRequest{kind: k}
	var err error
	if v.Has("watch") {
		if f.watch, err = strconv.ParseBool(v.Get("watch")); err != nil {
			return nil, rest.NewQueryError("watch", "format", v.Get("watch"), "must be true or false")
		}
	}
	with, excluded := "changed_since", []string{"search", "fields", "page", "size", "pageSize", "order", "orderBy", "continue", "ids"}
	if f.watch {
		with, excluded = "watch", append(excluded, "limit")
	}
	for _, name := range excluded {
		if v.Has(name) {
			return nil, rest.NewQueryError(name, "format", v.Get(name), "cannot be combined with %s", with)
		}
	}
	if r.PathValue("parent") != "" {
		return nil, rest.NewQueryError(with, "format", v.Get(with), "is only supported for all %s at once; use it on /%s", k.collection, k.collection)
	}
	if f.labels, err = parseLabelSelector(v.Get("labels")); err != nil {
		return nil, err
	}
	if f.limit, err = parsePositiveNumber(v, "limit", maxSize, maxSize); err != nil {
		return nil, err
	}
	return f, f.parseStartCursor(r)
}

// parseStartCursor parses the cursor to begin after. The last event id of a server-sent events client
// takes precedence over the cursor in the URL.
func (f *changesRequest) parseStartCursor(r *http.Request) error {
	text, given := r.URL.Query().Get("changed_since"), r.URL.Query().Has("changed_since")
	header := f.watch && r.Header.Get(watch.LastEventIDHeader) != ""
	if header {
		text, given = r.Header.Get(watch.LastEventIDHeader), true
	}
	if !given {
		return nil
	}
	after, err := watch.ParseCursor(text)
	if err != nil && header {
		return rest.NewError(rest.CodeInvalidQuery, "the header %s is not a cursor of this API; send the id of the last event, or start again without it", watch.LastEventIDHeader)
	}
	if err != nil {
		return rest.NewQueryError("changed_since", "format", text, "is not a cursor of this API; use the cursor of a list or of the last response")
	}
	f.after = &after
	return nil
}

// serveChangesOrWatch answers with the changes of a collection.
func (a *API) serveChangesOrWatch(w http.ResponseWriter, r *http.Request, k *kind, principal auth.Principal) error {
	f, err := parseChangesRequest(r, k)
	if err != nil {
		return err
	}
	if f.scope, err = authorizeList(principal); err != nil {
		return err
	}
	if f.watch {
		return a.serveWatch(w, r, f, principal)
	}
	c := changesEncoder{b: []byte(`{"items":[`), removed: []byte(`],"removed":[`)}
	q := ChangeQuery{Kind: k.name, After: *f.after, Limit: f.limit}
	next, more, err := a.store.VisitChanges(r.Context(), f.scope, q, func(change *Change) error { return c.addChangeIfVisible(f, change) })
	if err != nil {
		return toExpiredCursorProblem(err)
	}
	writeJSON(w, http.StatusOK, c.finishJSON(next, more))
	return nil
}

// toExpiredCursorProblem converts an expired cursor into a problem.
func toExpiredCursorProblem(err error) error {
	if errors.Is(err, ErrCursorExpired) {
		return rest.NewError(rest.CodeCursorExpired, "the changes since this cursor are no longer retained; list everything again and continue from the cursor of that list")
	}
	return err
}

// changesEncoder builds a v1.Changes.
type changesEncoder struct {
	b, removed  []byte
	items, gone int
}

func (c *changesEncoder) addChangeIfVisible(request *changesRequest, change *Change) error {
	is, err := request.classifyChange(change)
	switch {
	case err != nil:
		return err
	case is == seesIt:
		if c.items++; c.items > 1 {
			c.b = append(c.b, ',')
		}
		c.b = appendRecordJSON(c.b, change.Record, request.kind)
	case is == seesItGo:
		if c.gone++; c.gone > 1 {
			c.removed = append(c.removed, ',')
		}
		c.removed = appendQuotedText(c.removed, change.Key.ID)
	}
	return nil
}

func (c *changesEncoder) finishJSON(next watch.Cursor, hasMore bool) []byte {
	b := append(c.b, c.removed...)
	b = strconv.AppendInt(append(b, `],"size":`...), int64(c.items), 10)
	b = append(append(b, `,"cursor":"`...), next.String()...)
	return append(strconv.AppendBool(append(b, `","more":`...), hasMore), '}')
}

// A visibility classifies a change for a client with a selector.
type visibility int

const (
	seesNothing visibility = iota
	seesIt
	seesItGo
)

// classifyChange classifies a change for the client. A row that does not match now can have matched
// before only if its labels changed.
func (f *changesRequest) classifyChange(change *Change) (visibility, error) {
	if change.Record == nil {
		return seesItGo, nil
	}
	if f.labels.Empty() {
		return seesIt, nil
	}
	var labels selector.Map
	if err := json.Unmarshal(change.Record.Labels, &labels); err != nil {
		return seesNothing, fmt.Errorf("get the labels of %s %q: %w", change.Key.Kind, change.Key.ID, err)
	}
	switch {
	case f.labels.Matches(labels):
		return seesIt, nil
	case change.Relabelled:
		return seesItGo, nil
	}
	return seesNothing, nil
}
