package console_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

// A retryAfterError is an error with a Retry-After of a minute.
type retryAfterError struct{ error }

func (retryAfterError) RetryAfter() time.Duration { return time.Minute }

func (e retryAfterError) Unwrap() error { return e.error }

// TestStreamPauses covers a source that always fails: only an expired cursor is tried again at once, and without it.
func TestStreamPauses(t *testing.T) {
	for name, tc := range map[string]struct {
		reason      string
		cursor      string
		err         error
		lasts       time.Duration
		least, most int // calls
	}{
		"Cursor":     {"the second request has no cursor", "old", console.ErrExpired, 300 * time.Millisecond, 2, 2},
		"NoCursor":   {"a request without a cursor cannot have an expired one", "", console.ErrExpired, 300 * time.Millisecond, 1, 1},
		"Backoff":    {"the pauses grow from 1 s to 30 s, less their jitter", "", console.ErrExpired, 5 * time.Minute, 14, 17},
		"RetryAfter": {"the fleet API asks for a minute", "", retryAfterError{console.ErrExpired}, time.Minute, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), tc.lasts)
				defer cancel()
				calls := 0
				source := console.Source{Name: "s", Topics: []string{console.TopicClusters}, Follow: func(context.Context, console.Subscription, func(console.StreamEvent) error) error {
					if calls++; calls > 1000 { // without a pause, the time of the test stands still
						cancel()
					}
					return tc.err
				}}
				c, err := console.New(console.Config{Mode: console.ModeNone, FleetAPI: "http://127.0.0.1:1"}, console.Deps{
					ListenAddr: "127.0.0.1:0", Fleet: []console.Source{source}, Log: slog.New(slog.DiscardHandler), Metrics: prometheus.NewRegistry(),
				})
				if err != nil {
					t.Fatal(err)
				}
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/console/stream", http.NoBody)
				if tc.cursor != "" {
					r.Header.Set("Last-Event-ID", base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"s":%q}`, tc.cursor)))
				}
				c.Handler().ServeHTTP(httptest.NewRecorder(), r)
				if calls < tc.least || calls > tc.most {
					t.Errorf("%s: %d calls in %s, want %d to %d", tc.reason, calls, tc.lasts, tc.least, tc.most)
				}
			})
		})
	}
}

// TestStreamOfRefusedToken covers that a stream ends with the session if the fleet API does not accept the token, unless
// the session has a newer one.
func TestStreamOfRefusedToken(t *testing.T) {
	for name, tc := range map[string]struct {
		tokens session.Tokens
		life   time.Duration
		lasts  bool
	}{
		"Current": {session.Tokens{Bearer: "old"}, time.Hour, false},
		"Renewed": {session.Tokens{Bearer: "old", Refresh: "r"}, 5 * time.Minute, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limits := session.Config{Idle: time.Hour, Lifetime: time.Hour}
				log := slog.New(slog.DiscardHandler)
				refresh := func(context.Context, string) (session.Tokens, error) { return session.Tokens{Bearer: "new"}, nil }
				sessions := session.New(limits, session.NewRandomKey(), session.NewMemoryStore(), refresh, log)
				tc.tokens.Expires = time.Now().Add(tc.life)
				id, _, err := sessions.CreateSession(t.Context(), session.User{Name: "alice"}, tc.tokens)
				if err != nil {
					t.Fatal(err)
				}
				source := console.Source{Name: "s", Topics: []string{console.TopicClusters}, Follow: func(ctx context.Context, s console.Subscription, _ func(console.StreamEvent) error) error {
					if s.Who.Token == "new" {
						return backoff.Sleep(ctx, time.Hour)
					}
					_ = backoff.Sleep(ctx, 4*time.Minute+30*time.Second) // the console renews tokens a minute before their expiry
					return console.ErrToken
				}}
				c, err := console.New(console.Config{Mode: console.ModeToken, FleetAPI: "http://127.0.0.1:1"}, console.Deps{
					ListenAddr: "127.0.0.1:0", Sessions: sessions, Fleet: []console.Source{source}, Log: log, Metrics: prometheus.NewRegistry(),
				})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1/console/stream", http.NoBody)
				r.AddCookie(&http.Cookie{Name: "fleetloop-console", Value: id}) //nolint:gosec // the test has no TLS
				c.Handler().ServeHTTP(httptest.NewRecorder(), r)
				_, err = sessions.GetWithoutRecordingUse(t.Context(), id)
				if tc.lasts != (err == nil) || tc.lasts != (ctx.Err() != nil) {
					t.Errorf("after the stream: %v, %v", err, ctx.Err())
				}
			})
		})
	}
}
