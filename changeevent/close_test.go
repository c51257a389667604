package changeevent

import (
	"errors"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/prometheus/client_golang/prometheus"
)

// after responds to a request after a delay, unless its context ends first.
func after(d time.Duration, code int) answerer {
	return func(_ int, r *http.Request) (*http.Response, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return status(code), nil
		case <-r.Context().Done():
			return nil, r.Context().Err()
		}
	}
}

func TestClose(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*Config)
		answer answerer
		events int
		took   time.Duration
		want   string
		class  map[Class]uint64
	}{
		"Nothing": {
			reason: "nothing to wait for", answer: hang,
		},
		"InTime": {
			reason: "what is under way is waited for", answer: after(300*time.Millisecond, http.StatusOK), events: 5,
			took: 5 * 300 * time.Millisecond,
		},
		"RefusedInTime": {
			reason: "an event that was refused is settled as well, and nothing waits to try again",
			answer: after(300*time.Millisecond, http.StatusServiceUnavailable), events: 5,
			took: 5 * 300 * time.Millisecond, class: map[Class]uint64{ClassServerError: 5},
		},
		"TooLate": {
			reason: "the bound is that of Close, whatever that of a request is", events: 3,
			change: func(c *Config) { c.ShutdownTimeout, c.Timeout = 200*time.Millisecond, 5*time.Second },
			answer: after(3*time.Second, http.StatusOK),
			took:   200 * time.Millisecond, want: "3 events not delivered within 200ms, 0 delivered", class: map[Class]uint64{ClassShutdown: 3},
		},
		"SomeTooLate": {
			reason: "what was delivered is not lost, and the error counts both", events: 4,
			change: func(c *Config) { c.ShutdownTimeout = 250 * time.Millisecond },
			answer: after(100*time.Millisecond, http.StatusOK),
			took:   250 * time.Millisecond, want: "2 events not delivered within 250ms, 2 delivered", class: map[Class]uint64{ClassShutdown: 2},
		},
		"DefaultBound": {
			reason: "ten seconds if nothing is said", events: 1,
			change: func(c *Config) { c.Timeout = time.Minute },
			answer: hang, took: 10 * time.Second, want: "1 events not delivered within 10s", class: map[Class]uint64{ClassShutdown: 1},
		},
		"TimeoutFirst": {
			reason: "a request has ended before, and is not sent again", events: 1,
			change: func(c *Config) { c.Timeout = 2 * time.Second },
			answer: hang, took: 2 * time.Second, class: map[Class]uint64{ClassTimeout: 1},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				reg := prometheus.NewRegistry()
				cfg := enabled(&script{answer: tc.answer})
				cfg.MaxConcurrentRequests, cfg.Registerer = 1, reg
				if tc.change != nil {
					tc.change(&cfg)
				}
				c := start(t, cfg)
				var told deliveries
				for range tc.events {
					c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: "n", OnDelivery: told.add})
				}
				began := time.Now()
				err := c.Close()
				if took := time.Since(began); took != tc.took {
					t.Errorf("%s: Close took %s, want %s", tc.reason, took, tc.took)
				}
				if (err != nil) != (tc.want != "") || err != nil && !strings.Contains(err.Error(), tc.want) {
					t.Errorf("%s: got %v, want %q", tc.reason, err, tc.want)
				}
				if again := c.Close(); !errors.Is(again, err) {
					t.Errorf("%s: the second Close gives %v, want the same: %v", tc.reason, again, err)
				}
				if n := len(told.got()); n != tc.events {
					t.Errorf("%s: told %d times of %d events", tc.reason, n, tc.events)
				}
				if diff := cmp.Diff(tc.class, statsOf(t, c).FailuresByClass, cmpopts.EquateEmpty()); diff != "" {
					t.Errorf("%s: classes (-want +got):\n%s", tc.reason, diff)
				}
				wantCounted(t, c, reg, tc.events)
			})
		})
	}
}

func TestAllWhoCloseWaitForTheSame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := enabled(&script{answer: hang})
		cfg.ShutdownTimeout = time.Second
		c := start(t, cfg)
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon})
		began := time.Now()
		var errs [10]error
		var closers sync.WaitGroup
		for i := range errs {
			closers.Go(func() {
				errs[i] = c.Close()
				if took := time.Since(began); took != time.Second {
					t.Errorf("a Close took %s, want 1s", took)
				}
			})
		}
		closers.Wait()
		for _, err := range errs {
			if err == nil || !errors.Is(err, errs[0]) {
				t.Errorf("got %v, want that of the others: %v", err, errs[0])
			}
		}
	})
}

