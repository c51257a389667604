package gardener

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	maxAnswer    = 256 << 20 // far above a page of Shoots with all their managed fields
	maxErrorText = 64 << 10
)

// A transport sends requests to the API server of the garden. The errors of its methods are a
// *apiError, a *shoot.Error, or an error of the network.
type transport struct {
	http         *http.Client
	base         *url.URL
	limiter      *rate.Limiter
	timeout      time.Duration
	timeoutCause error // cause of a request that times out
	ready        readiness
}

// A noDataError is the cause of a request that timed out.
type noDataError struct{ timeout time.Duration }

// Error returns a message with the timeout.
func (e *noDataError) Error() string { return fmt.Sprintf("no data received for %s", e.timeout) }

// Is reports whether target is context.DeadlineExceeded, which a cause hides.
func (e *noDataError) Is(target error) bool { return target == context.DeadlineExceeded }

// An apiRequest is a request to the API server.
type apiRequest struct {
	method, path string
	query        url.Values
	content      string // media type of the body
	body         any    // encoded as JSON, nil for none
	unlimited    bool   // ignores the rate limit
	patient      bool   // waits as long as the context allows
}

// sendAndDecode sends a request within the request timeout, and decodes the response into a
// value, nil for none.
func (t *transport) sendAndDecode(ctx context.Context, request apiRequest, into any) error {
	if !request.patient {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, t.timeout, t.timeoutCause)
		defer cancel()
	}
	resp, err := t.sendAndOpenBody(ctx, request)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return contextCauseOr(ctx, err)
	}
	if into == nil {
		return nil
	}
	return unmarshalResponse(body, into)
}

// sendAndOpenBody sends a request, and leaves the body of the response to the caller. A refusal
// for lack of a permission is final only if the server is ready; it may have become so in
// between.
func (t *transport) sendAndOpenBody(ctx context.Context, request apiRequest) (*http.Response, error) {
	if !request.unlimited {
		if err := t.waitForRateLimit(ctx); err != nil {
			return nil, err
		}
	}
	resp, err := t.sendOnce(ctx, request)
	if err == nil && strings.Contains(request.path, "/namespaces/") {
		t.ready.recordAllowed()
	}
	if !isPermissionDenied(err) {
		return resp, err
	}
	if err := t.checkReadyAfterRefusal(ctx, err); err != nil {
		return nil, err
	}

	// The server is ready by now, so its answer to a second request is final.
	if !request.unlimited {
		if err := t.waitForRateLimit(ctx); err != nil {
			return nil, err
		}
	}
	return t.sendOnce(ctx, request)
}

// sendOnce sends a request without a limit of the rate.
func (t *transport) sendOnce(ctx context.Context, request apiRequest) (*http.Response, error) {
	req, err := t.newHTTPRequest(ctx, request)
	if err != nil {
		return nil, err
	}
	resp, err := t.http.Do(req)
	if err != nil {
		return nil, contextCauseOr(ctx, err)
	}
	if resp.StatusCode >= http.StatusOK && resp.StatusCode < http.StatusMultipleChoices {
		return resp, nil
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxErrorText))
	if err != nil {
		return nil, contextCauseOr(ctx, err)
	}
	return nil, newAPIError(resp, text)
}

func (t *transport) newHTTPRequest(ctx context.Context, request apiRequest) (*http.Request, error) {
	u := *t.base
	u.Path = strings.TrimSuffix(u.Path, "/") + request.path
	u.RawQuery = request.query.Encode()
	var body io.Reader = http.NoBody
	if request.body != nil {
		text, err := json.Marshal(request.body)
		if err != nil {
			return nil, &shoot.Error{Class: shoot.ClassInvalid, Err: fmt.Errorf("encode: %w", err)}
		}
		body = bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, request.method, u.String(), body)
	if err != nil {
		return nil, fmt.Errorf("create request: %w", err)
	}
	req.Header.Set("Accept", "application/json")
	if request.body != nil {
		req.Header.Set("Content-Type", cmp.Or(request.content, "application/json"))
	}
	return req, nil
}

// contextCauseOr returns the cause of ctx if it has ended, and err otherwise.
func contextCauseOr(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return cause
	}
	return err
}

// waitForRateLimit waits for the rate limiter. It fails at once if the wait would exceed the
// deadline of ctx.
func (t *transport) waitForRateLimit(ctx context.Context) error {
	reservation := t.limiter.Reserve()
	delay := reservation.Delay()
	if delay == 0 {
		return nil
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < delay {
		reservation.Cancel()
		return &shoot.Error{
			Class:      shoot.ClassThrottled,
			RetryAfter: delay,
			Err:        fmt.Errorf("client-side rate limit of %g requests per second exceeded", t.limiter.Limit()),
		}
	}
	if err := backoff.Sleep(ctx, delay); err != nil {
		reservation.Cancel()
		return err
	}
	return nil
}
