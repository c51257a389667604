package timeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// A slowStore takes a second for each transaction, and records them.
type slowStore struct {
	Store

	mu    sync.Mutex
	kept  map[uuid.UUID]uuid.UUID
	sizes []int
	busy  map[Scope]bool
	// fails returns why events cannot be stored.
	fails func([]Event) error
	// overlapped reports whether two transactions of a scope overlapped.
	overlapped bool
}

func newSlowStore() *slowStore {
	return &slowStore{kept: map[uuid.UUID]uuid.UUID{}, busy: map[Scope]bool{}}
}

func (s *slowStore) AppendEvents(ctx context.Context, scope Scope, events []Event) ([]Outcome, error) {
	s.mu.Lock()
	s.overlapped = s.overlapped || s.busy[scope]
	s.busy[scope] = true
	s.sizes = append(s.sizes, len(events))
	s.mu.Unlock()
	if err := backoff.Sleep(ctx, time.Second); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[scope] = false
	if s.fails != nil {
		if err := s.fails(events); err != nil {
			return nil, err
		}
	}
	outcomes := make([]Outcome, len(events))
	for i, e := range events {
		digest, there := s.kept[e.Key]
		switch {
		case !there:
			s.kept[e.Key] = e.Digest
		case digest == e.Digest:
			outcomes[i] = Known
		default:
			outcomes[i] = Different
		}
	}
	return outcomes, nil
}

func named(name, says string) Event { return Event{Key: hashTexts(name), Digest: hashTexts(says)} }

func TestACommitIsShared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		in := newGroupAppender(store)
		begin := time.Now()
		var all sync.WaitGroup
		for i := range 100 {
			all.Go(func() {
				got, err := in.appendInSharedTx(t.Context(), Scope{All: true}, []Event{named(fmt.Sprint(i), ""), named(fmt.Sprint(i, "+"), "")})
				if err != nil || !cmp.Equal(got, []Outcome{Stored, Stored}) {
					t.Errorf("%v, %v", got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if diff := cmp.Diff([]int{2, 198}, store.sizes); diff != "" {
			t.Errorf("transactions (-want +got):\n%s", diff)
		}
		if took := time.Since(begin); took != 2*time.Second {
			t.Errorf("it took %s", took)
		}
		if len(in.queues) != 0 {
			t.Errorf("it holds on to %d queues", len(in.queues))
		}
	})
}

// TestAGroupHasABound checks that excess events go into the next group, in order.
func TestAGroupHasABound(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		in := newGroupAppender(store)
		var all sync.WaitGroup
		for i, n := range []int{1, groupEvents - 1, 2, groupEvents + 7, 1, 1} {
			events := make([]Event, n)
			for j := range events {
				events[j] = named(fmt.Sprint(i, j), "")
			}
			all.Go(func() {
				if got, err := in.appendInSharedTx(t.Context(), Scope{}, events); err != nil || len(got) != n {
					t.Errorf("%d, %v", len(got), err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if diff := cmp.Diff([]int{1, groupEvents - 1, 2, groupEvents + 7, 2}, store.sizes); diff != "" {
			t.Errorf("transactions (-want +got):\n%s", diff)
		}
	})
}

// TestCallersGiveUp checks that a cancelled caller affects neither other callers' events nor its
// own.
func TestCallersGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		in := newGroupAppender(store)
		var all sync.WaitGroup
		for i := range 6 {
			ctx, cancel := context.WithCancel(t.Context())
			all.Go(func() {
				if _, err := in.appendInSharedTx(ctx, Scope{}, []Event{named(fmt.Sprint(i), "")}); err != nil {
					t.Error(err)
				}
			})
			synctest.Wait()
			cancel()
		}
		all.Wait()
		if len(store.kept) != 6 {
			t.Errorf("%d are kept", len(store.kept))
		}
	})
}

// TestOthersFault checks that an invalid event fails no others, and that an unavailable database is
// not asked again.
func TestOthersFault(t *testing.T) {
	broken := errors.New("broken")
	for name, c := range map[string]struct {
		reason string
		err    error
		kept   int
		tries  int
	}{
		"Broken": {"it is the fault of one", broken, 3, 1 + 1 + 4},
		"Away":   {"it is nobody's fault", fmt.Errorf("%w: gone", ErrUnavailable), 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := newSlowStore()
				store.fails = func(events []Event) error {
					for _, e := range events {
						if e.Action == "bad" || errors.Is(c.err, ErrUnavailable) {
							return c.err
						}
					}
					return nil
				}
				in := newGroupAppender(store)
				var all sync.WaitGroup
				for i := range 5 {
					e := named(fmt.Sprint(i), "")
					if i == 0 || i == 3 { // the first goes alone
						e.Action = "bad"
					}
					all.Go(func() {
						_, err := in.appendInSharedTx(t.Context(), Scope{}, []Event{e})
						if bad := e.Action == "bad" || errors.Is(c.err, ErrUnavailable); bad != errors.Is(err, c.err) {
							t.Errorf("event %d: %v", i, err)
						}
					})
					synctest.Wait()
				}
				all.Wait()
				if len(store.kept) != c.kept || len(store.sizes) != c.tries {
					t.Errorf("%s: %d kept in %d tries, want %d in %d", c.reason, len(store.kept), len(store.sizes), c.kept, c.tries)
				}
			})
		})
	}
}

