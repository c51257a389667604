package fleetclient

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"net/url"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// silence is how long a stream may be silent. A server sends a bookmark every ten seconds, so this
// means three missing bookmarks.
const silence = 30 * time.Second

// Watch passes every event of a collection's watch to handle, from the cursor that q holds as
// changed_since or from now on, until the stream ends. The event's data are valid only until handle
// returns. The time that handle takes does not count as silence of the server.
//
// It always ends with an error: io.EOF if the server ended the stream properly, the cause of ctx if
// that ended, or the error of handle; an *Error for a refusal, at the start or as the last event of
// the stream; errors.ErrUnsupported if the response is not a stream; ErrUnreachable if the stream
// is interrupted or silent. A truncated event is not passed to handle.
func (c *Client) Watch(ctx context.Context, collection string, q url.Values, handle func(v1.WatchEvent) error) error {
	r := request{method: http.MethodGet, path: collection, query: make(url.Values, len(q)+1)}
	maps.Copy(r.query, q)
	r.query.Set("watch", "true")
	return c.streamEvents(ctx, r, handle)
}

// streamEvents passes on the events of a stream, as Watch describes.
func (c *Client) streamEvents(ctx context.Context, r request, handle func(v1.WatchEvent) error) error {
	r.header = map[string]string{
		"Accept":        eventStream + ", application/problem+json",
		"Cache-Control": "no-store",
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	late := time.AfterFunc(c.timeout, func() { cancel(errTimeout) })
	resp, err := c.sendWithToken(ctx, r)
	late.Stop()
	if err != nil {
		return c.wrapTransportError(ctx, r, err)
	}
	defer closeStream(resp, cancel)

	if !r.succeeded(resp.StatusCode) {
		late.Reset(c.timeout)
		defer late.Stop()
		_, _, err := c.readBody(ctx, r, resp, nil)
		return err
	}
	if kind := resp.Header.Get("Content-Type"); !isEventStream(kind) {
		return fmt.Errorf("%s: %w: the response is %q, not an event stream; the server does not support watch", r.operation(), errors.ErrUnsupported, kind)
	}
	body := newWary(resp.Body, cancel)
	defer body.stopTimer()
	return c.readEvents(ctx, r, newEventReader(body, c.maxBody), handle)
}

const eventStream = "text/event-stream"

func isEventStream(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == eventStream
}

// readEvents passes on events until the stream ends or fails.
func (c *Client) readEvents(ctx context.Context, r request, events *eventReader, handle func(v1.WatchEvent) error) error {
	for {
		e, err := events.nextEvent()
		switch {
		case ctx.Err() != nil: // takes precedence over later errors
			return c.wrapTransportError(ctx, r, context.Cause(ctx))
		case errors.Is(err, io.EOF):
			return io.EOF
		case errors.Is(err, errTooLarge):
			return fmt.Errorf("%s: %w: an event is larger than %d bytes", r.operation(), ErrBadAnswer, c.maxBody)
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
	e.Problem.Title = orDefault(e.Problem.Title, http.StatusText(e.Status))
	return e
}

// closeStream closes a stream. The rest of the stream is endless, so the connection is not reused.
func closeStream(resp *http.Response, cancel context.CancelCauseFunc) {
	cancel(nil)
	_ = resp.Body.Close()
}

// A wary reader cancels a stream that is silent for too long. Only the time spent in Read counts.
type wary struct {
	src   io.Reader
	timer *time.Timer
}

func newWary(src io.Reader, cancel context.CancelCauseFunc) *wary {
	return &wary{src: src, timer: time.AfterFunc(silence, func() { cancel(errSilence) })}
}

// Read implements io.Reader.
func (w *wary) Read(p []byte) (int, error) {
	w.timer.Reset(silence)
	defer w.timer.Stop()
	return w.src.Read(p)
}

func (w *wary) stopTimer() { w.timer.Stop() }
