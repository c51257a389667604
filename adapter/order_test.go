package adapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/fleetloop/fleetloop/internal/backoff"
)

func TestDuplicates(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		fleet.generation = 2
		start(t, newAdapter(t, Config{}, available, Deps{Consumer: broker, Fleet: fleet}))
		old := event("e3", "r1")
		old.Data = []byte(`{"resource_id":"r1","generation":"1"}`)
		for _, tc := range []struct {
			reason  string
			event   Event
			reports int
		}{
			{"the first", event("e1", "r1"), 1},
			{"a redelivery", event("e1", "r1"), 1},
			{"a reminder", event("e2", "r1"), 2},
			{"a redelivery of the first after the reminder", event("e1", "r1"), 2},
			{"an older generation than the one reported", old, 2},
			{"the same id for another resource", event("e1", "r2"), 2},
		} {
			broker.queue <- tc.event
			synctest.Wait()
			if n := len(fleet.of("r1")); n != tc.reports {
				t.Errorf("%s: %d reports, want %d", tc.reason, n, tc.reports)
			}
		}
		if acked, dead, returned := broker.counts(); acked != 6 || dead+returned != 0 || len(fleet.of("r2")) != 1 {
			t.Errorf("%d acknowledged, %d dead-lettered, %d returned; want 6 acknowledged", acked, dead, returned)
		}
	})
}

// TestOlderRead has the fleet API return an older generation than that of the event, as a standby may.
func TestOlderRead(t *testing.T) {
	t.Parallel()
	newer := event("newer", "r1")
	newer.Data = []byte(`{"resource_id":"r1","generation":2}`)
	t.Run("First", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fleet, broker := newFakeFleet(), newFakeBroker()
			fleet.err = func(call string) error {
				if call == "get" { // the next one returns generation 2
					fleet.generation = 2
				}
				return nil
			}
			start(t, newAdapter(t, Config{}, available, Deps{Consumer: broker, Fleet: fleet}))
			broker.queue <- newer
			synctest.Wait()
			if acked, dead, returned := broker.counts(); acked+dead != 0 || returned != 1 || len(fleet.of("r1")) != 0 {
				t.Errorf("%d acknowledged, %d dead-lettered, %d returned after the read of generation 1; want 1 returned", acked, dead, returned)
			}
			time.Sleep(time.Minute)
			acked, _, _ := broker.counts()
			if r := fleet.of("r1"); acked != 1 || len(r) != 1 || r[0].ObservedGeneration != 2 {
				t.Errorf("%d acknowledged, reports %+v; want 1 acknowledged and one report on generation 2", acked, r)
			}
		})
	})
	t.Run("NeverComes", func(t *testing.T) { // after a restore of the database
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fleet, broker := newFakeFleet(), newFakeBroker()
			start(t, newAdapter(t, Config{}, available, Deps{Consumer: broker, Fleet: fleet}))
			broker.queue <- newer
			time.Sleep(time.Hour)
			if acked, _, returned := broker.counts(); acked != 1 || returned != 10 {
				t.Errorf("%d acknowledged, %d returned; want 1 acknowledged after 10 tries", acked, returned)
			}
		})
	})
	t.Run("Covered", func(t *testing.T) { // by the evaluation of an event that names no generation
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			fleet, broker := newFakeFleet(), newFakeBroker()
			start(t, newAdapter(t, Config{RetryDelay: time.Hour}, func(context.Context, Resource) (Report, error) {
				time.Sleep(time.Minute)
				return Available("done"), nil
			}, Deps{Consumer: broker, Fleet: fleet}))
			for _, e := range []Event{event("first", "r1"), newer, event("last", "r1")} {
				broker.queue <- e
				synctest.Wait()
			}
			time.Sleep(3 * time.Minute)
			fleet.set(func(f *fakeFleet) { f.generation = 2 })
			if acked, _, _ := broker.counts(); acked != 2 {
				t.Errorf("%d events acknowledged, want the two that name no generation", acked)
			}
			time.Sleep(2 * time.Hour)
			acked, _, _ := broker.counts()
			if r := fleet.of("r1"); acked != 3 || len(r) != 3 || r[2].ObservedGeneration != 2 {
				t.Errorf("%d acknowledged, reports %+v; want all acknowledged after a report on generation 2", acked, r)
			}
		})
	})
}

