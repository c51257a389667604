// Package sse serves a watch over HTTP, as server-sent events.
package sse

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// LastEventID is the header in which a client of server-sent events repeats
// the id of the last event that it has seen.
const LastEventID = "Last-Event-ID"

const (
	// longestWatch is how long a watch lasts at most. A client that comes back
	// may be sent to another server, which balances them.
	longestWatch = time.Hour
	// taking is how long a client may take for a batch of events, and
	// takingLast for the last one when the watch has to end.
	taking     = 30 * time.Second
	takingLast = 500 * time.Millisecond

	// retryAfter is what a client is told to wait if something of ours is down,
	// and retryFull if there is no room for it.
	retryAfter = 2 * time.Second
	retryFull  = 10 * time.Second
)

// A Watch is one that is to be served.
type Watch struct {
	Hub     *watch.Hub
	Request watch.Request
	Log     *slog.Logger
	// Expired turns an error that says that a cursor has expired into a problem,
	// and leaves others alone.
	Expired func(error) error
}

// Until is when a watch has to end: at the end of the token, and not when all
// others do.
func Until(now time.Time, who auth.Principal) time.Time {
	until := now.Add(longestWatch - rand.N(longestWatch/6)) //nolint:gosec // spreads load and hides nothing
	if !who.Expires.IsZero() && who.Expires.Before(until) {
		return who.Expires
	}
	return until
}

// Serve answers with the events of a watch, for as long as the client listens. It
// returns an error if the watch did not begin.
func Serve(w http.ResponseWriter, r *http.Request, to Watch) error {
	out := newStream(w, r)
	defer out.endStream()
	if r.Method == http.MethodHead {
		out.startStream() // there is nothing that could follow
		return nil
	}
	err := to.Hub.Watch(r.Context(), to.Request, out)
	switch {
	case err == nil:
		return nil
	case !out.begun:
		return to.startError(err)
	case r.Context().Err() != nil || errors.Is(err, errNotTaken):
		to.Log.DebugContext(r.Context(), "watch interrupted", "err", err)
		return nil
	}
	return to.endWithError(r.Context(), out, err)
}

// startError says why a watch did not begin.
func (to *Watch) startError(err error) error {
	switch {
	case errors.Is(err, watch.ErrTooMany):
		return &problem.Error{Code: problem.Unavailable, Detail: "the maximum number of watches is open; retry later, or poll with changed_since", RetryAfter: retryFull}
	case errors.Is(err, watch.ErrStopping):
		return &problem.Error{Code: problem.Unavailable, Detail: "this server is shutting down; retry", RetryAfter: retryAfter}
	}
	return to.Expired(err)
}

// endWithError tells the client why its watch ends.
func (to *Watch) endWithError(ctx context.Context, out *stream, err error) error {
	p, ok := errors.AsType[*problem.Error](to.Expired(err))
	if !ok {
		to.Log.ErrorContext(ctx, "watch failed", "err", err)
		p = &problem.Error{Code: problem.Unavailable, Detail: "the fleet API cannot read the changes; watch again from the last cursor"}
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

// An Opener is an http.ResponseWriter that is told that an answer has begun that
// may not end for long.
type Opener interface{ Opened() }

// errNotTaken means that a client is gone, or too slow.
var errNotTaken = errors.New("the client stopped reading events")

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
	release := s.startWriteDeadline(ctx)
	defer release()
	if !s.begun {
		s.startStream()
	}
	if _, err := s.w.Write(events); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errNotTaken, err)
	}
	return nil
}

// startWriteDeadline bounds how long a batch may take, until it is released. Between two
// batches there is no bound.
func (s *stream) startWriteDeadline(ctx context.Context) (release func()) {
	s.setDeadline(taking)
	if ctx.Err() != nil {
		s.setDeadline(takingLast)
	}
	hurried := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(hurried)
		s.setDeadline(takingLast)
	})
	return func() {
		if !stop() {
			<-hurried // or it would bound what comes after us on this connection
		}
		_ = s.control.SetWriteDeadline(time.Time{}) // as in within
	}
}

func (s *stream) setDeadline(d time.Duration) {
	// A connection that is gone has no deadlines, and says so when it is written to.
	_ = s.control.SetWriteDeadline(time.Now().Add(d))
}

func (s *stream) startStream() {
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
	if o, ok := s.w.(Opener); ok {
		o.Opened()
	}
}

// endStream bounds what the server writes behind the last event.
func (s *stream) endStream() {
	if s.begun {
		s.setDeadline(takingLast)
	}
}
