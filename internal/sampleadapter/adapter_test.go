package sampleadapter

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/cloudevent"
)

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		cfg    Config
	}{
		"NoName":     {"a report needs one", Config{}},
		"Itself":     {"it would wait for ever", Config{Name: DNS, After: DNS}},
		"AlwaysFail": {"it would never get done", Config{Name: DNS, FailureRate: 1}},
		"BelowZero":  {"no such share", Config{Name: DNS, FailureRate: -0.1}},
		"Latency":    {"no such time", Config{Name: DNS, Latency: -1}},
		"Workers":    {"no such number", Config{Name: DNS, Workers: -1}},
	}
	for name, tc := range cases {
		if _, err := New(tc.cfg, Deps{Fleet: newFakeFleet()}); err == nil {
			t.Errorf("%s: %s: got no error", name, tc.reason)
		}
	}
	reg := prometheus.NewRegistry()
	if _, err := New(Config{Name: DNS}, Deps{Registerer: reg, Fleet: newFakeFleet()}); err != nil {
		t.Fatal(err)
	}
	if _, err := New(Config{Name: DNS}, Deps{Registerer: reg, Fleet: newFakeFleet()}); err == nil {
		t.Error("two adapters of one name in one registry: got no error")
	}
	if _, err := New(Config{Name: Validation}, Deps{Registerer: reg, Fleet: newFakeFleet()}); err != nil {
		t.Errorf("two adapters in one registry: %v", err)
	}
}

func TestSamples(t *testing.T) {
	t.Parallel()
	got := ChainedSampleConfigs(Config{Latency: time.Second, Seed: 7})
	want := []Config{
		{Name: Validation, Latency: time.Second, Seed: 7},
		{Name: DNS, After: Validation, Latency: time.Second, Seed: 7},
		{Name: Provisioning, After: DNS, Latency: time.Second, Seed: 7},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestEveryEventIsReported is the status contract: a report with the time of
// the look for each event, whether or not there was anything to do.
func TestEveryEventIsReported(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		var stops []func()
		var adapters []*Adapter
		for _, cfg := range ChainedSampleConfigs(Config{Latency: 200 * time.Millisecond}) {
			a := newAdapter(t, cfg, Deps{Consumer: broker, Fleet: fleet})
			adapters = append(adapters, a)
			stops = append(stops, start(t, a))
		}
		said := map[string][]string{}
		for range 4 {
			for _, a := range adapters {
				broker.queue("adapter-" + a.Name()) <- event("cluster", `{"id":"r1"}`)
			}
			before := time.Now()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			fleet.set(func(f *fakeFleet) {
				for _, r := range f.reports {
					if r.ObservedTime.Before(before) || r.ObservedTime.After(before.Add(time.Second)) {
						t.Errorf("%s observed at %s, the event came at %s", r.Adapter, r.ObservedTime, before)
					}
					if r.ObservedGeneration != 1 {
						t.Errorf("%s observed generation %d", r.Adapter, r.ObservedGeneration)
					}
					said[r.Adapter] = append(said[r.Adapter], r.Conditions[0].Reason)
				}
				f.reports = nil
			})
		}
		want := map[string][]string{
			Validation:   {"WorkSucceeded", "WorkSucceeded", "WorkSucceeded", "WorkSucceeded"},
			DNS:          {"PreconditionsNotMet", "WorkSucceeded", "WorkSucceeded", "WorkSucceeded"},
			Provisioning: {"PreconditionsNotMet", "PreconditionsNotMet", "WorkSucceeded", "WorkSucceeded"},
		}
		if diff := cmp.Diff(want, said); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
		for _, stop := range stops {
			stop()
		}
		if acked, failed := broker.counts(); acked != 12 || failed != 0 {
			t.Errorf("%d events acknowledged and %d not, want 12 and 0", acked, failed)
		}
		if s := adapters[0].Stats(); s.Reports != 4 || s.LastReport.IsZero() {
			t.Errorf("stats %+v, want 4 reports", s)
		}
	})
}

