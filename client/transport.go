package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A caller sends requests. The parts of a Client share it.
type caller struct {
	base      string // scheme, host and path up to and including v1.BasePath
	http      *http.Client
	transport *http.Transport
	token     TokenSource // nil for anonymous requests
	header    http.Header
	// impersonator is nil if requests have the rights of the token.
	impersonator *impersonator
	// reads is shared with the clients that WithToken returns.
	reads       *readTokens
	timeout     time.Duration
	maxBody     int64
	maxAttempts int
	log         *slog.Logger
}

// A request is one call. path is below the base and escaped.
type request struct {
	method string
	path   string
	root   string // replaces path: for endpoints without v1.BasePath
	query  url.Values
	body   []byte  // nil means none
	stream *supply // replaces body
	header map[string]string
}

func (r request) operation() string {
	if r.root != "" {
		return r.method + " " + r.root
	}
	return r.method + " /" + r.path
}

// succeeded reports whether status is a success for r. An unchanged resource is a success for a conditional request.
func (r request) succeeded(status int) bool {
	return status >= 200 && status <= 299 || status == http.StatusNotModified && r.header["If-None-Match"] != ""
}

// An answer holds the relevant parts of a response other than its body.
type answer struct {
	status int
	tag    string // its ETag
}

// sendAndRead sends a request and reads the response body into dst, which it overwrites and grows. It returns an error
// unless the response is a success. The buffer is then empty but keeps its capacity for reuse.
func (c *caller) sendAndRead(ctx context.Context, r request, dst []byte) (body []byte, a answer, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, errTimeout)
	defer cancel()

	resp, err := c.sendAndRetryWithNewToken(ctx, r)
	if err != nil {
		return dst[:0], a, c.wrapTransportError(ctx, r, err)
	}
	defer closeBody(resp)
	return c.readBodyOrError(ctx, r, resp, dst)
}

// readBodyOrError reads a response body into dst, as sendAndRead describes.
func (c *caller) readBodyOrError(ctx context.Context, r request, resp *http.Response, dst []byte) (body []byte, a answer, err error) {
	a = answer{status: resp.StatusCode, tag: resp.Header.Get("Etag")}
	if !r.succeeded(a.status) {
		body, _ = readInto(dst, io.LimitReader(resp.Body, maxErrorBody), -1, maxErrorBody)
		return body[:0], a, newError(r.operation(), resp, body, time.Now())
	}
	if a.status == http.StatusNoContent || a.status == http.StatusNotModified {
		return dst[:0], a, nil
	}
	if kind := resp.Header.Get("Content-Type"); isForeign(kind) {
		return dst[:0], a, fmt.Errorf(
			"%s: %w: content type %s, want JSON; check that %s is a fleet API",
			r.operation(),
			ErrInvalidResponse,
			kind,
			c.base,
		)
	}
	body, err = readInto(dst, resp.Body, resp.ContentLength, c.maxBody)
	switch {
	case errors.Is(err, errTooLarge):
		return body[:0], a, fmt.Errorf("%s: %w: its body is larger than %d bytes", r.operation(), ErrInvalidResponse, c.maxBody)
	case err != nil:
		return body[:0], a, c.wrapTransportError(ctx, r, fmt.Errorf("read the response: %w", err))
	}
	return body, a, nil
}

// sendAndRetryWithNewToken sends a request, and once more if the server rejects a token that has been replaced.
func (c *caller) sendAndRetryWithNewToken(ctx context.Context, r request) (*http.Response, error) {
	if err := c.confirmImpersonationOnce(ctx, r); err != nil {
		return nil, err
	}
	token, err := c.currentToken(ctx, "")
	if err != nil {
		return nil, err
	}
	resp, err := c.sendOnce(ctx, r, token)
	if err != nil || resp.StatusCode != http.StatusUnauthorized {
		return resp, err
	}
	canRepeat := r.stream == nil || r.stream.untouched()
	if token == "" || !canRepeat {
		return resp, nil
	}
	renewed, err := c.currentToken(ctx, token)
	if err != nil || renewed == "" || renewed == token {
		return resp, nil //nolint:nilerr // the rejection says more
	}
	closeBody(resp)
	return c.sendOnce(ctx, r, renewed)
}

// errToken marks errors of a token source, in contrast to those of the server.
var errToken = errors.New("get a token")

