package outbox_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/outbox"
)

// A fakeStore keeps rows as the database does.
type fakeStore struct {
	mu   sync.Mutex
	rows map[int64]*fakeRow
	lost time.Time // until then nothing can be removed
}

type fakeRow struct {
	outbox.Pending

	made, due time.Time
}

func (s *fakeStore) add(sink, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := int64(len(s.rows) + 1)
	s.rows[seq] = &fakeRow{
		Pending: outbox.Pending{Seq: seq, Sink: sink, Change: clusterworker.Change{ClusterID: cluster, Generation: seq}},
		made:    time.Now(), due: time.Now(),
	}
}

func (s *fakeStore) left() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.rows))
}

func (s *fakeStore) ClaimChanges(_ context.Context, sinks []string, most int, lease time.Duration) ([]outbox.Pending, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var claimed []outbox.Pending
	oldest := map[[2]string]bool{}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[seq]
		line := [2]string{r.Sink, r.Change.ClusterID}
		if first := !oldest[line]; first && !r.due.After(time.Now()) && len(claimed) < most && slices.Contains(sinks, r.Sink) {
			r.due = time.Now().Add(lease)
			claimed = append(claimed, r.Pending)
		}
		oldest[line] = true
	}
	return claimed, nil
}

func (s *fakeStore) RenewChanges(_ context.Context, seqs []int64, lease time.Duration) error {
	for _, seq := range seqs {
		s.delay(seq, lease, 0)
	}
	return nil
}

func (s *fakeStore) RemoveChanges(_ context.Context, seqs []int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.lost) {
		return errors.New("the database is away")
	}
	for _, seq := range seqs {
		delete(s.rows, seq)
	}
	return nil
}

func (s *fakeStore) PutOffChange(_ context.Context, seq int64, delay time.Duration) error {
	s.delay(seq, delay, 1)
	return nil
}

func (s *fakeStore) delay(seq int64, delay time.Duration, failures int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r := s.rows[seq]; r != nil {
		r.due = time.Now().Add(delay)
		r.Failures += failures
	}
}

func (s *fakeStore) ExpireChanges(_ context.Context, age time.Duration) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.rows)
	maps.DeleteFunc(s.rows, func(_ int64, r *fakeRow) bool { return time.Since(r.made) > age })
	return n - len(s.rows), nil
}

// A fakeSink answers each event as it is told to.
type fakeSink struct {
	mu     sync.Mutex
	answer func(e changeevent.ChangeEvent, n int) changeevent.Class
	after  time.Duration
	came   []string
}

func (s *fakeSink) SendChangeEvent(_ context.Context, e changeevent.ChangeEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.came = append(s.came, e.ID)
	var class changeevent.Class
	if s.answer != nil {
		class = s.answer(e, len(s.came))
	}
	time.AfterFunc(s.after, func() { e.OnDelivery(changeevent.Delivery{ID: e.ID, Class: class}) })
}

func (s *fakeSink) Close() error { return nil }

func (s *fakeSink) got() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.came)
}

func eventOf(c clusterworker.Change) changeevent.ChangeEvent {
	return changeevent.ChangeEvent{ID: strconv.FormatInt(c.Generation, 10)}
}

// run runs an outbox for so long, and stops it.
func run(t *testing.T, store *fakeStore, d time.Duration, sinks map[string]*fakeSink) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	deps := outbox.Deps{Store: store, Event: eventOf, Log: slog.New(slog.DiscardHandler), Registerer: reg}
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		deps.Sinks = append(deps.Sinks, outbox.Sink{Name: name, Client: sinks[name]})
	}
	o, err := outbox.New(deps)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- o.Run(ctx) }()
	time.Sleep(d)
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	return reg
}