// TestOrderPerResource checks that one resource is reconciled once at a time, that the newest event
// is the next, and that the others are acknowledged without an evaluation.
func TestOrderPerResource(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		var mu sync.Mutex
		busy := map[string]bool{}
		var generations []int64
		start(t, newAdapter(t, Config{Concurrency: 4}, func(_ context.Context, r Resource) (Report, error) {
			mu.Lock()
			if busy[r.ID] {
				t.Errorf("%s is reconciled twice at the same time", r.ID)
			}
			busy[r.ID] = true
			if r.ID == "r1" {
				generations = append(generations, r.Generation)
			}
			mu.Unlock()
			time.Sleep(time.Minute)
			mu.Lock()
			busy[r.ID] = false
			mu.Unlock()
			return Available("done"), nil
		}, Deps{Consumer: broker, Fleet: fleet}))
		for n := range 20 {
			broker.queue <- event(fmt.Sprintf("e%d", n), "r1")
			time.Sleep(time.Second)
		}
		fleet.set(func(f *fakeFleet) { f.generation = 2 })
		broker.queue <- event("other", "r2") // it does not wait for r1
		time.Sleep(65 * time.Second)
		if n := len(fleet.of("r2")); n != 1 {
			t.Errorf("%d reports on the other resource after a minute, want 1", n)
		}
		time.Sleep(time.Hour)
		if diff := cmp.Diff([]int64{1, 2}, generations); diff != "" {
			t.Errorf("generations reconciled (-want +got):\n%s", diff)
		}
		acked, dead, _ := broker.counts()
		if acked != 21 || dead != 0 {
			t.Errorf("%d acknowledged and %d dead-lettered, want all 21 acknowledged", acked, dead)
		}
	})
}

// TestAcknowledgedAfterReport lets random events of few resources overlap, fail and stop, and checks
// that each is acknowledged only after an evaluation that began after its arrival was reported.
func TestAcknowledgedAfterReport(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		var mu sync.Mutex
		began := map[string]time.Time{} // the evaluation that was reported last, by resource
		n := 0
		a := newAdapter(t, Config{Concurrency: 2, MaxAttempts: 1000}, func(_ context.Context, r Resource) (Report, error) {
			begin := time.Now()
			mu.Lock()
			n++
			fails, took := n%3 == 0, time.Duration(n%7)*time.Second
			mu.Unlock()
			time.Sleep(took)
			if fails {
				return Report{}, errors.New("no zone")
			}
			mu.Lock()
			defer mu.Unlock()
			began[r.ID] = begin
			return Available("done"), nil
		}, Deps{Consumer: broker, Fleet: fleet, OnResult: func(r Result) {
			mu.Lock()
			defer mu.Unlock()
			arrived, err := time.Parse(time.RFC3339Nano, strings.SplitN(r.Event.ID, "|", 2)[1])
			if err != nil {
				t.Error(err)
			}
			if acked := r.Outcome == OutcomeReported || r.Outcome == OutcomeDuplicate; acked && began[r.ResourceID].Before(arrived) {
				t.Errorf("%s was %s after an evaluation that began at %s", r.Event.ID, r.Outcome, began[r.ResourceID])
			}
		}})
		stop := start(t, a)
		for i := range 300 {
			time.Sleep(time.Duration(i%5) * 300 * time.Millisecond)
			broker.queue <- event(fmt.Sprintf("%d|%s", i, time.Now().Format(time.RFC3339Nano)), fmt.Sprintf("r%d", i%3))
			if i%100 == 99 {
				stop()
				stop = start(t, a)
			}
		}
		time.Sleep(2 * time.Hour)
		if acked, dead, _ := broker.counts(); acked != 300 || dead != 0 {
			t.Errorf("%d acknowledged and %d dead-lettered, want all 300 acknowledged", acked, dead)
		}
	})
}

func TestConcurrencyIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		a := newAdapter(t, Config{Concurrency: 3}, func(context.Context, Resource) (Report, error) {
			time.Sleep(time.Minute)
			return Available("done"), nil
		}, Deps{Consumer: broker, Fleet: fleet})
		start(t, a)
		for n := range 10 {
			broker.queue <- event("e1", fmt.Sprintf("r%d", n))
		}
		synctest.Wait()
		if n := testutil.ToFloat64(a.metrics.inProgress); n != 3 {
			t.Errorf("%g reconciles in progress, want 3", n)
		}
		time.Sleep(4*time.Minute + time.Second)
		if acked, _, _ := broker.counts(); acked != 10 {
			t.Errorf("%d events acknowledged after four rounds, want 10", acked)
		}
	})
}

// TestStop checks that work which ends in time is reported and acknowledged, and that all other events
// return to the broker.
func TestStop(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		grace  time.Duration
		work   time.Duration
		acked  int
		took   time.Duration
	}{
		"Finishes":  {"the work ends within the time", time.Minute, 30 * time.Second, 1, 30 * time.Second},
		"Cancelled": {"the work takes longer", time.Minute, time.Hour, 0, time.Minute},
		"AtOnce":    {"no time is given", -1, time.Hour, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fleet, broker := newFakeFleet(), newFakeBroker()
				stop := start(t, newAdapter(t, Config{Concurrency: 1, StopTimeout: tc.grace}, func(ctx context.Context, _ Resource) (Report, error) {
					return Available("done"), backoff.Sleep(ctx, tc.work)
				}, Deps{Consumer: broker, Fleet: fleet}))
				broker.queue <- event("e1", "r1")
				synctest.Wait()
				broker.queue <- event("e2", "r1") // waits for the first
				broker.queue <- event("e3", "r2") // waits for a slot
				synctest.Wait()
				begin := time.Now()
				stop()
				if took := time.Since(begin); took != tc.took {
					t.Errorf("%s: Run returned %s after the stop, want %s", tc.reason, took, tc.took)
				}
				acked, dead, returned := broker.counts()
				if acked != tc.acked || dead != 0 || returned != 3-tc.acked || len(fleet.of("r1")) != tc.acked {
					t.Errorf("%s: %d acknowledged, %d dead-lettered, %d returned, %d reports; want %d acknowledged and the others returned",
						tc.reason, acked, dead, returned, len(fleet.of("r1")), tc.acked)
				}
			})
		})
	}
}

// TestMemoryIsBounded holds the limits on what is remembered of the events.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var o resourceSerializer
	begin := func(id, event string) *evaluation {
		e, err := o.waitAndBegin(t.Context(), resourceKey{"clusters", id}, event, 0)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for n := range maxResources + 100 {
		begin(fmt.Sprint(n), "e").endAsSucceeded(1)
	}
	if len(o.resources) != maxResources || len(o.idle) != maxResources {
		t.Errorf("%d resources and %d idle ones, want %d", len(o.resources), len(o.idle), maxResources)
	}
	for n := range 1000 {
		begin("r", fmt.Sprint("ok", n)).endAsSucceeded(1)
		begin("r", fmt.Sprint("bad", n)).endAsFailed(false)
	}
	r := o.resources[resourceKey{"clusters", "r"}]
	if len(r.handled) != maxHandled || len(r.pending) > maxPending || !slices.Contains(r.handled, "ok999") {
		t.Errorf("%d handled and %d pending events, want at most %d and %d", len(r.handled), len(r.pending), maxHandled, maxPending)
	}
}