func (c *caller) currentToken(ctx context.Context, rejectedToken string) (token string, err error) {
	if c.token == nil {
		return "", nil
	}
	if token, err = c.token.Token(ctx, rejectedToken); err == nil {
		err = checkToken(token)
	}
	if err != nil {
		return "", fmt.Errorf("%w: %w", errToken, err)
	}
	return token, nil
}

func (c *caller) sendOnce(ctx context.Context, r request, token string) (*http.Response, error) {
	target := c.base + "/" + r.path
	if r.root != "" {
		target = strings.TrimSuffix(c.base, v1.BasePath) + r.root
	}
	if len(r.query) > 0 {
		target += "?" + r.query.Encode()
	}
	var body io.Reader
	switch {
	case r.stream != nil:
		body = io.NopCloser(r.stream)
	case r.body != nil:
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return nil, err
	}
	req.Header = c.header.Clone()
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range r.header {
		req.Header.Set(name, value)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	c.reads.addTo(req, time.Now())
	resp, err := c.http.Do(req)
	if err == nil {
		c.reads.remember(resp, time.Now())
	}
	return resp, err
}

// wrapTransportError adds the request and the server to an error. If the caller cancelled, the error
// contains the caller's cause, and no statement about the server; nor does that of a token source.
func (c *caller) wrapTransportError(ctx context.Context, r request, err error) error {
	if urlErr, ok := errors.AsType[*url.Error](err); ok {
		err = urlErr.Err
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // io.EOF itself is the regular end of a watch
	}
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errTimeout):
		err = fmt.Errorf("%w (%s)", cause, c.timeout)
	case errors.Is(cause, errSilence), errors.Is(cause, errStuck):
		err = cause
	case cause != nil:
		return fmt.Errorf("%s: %w", r.operation(), cause)
	}
	if errors.Is(err, errToken) || errors.Is(err, errImpersonation) {
		return fmt.Errorf("%s: %w", r.operation(), err)
	}
	return fmt.Errorf("%s: %w: %s: %w", r.operation(), ErrUnreachable, c.base, err)
}

var errTooLarge = errors.New("too large")

// readInto reads all of src into dst, which grows as necessary. size is the size that the sender
// announced, or negative.
func readInto(dst []byte, src io.Reader, size, limit int64) ([]byte, error) {
	const least = 4 << 10
	dst = dst[:0]
	if size > limit {
		return dst, errTooLarge
	}
	// One byte more than announced, so that the end is detected without growing.
	dst = slices.Grow(dst, int(max(size+1, least)))
	for {
		if len(dst) == cap(dst) {
			dst = slices.Grow(dst, len(dst))
		}
		n, err := src.Read(dst[len(dst):cap(dst)])
		dst = dst[:len(dst)+n]
		switch {
		case int64(len(dst)) > limit:
			return dst, errTooLarge
		case errors.Is(err, io.EOF):
			return dst, nil
		case err != nil:
			return dst, err
		}
	}
}

// closeBody allows the reuse of the connection if little of the body is left.
func closeBody(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, 4<<10)
	_ = resp.Body.Close()
}

// isForeign reports whether a response has a type that no fleet API returns, such as the login page
// of a proxy. Plain Go servers send JSON as plain text, or without a type.
func isForeign(contentType string) bool {
	if contentType == "" || isJSON(contentType) {
		return false
	}
	kind, _, err := mime.ParseMediaType(contentType)
	isPlain := err == nil && (kind == "text/plain" || kind == "application/octet-stream")
	return !isPlain
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))
}

// call sends a request with in as its body, unless in is nil, with retries, and returns the decoded response.
func call[T any](ctx context.Context, c *caller, r request, in any) (out T, err error) {
	_, err = c.callJSONWithRetry(ctx, r, in, &out)
	return out, err
}

// callJSONWithRetry is call for a response that is decoded into out. Only 202 and 204 may come without a body.
func (c *caller) callJSONWithRetry(ctx context.Context, r request, in, out any) (a answer, err error) {
	if in != nil {
		if r.body, err = json.Marshal(in); err != nil {
			return a, fmt.Errorf("%s: encode the request: %w", r.operation(), err)
		}
	}
	body, a, err := c.sendAndReadWithRetry(ctx, r)
	if err != nil {
		return a, err
	}
	if len(body) == 0 && (a.status == http.StatusNoContent || a.status == http.StatusAccepted) {
		return a, nil
	}
	return a, decodeBody(r, body, out)
}

func decodeBody(r request, body []byte, out any) error {
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("%s: %w: decode %d bytes: %w", r.operation(), ErrInvalidResponse, len(body), err)
	}
	return nil
}
