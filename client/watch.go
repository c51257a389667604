package client

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// silence is how long a stream may be silent. A server sends a bookmark every four seconds, so this
// means three missing bookmarks. Earlier servers sent one every ten seconds.
const silence = 12 * time.Second

// An Event is one event of a watch.
type Event[T any] struct {
	Type v1.WatchEventType
	// Cursor is the position behind the event, from which a later watch can continue.
	Cursor string
	// Item is the resource or change event as it is now. Of a removed resource it has only the id,
	// and of a bookmark nothing.
	Item T
}

// errStopped ends a stream whose reader has stopped.
var errStopped = errors.New("the loop has ended")

// watchEvents yields the events of a stream and of those that continue it.
func watchEvents[T any](ctx context.Context, c *caller, cursor string, open func(cursor string) request) iter.Seq2[Event[T], error] {
	return func(yield func(Event[T], error) bool) {
		err := c.followEventsReconnecting(ctx, cursor, open, func(raw v1.WatchEvent) error {
			e := Event[T]{Type: raw.Type, Cursor: raw.Cursor}
			if raw.Type == v1.WatchChanged || raw.Type == v1.WatchRemoved {
				if err := json.Unmarshal(raw.Data, &e.Item); err != nil {
					return fmt.Errorf("%w: decode an event: %w", ErrInvalidResponse, err)
				}
			}
			if !yield(e, nil) {
				return errStopped
			}
			return nil
		})
		if !errors.Is(err, errStopped) {
			yield(Event[T]{}, err)
		}
	}
}

// followEventsReconnecting passes on the events after a cursor, and reconnects as Collection.Watch describes.
func (c *caller) followEventsReconnecting(
	ctx context.Context,
	cursor string,
	open func(cursor string) request,
	handle func(v1.WatchEvent) error,
) error {
	begun, failures := false, 0 // consecutive streams without an event
	for {
		r := open(cursor)
		err := c.streamEventsOnce(ctx, r, func(e v1.WatchEvent) error {
			cursor, begun, failures = cmp.Or(e.Cursor, cursor), true, 0
			return handle(e)
		})
		failures++
		if !errors.Is(err, io.EOF) && !IsTransient(err) || !begun && failures >= c.maxAttempts {
			return err
		}
		delay := max(delayAfter(failures), min(requestedDelay(err), maxRetryAfter))
		c.log.DebugContext(ctx, "reconnecting watch", "request", r.operation(), "delay", delay, "err", err)
		if !sleep(ctx, delay) {
			return c.wrapTransportError(ctx, r, err)
		}
	}
}

// watchRequest returns the request for a watch of a collection.
func watchRequest(collection string, q url.Values) request {
	r := request{method: http.MethodGet, path: collection, query: make(url.Values, len(q)+1)}
	maps.Copy(r.query, q)
	r.query.Set("watch", "true")
	return r
}

// Watch passes every event of a collection's watch to handle, from the cursor that q holds as
// changed_since or from now on, until the stream ends. The event's data are valid only until handle
// returns. The time that handle takes does not count as silence of the server.
//
// It always ends with an error: io.EOF if the server ended the stream properly, the cause of ctx if
// that ended, or the error of handle; an *Error for a refusal, at the start or as the last event of
// the stream; errors.ErrUnsupported if the response is not a stream; ErrUnreachable if the stream
// is interrupted or silent. A truncated event is not passed to handle.
func (r *Raw) Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error {
	return r.caller.streamEventsOnce(ctx, watchRequest(collection, q), handle)
}

// WatchChangeEvents passes every new change event to handle, from a cursor or, if that is "", from
// now on. It ignores the times of o, and ends as Watch does.
func (r *Raw) WatchChangeEvents(ctx context.Context, o ChangeEventOptions, after string, handle func(v1.WatchEvent) error) error {
	return r.caller.streamEventsOnce(ctx, o.watchRequest(after), handle)
}

// streamEventsOnce passes on the events of a stream, as Raw.Watch describes.
func (c *caller) streamEventsOnce(ctx context.Context, r request, handle func(v1.WatchEvent) error) error {
	r.header = map[string]string{
		"Accept":        eventStream + ", application/problem+json",
		"Cache-Control": "no-store",
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(c.timeout, func() { cancel(errTimeout) })
	resp, err := c.sendAndRetryWithNewToken(ctx, r)
	late.Stop()
	if err != nil {
		return c.wrapTransportError(ctx, r, err)
	}
	defer closeStream(resp, cancel)

	if !r.succeeded(resp.StatusCode) {
		late.Reset(c.timeout)
		defer late.Stop()
		_, _, err := c.readBodyOrError(ctx, r, resp, nil)
		return err
	}
	if kind := resp.Header.Get("Content-Type"); !isEventStream(kind) {
		return fmt.Errorf(
			"%s: %w: the response is %q, not an event stream; the server does not support watch",
			r.operation(),
			errors.ErrUnsupported,
			kind,
		)
	}
	body := newSilenceReader(resp.Body, cancel)
	defer body.stopTimer()
	return c.readEvents(ctx, r, newEventReader(body, c.maxBody), handle)
}

const eventStream = "text/event-stream"

func isEventStream(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == eventStream
}

// readEvents passes on events until the stream ends or fails.
func (c *caller) readEvents(ctx context.Context, r request, events *eventReader, handle func(v1.WatchEvent) error) error {
	for {
		e, err := events.nextEvent()
		switch {
		case ctx.Err() != nil: // takes precedence over later errors
			return c.wrapTransportError(ctx, r, context.Cause(ctx))
		case errors.Is(err, io.EOF):
			return io.EOF
		case errors.Is(err, errTooLarge):
			return fmt.Errorf("%s: %w: an event is larger than %d bytes", r.operation(), ErrInvalidResponse, c.maxBody)
		case err != nil:
			return c.wrapTransportError(ctx, r, fmt.Errorf("read the stream: %w", err))
		case e.Type == v1.WatchError:
			return streamError(r.operation(), e.Data)
		}
		if err := handle(e); err != nil {
			return err
		}
	}
}

// streamError returns an Error for the event that ends a watch.
func streamError(op string, data []byte) *Error {
	e := &Error{Op: op}
	if json.Unmarshal(data, &e.Problem) != nil || e.Problem.Status < http.StatusBadRequest {
		// The real status is unknown, so a retry makes sense.
		e.Problem.Status = http.StatusServiceUnavailable
	}
	e.Status = e.Problem.Status
	e.Problem.Title = cmp.Or(e.Problem.Title, http.StatusText(e.Status))
	return e
}

// closeStream closes a stream. The rest of the stream is endless, so the connection is not reused.
func closeStream(resp *http.Response, cancel context.CancelCauseFunc) {
	cancel(nil)
	_ = resp.Body.Close()
}

// A silenceReader cancels a stream that is silent for too long. Only the time spent in Read counts.
type silenceReader struct {
	src   io.Reader
	timer *time.Timer
}

func newSilenceReader(src io.Reader, cancel context.CancelCauseFunc) *silenceReader {
	return &silenceReader{src: src, timer: time.AfterFunc(silence, func() { cancel(errSilence) })}
}

// Read implements io.Reader.
func (w *silenceReader) Read(p []byte) (int, error) {
	w.timer.Reset(silence)
	defer w.timer.Stop()
	return w.src.Read(p)
}

func (w *silenceReader) stopTimer() { w.timer.Stop() }
