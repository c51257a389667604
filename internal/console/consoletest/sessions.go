package consoletest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/console/session"
)

// RunSessionStoreTests tests the store of sessions that open returns.
func RunSessionStoreTests(t *testing.T, open func(*testing.T) session.Store) {
	t.Helper()
	t.Run("Life", func(t *testing.T) { testSessionLifecycle(t, open(t)) })
	t.Run("Old", func(t *testing.T) { testDeleteExpiredAndIdle(t, open(t)) })
	t.Run("ExclusiveUpdates", func(t *testing.T) { testExclusiveUpdates(t, open(t)) })
}

func newSessionRecord(n byte) session.Record {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return session.Record{Hash: session.Hash{n}, Sealed: []byte{n, 0, 255}, Seen: now, Expires: now.Add(time.Hour)}
}

func wantStoredRecord(t *testing.T, s session.Store, want session.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), want.Hash)
	got.Seen, got.Expires = got.Seen.UTC(), got.Expires.UTC()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func wantNoSession(t *testing.T, s session.Store, h session.Hash) {
	t.Helper()
	if _, err := s.Get(t.Context(), h); !errors.Is(err, session.ErrNone) {
		t.Errorf("get: %v, want %v", err, session.ErrNone)
	}
}

func mustCreateSession(t *testing.T, s session.Store, r session.Record) {
	t.Helper()
	if err := s.CreateSession(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func testSessionLifecycle(t *testing.T, s session.Store) {
	t.Helper()
	r := newSessionRecord(1)
	wantNoSession(t, s, r.Hash)
	mustCreateSession(t, s, r)
	mustCreateSession(t, s, newSessionRecord(2))
	wantStoredRecord(t, s, r)
	changed := r
	changed.Sealed, changed.Seen = []byte("new"), r.Seen.Add(time.Minute)
	err := s.UpdateLocked(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) {
		if string(got.Sealed) != string(r.Sealed) {
			t.Errorf("update got %v", got)
		}
		return changed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantStoredRecord(t, s, changed)
	refused := errors.New("refused")
	err = s.UpdateLocked(
		t.Context(),
		r.Hash,
		func(context.Context, session.Record) (session.Record, error) { return newSessionRecord(9), refused },
	)
	if !errors.Is(err, refused) {
		t.Errorf("update: %v, want %v", err, refused)
	}
	wantStoredRecord(t, s, changed)
	for range 2 {
		if err := s.DeleteSession(t.Context(), r.Hash); err != nil {
			t.Error(err)
		}
	}
	wantNoSession(t, s, r.Hash)
	wantStoredRecord(t, s, newSessionRecord(2))
	err = s.UpdateLocked(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) { return got, nil })
	if !errors.Is(err, session.ErrNone) {
		t.Errorf("update: %v, want %v", err, session.ErrNone)
	}
}

func testDeleteExpiredAndIdle(t *testing.T, s session.Store) {
	t.Helper()
	expired, idle, fresh := newSessionRecord(1), newSessionRecord(2), newSessionRecord(3)
	now := fresh.Expires
	fresh.Expires, fresh.Seen = now.Add(time.Second), now
	idle.Expires = now.Add(time.Second)
	expired.Seen = now
	for _, r := range []session.Record{expired, idle, fresh} {
		mustCreateSession(t, s, r)
	}
	if err := s.DeleteExpiredAndIdle(t.Context(), now, now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantNoSession(t, s, expired.Hash)
	wantNoSession(t, s, idle.Hash)
	wantStoredRecord(t, s, fresh)
}

// testExclusiveUpdates covers that no update of one session is lost.
func testExclusiveUpdates(t *testing.T, s session.Store) {
	t.Helper()
	r := newSessionRecord(1)
	r.Sealed = []byte{0}
	mustCreateSession(t, s, r)
	const writers = 8
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			err := s.UpdateLocked(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) {
				got.Sealed = []byte{got.Sealed[0] + 1}
				return got, nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	r.Sealed = []byte{writers}
	wantStoredRecord(t, s, r)
}
