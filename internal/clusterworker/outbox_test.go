package clusterworker_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// A fakeStore keeps rows as the database does.
type fakeStore struct {
	mu     sync.Mutex
	rows   map[int64]*fakeRow
	lost   time.Time // removals fail until then
	unsure bool      // delays are stored, but answered with an error
	// takes is the time that a removal takes, and claimTakes that of a claim.
	takes, claimTakes time.Duration

	results []clusterworker.DeliveryResult
}

type fakeRow struct {
	clusterworker.PendingEvent

	made, due time.Time
}

func (s *fakeStore) add(sink, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	seq := int64(len(s.rows) + 1)
	s.rows[seq] = &fakeRow{
		PendingEvent: clusterworker.PendingEvent{Seq: seq, Sink: sink, Change: clusterworker.Change{At: time.Now(), Action: clusterworker.ShootReady, ClusterID: cluster, Generation: seq}, QueuedAt: time.Now()},
		made:         time.Now(), due: time.Now(),
	}
}

func (s *fakeStore) left() []int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.rows))
}

func (s *fakeStore) LeaseDueChanges(ctx context.Context, sink string, limit int, lease time.Duration) ([]clusterworker.PendingEvent, error) {
	claimed := s.claim(sink, limit, lease)
	if err := backoff.Sleep(ctx, s.claimTakes); err != nil {
		return nil, err // the answer is lost
	}
	return claimed, nil
}

func (s *fakeStore) claim(sink string, limit int, lease time.Duration) []clusterworker.PendingEvent {
	s.mu.Lock()
	defer s.mu.Unlock()
	var claimed []clusterworker.PendingEvent
	oldest := map[[2]string]bool{}
	for _, seq := range slices.Sorted(maps.Keys(s.rows)) {
		r := s.rows[seq]
		line := [2]string{r.Sink, r.Change.ClusterID}
		if first := !oldest[line]; first && !r.due.After(time.Now()) && len(claimed) < limit && r.Sink == sink {
			r.due = time.Now().Add(lease)
			claimed = append(claimed, r.PendingEvent)
		}
		oldest[line] = true
	}
	return claimed
}

func (s *fakeStore) RenewChangeLeases(_ context.Context, changeSeqs []int64, lease time.Duration) error {
	for _, seq := range changeSeqs {
		s.delay(seq, lease, 0)
	}
	return nil
}

func (s *fakeStore) DeleteChangesAndRecordDeliveries(ctx context.Context, results []clusterworker.DeliveryResult) error {
	if err := backoff.Sleep(ctx, s.takes); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.lost) {
		return errors.New("the database is away")
	}
	for _, r := range results {
		delete(s.rows, r.Seq)
	}
	s.results = append(s.results, results...)
	return nil
}

func (s *fakeStore) RecordFailuresAndRescheduleChanges(_ context.Context, results []clusterworker.DeliveryResult) error {
	for _, r := range results {
		s.delay(r.Seq, r.Delay, 1)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.results = append(s.results, results...)
	if s.unsure {
		return errors.New("the answer is lost")
	}
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

func (s *fakeStore) DeleteExpiredChanges(_ context.Context, maxAge time.Duration, limit int) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	maps.DeleteFunc(s.rows, func(_ int64, r *fakeRow) bool {
		old := time.Since(r.made) > maxAge && !r.due.After(time.Now()) && n < limit
		if old {
			n++
		}
		return old
	})
	return n, nil
}

// A fakeSink answers each event as configured.
type fakeSink struct {
	mu     sync.Mutex
	answer func(e changeevent.ChangeEvent, n int) changeevent.Class
	after  time.Duration
	came   []string
}

func (s *fakeSink) SendChangeEvent(_ context.Context, e changeevent.ChangeEvent) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e.ID = e.Details["generation"] // in the order of the changes
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

// run runs an outbox for the given time, and stops it.
func run(t *testing.T, store *fakeStore, d time.Duration, sinks map[string]*fakeSink) *prometheus.Registry {
	t.Helper()
	var list []clusterworker.EventSink
	for _, name := range slices.Sorted(maps.Keys(sinks)) {
		list = append(list, clusterworker.EventSink{Name: name, Client: sinks[name]})
	}
	return runOf(t, store, d, list...)
}

// closing is how long the clients may continue to send.
const closing = 10 * time.Second

func runOf(t *testing.T, store *fakeStore, d time.Duration, sinks ...clusterworker.EventSink) *prometheus.Registry {
	t.Helper()
	reg := prometheus.NewRegistry()
	o, err := clusterworker.NewOutbox(clusterworker.OutboxDeps{Store: store, Sinks: sinks, Closing: closing, Log: slog.New(slog.DiscardHandler), Registerer: reg})
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

// TestDelivers covers the fate of changes for each answer of the sink.
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
		if f.GetName() != "fleetloop_clusterworker_change_events_undeliverable_total" {
			continue
		}
		for _, m := range f.GetMetric() {
			n += m.GetCounter().GetValue()
		}
	}
	return n
}

// TestSinksDoNotWaitForEachOther: an unavailable sink delays only its own changes, and
// a cluster does not block others.
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

