package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// patience limits every wait of the suite, on a busy machine as well.
const patience = 60 * time.Second

// runLeaseStoreSuite runs the suite for a store. It calls open for each test, which returns a function
// that creates clients of a new group without records. Each call of that function
// returns another client of the same group.
func runLeaseStoreSuite(t *testing.T, open func(t *testing.T) func() shard.LeaseStore) {
	t.Helper()
	tests := []struct {
		name string
		run  func(t *testing.T, client func() shard.LeaseStore)
	}{
		{"KeepsAll", testStoresAllFields},
		{"OneWriteForAVersion", testOldVersionConflicts},
		{"ManyWriters", testOneOfManyWritersWins},
		{"Gone", testDeletedRecordIsGone},
		{"WatchBeginsWithNow", testWatchBeginsWithAllRecords},
		{"WatchTellsInOrder", testWatchReportsVersionsInOrder},
		{"WatchEnds", testWatchEndsWithContext},
		{"RequestEnds", testEndedContextIsNoConflict},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { test.run(t, open(t)) })
	}
}

func newRecord(name string) shard.Record {
	since := time.Date(2026, 11, 20, 18, 52, 13, 123456000, time.UTC)
	return shard.Record{
		Name: name, Identity: "pod/" + name, Epoch: 3, State: shard.Active, Includes: map[string]uint64{"b": 1, "c": 20},
		Duration: 10 * time.Second, Since: since, Renewed: since.Add(time.Minute),
	}
}

func mustPut(t *testing.T, l shard.LeaseStore, r shard.Record) shard.Record {
	t.Helper()
	written, err := l.Put(t.Context(), r)
	if err != nil {
		t.Fatalf("Put(%q at %d) = %v", r.Name, r.Version, err)
	}
	return written
}

func wantRecord(t *testing.T, got, want shard.Record) {
	t.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(time.Microsecond)); diff != "" {
		t.Errorf("record (-want +got):\n%s", diff)
	}
}

func testStoresAllFields(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	l := client()
	want := newRecord("a")
	written := mustPut(t, l, want)
	if written.Version == 0 {
		t.Error("a record that was written has no version")
	}
	want.Version, want.Object = written.Version, written.Object
	wantRecord(t, written, want)
	w := startWatch(t, client())
	wantRecord(t, w.awaitRecord("a"), want)

	want.Epoch, want.State, want.Includes = 4, shard.Joining, nil
	want.Renewed = want.Renewed.Add(time.Second)
	want = mustPut(t, l, want)
	wantRecord(t, w.awaitVersion("a", want.Version), want)

	lost := want
	lost.State, lost.Identity = shard.Lost, ""
	lost = mustPut(t, l, lost)
	wantRecord(t, w.awaitVersion("a", lost.Version), lost)
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: %v, want %v", what, err, want)
	}
}

func testOldVersionConflicts(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	l, other := client(), client()
	first := mustPut(t, l, newRecord("a"))
	_, err := other.Put(t.Context(), newRecord("a"))
	wantErr(t, "create what is there", err, shard.ErrConflict)
	changed := first
	changed.Identity = "another"
	second := mustPut(t, other, changed)
	if second.Version <= first.Version {
		t.Errorf("version %d comes after %d", second.Version, first.Version)
	}
	_, err = l.Put(t.Context(), first)
	wantErr(t, "write at a version that has passed", err, shard.ErrConflict)
	wantErr(t, "delete at a version that has passed", l.Delete(t.Context(), first), shard.ErrConflict)
	if b := mustPut(t, l, newRecord("b")); b.Version <= second.Version {
		t.Errorf("version %d of another record comes after %d", b.Version, second.Version)
	}
}

func testOneOfManyWritersWins(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	first := mustPut(t, client(), newRecord("a"))
	var wins []uint64
	var mu sync.Mutex
	var writers sync.WaitGroup
	for i := range 8 {
		l, mine := client(), first
		mine.Identity = fmt.Sprint("writer-", i)
		writers.Go(func() {
			written, err := l.Put(t.Context(), mine)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				wins = append(wins, written.Version)
			} else {
				wantErr(t, "write at the same version", err, shard.ErrConflict)
			}
		})
	}
	writers.Wait()
	if len(wins) != 1 {
		t.Errorf("%d of 8 writes for one version succeeded, want 1", len(wins))
	}
}

