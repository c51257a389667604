package client

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// script is a transport that gives one answer after another: a status, or an error. The last one
// stays.
type script struct {
	answers []any
	after   string // Retry-After of unsuccessful responses
	sent    int
}

func (s *script) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil {
		_ = r.Body.Close()
	}
	answer := s.answers[min(s.sent, len(s.answers)-1)]
	s.sent++
	w := httptest.NewRecorder()
	w.Header().Set("Retry-After", s.after)
	switch answer := answer.(type) {
	case error:
		return nil, answer
	case int:
		writeJSON(w, answer, struct{}{})
	}
	return w.Result(), nil
}

func newScripted(t *testing.T, cfg Config, s *script) *Client {
	t.Helper()
	cfg.Endpoint = "http://h"
	cfg.WrapTransport = func(http.RoundTripper) http.RoundTripper { return s }
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestRetry(t *testing.T) {
	t.Parallel()
	var (
		get     = func(ctx context.Context, c *Client) error { _, err := c.Clusters().Get(ctx, "x"); return err }
		destroy = func(ctx context.Context, c *Client) error { _, err := c.Clusters().Delete(ctx, "x"); return err }
		report  = func(ctx context.Context, c *Client) error {
			_, err := c.Reporter().Report(ctx, "clusters", "x", v1.Report{})
			return err
		}
		create = func(ctx context.Context, c *Client) error {
			_, err := c.Clusters().Create(ctx, v1.CreateRequest{})
			return err
		}
		patch = func(ctx context.Context, c *Client) error {
			_, err := c.Clusters().Patch(ctx, "x", v1.PatchRequest{})
			return err
		}
		patchIf = func(ctx context.Context, c *Client) error {
			_, err := c.Clusters().PatchIf(ctx, "x", `"1"`, v1.PatchRequest{})
			return err
		}
		resend = func(ctx context.Context, c *Client) error {
			_, err := c.ChangeEvents().Resend(ctx, "x", "key", v1.ChangeResend{})
			return err
		}
		raw    = func(ctx context.Context, c *Client) error { _, err := c.Raw().Get(ctx, "clusters", "x"); return err }
		refuse = &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		lost   = &net.OpError{Op: "read", Err: errors.New("connection reset")}
	)
	cases := map[string]struct {
		reason  string
		call    func(context.Context, *Client) error
		answers []any
		after   string
		sent    int
		fails   bool
	}{
		"Twice":         {"reads are repeated until they succeed", get, []any{503, 500, 200}, "", 3, false},
		"GivesUp":       {"but not forever", get, []any{503}, "", DefaultMaxAttempts, true},
		"Lost":          {"a read whose answer is lost is repeated", get, []any{lost, 200}, "", 2, false},
		"NotFound":      {"the answer would be the same", get, []any{404}, "", 1, true},
		"Delete":        {"what is deleted stays so", destroy, []any{502, 200}, "", 2, false},
		"Report":        {"the server keeps the newest report", report, []any{503, 200}, "", 2, false},
		"Resend":        {"the key makes it safe", resend, []any{503, 200}, "", 2, false},
		"PatchIf":       {"a change that took effect fails the condition", patchIf, []any{503, 200}, "", 2, false},
		"Patch":         {"it could undo what another changed meanwhile", patch, []any{503, 200}, "", 1, true},
		"Create":        {"it could have been created", create, []any{503, 200}, "", 1, true},
		"CreateLost":    {"it could have been created", create, []any{lost, 200}, "", 1, true},
		"CreateRefused": {"no server has seen it", create, []any{refuse, 200}, "", 2, false},
		"CreateTooMany": {"the server has not processed it", create, []any{429, 200}, "1", 2, false},
		"Long":          {"the caller decides about a long delay", get, []any{429, 200}, "31", 1, true},
		"Raw":           {"its callers have their own backoff", raw, []any{503, 200}, "", 1, true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := &script{answers: tc.answers, after: tc.after}
				if err := tc.call(t.Context(), newScripted(t, Config{}, s)); (err != nil) != tc.fails || s.sent != tc.sent {
					t.Errorf("%s: sent %d times, err %v, want %d", tc.reason, s.sent, err, tc.sent)
				}
			})
		})
	}
}

func TestRetryDelays(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason      string
		after       string
		least, most time.Duration
	}{
		"Grows":      {"200, 400 and 800 ms, with jitter", "", 700 * time.Millisecond, 1400 * time.Millisecond},
		"RetryAfter": {"three times what the server wants", "7", 21 * time.Second, 21 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				c := newScripted(t, Config{}, &script{answers: []any{503}, after: tc.after})
				if _, err := c.WhoAmI(t.Context()); err == nil {
					t.Error("no error")
				}
				if took := time.Since(begun); took < tc.least || took > tc.most {
					t.Errorf("%s: took %s", tc.reason, took)
				}
			})
		})
	}
}

// TestRetryEndsWithItsCaller checks that a delay ends with the context, and does not begin if the
// deadline is sooner.
func TestRetryEndsWithItsCaller(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("enough")
		s := &script{answers: []any{503}, after: "20"}
		c := newScripted(t, Config{}, s)
		begun := time.Now()
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Second, func() { cancel(why) })
		if _, err := c.WhoAmI(ctx); !errors.Is(err, why) || time.Since(begun) != time.Second || s.sent != 1 {
			t.Errorf("got %v after %s and %d requests", err, time.Since(begun), s.sent)
		}
		begun = time.Now()
		soon, stop := context.WithTimeout(t.Context(), 10*time.Second)
		defer stop()
		if _, err := c.WhoAmI(soon); !hasStatus(err, http.StatusServiceUnavailable) || time.Since(begun) != 0 {
			t.Errorf("got %v after %s, want the answer at once", err, time.Since(begun))
		}
	})
}
