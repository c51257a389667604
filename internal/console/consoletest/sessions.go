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

// TestSessions tests the store of sessions that open returns.
func TestSessions(t *testing.T, open func(*testing.T) session.Store) {
	t.Helper()
	t.Run("Life", func(t *testing.T) { testLife(t, open(t)) })
	t.Run("Old", func(t *testing.T) { testOld(t, open(t)) })
	t.Run("ExclusiveUpdates", func(t *testing.T) { testExclusiveUpdates(t, open(t)) })
}

func newRecord(n byte) session.Record {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	return session.Record{Hash: session.Hash{n}, Sealed: []byte{n, 0, 255}, Seen: now, Expires: now.Add(time.Hour)}
}

func wantRecord(t *testing.T, s session.Store, want session.Record) {
	t.Helper()
	got, err := s.Get(t.Context(), want.Hash)
	got.Seen, got.Expires = got.Seen.UTC(), got.Expires.UTC()
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

func wantNone(t *testing.T, s session.Store, h session.Hash) {
	t.Helper()
	if _, err := s.Get(t.Context(), h); !errors.Is(err, session.ErrNone) {
		t.Errorf("get: %v, want %v", err, session.ErrNone)
	}
}

func create(t *testing.T, s session.Store, r session.Record) {
	t.Helper()
	if err := s.Create(t.Context(), r); err != nil {
		t.Fatal(err)
	}
}

func testLife(t *testing.T, s session.Store) {
	t.Helper()
	r := newRecord(1)
	wantNone(t, s, r.Hash)
	create(t, s, r)
	create(t, s, newRecord(2))
	wantRecord(t, s, r)
	changed := r
	changed.Sealed, changed.Seen = []byte("new"), r.Seen.Add(time.Minute)
	err := s.Update(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) {
		if string(got.Sealed) != string(r.Sealed) {
			t.Errorf("update got %v", got)
		}
		return changed, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wantRecord(t, s, changed)
	refused := errors.New("refused")
	err = s.Update(t.Context(), r.Hash, func(context.Context, session.Record) (session.Record, error) { return newRecord(9), refused })
	if !errors.Is(err, refused) {
		t.Errorf("update: %v, want %v", err, refused)
	}
	wantRecord(t, s, changed)
	for range 2 {
		if err := s.Delete(t.Context(), r.Hash); err != nil {
			t.Error(err)
		}
	}
	wantNone(t, s, r.Hash)
	wantRecord(t, s, newRecord(2))
	err = s.Update(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) { return got, nil })
	if !errors.Is(err, session.ErrNone) {
		t.Errorf("update: %v, want %v", err, session.ErrNone)
	}
}

func testOld(t *testing.T, s session.Store) {
	t.Helper()
	expired, idle, fresh := newRecord(1), newRecord(2), newRecord(3)
	now := fresh.Expires
	fresh.Expires, fresh.Seen = now.Add(time.Second), now
	idle.Expires = now.Add(time.Second)
	expired.Seen = now
	for _, r := range []session.Record{expired, idle, fresh} {
		create(t, s, r)
	}
	if err := s.DeleteOld(t.Context(), now, now.Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	wantNone(t, s, expired.Hash)
	wantNone(t, s, idle.Hash)
	wantRecord(t, s, fresh)
}

// testExclusiveUpdates covers that no update of one session is lost.
func testExclusiveUpdates(t *testing.T, s session.Store) {
	t.Helper()
	r := newRecord(1)
	r.Sealed = []byte{0}
	create(t, s, r)
	const writers = 8
	var all sync.WaitGroup
	for range writers {
		all.Go(func() {
			err := s.Update(t.Context(), r.Hash, func(_ context.Context, got session.Record) (session.Record, error) {
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
	wantRecord(t, s, r)
}