func testDeletedRecordIsGone(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	l := client()
	w := startWatch(t, client())
	r := mustPut(t, l, newRecord("a"))
	w.awaitVersion("a", r.Version)
	if err := l.Delete(t.Context(), r); err != nil {
		t.Fatalf("Delete() = %v", err)
	}
	if version := w.awaitGone("a"); version <= r.Version {
		t.Errorf("it is gone at version %d, and was there at %d", version, r.Version)
	}
	wantErr(t, "delete what is gone", l.Delete(t.Context(), r), shard.ErrGone)
	changed := r
	changed.Identity = "another"
	if _, err := l.Put(t.Context(), changed); !errors.Is(err, shard.ErrGone) && !errors.Is(err, shard.ErrConflict) {
		t.Errorf("write what is gone: %v, want %v, or %v", err, shard.ErrGone, shard.ErrConflict)
	}
	again := mustPut(t, l, newRecord("a"))
	if again.Version <= r.Version || again.Object == r.Object {
		t.Errorf("made anew it is %s at %d, before that it was %s at %d", again.Object, again.Version, r.Object, r.Version)
	}
	changed.Version = again.Version
	if _, err := l.Put(t.Context(), changed); !errors.Is(err, shard.ErrGone) && !errors.Is(err, shard.ErrConflict) {
		t.Errorf("write to another record of that name: %v, want %v, or %v", err, shard.ErrGone, shard.ErrConflict)
	}
}

func testWatchBeginsWithAllRecords(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	l := client()
	var last shard.Record
	for i := range 5 {
		last = mustPut(t, l, newRecord(fmt.Sprint("r-", i)))
	}
	first := <-startWatch(t, client()).changes
	if !first.All || first.Version < last.Version || len(first.Records) != 5 {
		t.Errorf("a watch begins with %d records at %d, all: %t; want all 5 at %d or later", len(first.Records), first.Version, first.All, last.Version)
	}
}

func testWatchReportsVersionsInOrder(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	w := startWatch(t, client())
	var writers sync.WaitGroup
	const each = 20
	for i := range 4 {
		l := client()
		writers.Go(func() {
			r := newRecord(fmt.Sprint("r-", i))
			for range each {
				r.Renewed = r.Renewed.Add(time.Second)
				written, err := l.Put(t.Context(), r)
				if err != nil {
					t.Errorf("Put() = %v", err)
					return
				}
				r = written
			}
		})
	}
	writers.Wait()
	var horizon uint64
	for told := 0; told < 4*each; {
		c := w.nextChange()
		if c.Version < horizon || !c.All && c.Version == horizon && len(c.Records) > 0 {
			t.Fatalf("version %d is told after %d", c.Version, horizon)
		}
		horizon = c.Version
		if c.All && len(c.Records) > 0 {
			t.Fatalf("told %d records at the beginning, want none", len(c.Records))
		}
		told += len(c.Records)
	}
}

func testWatchEndsWithContext(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	ctx, cancel := context.WithCancelCause(t.Context())
	told := make(chan shard.LeaseChange, 10)
	ended := make(chan error, 1)
	l := client()
	go func() { ended <- l.Watch(ctx, func(c shard.LeaseChange) { told <- c }) }()
	<-told
	cancel(errors.New("that is enough"))
	select {
	case err := <-ended:
		if err == nil {
			t.Error("a watch ended without a reason")
		}
	case <-time.NewTimer(patience).C:
		t.Fatal("the watch does not end")
	}
}

func testEndedContextIsNoConflict(t *testing.T, client func() shard.LeaseStore) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	l := client()
	r := mustPut(t, l, newRecord("a"))
	if _, err := l.Put(ctx, r); err == nil || errors.Is(err, shard.ErrConflict) || errors.Is(err, shard.ErrGone) {
		t.Errorf("Put after its time = %v, want another error", err)
	}
	if err := l.Delete(ctx, r); err == nil || errors.Is(err, shard.ErrConflict) || errors.Is(err, shard.ErrGone) {
		t.Errorf("Delete after its time = %v, want another error", err)
	}
}

// A watching collects the changes of a watch.
type watching struct {
	t       *testing.T
	changes chan shard.LeaseChange
}

func startWatch(t *testing.T, l shard.LeaseStore) *watching {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	w := &watching{t: t, changes: make(chan shard.LeaseChange, 1000)}
	begun := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		once := sync.OnceFunc(func() { close(begun) })
		err := l.Watch(ctx, func(c shard.LeaseChange) {
			w.changes <- c
			once()
		})
		if ctx.Err() == nil {
			t.Errorf("the watch ended: %v", err)
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
	})
	select {
	case <-begun:
	case <-ended:
		t.FailNow()
	}
	return w
}

func (w *watching) nextChange() shard.LeaseChange {
	w.t.Helper()
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case c := <-w.changes:
		return c
	case <-timer.C:
		w.t.Fatal("the watch tells nothing more")
		return shard.LeaseChange{}
	}
}

// awaitRecord waits for the first record with a name.
func (w *watching) awaitRecord(name string) shard.Record {
	w.t.Helper()
	return w.awaitVersion(name, 1)
}

// awaitVersion waits for a record at a version or a later one.
func (w *watching) awaitVersion(name string, version uint64) shard.Record {
	w.t.Helper()
	for {
		for _, r := range w.nextChange().Records {
			if r.Name == name && r.Version >= version {
				return r
			}
		}
	}
}

// awaitGone waits until a record is gone, and returns the version of its deletion.
func (w *watching) awaitGone(name string) (deletedAt uint64) {
	w.t.Helper()
	for {
		c := w.nextChange()
		if slices.Contains(c.Gone, name) {
			return c.Version
		}
	}
}
