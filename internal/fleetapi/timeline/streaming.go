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

// streamEvents answers with what comes, for as long as the client listens.
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

// parseAfter reads where a stream begins: behind the last event that the client
// has seen, else behind what it asks for, else now.
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

// recheckAccess asks whether whoever began a stream may see the same as then.
func (t *Timeline) recheckAccess(authorization string, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := t.authenticate(ctx, authorization)
		if p, ok := errors.AsType[*problem.Error](err); ok && p.Code == problem.Unavailable {
			return nil // it was good a while ago, and is looked at again
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

// asProblem says in the client's terms why a stream ends.
func asProblem(err error) error {
	if errors.Is(err, watch.ErrExpired) {
		return problemOf(ErrCursorExpired)
	}
	return err
}

// streamed is the store as streams see it.
type streamed struct{ store Store }

// Now is the place behind all that is settled.
func (s streamed) Now(ctx context.Context) (feed.Cursor, error) {
	at, err := s.store.Horizon(ctx)
	return at, forWatch(err)
}

// Changes reads what has come.
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

// forWatch says errors of the store in the words of watches.
func forWatch(err error) error {
	switch {
	case errors.Is(err, ErrCursorExpired):
		return fmt.Errorf("%w: %w", watch.ErrExpired, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", watch.ErrUnavailable, err)
	}
	return err
}
