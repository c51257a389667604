package state_test

import (
	"math"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// A budgetEvent is an allowed event.
type budgetEvent struct {
	at     time.Duration
	urgent bool
}

// TestBudgetBounds checks that no interval has more events than its rate allows, for any order of calls,
// and although the population and the clock change.
func TestBudgetBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg := state.BudgetConfig{
			Factor: rapid.Float64Range(1, 3).Draw(t, "factor"),
			Floor:  rapid.Float64Range(0.5, 40).Draw(t, "floor"),
			Burst:  time.Duration(rapid.Int64Range(1, 5000).Draw(t, "burst in ms"))*time.Millisecond + 7,
			Max:    rapid.SampledFrom([]float64{0, 0, 3, 60}).Draw(t, "max"),
		}
		begin := time.Now()
		b := state.NewBudget(cfg, begin)
		var (
			steady  float64
			top     = b.MaxNonUrgentRate()
			now     time.Duration // may go back
			latest  time.Duration // that the budget was told
			allowed []budgetEvent
		)
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			at := begin.Add(now)
			switch rapid.SampledFrom([]string{"take", "take", "urgent", "wait", "nearly all of it", "steady"}).Draw(t, "what") {
			case "take":
				latest = max(latest, now)
				for left := b.CountAvailableNonUrgent(at); left >= 0; left-- {
					if b.TryTakeNonUrgent(at) != (left > 0) {
						t.Fatalf("asked at %s with %d left: got %t", now, left, left == 0)
					}
					if left > 0 {
						allowed = append(allowed, budgetEvent{at: latest})
					}
				}
			case "urgent":
				latest = max(latest, now)
				for range rapid.IntRange(1, 50).Draw(t, "urgent") {
					if b.TryTakeUrgent(at) {
						allowed = append(allowed, budgetEvent{at: latest, urgent: true})
					} else if cfg.Max == 0 {
						t.Fatalf("a changed generation has to wait at %s", now)
					}
				}
			case "nearly all of it":
				now += cfg.Burst - time.Duration(rapid.Int64Range(0, int64(cfg.Burst)/400).Draw(t, "less"))
			case "wait":
				now += time.Duration(rapid.Int64Range(-2000, 4000).Draw(t, "wait in ms")) * time.Millisecond / 3
			case "steady":
				steady = rapid.Float64Range(0, 100).Draw(t, "steady")
				b.SetSteadyRate(steady)
				top = max(top, b.MaxNonUrgentRate())
			}
		}
		inBurst := func(rate float64) int { return int(max(1, rate*cfg.Burst.Seconds())) }
		for i, first := range allowed {
			others, all := 0, 0
			for _, e := range allowed[i:] {
				if e.at > first.at+cfg.Burst {
					break
				}
				all++
				if !e.urgent {
					others++
				}
			}
			if others > inBurst(top) || cfg.Max > 0 && all > inBurst(cfg.Max) {
				t.Fatalf("within %s from %s on %d events were allowed, %d of them not urgent; the rate is %v", cfg.Burst, first.at, all, others, top)
			}
		}
		if got, want := b.CountAvailableNonUrgent(begin.Add(latest+2*cfg.Burst)), inBurst(b.MaxNonUrgentRate()); got != want {
			t.Fatalf("%d are left when nothing was spent lately, want %d", got, want)
		}
	})
}

// spendBudget takes the whole budget at each interval, and returns the number of events.
func spendBudget(b *state.Budget, from time.Time, d, every time.Duration) (n int) {
	for at := time.Duration(0); at < d; at += every {
		for b.TryTakeNonUrgent(from.Add(at)) {
			n++
		}
	}
	return n
}

// TestBudgetAfterAnOutage: a million resources are overdue. Neither the first second
// nor the hour sees more than one and a half times the steady rate, and not
// much less.
func TestBudgetAfterAnOutage(t *testing.T) {
	const steady = 1_000_000 / 1800.0
	begin := time.Now()
	b := state.NewBudget(state.BudgetConfig{}, begin)
	b.SetSteadyRate(steady)
	after := begin.Add(time.Hour)
	for _, tc := range []struct {
		every time.Duration
		least float64 // part of what is allowed that gets out
	}{{time.Millisecond, 0.99}, {50 * time.Millisecond, 0.95}, {250 * time.Millisecond, 0.79}, {1010 * time.Millisecond, 0.98}} {
		first := spendBudget(b, after, time.Second, tc.every)
		rest := spendBudget(b, after.Add((time.Second + tc.every - 1).Truncate(tc.every)), 100*time.Second, tc.every)
		const most = 1.5 * steady
		if float64(first) > most || float64(rest) > 100*most {
			t.Errorf("asked every %s: %d in the first second, %d in the hundred after, want at most %.0f in each", tc.every, first, rest, most)
		}
		if float64(first) < most-1 || float64(rest) < 100*most*tc.least {
			t.Errorf("asked every %s: %d in the first second, %d in the hundred after, want about %.0f in each", tc.every, first, rest, most)
		}
		after = after.Add(time.Hour)
	}
}