// TestDatabaseAway covers that a change is sent once and its result saved, if the
// database is unavailable when the sink answers, or the process is told to stop then.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct{ away, lasts time.Duration }{
		"Longer than a lease": {5 * time.Minute, 10 * time.Minute},
		"At the stop":         {time.Minute, time.Minute - time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{rows: map[int64]*fakeRow{}, lost: time.Now().Add(tc.away)}
				store.add("a", "c")
				sink := &fakeSink{}
				run(t, store, tc.lasts, map[string]*fakeSink{"a": sink})
				if diff := cmp.Diff([]string{"1"}, sink.got()); diff != "" {
					t.Errorf("what came (-want +got)\n%s", diff)
				}
				if left := store.left(); len(left) != 0 || len(store.results) != 1 {
					t.Errorf("%v is left, and saved are %+v", left, store.results)
				}
			})
		})
	}
}

// A way answers the requests of a client.
type way func(*http.Request) (*http.Response, error)

func (w way) RoundTrip(r *http.Request) (*http.Response, error) { return w(r) }

// answered returns a way that answers at once.
func answered(status int, header http.Header) way {
	return func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: status, Header: header, Body: http.NoBody}, nil
	}
}

// TestDeadSinkStarvesNobody covers that one sink receives the changes of all clusters
// while another, which accepts nothing, has more of them waiting than are sent at a
// time.
func TestDeadSinkStarvesNobody(t *testing.T) {
	t.Parallel()
	const clusters = 300
	for name, dead := range map[string]way{
		"NeverAnswers": func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		},
		"AsksForAnHour": answered(http.StatusServiceUnavailable, http.Header{"Retry-After": {"3600"}}),
		"Fails":         answered(http.StatusInternalServerError, nil),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &fakeStore{rows: map[int64]*fakeRow{}}
				for i := range clusters {
					store.add("down", strconv.Itoa(i))
				}
				for i := range clusters {
					store.add("up", strconv.Itoa(i))
				}
				down, err := changeevent.NewClient(changeevent.Config{
					Enabled: true, ClusterName: "c", Endpoint: "https://down.example", SenderRetries: true, Timeout: time.Hour, HTTP: dead, Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = down.Close() }() // not all changes are delivered
				up := new(fakeSink)
				runOf(t, store, 30*time.Second, clusterworker.EventSink{Name: "down", Client: down}, clusterworker.EventSink{Name: "up", Client: up})
				if n := len(up.got()); n != clusters {
					t.Errorf("the sink that is up was told %d times of %d clusters", n, clusters)
				}
				if n := len(store.left()); n != clusters {
					t.Errorf("%d changes are left, want the %d of the sink that is down", n, clusters)
				}
			})
		})
	}
}

// TestStopLeavesTimeToClients covers that no other process sends the changes of a
// client that may still send them after the end of its process, and that no failure is
// counted.
func TestStopLeavesTimeToClients(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}}
		store.add("a", "c")
		store.add("a", "c")
		run(t, store, time.Minute, map[string]*fakeSink{"a": {after: time.Hour}})
		held, next := store.rows[1], store.rows[2]
		if in := time.Until(held.due); in < closing || in > time.Minute || held.Failures != 0 {
			t.Errorf("another process may send it in %s, after %d failures; want it after the %s that the client has, and no failure", in, held.Failures, closing)
		}
		if next.due.After(time.Now()) {
			t.Error("the one behind it, which nobody has, was put off")
		}
		time.Sleep(2 * time.Hour) // what the client still has
	})
}

// TestNobodyTakesThem covers that changes wait for a sink with invalid settings, and
// that they expire and are counted, as do those of a sink that is no longer configured.
func TestNobodyTakesThem(t *testing.T) {
	t.Parallel()
	for name, sinks := range map[string][]clusterworker.EventSink{"Unusable": {{Name: "a"}}, "Removed": nil, "OneRemoved": {{Name: "b", Client: new(fakeSink)}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				const waiting = 5001 // more than one statement removes
				store := &fakeStore{rows: map[int64]*fakeRow{}}
				for range waiting {
					store.add("a", "c")
				}
				reg := runOf(t, store, 10*time.Minute, sinks...)
				time.Sleep(11 * time.Hour)
				if n := len(store.left()); n != waiting || sum(t, reg) != 0 {
					t.Fatalf("before 12 hours %d are left, and %v are given up; want %d and none", n, sum(t, reg), waiting)
				}
				reg = runOf(t, store, 52*time.Minute, sinks...)
				if n := len(store.left()); n != 0 || sum(t, reg) != waiting {
					t.Errorf("after 12 hours %d are left, and %v are given up; want none and %d", n, sum(t, reg), waiting)
				}
			})
		})
	}
}

// TestExpiresOnce covers that a change which expires while a client has it is counted
// once.
func TestExpiresOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &fakeStore{rows: map[int64]*fakeRow{}}
		store.add("a", "c")
		sink := &fakeSink{after: 12*time.Hour + 30*time.Minute, answer: func(changeevent.ChangeEvent, int) changeevent.Class { return changeevent.ClassTimeout }}
		reg := run(t, store, 14*time.Hour, map[string]*fakeSink{"a": sink})
		if n, came := sum(t, reg), sink.got(); n != 1 || len(came) != 1 || len(store.left()) != 0 {
			t.Errorf("%v are given up, %v came, %v are left; want it given up once", n, came, store.left())
		}
	})
}
