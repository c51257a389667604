package cli

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

	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	consolesession "github.com/fleetloop/fleetloop/internal/console/session"
)

const loginServer = "https://fleet.example.com"

func newTestLoginStore(t *testing.T, l storedLogin) loginStore {
	t.Helper()
	s := loginStore{path: filepath.Join(t.TempDir(), "credentials.json")}
	if err := s.put(t.Context(), l); err != nil {
		t.Fatal(err)
	}
	return s
}

func newLogin(expires time.Time, refresh string) storedLogin {
	return storedLogin{Server: loginServer, Tokens: consolesession.Tokens{Bearer: "secret-0", Refresh: refresh, Expires: expires}}
}

// rotating is an issuer that accepts a refresh token once.
type rotatingIssuer struct {
	mu      sync.Mutex
	renewed int
}

func (r *rotatingIssuer) renew(_ context.Context, l storedLogin) (consolesession.Tokens, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if l.Tokens.Refresh != fmt.Sprint("refresh-", r.renewed) {
		return consolesession.Tokens{}, consolesession.ErrRefused
	}
	r.renewed++
	return consolesession.Tokens{Bearer: fmt.Sprint("secret-", r.renewed), Refresh: fmt.Sprint("refresh-", r.renewed), Expires: now.Add(time.Hour)}, nil
}

// TestLoginTokenSourceRenewsOnce covers many processes whose token has expired: one renews it, and all use the result.
func TestLoginTokenSourceRenewsOnce(t *testing.T) {
	t.Parallel()
	l := newLogin(now.Add(time.Second), "refresh-0")
	store, issuer := newTestLoginStore(t, l), &rotatingIssuer{}
	var all sync.WaitGroup
	for range 10 {
		all.Go(func() {
			source := newLoginTokenSource(store, l, issuer.renew, func() time.Time { return now })
			if token, err := source.Token(t.Context(), ""); token != "secret-1" || err != nil {
				t.Errorf("got %q, %v", token, err)
			}
		})
	}
	all.Wait()
	stored, found, err := store.findLogin("", loginServer)
	if issuer.renewed != 1 || !found || err != nil || stored.Tokens.Refresh != "refresh-1" {
		t.Errorf("renewed %d times, stored %q, %v", issuer.renewed, stored.Tokens.Refresh, err)
	}
}

func TestLoginTokenSource(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason   string
		login    storedLogin
		rejected string
		want     string
		err      error
	}{
		"Fresh":           {"it is valid for long", newLogin(now.Add(time.Minute), "refresh-0"), "", "secret-0", nil},
		"NoExpiry":        {"a fixed token", newLogin(time.Time{}, ""), "", "secret-0", nil},
		"Soon":            {"it would expire on the way", newLogin(now.Add(20*time.Second), "refresh-0"), "", "secret-1", nil},
		"Rejected":        {"the server's clock is ahead", newLogin(now.Add(time.Minute), "refresh-0"), "secret-0", "secret-1", nil},
		"RejectedFixed":   {"the server says why", newLogin(time.Time{}, ""), "secret-0", "secret-0", nil},
		"Expired":         {"it cannot be renewed", newLogin(now.Add(-time.Minute), ""), "", "", errLoginExpired},
		"RefusedByIssuer": {"the session at the issuer has ended", newLogin(now, "refresh-9"), "", "", errLoginExpired},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			source := newLoginTokenSource(newTestLoginStore(t, tc.login), tc.login, (&rotatingIssuer{}).renew, func() time.Time { return now })
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

// TestLoginTokenSourceIsInterrupted covers an interrupt during a renewal: the issuer has taken the old refresh token back, so
// the new one must be stored.
func TestLoginTokenSourceIsInterrupted(t *testing.T) {
	t.Parallel()
	l := newLogin(now, "refresh-0")
	store, issuer := newTestLoginStore(t, l), &rotatingIssuer{}
	ctx, interrupt := context.WithCancel(t.Context())
	source := newLoginTokenSource(store, l, func(renewCtx context.Context, l storedLogin) (consolesession.Tokens, error) {
		tokens, err := issuer.renew(renewCtx, l)
		interrupt()
		return tokens, errors.Join(err, renewCtx.Err())
	}, func() time.Time { return now })
	_, err := source.Token(ctx, "")
	if stored, _, _ := store.findLogin("", loginServer); stored.Tokens.Refresh != "refresh-1" {
		t.Errorf("%q is stored, %v", stored.Tokens.Refresh, err)
	}
}

// TestLoginTokenSourceWithoutBearer covers an issuer that has replaced the refresh token, but sends no usable ID token: the
// new refresh token is stored beside the old bearer, so that the next try succeeds.
func TestLoginTokenSourceWithoutBearer(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(*consoletest.Issuer){
		"NoKeys":    func(i *consoletest.Issuer) { i.KeyFailures = 1 },
		"NoIDToken": func(i *consoletest.Issuer) { i.NoIDToken = true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			issuer := consoletest.StartIssuer(t)
			change(issuer)
			l := newLogin(time.Now(), "secret-refresh-0")
			l.Issuer = loginIssuer{URL: issuer.URL, ClientID: consoletest.ClientID, Token: "id_token"}
			store := newTestLoginStore(t, l)
			source := newLoginTokenSource(store, l, renewTokens, time.Now)
			if _, err := source.Token(t.Context(), ""); err == nil || errors.Is(err, consolesession.ErrRefused) {
				t.Errorf("got the error %v", err)
			}
			stored, _, err := store.findLogin("", loginServer)
			if stored.Tokens.Refresh != "secret-refresh-1" || stored.Tokens.Bearer != l.Tokens.Bearer || err != nil {
				t.Errorf("stored %+v, %v", stored.Tokens, err)
			}
			issuer.NoIDToken = false
			if token, err := source.Token(t.Context(), ""); err != nil || token == l.Tokens.Bearer {
				t.Errorf("the second time: %q, %v", token, err)
			}
		})
	}
}

