package fleetapi

import (
	"context"
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

// asksForChanges reports whether a request on a collection asks for changes and not for a page.
func asksForChanges(query url.Values) bool {
	wanted, err := strconv.ParseBool(query.Get("watch"))
	return query.Has("changed_since") || query.Has("watch") && (wanted || err != nil)
}

// parseChangesRequest parses the parameters of a request for changes. It refuses a parameter that has no
// effect on changes, because the answer would not match the request.
func parseChangesRequest(r *http.Request, k *kind) (*changesRequest, error) {
	parameters := r.URL.Query()
	if err := checkQueryParameters(parameters, "labels", "changed_since", "watch", "limit"); err != nil {
		return nil, err
	}
	request := &changesRequest{kind: k}
	var err error
	if parameters.Has("watch") {
		if request.watch, err = strconv.ParseBool(parameters.Get("watch")); err != nil {
			return nil, rest.NewQueryError("watch", "format", parameters.Get("watch"), "must be true or false")
		}
	}
	mode, excluded := "changed_since", []string{"search", "fields", "page", "size", "pageSize", "order", "orderBy", "continue", "ids"}
	if request.watch {
		mode, excluded = "watch", append(excluded, "limit")
	}
	for _, name := range excluded {
		if parameters.Has(name) {
			return nil, rest.NewQueryError(name, "format", parameters.Get(name), "cannot be combined with %s", mode)
		}
	}
	if r.PathValue("parent") != "" {
		return nil, rest.NewQueryError(mode, "format", parameters.Get(mode), "is only supported for all %s at once; use it on /%s", k.collection, k.collection)
	}
	if request.labels, err = parseLabelSelector(parameters.Get("labels")); err != nil {
		return nil, err
	}
	if request.limit, err = parsePositiveNumber(parameters, "limit", maxSize, maxSize); err != nil {
		return nil, err
	}
	request.after, err = parseStartCursor(r, request.watch)
	return request, err
}

// parseStartCursor parses the cursor to begin after, nil for none. The last event id of a server-sent events client
// takes precedence over the cursor in the URL.
func parseStartCursor(r *http.Request, isWatch bool) (*watch.Cursor, error) {
	if lastEvent := r.Header.Get(watch.LastEventIDHeader); isWatch && lastEvent != "" {
		after, err := watch.ParseCursor(lastEvent)
		if err != nil {
			return nil, rest.NewError(
				rest.CodeInvalidQuery,
				"the header %s is not a cursor of this API; send the id of the last event, or start again without it",
				watch.LastEventIDHeader,
			)
		}
		return &after, nil
	}
	parameters := r.URL.Query()
	if !parameters.Has("changed_since") {
		return nil, nil //nolint:nilnil // there is none
	}
	text := parameters.Get("changed_since")
	after, err := watch.ParseCursor(text)
	if err != nil {
		return nil, rest.NewQueryError(
			"changed_since",
			"format",
			text,
			"is not a cursor of this API; use the cursor of a list or of the last response",
		)
	}
	return &after, nil
}

func (a *API) serveChangesOrWatch(w http.ResponseWriter, r *http.Request, k *kind, principal auth.Principal) error {
	request, err := parseChangesRequest(r, k)
	if err != nil {
		return err
	}
	if request.scope, err = authorizeList(principal); err != nil {
		return err
	}
	if request.watch {
		return a.serveWatch(w, r, request, principal)
	}
	changesJSON, err := a.readChanges(r.Context(), request)
	if err != nil {
		return toExpiredCursorProblem(err)
	}
	rest.WriteJSON(w, http.StatusOK, changesJSON)
	return nil
}

// readChanges returns a page of changes as JSON. A page that grows too large is read again with a lower limit. It cannot
// just end early: a row whose labels changed before that end, and which changed again after it, would not be in it.
func (a *API) readChanges(ctx context.Context, request *changesRequest) ([]byte, error) {
	q := ChangeQuery{Kind: request.kind.name, After: *request.after, Limit: request.limit}
	for {
		encoder := changesEncoder{items: []byte(`{"items":[`), removed: []byte(`],"removed":[`)}
		rows := 0
		next, hasMore, err := a.store.VisitChanges(ctx, request.scope, q, func(change *Change) error {
			if rows > 0 && len(encoder.items) > a.pageBytes {
				return errPageFull
			}
			rows++
			return encoder.addChangeIfVisible(request, change)
		})
		switch {
		case errors.Is(err, errPageFull):
			q.Limit = max(1, min(rows, q.Limit/2))
		case err != nil:
			return nil, err
		default:
			return encoder.finishJSON(next, hasMore), nil
		}
	}
}

func toExpiredCursorProblem(err error) error {
	if errors.Is(err, ErrCursorExpired) {
		return rest.NewError(
			rest.CodeCursorExpired,
			"the changes since this cursor are no longer retained; list everything again and continue from the cursor of that list",
		)
	}
	return err
}

// changesEncoder builds a v1.Changes.
type changesEncoder struct {
	items, removed          []byte // the JSON of the two lists
	itemCount, removedCount int
}

func (c *changesEncoder) addChangeIfVisible(request *changesRequest, change *Change) error {
	seenAs, err := request.classifyAsItemOrRemoval(change)
	if err != nil {
		return err
	}
	switch seenAs {
	case changeInvisible:
	case changeVisible:
		if c.itemCount++; c.itemCount > 1 {
			c.items = append(c.items, ',')
		}
		c.items = appendRecordJSON(c.items, change.Record, request.kind)
	case changeRemoves:
		if c.removedCount++; c.removedCount > 1 {
			c.removed = append(c.removed, ',')
		}
		c.removed = appendQuotedText(c.removed, change.Key.ID)
	}
	return nil
}

func (c *changesEncoder) finishJSON(next watch.Cursor, hasMore bool) []byte {
	b := append(c.items, c.removed...)
	b = strconv.AppendInt(append(b, `],"size":`...), int64(c.itemCount), 10)
	b = append(append(b, `,"cursor":"`...), next.String()...)
	return append(strconv.AppendBool(append(b, `","more":`...), hasMore), '}')
}

// A visibility classifies a change for a client with a selector.
type visibility int

const (
	changeInvisible visibility = iota
	changeVisible
	// changeRemoves means that the client no longer sees the resource.
	changeRemoves
)

// classifyAsItemOrRemoval classifies a change for the client. A row that does not match now can have matched
// before only if its labels changed.
func (cr *changesRequest) classifyAsItemOrRemoval(change *Change) (visibility, error) {
	if change.Record == nil {
		return changeRemoves, nil
	}
	if cr.labels.Empty() {
		return changeVisible, nil
	}
	var labels selector.Map
	if err := json.Unmarshal(change.Record.Labels, &labels); err != nil {
		return changeInvisible, fmt.Errorf("get the labels of %s %q: %w", change.Key.Kind, change.Key.ID, err)
	}
	switch {
	case cr.labels.Matches(labels):
		return changeVisible, nil
	case change.Relabelled:
		return changeRemoves, nil
	}
	return changeInvisible, nil
}
