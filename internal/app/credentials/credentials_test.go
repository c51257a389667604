package credentials_test

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/fleetloop/fleetloop/internal/app/credentials"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

const server = "https://fleet.example.com"

func newStore(t *testing.T, l credentials.Login) credentials.Store {
	t.Helper()
	s := credentials.Store{Path: filepath.Join(t.TempDir(), "credentials.json")}
	if err := s.Put(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return s
}

func newLogin(expires time.Time, refresh string) credentials.Login {
	return credentials.Login{Server: server, Tokens: credentials.Tokens{Bearer: "secret-0", Refresh: refresh, Expires: expires}}
}

// rotating is an issuer that accepts a refresh token once.
type rotating struct {
	mu      sync.Mutex
	renewed int
}

func (r *rotating) renew(_ context.Context, l credentials.Login) (credentials.Tokens, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Tokens.Refresh != fmt.Sprint("refresh-", r.renewed) {
		return credentials.Tokens{}, session.ErrRefused
	}
	r.renewed++
	return credentials.Tokens{Bearer: fmt.Sprint("secret-", r.renewed), Refresh: fmt.Sprint("refresh-", r.renewed), Expires: now.Add(time.Hour)}, nil
}

// TestSourceRenewsOnce covers many processes whose token has expired: one renews it, and all use the result.
func TestSourceRenewsOnce(t *testing.T) {
	t.Parallel()
	l := newLogin(now.Add(time.Second), "refresh-0")
	store, issuer := newStore(t, l), &rotating{}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			source := credentials.NewSource(store, l, issuer.renew, func() time.Time { return now })
			if token, err := source.Token(t.Context(), ""); token != "secret-1" || err != nil {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
	all.Wait()
	stored, found, err := store.Find("", server)
	if issuer.renewed != 1 || !found || err != nil || stored.Tokens.Refresh != "refresh-1" {
		t.Errorf("renewed %d times, stored %q, %v", issuer.renewed, stored.Tokens.Refresh, err)
	}
}

func TestSource(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		login    credentials.Login
		rejected string
		want     string
		err      error
	}{
		"Fresh":           {"it is valid for long", newLogin(now.Add(time.Minute), "refresh-0"), "", "secret-0", nil},
		"NoExpiry":        {"a fixed token", newLogin(time.Time{}, ""), "", "secret-0", nil},
		"Soon":            {"it would expire on the way", newLogin(now.Add(20*time.Second), "refresh-0"), "", "secret-1", nil},
		"Rejected":        {"the server's clock is ahead", newLogin(now.Add(time.Minute), "refresh-0"), "secret-0", "secret-1", nil},
		"RejectedFixed":   {"the server says why", newLogin(time.Time{}, ""), "secret-0", "secret-0", nil},
		"Expired":         {"it cannot be renewed", newLogin(now.Add(-time.Minute), ""), "", "", credentials.ErrExpired},
		"RefusedByIssuer": {"the session at the issuer has ended", newLogin(now, "refresh-9"), "", "", credentials.ErrExpired},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := credentials.NewSource(newStore(t, tc.login), tc.login, (&rotating{}).renew, func() time.Time { return now })
			got, err := source.Token(t.Context(), tc.rejected)
			if got != tc.want || !errors.Is(err, tc.err) {
				t.Errorf("%s: got %q, %v, want %q, %v", tc.reason, got, err, tc.want, tc.err)
			}
			if text := fmt.Sprintf("%v %+v %#v %v", source, tc.login, tc.login, err); strings.Contains(text, "secret-") || strings.Contains(text, "refresh-") {
				t.Errorf("a token is shown: %s", text)
			}
		})
	}
}

// TestSourceIsInterrupted covers an interrupt during a renewal: the issuer has taken the old refresh token back, so
// the new one must be stored.
func TestSourceIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLogin(now, "refresh-0")
	store, issuer := newStore(t, l), &rotating{}
	ctx, interrupt := context.WithCancel(t.Context())
	source := credentials.NewSource(store, l, func(renewCtx context.Context, l credentials.Login) (credentials.Tokens, error) {
		tokens, err := issuer.renew(renewCtx, l)
		interrupt()
		return tokens, errors.Join(err, renewCtx.Err())
	}, func() time.Time { return now })
	_, err := source.Token(ctx, "")
	if stored, _, _ := store.Find("", server); stored.Tokens.Refresh != "refresh-1" {
		t.Errorf("%q is stored, %v", stored.Tokens.Refresh, err)
	}
}

// TestSourceAfterLogout covers a process that has read the login before another one has deleted it.
func TestSourceAfterLogout(t *testing.T) {
	t.Parallel()
	l := newLogin(now, "refresh-0")
	store := newStore(t, l)
	if existed, err := store.Delete(t.Context(), "", server); !existed || err != nil {
		t.Fatalf("%t, %v", existed, err)
	}
	var asked atomic.Bool
	source := credentials.NewSource(store, l, func(context.Context, credentials.Login) (credentials.Tokens, error) {
		asked.Store(true)
		return credentials.Tokens{Bearer: "x"}, nil
	}, func() time.Time { return now })
	if token, err := source.Token(t.Context(), ""); !errors.Is(err, credentials.ErrExpired) || asked.Load() {
		t.Errorf("got %q, %v; the issuer was asked: %t", token, err, asked.Load())
	}
}

func TestStore(t *testing.T) {
	t.Parallel()
	store := newStore(t, newLogin(now, ""))
	other := newLogin(now, "")
	other.Context, other.Tokens.Bearer = "prod", "secret-prod"
	if err := store.Put(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ context, server, want string }{
		{"", server, "secret-0"}, {"prod", server, "secret-prod"}, {"prod", "https://other.example.com", ""}, {"other", server, ""},
	} {
		if got, _, err := store.Find(tc.context, tc.server); got.Tokens.Bearer != tc.want || err != nil {
			t.Errorf("%q at %s: got %q, %v, want %q", tc.context, tc.server, got.Tokens.Bearer, err, tc.want)
		}
	}
	if err := store.DeleteContext(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := store.Find("prod", server); found || err != nil {
		t.Errorf("after the deletion: %t, %v", found, err)
	}
	if err := os.WriteFile(store.Path, []byte(`{"logins": secret-1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.Find("", server); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestExpiry(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for token, want := range map[string]time.Time{
		"h." + encode([]byte(`{"exp":1772366400}`)) + ".s": now,
		"h." + encode([]byte(`{"exp":"x"}`)) + ".s":        {},
		"h.!.s":  {},
		"opaque": {},
	} {
		if got := credentials.Expiry(token); !got.Equal(want) {
			t.Errorf("%s: got %s, want %s", token, got, want)
		}
	}
}
