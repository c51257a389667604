package faults

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/devstack/proof/history"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		reason, text string
		want         []string
	}{
		"Default": {"without a choice there is every kind", "", Kinds()},
		"None":    {"a quiet run", "none", nil},
		"Some":    {"the order has no meaning, but stays", "freeze,kill", []string{Freeze, Kill}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := ParseKinds(test.text)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%s: %v, -want +got\n%s", test.reason, err, diff)
			}
		})
	}
	for _, text := range []string{"earthquake", "kill,", "kill, freeze", "kill,none"} {
		_, err := ParseKinds(text)
		if err == nil {
			t.Errorf("Parse(%q) gives no error", text)
			continue
		}
		for _, kind := range append(Kinds(), "none") {
			if !strings.Contains(err.Error(), kind) {
				t.Errorf("Parse(%q): %v, which does not name %s", text, err, kind)
			}
		}
	}
}

// TestSchedule holds that a seed gives one schedule, that another seed gives another, and that all faults
// are of the chosen kinds, in order, and within the duration.
func TestSchedule(t *testing.T) {
	t.Parallel()
	const duration = 10 * time.Minute
	first := NewSchedule(7, duration, Kinds())
	if diff := cmp.Diff(first, NewSchedule(7, duration, Kinds())); diff != "" {
		t.Errorf("the same seed gives another schedule:\n%s", diff)
	}
	if cmp.Equal(first, NewSchedule(8, duration, Kinds())) {
		t.Error("another seed gives the same schedule")
	}
	if got := NewSchedule(7, duration, nil); len(got) > 0 {
		t.Errorf("without kinds there are %d faults", len(got))
	}
	if len(first) < 2*len(Kinds()) {
		t.Fatalf("%d faults in %s", len(first), duration)
	}
	for i, f := range first {
		if f.At < Pace || f.At >= duration || i > 0 && f.At < first[i-1].At+Pace/2 {
			t.Errorf("fault %d is at %s", i, f.At)
		}
		if f.Lasts < 3*time.Second || f.Lasts > 30*time.Second || f.Delay <= 0 || f.Rate <= 0 || f.Pick < 0 {
			t.Errorf("fault %d has no effect, or no end: %+v", i, f)
		}
	}
	behind := 0
	for i, f := range first {
		if isClock := f.Kind == Clock; isClock != (f.Ahead != 0) || isClock && (f.Ahead.Abs() < minAhead || f.Ahead.Abs() > maxAhead || f.Ahead%time.Second != 0) {
			t.Errorf("fault %d sets the clock %s ahead: %+v", i, f.Ahead, f)
		}
		if f.Ahead < 0 {
			behind++
		}
	}
	if count := len(first) / len(Kinds()); behind == 0 || behind >= count {
		t.Errorf("%d of %d clocks are behind", behind, count)
	}
	repeated := len(Kinds()) - 1 // a restore is no part of the schedule
	for start := 0; start+repeated <= len(first); start += repeated {
		seen := map[string]bool{}
		for _, f := range first[start : start+repeated] {
			seen[f.Kind] = true
		}
		if len(seen) < repeated || seen[Restore] {
			t.Errorf("the faults from %d on have %d of %d kinds, restore: %t", start, len(seen), repeated, seen[Restore])
		}
	}
	for _, f := range NewSchedule(7, duration, []string{Kill, Cut}) {
		if f.Kind != Kill && f.Kind != Cut {
			t.Errorf("kind %s was not chosen", f.Kind)
		}
	}
}

// A world records which faults are active on which lock.
type world struct {
	mu       sync.Mutex
	active   map[string]int
	most     map[string]int
	ended    []history.Fault
	began    int
	failWith error
}

func (w *world) choose(f Fault) Target {
	lock := []string{"one", "two", "three"}[f.Pick%3]
	change := func(by int) func() error {
		return func() error {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.active[lock] += by
			w.most[lock] = max(w.most[lock], w.active[lock])
			w.began += max(0, by)
			return w.failWith
		}
	}
	return Target{Name: f.Kind, Lock: lock, Inject: func(_, schedule context.Context) error { return f.Hold(schedule, change(1), change(-1)) }}
}