// A stuckStore never answers.
type stuckStore struct {
	Store

	asked int
}

func (s *stuckStore) AppendEvents(ctx context.Context, _ Scope, _ []Event) ([]Outcome, error) {
	s.asked++
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestAStoreThatDoesNotAnswer checks that senders get a retryable error, and that the store is not
// asked again for each request of a group.
func TestAStoreThatDoesNotAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stuckStore)
		in := newGroupAppender(store)
		var all sync.WaitGroup
		for i := range 5 { // the first goes alone
			all.Go(func() {
				if _, err := in.appendInSharedTx(t.Context(), Scope{}, []Event{named(fmt.Sprint(i), "")}); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
		if store.asked != 2 {
			t.Errorf("the store was asked %d times", store.asked)
		}
	})
}

// TestNobodyWaitsForMoreThanTwo checks that large requests do not wait for each other behind a
// store that does not answer.
func TestNobodyWaitsForMoreThanTwo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := new(stuckStore)
		in := newGroupAppender(store)
		var all sync.WaitGroup
		for i := range 20 {
			events := make([]Event, groupEvents)
			for n := range events {
				events[n] = named(fmt.Sprint(i, " ", n), "")
			}
			all.Go(func() {
				began := time.Now()
				if _, err := in.appendInSharedTx(t.Context(), Scope{}, events); !errors.Is(err, ErrUnavailable) {
					t.Error(err)
				}
				if waited := time.Since(began); waited > 2*appendBound {
					t.Errorf("request %d waited for %s", i, waited)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

// TestTheSameAfterOthersFault checks events that are retried because others in their group were
// refused. They are stored once, even if a request has one twice.
func TestTheSameAfterOthersFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := newSlowStore()
		store.fails = func(events []Event) error {
			seen := map[uuid.UUID]bool{}
			for _, e := range events {
				if e.Action == "bad" {
					return errors.New("broken")
				}
				if seen[e.Key] {
					t.Error("the store is given a key twice")
				}
				seen[e.Key] = true
			}
			return nil
		}
		in := newGroupAppender(store)
		bad := named("bad", "")
		bad.Action = "bad"
		var all sync.WaitGroup
		for i, events := range [][]Event{{named("first", "")}, {bad}, {named("a", "x"), named("a", "x"), named("a", "y")}} {
			all.Go(func() {
				got, err := in.appendInSharedTx(t.Context(), Scope{}, events)
				if i == 2 && (err != nil || !cmp.Equal(got, []Outcome{Stored, Known, Different})) {
					t.Errorf("%v, %v", got, err)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}

// TestTheSameInAGroup checks that the first event of a key in a group counts, as in separate
// requests.
func TestTheSameInAGroup(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		word := rapid.SampledFrom([]string{"a", "b", "c"})
		drawn := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) Event {
			return named(word.Draw(r, "name"), word.Draw(r, "says"))
		}), 1, 12)
		before, events := drawn.Draw(r, "before"), drawn.Draw(r, "events")
		one, many := instantStore{}, instantStore{}
		for _, e := range before {
			one.append(e)
			many.append(e)
		}
		var want []Outcome
		for _, e := range events {
			want = append(want, one.append(e))
		}
		got, err := appendDeduplicated(t.Context(), onlyAppend{nil, many}, Scope{}, events)
		if err != nil {
			r.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("outcomes (-want +got):\n%s", diff)
		}
	})
}

// An instantStore keeps keys and digests.
type instantStore map[uuid.UUID]uuid.UUID

func (s instantStore) append(e Event) Outcome {
	digest, there := s[e.Key]
	switch {
	case !there:
		s[e.Key] = e.Digest
		return Stored
	case digest == e.Digest:
		return Known
	}
	return Different
}

func (s instantStore) AppendEvents(_ context.Context, _ Scope, events []Event) ([]Outcome, error) {
	seen := map[uuid.UUID]bool{}
	var outcomes []Outcome
	for _, e := range events {
		if seen[e.Key] {
			return nil, errors.New("a key occurs twice")
		}
		seen[e.Key] = true
		outcomes = append(outcomes, s.append(e))
	}
	return outcomes, nil
}

// onlyAppend is a store that supports only Append.
type onlyAppend struct {
	Store

	to instantStore
}

func (s onlyAppend) AppendEvents(ctx context.Context, scope Scope, events []Event) ([]Outcome, error) {
	return s.to.AppendEvents(ctx, scope, events)
}