func TestTransientFailures(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, seed uint64) (reasons string) {
		t.Helper()
		synctest.Test(t, func(t *testing.T) {
			fleet, broker := newFakeFleet(), newFakeBroker()
			a := newAdapter(t, Config{Name: Validation, Latency: time.Second, FailureRate: 0.5, Seed: seed, Workers: 1}, Deps{Consumer: broker, Fleet: fleet})
			stop := start(t, a)
			defer stop()
			for generation := range int64(20) {
				fleet.set(func(f *fakeFleet) { f.resource.Generation = generation + 1 })
				for done := false; !done; {
					broker.queue("adapter-validation") <- event("cluster", `{"id":"r1"}`)
					time.Sleep(2 * time.Second)
					r, _ := fleet.last()
					if r.Conditions[2].Type != v1.ConditionHealth || r.Conditions[2].Status != v1.ConditionTrue {
						t.Errorf("health is %+v", r.Conditions[2])
					}
					done = r.Conditions[0].Status == v1.ConditionTrue
					reasons += r.Conditions[0].Reason[:1]
				}
			}
		})
		return reasons
	}
	one, again, other := run(t, 1), run(t, 1), run(t, 2)
	if one != again {
		t.Errorf("the same seed gave %s and %s", one, again)
	}
	if one == other {
		t.Errorf("two seeds gave the same %s", one)
	}
	if n := strings.Count(one, "T"); n < 5 || n > 60 {
		t.Errorf("%d failures at a rate of a half for 20 generations: %s", n, one)
	}
}

func TestDeletion(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		now := time.Now()
		fleet.resource.DeletedTime, fleet.resource.Generation = &now, 2
		stop := start(t, newAdapter(t, Config{Name: DNS, After: Validation, Latency: time.Second}, Deps{Consumer: broker, Fleet: fleet}))
		defer stop()
		for i := range 2 {
			broker.queue("adapter-dns") <- event("nodepool", `{"resource_id":"r1"}`)
			time.Sleep(2 * time.Second)
			r, n := fleet.last()
			if n != i+1 || len(r.Conditions) != 4 || r.Conditions[3].Type != v1.ConditionFinalized || r.Conditions[3].Status != v1.ConditionTrue {
				t.Errorf("event %d: %d reports, the last %+v, want it finalised", i, n, r)
			}
		}
	})
}

func TestWhatIsAcknowledged(t *testing.T) {
	t.Parallel()
	down := errors.New("connection refused")
	cases := map[string]struct {
		reason string
		event  cloudevent.Event
		fleet  func(*fakeFleet)
		again  bool
		result result
	}{
		"Reported":        {"the normal case", event("cluster", `{"id":"r1"}`), func(*fakeFleet) {}, false, "available"},
		"Discarded":       {"the API has something newer", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.discard = true }, false, resultDiscarded},
		"Gone":            {"there is nothing to report on", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.getErr = apiError(404) }, false, resultGone},
		"GoneMeanwhile":   {"deleted while we worked", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.reportErr = apiError(404) }, false, resultGone},
		"Refused":         {"the same report would be refused again", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.reportErr = apiError(422) }, false, resultRefused},
		"Unauthorized":    {"a token is mended without the event", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.getErr = apiError(401) }, true, resultFailed},
		"TooMany":         {"later it will do", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.reportErr = apiError(429) }, true, resultFailed},
		"ServerError":     {"later it will do", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.statusesErr = apiError(503) }, true, resultFailed},
		"Down":            {"later it will do", event("cluster", `{"id":"r1"}`), func(f *fakeFleet) { f.getErr = down }, true, resultFailed},
		"NoJSON":          {"no redelivery makes it one", event("cluster", `{`), func(*fakeFleet) {}, false, resultIgnored},
		"NoID":            {"of nothing in particular", event("cluster", `{"href":"/x"}`), func(*fakeFleet) {}, false, resultIgnored},
		"UnknownKind":     {"nothing that we know", event("channel", `{"id":"r1"}`), func(*fakeFleet) {}, false, resultIgnored},
		"AnotherProducer": {"not a sentinel's", cloudevent.Event{Type: "com.example.cluster", Data: []byte(`{"id":"r1"}`)}, func(*fakeFleet) {}, false, resultIgnored},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fleet, broker := newFakeFleet(), newFakeBroker()
				tc.fleet(fleet)
				reg := prometheus.NewRegistry()
				a := newAdapter(t, Config{Name: Validation}, Deps{Consumer: broker, Fleet: fleet, Registerer: reg})
				stop := start(t, a)
				broker.queue("adapter-validation") <- tc.event
				synctest.Wait()
				if acked, failed := broker.counts(); acked+failed != 1 || (failed == 1) != tc.again {
					t.Errorf("%s: %d acknowledged, %d handed back", tc.reason, acked, failed)
				}
				if n := testutil.ToFloat64(a.metrics.events.WithLabelValues(string(tc.result))); n != 1 {
					t.Errorf("counted %g times as %s, want once", n, tc.result)
				}
				if tc.again {
					fleet.set(func(f *fakeFleet) { f.getErr, f.statusesErr, f.reportErr = nil, nil, nil })
					time.Sleep(2 * time.Second)
					synctest.Wait()
					if _, n := fleet.last(); n != 1 {
						t.Errorf("after it came back there were %d reports, want one", n)
					}
				}
				stop()
				problems, err := testutil.GatherAndLint(reg)
				if err != nil || len(problems) > 0 {
					t.Errorf("metrics: %v, %v", problems, err)
				}
			})
		})
	}
}

func TestWorkersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		a := newAdapter(t, Config{Name: Validation, Latency: time.Minute, Workers: 3}, Deps{Consumer: broker, Fleet: fleet})
		stop := start(t, a)
		for n := range 10 {
			broker.queue("adapter-validation") <- event("cluster", fmt.Sprintf(`{"id":"r%d"}`, n))
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		fleet.set(func(f *fakeFleet) {
			if len(f.asked) != 3 {
				t.Errorf("%d events under way, want 3", len(f.asked))
			}
		})
		stop()
		if acked, failed := broker.counts(); acked != 0 || failed != 10 {
			t.Errorf("%d events acknowledged and %d handed back, want all that were cut short handed back", acked, failed)
		}
	})
}

// TestPause plays an adapter that dies in the middle of its work and comes
// back.
func TestPause(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		fleet, broker := newFakeFleet(), newFakeBroker()
		a := newAdapter(t, Config{Name: Validation, Latency: 10 * time.Second}, Deps{Consumer: broker, Fleet: fleet})
		stop := start(t, a)
		broker.queue("adapter-validation") <- event("cluster", `{"id":"r1"}`)
		time.Sleep(time.Second)

		a.Pause()
		a.Pause()
		synctest.Wait()
		if !a.Paused() || testutil.ToFloat64(a.metrics.paused) != 1 {
			t.Error("not paused")
		}
		if acked, failed := broker.counts(); acked != 0 || failed != 1 {
			t.Errorf("%d acknowledged, %d handed back, want the one under way handed back at once", acked, failed)
		}
		if n := testutil.ToFloat64(a.metrics.events.WithLabelValues(string(resultFailed))); n != 0 {
			t.Errorf("being told to stop counted as %g failures", n)
		}
		time.Sleep(time.Hour)
		if _, n := fleet.last(); n != 0 || len(broker.queue("adapter-validation")) != 1 {
			t.Errorf("%d reports while paused", n)
		}

		a.Resume()
		time.Sleep(20 * time.Second)
		synctest.Wait()
		if _, n := fleet.last(); n != 1 || a.Paused() || testutil.ToFloat64(a.metrics.paused) != 0 {
			t.Errorf("%d reports after it went on, want one", n)
		}

		a.Pause()
		synctest.Wait()
		stop() // also ends while it is paused
	})
}

// TestRunDrains holds also where the adapter was paused just before.
func TestRunDrains(t *testing.T) {
	t.Parallel()
	for name, pause := range map[string]bool{"Running": false, "Pausing": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				fleet, broker := newFakeFleet(), newFakeBroker()
				fleet.slow = 5 * time.Second
				a := newAdapter(t, Config{Name: Validation}, Deps{Consumer: broker, Fleet: fleet})
				stop := start(t, a)
				broker.queue("adapter-validation") <- event("cluster", `{"id":"r1"}`)
				synctest.Wait()
				if pause {
					a.Pause()
					synctest.Wait()
				}
				begun := time.Now()
				stop()
				if _, n := fleet.last(); n != 1 || time.Since(begun) != fleet.slow {
					t.Errorf("Run returned after %s with %d reports, want it to wait for the one under way", time.Since(begun), n)
				}
			})
		})
	}
}

func TestRunEndsWithItsConsumer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		broker := newFakeBroker()
		broker.err = errors.New("no such subscription")
		a := newAdapter(t, Config{Name: Validation, Workers: 2}, Deps{Consumer: broker, Fleet: newFakeFleet()})
		if err := a.Run(t.Context()); !errors.Is(err, broker.err) || !strings.Contains(err.Error(), `"adapter-validation"`) {
			t.Errorf("got %v, want the consumer's error with its subscription", err)
		}
		broker.err, broker.spread = nil, 0 // returns at once
		if err := a.Run(t.Context()); err == nil || !strings.Contains(err.Error(), "stopped unexpectedly") {
			t.Errorf("got %v, want an error for a consumer that stopped unexpectedly", err)
		}
	})
}