// TestDelivers holds what becomes of changes, by what the sink answers.
func TestDelivers(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		answer func(e changeevent.ChangeEvent, n int) changeevent.Class
		after  time.Duration
		lasts  time.Duration
		came   []string
		left   []int64
		given  float64
	}{
		"Taken":   {"in order", nil, time.Second, time.Minute, []string{"1", "2", "3"}, nil, 0},
		"AtOnce":  {"one follows on the other", nil, 0, time.Millisecond, []string{"1", "2", "3"}, nil, 0},
		"LastOne": {"what is due when the process ends is sent", nil, time.Second, 1500 * time.Millisecond, []string{"1", "2", "3"}, nil, 0},
		"Down": {
			"it is asked again, and none overtakes",
			func(_ changeevent.ChangeEvent, n int) changeevent.Class {
				if n < 4 {
					return changeevent.ClassServerError
				}
				return ""
			}, 0, time.Hour,
			[]string{"1", "1", "1", "1", "2", "3"},
			nil, 0,
		},
		"Refused": {
			"one that is refused for what is in it is passed over",
			func(e changeevent.ChangeEvent, _ int) changeevent.Class {
				if e.ID == "1" {
					return changeevent.ClassClientError
				}
				return ""
			}, 0, time.Minute,
			[]string{"1", "2", "3"},
			nil, 1,
		},
		"WrongToken": {
			"somebody mends a token",
			func(changeevent.ChangeEvent, int) changeevent.Class { return changeevent.ClassUnauthorized }, 0, 4 * time.Second,
			[]string{"1"},
			[]int64{1, 2, 3},
			0,
		},
		"Slow":    {"the lease of what a client has is kept", nil, time.Hour, 30 * time.Minute, []string{"1"}, []int64{1, 2, 3}, 0},
		"Expired": {"nobody wants older news", func(changeevent.ChangeEvent, int) changeevent.Class { return changeevent.ClassForbidden }, 0, 13 * time.Hour, nil, nil, 3},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{rows: map[int64]*fakeRow{}}
				for range 3 {
					store.add("a", "c")
				}
				sink := &fakeSink{answer: tc.answer, after: tc.after}
				reg := run(t, store, tc.lasts, map[string]*fakeSink{"a": sink})
				if diff := cmp.Diff(tc.came, sink.got()); tc.came != nil && diff != "" {
					t.Errorf("%s: what came (-want +got)\n%s", tc.reason, diff)
				}
				if diff := cmp.Diff(tc.left, store.left()); diff != "" {
					t.Errorf("%s: what is left (-want +got)\n%s", tc.reason, diff)
				}
				if n := sum(t, reg); n != tc.given {
					t.Errorf("%s: %v given up, want %v", tc.reason, n, tc.given)
				}
				time.Sleep(2 * time.Hour) // what a client still has
			})
		})
	}
}

func sum(t *testing.T, reg *prometheus.Registry) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	n := 0.0
	for _, f := range families {
		if f.GetName() != "fleetloop_clusterworker_change_events_given_up_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}

// TestSinksDoNotWaitForEachOther: one that is down holds up its own alone, and a
// cluster holds up no other.
func TestSinksDoNotWaitForEachOther(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}}
		for _, cluster := range []string{"c", "d", "c"} {
			store.add("down", cluster)
			store.add("up", cluster)
		}
		down := &fakeSink{answer: func(changeevent.ChangeEvent, int) changeevent.Class { return changeevent.ClassServerError }}
		up := &fakeSink{}
		run(t, store, time.Second, map[string]*fakeSink{"down": down, "up": up})
		if diff := cmp.Diff([]string{"2", "4", "6"}, up.got()); diff != "" {
			t.Errorf("the sink that is up (-want +got)\n%s", diff)
		}
		if diff := cmp.Diff([]int64{1, 3, 5}, store.left()); diff != "" {
			t.Errorf("left for the other (-want +got)\n%s", diff)
		}
	})
}

// TestDatabaseAway: a change that was delivered while the database is away is
// told again when its lease has ended, with the same id.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}, lost: time.Now().Add(time.Minute)}
		store.add("a", "c")
		sink := &fakeSink{}
		run(t, store, 10*time.Minute, map[string]*fakeSink{"a": sink})
		if diff := cmp.Diff([]string{"1", "1"}, sink.got()); diff != "" {
			t.Errorf("what came (-want +got)\n%s", diff)
		}
		if left := store.left(); len(left) != 0 {
			t.Errorf("%v is left", left)
		}
	})
}
