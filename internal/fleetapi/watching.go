package fleetapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

const (
	// longestWatch is how long a watch lasts at most. A client that comes back
	// may be sent to another server, which balances them.
	longestWatch = time.Hour
	// taking is how long a client may take for a batch of events, and
	// takingLast for the last one when the watch has to end.
	taking     = 30 * time.Second
	takingLast = 500 * time.Millisecond
)

// RunWatches reads what changes for those who watch, until ctx ends.
func (a *API) RunWatches(ctx context.Context) error { return a.hub.Run(ctx) }

// EndWatches lets the watches end, and takes no new ones. A server that stops
// would wait for them.
func (a *API) EndWatches() { a.hub.Stop() }

// watch answers with what changes, for as long as the client listens.
func (a *API) watch(w http.ResponseWriter, r *http.Request, f *following, who auth.Principal) error {
	out := newStream(w, r)
	defer out.end()
	if r.Method == http.MethodHead {
		out.begin() // there is nothing that could follow
		return nil
	}
	err := a.hub.Watch(r.Context(), watch.Request{
		Kind: f.kind.name, Tenant: f.scope.Tenant, All: f.scope.All, Labels: f.labels, After: f.after,
		Until: watchUntil(time.Now(), who), Allowed: a.still(r.Header.Get("Authorization"), f.scope),
	}, out)
	switch {
	case err == nil:
		return nil
	case !out.begun:
		return refusedWatch(err)
	case r.Context().Err() != nil || errors.Is(err, errNotTaken):
		a.log.DebugContext(r.Context(), "watch cut off", "err", err)
		return nil
	}
	return a.failWatch(r.Context(), out, err)
}

// still asks whether whoever began a watch may see the same as then: a token
// may be taken away while it lasts.
func (a *API) still(authorization string, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := a.auth.Authenticate(ctx, authorization)
		if errors.Is(err, auth.ErrUnavailable) {
			return nil // it was good a while ago, and is looked at again
		}
		if err != nil {
			return unauthenticated(err)
		}
		now, err := reads(who)
		if err == nil && now != scope {
			err = problem.New(problem.Forbidden, "the token is for other resources now; watch again")
		}
		return err
	}
}

// watchUntil is when a watch has to end: at the end of the token, and not
// when all others do.
func watchUntil(now time.Time, who auth.Principal) time.Time {
	until := now.Add(longestWatch - rand.N(longestWatch/6)) //nolint:gosec // spreads load and hides nothing
	if !who.Expires.IsZero() && who.Expires.Before(until) {
		return who.Expires
	}
	return until
}

// refusedWatch says why a watch did not begin.
func refusedWatch(err error) error {
	switch {
	case errors.Is(err, watch.ErrTooMany):
		return &problem.Error{Code: problem.Unavailable, Detail: "as many watches are open as this server takes; try again, or ask with changed_since", RetryAfter: 10 * time.Second}
	case errors.Is(err, watch.ErrStopping):
		return &problem.Error{Code: problem.Unavailable, Detail: "this server is being stopped; try another", RetryAfter: retryAfter}
	}
	return expiredOr(err)
}

// failWatch tells the client why its watch ends.
func (a *API) failWatch(ctx context.Context, out *stream, err error) error {
	p, ok := errors.AsType[*problem.Error](expiredOr(err))
	if !ok {
		a.log.ErrorContext(ctx, "watch failed", "err", err)
		p = &problem.Error{Code: problem.Unavailable, Detail: "the changes cannot be read any more; watch again from the last cursor"}
	}
	status := p.Code.Status()
	data, err := json.Marshal(v1.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: p.Detail, Code: string(p.Code),
	})
	if err != nil {
		return err
	}
	_ = out.Send(ctx, watch.ErrorEvent(data)) // it is over either way
	return nil
}

// errNotTaken means that a client is gone, or too slow.
var errNotTaken = errors.New("the client did not take the events")

// A stream is the answer to a watch.
type stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	oldHTTP bool
}

func newStream(w http.ResponseWriter, r *http.Request) *stream {
	return &stream{w: w, control: http.NewResponseController(w), oldHTTP: r.ProtoMajor == 1}
}

// Send writes a batch of events.
func (s *stream) Send(ctx context.Context, events []byte) error {
	release := s.bound(ctx)
	defer release()
	if !s.begun {
		s.begin()
	}
	if _, err := s.w.Write(events); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return nil
}

// bound bounds how long a batch may take, until it is released. Between two
// batches there is no bound.
func (s *stream) bound(ctx context.Context) (release func()) {
	s.within(taking)
	if ctx.Err() != nil {
		s.within(takingLast)
	}
	hurried := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(hurried)
		s.within(takingLast)
	})
	return func() {
		if !stop() {
			<-hurried // or it would bound what comes after us on this connection
		}
		_ = s.control.SetWriteDeadline(time.Time{}) // as in within
	}
}

func (s *stream) within(d time.Duration) {
	// A connection that is gone has no deadlines, and says so when it is written to.
	_ = s.control.SetWriteDeadline(time.Now().Add(d))
}

func (s *stream) begin() {
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // nginx would hold events back
	if s.oldHTTP {
		// A balancer may then send whoever comes back elsewhere.
		h.Set("Connection", "close")
	}
	s.w.WriteHeader(http.StatusOK)
	if o, ok := s.w.(opener); ok {
		o.opened()
	}
}

// end bounds what the server writes behind the last event.
func (s *stream) end() {
	if s.begun {
		s.within(takingLast)
	}
}

// An opener is told that an answer has begun that may not end for long.
type opener interface{ opened() }

// watched is the store as watches see it.
type watched struct {
	store Feed
	kinds map[string]*kind
}

// Now is the place behind all that is settled.
func (s watched) Now(ctx context.Context) (feed.Cursor, error) {
	at, err := s.store.Horizon(ctx)
	return at, forWatch(err)
}

// Changes reads what changed.
func (s watched) Changes(ctx context.Context, q watch.Query, visit func(watch.Change) error) (next feed.Cursor, more bool, err error) {
	scope := Scope{Tenant: q.Tenant, All: q.All}
	var record []byte
	next, more, err = s.store.Changes(ctx, scope, ChangeQuery{Kind: q.Kind, After: q.After, Limit: q.Limit, Stepwise: true}, func(c *Change) error {
		k := s.kinds[c.Key.Kind]
		if k == nil {
			return nil // of another version of the program
		}
		change := watch.Change{At: c.At, Kind: c.Key.Kind, ID: c.Key.ID, Tenant: c.Tenant, Relabelled: c.Relabelled}
		if c.Record != nil {
			var labels selector.Map
			if err := json.Unmarshal(c.Record.Labels, &labels); err != nil {
				return fmt.Errorf("read the labels of %s %q: %w", c.Key.Kind, c.Key.ID, err)
			}
			record = appendRecord(record[:0], c.Record, k)
			change.Labels, change.Record = labels, record
		}
		return visit(change)
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

// nudging is a store that tells watches when something was committed.
type nudging struct {
	Store

	nudge func()
}

// Update runs a change.
func (s nudging) Update(ctx context.Context, scope Scope, change func(context.Context, Tx, time.Time) error) error {
	err := s.Store.Update(ctx, scope, change)
	if err == nil {
		s.nudge()
	}
	return err
}
