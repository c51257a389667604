package session_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fleetloop/fleetloop/internal/console/consoletest"
	"github.com/fleetloop/fleetloop/internal/console/session"
)

func TestMemory(t *testing.T) {
	consoletest.RunSessionStoreTests(t, func(*testing.T) session.Store { return session.NewMemoryStore() })
}

func newSessions(store session.Store, refresh session.RefreshFunc) *session.Sessions {
	cfg := session.Config{Idle: time.Hour, Lifetime: 12 * time.Hour}
	return session.New(cfg, session.NewRandomKey(), store, refresh, slog.New(slog.DiscardHandler))
}

func start(t *testing.T, s *session.Sessions, tokens session.Tokens) string {
	t.Helper()
	id, _, err := s.CreateSession(t.Context(), session.User{Name: "alice"}, tokens)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// TestExpiry covers the end of a session without requests, and of one with requests.
func TestExpiry(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		every  time.Duration // between requests
		want   time.Duration // from the sign-in to the last request that works
	}{
		"Idle":     {"nobody came for an hour", time.Hour, 0},
		"Busy":     {"requests keep it, up to its lifetime", 50 * time.Minute, 14 * 50 * time.Minute},
		"VeryBusy": {"not each request is written down", 30 * time.Second, 12*time.Hour - 30*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSessions(session.NewMemoryStore(), nil)
				began := time.Now()
				id := start(t, s, session.Tokens{Bearer: "b"})
				last := time.Duration(0)
				for {
					time.Sleep(tc.every)
					if _, err := s.GetAndRecordUse(t.Context(), id); err != nil {
						if !errors.Is(err, session.ErrNone) {
							t.Fatal(err)
						}
						break
					}
					last = time.Since(began)
				}
				if last != tc.want {
					t.Errorf("%s: it worked until %s, want %s", tc.reason, last, tc.want)
				}
			})
		})
	}
}

// TestRefresh covers that tokens are renewed before their expiry, once for requests at the same time.
func TestRefresh(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		s := newSessions(session.NewMemoryStore(), func(_ context.Context, old string) (session.Tokens, error) {
			n := calls.Add(1)
			time.Sleep(time.Second) // the issuer takes its time
			if want := fmt.Sprint("r", n-1); old != want {
				return session.Tokens{}, fmt.Errorf("%w: refresh token %q, want %q", session.ErrRefused, old, want)
			}
			return session.Tokens{Bearer: fmt.Sprint("b", n), Refresh: fmt.Sprint("r", n), Expires: time.Now().Add(10 * time.Minute)}, nil
		})
		id := start(t, s, session.Tokens{Bearer: "b0", Refresh: "r0", Expires: time.Now().Add(10 * time.Minute)})
		get := func() string {
			got, err := s.GetAndRecordUse(t.Context(), id)
			if err != nil {
				t.Error(err)
			}
			return got.Tokens.Bearer
		}
		time.Sleep(8 * time.Minute)
		if b := get(); b != "b0" {
			t.Errorf("after 8 of 10 minutes: %q", b)
		}
		time.Sleep(90 * time.Second)
		var all sync.WaitGroup
		for range 5 {
			all.Go(func() {
				if b := get(); b != "b1" {
					t.Errorf("shortly before the expiry: %q", b)
				}
			})
		}
		all.Wait()
		if n := calls.Load(); n != 1 {
			t.Errorf("the issuer was asked %d times", n)
		}
	})
}

// TestRefreshFails covers that a refusal ends a session, and an unavailable issuer only matters once
// the token has expired.
func TestRefreshFails(t *testing.T) {
	for name, tc := range map[string]struct {
		fails          error
		before, after  error // of a request before and after the expiry
		workedMeantime bool
	}{
		"Refused":     {session.ErrRefused, session.ErrNone, session.ErrNone, false},
		"Unavailable": {errAway, nil, errAway, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newSessions(session.NewMemoryStore(), func(context.Context, string) (session.Tokens, error) { return session.Tokens{}, tc.fails })
				id := start(t, s, session.Tokens{Bearer: "b0", Refresh: "r0", Expires: time.Now().Add(10 * time.Minute)})
				time.Sleep(9*time.Minute + 30*time.Second)
				if _, err := s.GetAndRecordUse(t.Context(), id); !errors.Is(err, tc.before) {
					t.Errorf("before the expiry: %v, want %v", err, tc.before)
				}
				time.Sleep(time.Minute)
				if _, err := s.GetAndRecordUse(t.Context(), id); !errors.Is(err, tc.after) {
					t.Errorf("after the expiry: %v, want %v", err, tc.after)
				}
			})
		})
	}
}

var errAway = errors.New("away")

// TestRefreshFailsOnce covers that the issuer is left alone for a while after a failure.
func TestRefreshFailsOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		calls := 0
		s := newSessions(session.NewMemoryStore(), func(context.Context, string) (session.Tokens, error) {
			calls++
			return session.Tokens{}, errAway
		})
		id := start(t, s, session.Tokens{Bearer: "b0", Refresh: "r0", Expires: time.Now().Add(20 * time.Second)})
		for second, want := range []struct {
			calls int
			err   error
		}{0: {1, nil}, 14: {1, nil}, 15: {2, nil}, 20: {2, errAway}, 29: {2, errAway}, 30: {3, errAway}, 31: {3, errAway}} {
			if want.calls > 0 {
				if _, err := s.GetAndRecordUse(t.Context(), id); !errors.Is(err, want.err) || calls != want.calls {
					t.Errorf("after %d s: %v after %d calls, want %v after %d", second, err, calls, want.err, want.calls)
				}
			}
			time.Sleep(time.Second)
		}
	})
}