func (w *world) record(f history.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ended = append(w.ended, f)
}

func newWorld() *world { return &world{active: map[string]int{}, most: map[string]int{}} }

// TestInjector holds that a target has one fault at a time, that different targets have theirs at the same
// time, that each fault that begins ends and is recorded, and that none is active after the duration.
func TestInjector(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const duration = 10 * time.Minute
		w := newWorld()
		i := NewInjector(w.choose, w.record)
		began := time.Now()
		i.Run(t.Context(), duration, NewSchedule(7, duration, Kinds()))
		if took := time.Since(began); took > duration {
			t.Errorf("the faults end after %s", took)
		}
		if w.began == 0 || len(w.ended) != w.began || i.CountInjected() != w.began {
			t.Errorf("%d faults began, %d were recorded, %d counted", w.began, len(w.ended), i.CountInjected())
		}
		together := 0
		for lock, active := range w.active {
			if active != 0 || w.most[lock] != 1 {
				t.Errorf("target %s has %d faults at the end, and had %d at once", lock, active, w.most[lock])
			}
		}
		for n, f := range w.ended {
			if f.Error != "" || f.Target != f.Kind || !f.Start.Before(f.End) || f.End.After(began.Add(duration)) {
				t.Errorf("recorded %+v", f)
			}
			if slices.ContainsFunc(w.ended[:n], func(o history.Fault) bool { return o.Start.Before(f.End) && f.Start.Before(o.End) }) {
				together++
			}
		}
		if together == 0 {
			t.Error("different targets never had faults at the same time")
		}
	})
}

// TestFaultWithoutEnd holds that the end of the duration ends a fault that would last longer.
func TestFaultWithoutEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		began := time.Now()
		NewInjector(w.choose, w.record).Run(t.Context(), time.Minute, []Fault{{At: time.Second, Lasts: time.Hour}, {At: 2 * time.Second, Lasts: time.Hour}})
		if took := time.Since(began); took != time.Minute {
			t.Errorf("the faults ended after %s", took)
		}
		// The second one waited for the same target, and then there was no time.
		if w.began != 1 || len(w.ended) != 1 || w.active["one"] != 0 {
			t.Errorf("%d faults began, %d ended, %d are active", w.began, len(w.ended), w.active["one"])
		}
	})
}

// TestRunAlone holds that no fault is active meanwhile, and that faults that are due wait and begin afterwards.
func TestRunAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		i := NewInjector(w.choose, w.record)
		began := time.Now()
		var running sync.WaitGroup
		running.Go(func() {
			i.Run(t.Context(), time.Minute, []Fault{{At: time.Second, Lasts: 10 * time.Second}, {At: 20 * time.Second, Pick: 1, Lasts: 5 * time.Second}})
		})
		time.Sleep(5 * time.Second)
		err := i.RunAlone(t.Context(), func() error {
			if since := time.Since(began); since != 11*time.Second || len(w.ended) != 1 {
				t.Errorf("it begins after %s and %d faults", since, len(w.ended))
			}
			time.Sleep(30 * time.Second)
			if w.began != 1 {
				t.Errorf("%d faults began, want the one from before", w.began)
			}
			return errors.New("returned")
		})
		running.Wait()
		if err == nil || len(w.ended) != 2 || w.ended[1].Start.Sub(began) != 41*time.Second {
			t.Errorf("%v, faults %+v", err, w.ended)
		}
	})
}

// TestFailedFault holds that a fault whose beginning fails is ended at once and recorded with the error.
func TestFailedFault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWorld()
		w.failWith = errors.New("no such process")
		NewInjector(w.choose, w.record).Run(t.Context(), time.Minute, []Fault{{At: time.Second, Kind: Kill, Lasts: 10 * time.Second}})
		if len(w.ended) != 1 || !strings.Contains(w.ended[0].Error, "no such process") || w.ended[0].End != w.ended[0].Start || w.active["one"] != 0 {
			t.Errorf("recorded %+v, active %v", w.ended, w.active)
		}
	})
}
