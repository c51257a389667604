package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"
)

// MaxHead is the maximum number of bytes of a page that ListPageIf reads before it returns.
const MaxHead = 4 << 20

// sendAndReadInParts is sendAndRead for a response with a possibly large body. rest reads the data after the
// first MaxHead bytes, and is nil for a shorter body.
func (c *caller) sendAndReadInParts(ctx context.Context, r request, dst []byte) (body []byte, rest io.ReadCloser, a answer, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	timer := time.AfterFunc(c.timeout, func() { cancel(errTimeout) })
	begin := time.Now()
	end := func() {
		timer.Stop()
		cancel(nil)
	}
	resp, err := c.sendAndRetryWithNewToken(ctx, r)
	if err != nil {
		err = c.wrapTransportError(ctx, r, err) // reads why ctx ended, before end does
		end()
		return dst[:0], nil, a, err
	}
	whole := resp.Body
	resp.Body, resp.ContentLength = io.NopCloser(io.LimitReader(whole, MaxHead)), min(resp.ContentLength, MaxHead)
	body, a, err = c.readBodyOrError(ctx, r, resp, dst)
	resp.Body = whole
	if err != nil || len(body) < MaxHead {
		closeBody(resp)
		end()
		return body, nil, a, err
	}
	timer.Stop()
	return body, &remainder{
		caller: c, ctx: ctx, request: r, resp: resp, timer: timer, left: max(1, c.timeout-time.Since(begin)), end: end,
	}, a, nil
}

// A remainder is the part of a body after its beginning. Its timer runs while a read waits for the server.
type remainder struct {
	caller  *caller
	ctx     context.Context //nolint:containedctx // that of the request which the body belongs to
	request request
	resp    *http.Response
	timer   *time.Timer
	left    time.Duration
	end     func()
}

// Read continues the body, within the rest of the client's timeout.
func (r *remainder) Read(p []byte) (int, error) {
	r.timer.Reset(r.left)
	begin := time.Now()
	n, err := r.resp.Body.Read(p)
	r.timer.Stop()
	r.left = max(1, r.left-time.Since(begin))
	if err != nil && !errors.Is(err, io.EOF) {
		err = r.caller.wrapTransportError(r.ctx, r.request, fmt.Errorf("read the response: %w", err))
	}
	return n, err
}

// Close ends the request.
func (r *remainder) Close() error {
	closeBody(r.resp)
	r.end()
	return nil
}