// TestLoginTokenSourceAfterLogout covers a process that has read the login before another one has deleted it.
func TestLoginTokenSourceAfterLogout(t *testing.T) {
	t.Parallel()
	l := newLogin(now, "refresh-0")
	store := newTestLoginStore(t, l)
	if _, existed, err := store.deleteLogin(t.Context(), "", loginServer); !existed || err != nil {
		t.Fatalf("%t, %v", existed, err)
	}
	var asked atomic.Bool
	source := newLoginTokenSource(store, l, func(context.Context, storedLogin) (consolesession.Tokens, error) {
		asked.Store(true)
		return consolesession.Tokens{Bearer: "x"}, nil
	}, func() time.Time { return now })
	if token, err := source.Token(t.Context(), ""); !errors.Is(err, errLoginExpired) || asked.Load() {
		t.Errorf("got %q, %v; the issuer was asked: %t", token, err, asked.Load())
	}
}

func TestLoginStore(t *testing.T) {
	t.Parallel()
	store := newTestLoginStore(t, newLogin(now, ""))
	other := newLogin(now, "")
	other.Context, other.Tokens.Bearer = "prod", "secret-prod"
	if err := store.put(t.Context(), other); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct{ context, server, want string }{
		{"", loginServer, "secret-0"}, {"prod", loginServer, "secret-prod"}, {"prod", "https://other.example.com", ""}, {"other", loginServer, ""},
	} {
		if got, _, err := store.findLogin(tc.context, tc.server); got.Tokens.Bearer != tc.want || err != nil {
			t.Errorf("%q at %s: got %q, %v, want %q", tc.context, tc.server, got.Tokens.Bearer, err, tc.want)
		}
	}
	if err := store.deleteLoginsOfContext(t.Context(), "prod"); err != nil {
		t.Fatal(err)
	}
	if _, found, err := store.findLogin("prod", loginServer); found || err != nil {
		t.Errorf("after the deletion: %t, %v", found, err)
	}
	if err := os.WriteFile(store.path, []byte(`{"logins": secret-1`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, _, err := store.findLogin("", loginServer); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a broken file: %v", err)
	}
}

func TestTokenExpiry(t *testing.T) {
	t.Parallel()
	encode := base64.RawURLEncoding.EncodeToString
	for token, want := range map[string]time.Time{
		"h." + encode([]byte(`{"exp":1772366400}`)) + ".s": now,
		"h." + encode([]byte(`{"exp":"x"}`)) + ".s":        {},
		"h.!.s":  {},
		"opaque": {},
	} {
		if got := parseJWTExpiry(token); !got.Equal(want) {
			t.Errorf("%s: got %s, want %s", token, got, want)
		}
	}
}
