package timeline

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
	"github.com/fleetloop/fleetloop/internal/fleetapi/sse"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// streamEvents streams new events to the client for as long as it listens.
func (t *Timeline) streamEvents(w http.ResponseWriter, r *http.Request, scope Scope, who auth.Principal) error {
	v := r.URL.Query()
	if err := checkParameters(v, "cluster", "node", "subject", "session", "field", "actor", "source", "action", "after"); err != nil {
		return err
	}
	for _, name := range []string{"since", "until", "limit", "continue"} {
		if v.Has(name) {
			return problem.Query(name, "format", v.Get(name), "is not supported for streams, which send new events only; list past events first, then stream with after=<cursor of that list>")
		}
	}
	filter, err := parseFilter(v)
	if err != nil {
		return err
	}
	after, err := parseAfter(r)
	if err != nil {
		return err
	}
	return sse.Serve(w, r, sse.Watch{
		Hub: t.hub, Log: t.log, Expired: asProblem,
		Request: watch.Request{
			Tenant: scope.Tenant, All: scope.All, Labels: &filter, After: after,
			Until: sse.Until(time.Now(), who), Allowed: t.recheckAccess(r.Header.Get("Authorization"), scope),
		},
	})
}

// parseAfter parses the start of a stream: the client's last event, else the parameter after, else
// now.
func parseAfter(r *http.Request) (*feed.Cursor, error) {
	text, header := r.Header.Get(sse.LastEventID), true
	if text == "" {
		text, header = r.URL.Query().Get("after"), false
	}
	if text == "" {
		return nil, nil //nolint:nilnil // now
	}
	after, err := feed.Parse(text)
	switch {
	case err == nil:
		return &after, nil
	case header:
		return nil, problem.New(problem.InvalidQuery, "the header %s is not a cursor of this API; send the id of the last event, or start again without it", sse.LastEventID)
	}
	return nil, problem.Query("after", "format", text, "is not a cursor of this API; use the cursor of a list or the id of an event")
}

// recheckAccess returns a check that the token of a stream still has the same scope.
func (t *Timeline) recheckAccess(authorization string, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := t.authenticate(ctx, authorization)
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == problem.Unavailable {
			return nil // it was valid before, and is checked again later
		}
		if err != nil {
			return err
		}
		now, err := readScope(who)
		if err == nil && now != scope {
			err = problem.New(problem.Forbidden, "the token's permissions have changed; open the stream again")
		}
		return err
	}
}

// asProblem converts the error that ends a stream into a problem.
func asProblem(err error) error {
	if errors.Is(err, watch.ErrExpired) {
		return problemOf(ErrCursorExpired)
	}
	return err
}

// streamed adapts the store to package watch.
type streamed struct{ store Store }

// Now returns the cursor after all settled events.
func (s streamed) Now(ctx context.Context) (feed.Cursor, error) {
	at, err := s.store.Horizon(ctx)
	return at, forWatch(err)
}

// Changes reads the new events for streams.
func (s streamed) Changes(ctx context.Context, q watch.Query, visit func(watch.Change) error) (next feed.Cursor, more bool, err error) {
	var record []byte
	scope := Scope{Tenant: q.Tenant, All: q.All}
	next, more, err = s.store.Changes(ctx, scope, q.After, q.Limit, func(row *Row) error {
		var err error
		if record, err = appendRow(record[:0], row); err != nil {
			return err
		}
		facts := row.Facts
		return visit(watch.Change{At: row.Arrival, Tenant: row.Tenant, Labels: &facts, Record: record})
	})
	return next, more, forWatch(err)
}

// forWatch converts errors of the store into those of package watch.
func forWatch(err error) error {
	switch {
	case errors.Is(err, ErrCursorExpired):
		return fmt.Errorf("%w: %w", watch.ErrExpired, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", watch.ErrUnavailable, err)
	}
	return err
}
