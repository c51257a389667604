package watch

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
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// LastEventIDHeader is the header in which a server-sent events client repeats the id of the last event it received.
const LastEventIDHeader = "Last-Event-ID"

const (
	// longestWatch is the maximum duration of a watch. A client that reconnects may reach another
	// server, which balances the load.
	longestWatch = time.Hour
	// batchTimeout is the maximum time a client may take to receive a batch of events.
	// lastBatchTimeout applies instead when the watch ends.
	batchTimeout     = 30 * time.Second
	lastBatchTimeout = 500 * time.Millisecond

	// retryAfter is the retry delay sent to clients when a dependency is unavailable. retryFull
	// applies when the maximum number of watches is open.
	retryAfter = 2 * time.Second
	retryFull  = 10 * time.Second
)

// An EventStream is a watch to serve over HTTP, as server-sent events.
type EventStream struct {
	Hub     *Hub
	Request Request
	Log     *slog.Logger
	// Expired converts an expired-cursor error into a problem, and returns others unchanged.
	Expired func(error) error
}

// ChooseWatchDeadline returns the end of a watch: the expiry of the token, or a randomized limit so
// that watches do not all end at once.
func ChooseWatchDeadline(now time.Time, principal auth.Principal) time.Time {
	until := now.Add(longestWatch - rand.N(longestWatch/6)) //nolint:gosec // spreads load and hides nothing
	if !principal.Expires.IsZero() && principal.Expires.Before(until) {
		return principal.Expires
	}
	return until
}

// ServeEvents streams the events of a watch until the client disconnects or the watch ends. It
// returns an error if the watch did not begin.
func ServeEvents(w http.ResponseWriter, r *http.Request, stream EventStream) error {
	out := newHTTPStream(w, r)
	defer out.limitFinalWriteTime()
	if r.Method == http.MethodHead {
		out.writeStreamHeaders() // a HEAD answer has no body
		return nil
	}
	err := stream.Hub.StreamChanges(r.Context(), stream.Request, out)
	switch {
	case err == nil:
		return nil
	case !out.begun:
		return stream.toStartProblem(err)
	case r.Context().Err() != nil || errors.Is(err, errEventsNotTaken):
		stream.Log.DebugContext(r.Context(), "watch interrupted", "err", err)
		return nil
	}
	return stream.sendEndProblem(r.Context(), out, err)
}

func (to *EventStream) toStartProblem(err error) error {
	switch {
	case errors.Is(err, ErrTooMany):
		return &rest.Error{
			Code:       rest.CodeUnavailable,
			Detail:     "the maximum number of watches is open, in total or of your tenant; retry later, or poll with changed_since",
			RetryAfter: retryFull,
		}
	case errors.Is(err, ErrStopping):
		return &rest.Error{Code: rest.CodeUnavailable, Detail: "this server is shutting down; retry", RetryAfter: retryAfter}
	}
	return to.Expired(err)
}

func (to *EventStream) sendEndProblem(ctx context.Context, out *httpStream, err error) error {
	p, ok := errors.AsType[*rest.Error](to.Expired(err))
	if !ok {
		to.Log.ErrorContext(ctx, "watch failed", "err", err)
		p = &rest.Error{Code: rest.CodeUnavailable, Detail: "the fleet API cannot read the changes; watch again from the last cursor"}
	}
	status := p.Code.HTTPStatus()
	data, err := json.Marshal(v1.Problem{
		Type: "about:blank", Title: http.StatusText(status), Status: status, Detail: p.Detail, Code: string(p.Code),
	})
	if err != nil {
		return err
	}
	_ = out.SendEvents(ctx, encodeSSEErrorEvent(data)) // the watch ends either way
	return nil
}

// An Opener is an http.ResponseWriter that is notified when a long-lived answer begins.
type Opener interface{ OnStreamOpened() }

// errEventsNotTaken means that a client has gone, or is too slow.
var errEventsNotTaken = errors.New("the client stopped reading events")

// An httpStream is the answer to a watch.
type httpStream struct {
	w       http.ResponseWriter
	control *http.ResponseController
	begun   bool
	oldHTTP bool
}

func newHTTPStream(w http.ResponseWriter, r *http.Request) *httpStream {
	return &httpStream{w: w, control: http.NewResponseController(w), oldHTTP: r.ProtoMajor == 1}
}

// SendEvents writes a batch of events.
func (s *httpStream) SendEvents(ctx context.Context, events []byte) error {
	release := s.limitWriteTime(ctx)
	defer release()
	if !s.begun {
		s.writeStreamHeaders()
	}
	if _, err := s.w.Write(events); err != nil {
		return fmt.Errorf("%w: %w", errEventsNotTaken, err)
	}
	if err := s.control.Flush(); err != nil {
		return fmt.Errorf("%w: %w", errEventsNotTaken, err)
	}
	return nil
}

// limitWriteTime limits the time to write a batch, until it is released. The time between two batches is unlimited.
func (s *httpStream) limitWriteTime(ctx context.Context) (liftLimit func()) {
	s.setWriteDeadline(batchTimeout)
	if ctx.Err() != nil {
		s.setWriteDeadline(lastBatchTimeout)
	}
	hurried := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(hurried)
		s.setWriteDeadline(lastBatchTimeout)
	})
	return func() {
		if !stop() {
			<-hurried // otherwise it would set a deadline for later requests on this connection
		}
		_ = s.control.SetWriteDeadline(time.Time{}) // ignored as in setWriteDeadline
	}
}

func (s *httpStream) setWriteDeadline(fromNow time.Duration) {
	// The error is ignored: a closed connection supports no deadlines, and the next write reports it.
	_ = s.control.SetWriteDeadline(time.Now().Add(fromNow))
}

func (s *httpStream) writeStreamHeaders() {
	s.begun = true
	h := s.w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Accel-Buffering", "no") // stops nginx from buffering events
	if s.oldHTTP {
		// When the client reconnects, a balancer may then choose another server.
		h.Set("Connection", "close")
	}
	s.w.WriteHeader(http.StatusOK)
	if o, ok := s.w.(Opener); ok {
		o.OnStreamOpened()
	}
}

func (s *httpStream) limitFinalWriteTime() {
	if s.begun {
		s.setWriteDeadline(lastBatchTimeout)
	}
}