// TestRefreshWithoutBearer covers an issuer that replaces the refresh token, and only later sends a bearer. Without an
// ID token the session lasts as long as its bearer.
func TestRefreshWithoutBearer(t *testing.T) {
	for name, tc := range map[string]struct {
		fails   error
		expired error // of a request after the expiry, while it fails
	}{
		"Unavailable": {errAway, errAway},
		"NoIDToken":   {session.ErrNoIDToken, session.ErrNone},
	} {
		for _, recovers := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/recovers=%t", name, recovers), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					renewed, fails := 0, true
					s := newSessions(session.NewMemoryStore(), func(_ context.Context, old string) (session.Tokens, error) {
						if old != fmt.Sprint("r", renewed) {
							return session.Tokens{}, fmt.Errorf("%w: refresh token %q", session.ErrRefused, old)
						}
						renewed++
						tokens := session.Tokens{Refresh: fmt.Sprint("r", renewed)}
						if fails {
							return tokens, tc.fails
						}
						tokens.Bearer, tokens.Expires = "new", time.Now().Add(time.Hour)
						return tokens, nil
					})
					id := start(t, s, session.Tokens{Bearer: "old", Refresh: "r0", Expires: time.Now().Add(30 * time.Second)})
					want := func(bearer string, want error) {
						t.Helper()
						if got, err := s.GetAndRecordUse(t.Context(), id); !errors.Is(err, want) || got.Tokens.Bearer != bearer {
							t.Errorf("got %q, %v; want %q, %v", got.Tokens.Bearer, err, bearer, want)
						}
					}
					want("old", nil)
					fails = !recovers
					time.Sleep(16 * time.Second)
					if recovers {
						want("new", nil)
						return
					}
					want("old", nil)
					time.Sleep(16 * time.Second)
					want("", tc.expired)
				})
			})
		}
	}
}

// TestRefreshHangs covers that few renewals wait for an issuer at the same time, and that other sessions do not.
func TestRefreshHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var calls atomic.Int32
		s := newSessions(session.NewMemoryStore(), func(ctx context.Context, _ string) (session.Tokens, error) {
			calls.Add(1)
			<-ctx.Done()
			return session.Tokens{}, context.Cause(ctx)
		})
		began := time.Now()
		var all sync.WaitGroup
		for range session.DefaultMaxRenewals + 3 {
			id := start(t, s, session.Tokens{Bearer: "b0", Refresh: "r0", Expires: time.Now().Add(30 * time.Second)})
			for range 3 {
				all.Go(func() {
					if got, err := s.GetAndRecordUse(t.Context(), id); err != nil || got.Tokens.Bearer != "b0" {
						t.Errorf("got %q, %v", got.Tokens.Bearer, err)
					}
				})
			}
		}
		synctest.Wait()
		other := start(t, s, session.Tokens{Bearer: "b1", Refresh: "r1", Expires: time.Now().Add(time.Hour)})
		if _, err := s.GetAndRecordUse(t.Context(), other); err != nil || time.Since(began) > 0 {
			t.Errorf("another session after %s: %v", time.Since(began), err)
		}
		all.Wait()
		if n, took := calls.Load(), time.Since(began); n != session.DefaultMaxRenewals || took > 10*time.Second {
			t.Errorf("the issuer was asked %d times in %s", n, took)
		}
	})
}

// TestAtRest covers what a store sees of a session, and that another key or another row do not open it.
func TestAtRest(t *testing.T) {
	store := &spy{MemoryStore: session.NewMemoryStore()}
	s := newSessions(store, nil)
	id := start(t, s, session.Tokens{Bearer: "secret-bearer", Refresh: "secret-refresh"})
	other := start(t, s, session.Tokens{Bearer: "other"})
	for _, r := range store.created {
		if text := string(r.Sealed) + string(r.Hash[:]); strings.Contains(text, "secret") || strings.Contains(text, id) || strings.Contains(text, "alice") {
			t.Errorf("the store has %q", text)
		}
	}
	swapped := store.created[0]
	swapped.Sealed = store.created[1].Sealed
	if err := store.CreateSession(t.Context(), swapped); err != nil {
		t.Fatal(err)
	}
	if _, err := s.GetAndRecordUse(t.Context(), id); !errors.Is(err, session.ErrNone) {
		t.Errorf("the contents of another session: %v", err)
	}
	if _, err := newSessions(store, nil).GetAndRecordUse(t.Context(), other); !errors.Is(err, session.ErrNone) {
		t.Errorf("another key: %v", err)
	}
}

type spy struct {
	*session.MemoryStore

	created []session.Record
}

func (s *spy) CreateSession(ctx context.Context, r session.Record) error {
	s.created = append(s.created, r)
	return s.MemoryStore.CreateSession(ctx, r)
}

func TestParseKey(t *testing.T) {
	if _, err := session.ParseBase64Key("secret"); err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("a short key: %v", err)
	}
	if _, err := session.ParseBase64Key("AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n"); err != nil {
		t.Error(err)
	}
}
