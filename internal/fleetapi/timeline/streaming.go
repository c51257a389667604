package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// serveEventStream streams new events to the client for as long as it listens. Package watch sends them: it
// reads them with watchSource, once for all clients, and filters them for each.
func (t *Timeline) serveEventStream(w http.ResponseWriter, r *http.Request, scope Scope, principal auth.Principal) error {
	v := r.URL.Query()
	if err := rejectUnknownIfStrict(v, listFilterParameters("after")...); err != nil {
		return err
	}
	for _, name := range []string{"since", "until", "limit", "continue"} {
		if v.Has(name) {
			return rest.NewQueryError(
				name,
				"format",
				v.Get(name),
				"is not supported for streams, which send new events only; list past events first, then stream with after=<cursor of that list>",
			)
		}
	}
	filter, err := parseFilterParameters(v)
	if err != nil {
		return err
	}
	after, err := parseStreamStart(r)
	if err != nil {
		return err
	}
	return watch.ServeEvents(w, r, watch.EventStream{
		Hub: t.hub, Log: t.log, Expired: toStreamEndProblem,
		Request: watch.Request{
			Tenant: scope.Tenant, All: scope.All, Labels: &filter, After: after,
			Until: watch.ChooseWatchDeadline(time.Now(), principal), Allowed: t.newAccessRecheck(r.Header.Clone(), scope),
		},
	})
}

// parseStreamStart parses the start of a stream: the client's last event, else the parameter after, else now.
func parseStreamStart(r *http.Request) (*watch.Cursor, error) {
	lastEvent, parameter := r.Header.Get(watch.LastEventIDHeader), r.URL.Query().Get("after")
	text := cmp.Or(lastEvent, parameter)
	if text == "" {
		return nil, nil //nolint:nilnil // now
	}
	after, err := watch.ParseCursor(text)
	switch {
	case err == nil:
		return &after, nil
	case lastEvent != "":
		return nil, rest.NewError(
			rest.CodeInvalidQuery,
			"the header %s is not a cursor of this API; send the id of the last event, or start again without it",
			watch.LastEventIDHeader,
		)
	}
	return nil, rest.NewQueryError("after", "format", parameter, "is not a cursor of this API; use the cursor of a list or the id of an event")
}

// newAccessRecheck returns a check that the headers of a stream still give the same scope.
func (t *Timeline) newAccessRecheck(header http.Header, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := t.authenticate(ctx, header)
		if p, ok := errors.AsType[*rest.Error](err); ok && p.Code == rest.CodeUnavailable {
			return nil // it was valid before, and is checked again later
		}
		if err != nil {
			return err
		}
		now, err := authorizeRead(who)
		if err == nil && now != scope {
			err = rest.NewError(rest.CodeForbidden, "the token's permissions have changed; open the stream again")
		}
		return err
	}
}

// toStreamEndProblem converts the error that ends a stream into a problem.
func toStreamEndProblem(err error) error {
	if errors.Is(err, watch.ErrExpired) {
		return toProblem(ErrCursorExpired)
	}
	return err
}

// watchSource is the store as package watch reads it.
type watchSource struct{ store Store }

// ReadLatestCursor returns the cursor after all settled events.
func (s watchSource) ReadLatestCursor(ctx context.Context) (watch.Cursor, error) {
	at, err := s.store.ReadLatestCursor(ctx)
	return at, toWatchError(err)
}

// VisitChanges reads the new events for streams.
func (s watchSource) VisitChanges(
	ctx context.Context, q watch.Query, visit func(watch.Change) error,
) (next watch.Cursor, hasMore bool, err error) {
	var record []byte
	scope := Scope{Tenant: q.Tenant, All: q.All}
	next, hasMore, err = s.store.VisitEventsAfter(ctx, scope, q.After, q.Limit, func(row *Row) error {
		var err error
		if record, err = appendEventJSON(record[:0], row); err != nil {
			return err
		}
		facts := row.Facts
		if facts.Message, err = decodeMessage(row.Payload); err != nil {
			return err
		}
		return visit(watch.Change{At: row.Arrival, Tenant: row.Tenant, Labels: &facts, Record: record})
	})
	return next, hasMore, toWatchError(err)
}

func toWatchError(err error) error {
	switch {
	case errors.Is(err, ErrCursorExpired):
		return fmt.Errorf("%w: %w", watch.ErrExpired, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", watch.ErrUnavailable, err)
	}
	return err
}