func TestCloseEndsAWaitWithOneMoreAttempt(t *testing.T) {
	cases := map[string]struct {
		reason string
		codes  []int
		asked  string // Retry-After
		want   Delivery
		took   time.Duration
	}{
		"Taken":        {"the sink is back", []int{503, 200}, "", Delivery{Status: 200, Attempts: 2}, 0},
		"Refused":      {"it is not, and there is no more waiting", []int{503}, "", Delivery{Class: ClassServerError, Status: 503, Attempts: 2}, 0},
		"AskedForLong": {"the sink is left alone, and Close does not wait in vain", []int{503, 200}, "60", Delivery{Class: ClassServerError, Status: 503, Attempts: 1}, 0},
		"AskedFor":     {"the sink is left alone for as long as it asks", []int{503, 200}, "12", Delivery{Status: 200, Attempts: 2}, 7 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sink := &script{}
				sink.answer = func(n int, _ *http.Request) (*http.Response, error) {
					return status(tc.codes[min(n, len(tc.codes)-1)], "Retry-After", tc.asked), nil
				}
				cfg := enabled(sink)
				cfg.Retry = Retry{InitialInterval: 1000 * time.Hour, MaxInterval: 1000 * time.Hour, MaxElapsedTime: 1000 * time.Hour}
				cfg.MaxAge = 10_000 * time.Hour
				c := start(t, cfg)
				var told deliveries
				c.SendChangeEvent(t.Context(), ChangeEvent{ID: "1", Action: ActionCordon, OnDelivery: told.add})
				time.Sleep(5 * time.Second)
				began := time.Now()
				stop(t, c)
				if took := time.Since(began); took != tc.took {
					t.Errorf("%s: Close took %s, want %s", tc.reason, took, tc.took)
				}
				tc.want.ID, tc.want.At = "1", time.Now()
				if diff := cmp.Diff([]Delivery{tc.want}, told.got()); diff != "" {
					t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
				}
			})
		})
	}
}

// TestCloseWaitsForWhatIsOnItsWayAside covers a sender that has removed an event from the
// queue but has not counted it yet.
func TestCloseWaitsForWhatIsOnItsWayAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, enabled(&script{}))
		own := c.(*client) //nolint:errcheck // it is one
		own.aside.owed.Add(1)
		ended := make(chan error, 1)
		go func() { ended <- c.Close() }()
		time.Sleep(time.Second)
		synctest.Wait()
		if len(ended) > 0 {
			t.Fatal("Close has ended while an event is not counted")
		}
		var told deliveries
		own.countAndQueueOverflow(notice{event: &ChangeEvent{OnDelivery: told.add}}, time.Now())
		if err := <-ended; err != nil || len(told.got()) != 1 {
			t.Errorf("Close gives %v, told %d times; want that the event is told of before", err, len(told.got()))
		}
	})
}

func TestCloseIsNotHeldUpByACallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := enabled(&script{})
		cfg.ShutdownTimeout = time.Second
		c := start(t, cfg)
		release := make(chan struct{})
		c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, OnDelivery: func(Delivery) { <-release }})
		began := time.Now()
		if err := c.Close(); err == nil {
			t.Error("Close while a callback blocks: want an error")
		}
		if took, want := time.Since(began), time.Second+grace; took != want {
			t.Errorf("Close took %s, want %s", took, want)
		}
		close(release)
	})
}

// TestSendersRaceWithClose verifies that each event is counted, regardless of its state
// when the client was closed.
func TestSendersRaceWithClose(t *testing.T) {
	const rounds, senders, sends = 100, 8, 20
	for range rounds {
		var began, ended atomic.Int64
		sink := &script{answer: func(int, *http.Request) (*http.Response, error) {
			began.Add(1)
			runtime.Gosched()
			ended.Add(1)
			return status(http.StatusOK), nil
		}}
		reg := prometheus.NewRegistry()
		cfg := enabled(sink)
		cfg.Registerer, cfg.QueueSize = reg, 4
		c := start(t, cfg)
		var told atomic.Int64
		var all sync.WaitGroup
		for i := range senders {
			all.Go(func() {
				for range sends {
					c.SendChangeEvent(t.Context(), ChangeEvent{Action: ActionCordon, NodeName: string(rune('a' + i)), OnDelivery: func(Delivery) { told.Add(1) }})
				}
			})
		}
		stop(t, c)
		if n := began.Load(); n != ended.Load() {
			t.Errorf("a request was under way after Close")
		}
		atClose := told.Load()
		all.Wait()
		if began.Load() != ended.Load() || uint64(began.Load()) != statsOf(t, c).Succeeded {
			t.Errorf("%d requests began, %d ended, %+v", began.Load(), ended.Load(), statsOf(t, c))
		}
		if told.Load() != atClose {
			t.Errorf("%d events were settled after Close", told.Load()-atClose)
		}
		s := statsOf(t, c)
		if want := s.Sent - s.FailuresByClass[ClassClosed]; uint64(told.Load()) != want {
			t.Errorf("told of %d events, want each of %d that were accepted once", told.Load(), want)
		}
		wantCounted(t, c, reg, senders*sends)
	}
}