// TestBudgetOfGrowingPopulation: the rate follows the population while the first sweep
// counts it, and a small fleet is never held up.
func TestBudgetOfGrowingPopulation(t *testing.T) {
	begin := time.Now()
	b := state.NewBudget(state.BudgetConfig{Floor: 50}, begin)
	for second, tc := range []struct {
		steady float64
		want   int
	}{{0, 50}, {20, 50}, {100, 150}, {400, 600}, {10, 50}} {
		b.SetSteadyRate(tc.steady)
		from := begin.Add(time.Duration(second) * 10 * time.Second)
		if got := spendBudget(b, from, time.Second, 100*time.Millisecond); got != tc.want {
			t.Errorf("steady rate %v: %d in a second, want %d", tc.steady, got, tc.want)
		}
	}
}

// TestBudgetUrgentFlood checks that all changed specs are published, and that resources due by age get a
// quarter of the budget.
func TestBudgetUrgentFlood(t *testing.T) {
	begin := time.Now()
	b := state.NewBudget(state.BudgetConfig{Floor: 100}, begin)
	others := 0
	for ms := range 10_000 {
		at := begin.Add(time.Duration(ms) * time.Millisecond)
		for range 3 {
			if !b.TryTakeUrgent(at) {
				t.Fatalf("a changed generation has to wait at %d ms", ms)
			}
		}
		if b.TryTakeNonUrgent(at) {
			others++
		}
	}
	if others < 240 || others > 275 {
		t.Errorf("%d others in ten seconds, want about 250", others)
	}
	if got := b.CountAvailableNonUrgent(begin.Add(12 * time.Second)); got != 100 {
		t.Errorf("%d are left after the flood, want all 100", got)
	}
}

// TestBudgetHardLimit: with a bound on all events, urgent ones wait too.
func TestBudgetHardLimit(t *testing.T) {
	begin := time.Now()
	b := state.NewBudget(state.BudgetConfig{Max: 10}, begin)
	n := 0
	for b.TryTakeUrgent(begin) {
		n++
	}
	if n != 10 || b.TryTakeNonUrgent(begin) || b.CountAvailableNonUrgent(begin) != 0 {
		t.Errorf("%d urgent events at once, want 10 and no others", n)
	}
	if !b.TryTakeUrgent(begin.Add(1100 * time.Millisecond)) {
		t.Error("none a second later")
	}
	if got := b.MaxNonUrgentRate(); math.Abs(got-10) > 1e-9 {
		t.Errorf("the rate is %v, want that of the bound", got)
	}
}

// TestBudgetNext checks that a replacement budget does not allow spending the same budget twice.
func TestBudgetNext(t *testing.T) {
	cases := map[string]struct {
		reason      string
		old, next   state.BudgetConfig
		spent       int
		left, later int // at once, and a second after that
	}{
		"Same":    {"nothing changes", state.BudgetConfig{Burst: 5 * time.Second}, state.BudgetConfig{Burst: 5 * time.Second}, 400, 100, 100},
		"Longer":  {"a longer stretch has more", state.BudgetConfig{Burst: time.Second}, state.BudgetConfig{Burst: 5 * time.Second}, 100, 400, 400},
		"Shorter": {"what was spent at once is made up for", state.BudgetConfig{Burst: 5 * time.Second}, state.BudgetConfig{Burst: time.Second}, 250, 0, 0},
		"Little":  {"and no more than that", state.BudgetConfig{Burst: 5 * time.Second}, state.BudgetConfig{Burst: time.Second}, 60, 40, 40},
		"Slower":  {"it does not fall silent", state.BudgetConfig{Burst: time.Second}, state.BudgetConfig{Burst: time.Second, Floor: 0.5}, 100, 0, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			begin := time.Now()
			b := state.NewBudget(tc.old, begin)
			for range tc.spent {
				if !b.TryTakeNonUrgent(begin) {
					t.Fatal("there is not so much to spend")
				}
			}
			n := b.CopyWithConfig(tc.next, begin)
			if got := n.CountAvailableNonUrgent(begin); got != tc.left {
				t.Errorf("%s: %d are left, want %d", tc.reason, got, tc.left)
			}
			if got := n.CountAvailableNonUrgent(begin.Add(time.Second)); got != tc.later {
				t.Errorf("%s: %d are left a second later, want %d", tc.reason, got, tc.later)
			}
			if got := n.CountAvailableNonUrgent(begin.Add(20 * time.Second)); got == 0 {
				t.Errorf("%s: nothing is left 20 s later", tc.reason)
			}
		})
	}
	at := time.Now()
	b := state.NewBudget(state.BudgetConfig{Burst: 5 * time.Second, Max: 10}, at)
	for b.TryTakeUrgent(at) {
	}
	n := b.CopyWithConfig(state.BudgetConfig{Burst: time.Second, Max: 10}, at)
	if n.TryTakeUrgent(at.Add(3900*time.Millisecond)) || !n.TryTakeUrgent(at.Add(4*time.Second+time.Millisecond)) {
		t.Error("a bound on all events does not hold for what is urgent")
	}
}

func BenchmarkBudgetTake(b *testing.B) {
	begin := time.Now()
	x := state.NewBudget(state.BudgetConfig{Floor: 1e6}, begin)
	at := begin
	for b.Loop() {
		at = at.Add(time.Microsecond)
		x.TryTakeNonUrgent(at)
	}
}
