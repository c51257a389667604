package decision_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

func anyTime() *rapid.Generator[time.Time] {
	return rapid.OneOf(
		rapid.Just(time.Time{}),
		rapid.Map(rapid.Int64Range(int64(-2*time.Hour), int64(2*time.Hour)), func(d int64) time.Time { return now.Add(time.Duration(d)) }),
		rapid.Map(rapid.Int64Range(-60_000_000_000, 250_000_000_000), func(s int64) time.Time { return time.Unix(s, 0) }),
	)
}

func anyResource() *rapid.Generator[decision.Resource] {
	return rapid.Custom(func(t *rapid.T) decision.Resource {
		return decision.Resource{
			Generation:         rapid.Int64Range(0, 4).Draw(t, "generation"),
			ObservedGeneration: rapid.Int64Range(0, 4).Draw(t, "observed"),
			Phase:              rapid.SampledFrom([]string{"Ready", "Provisioning", "Failed", "ready", ""}).Draw(t, "phase"),
			Created:            anyTime().Draw(t, "created"),
			Updated:            anyTime().Draw(t, "updated"),
			LastUpdated:        anyTime().Draw(t, "last updated"),
			LastTransition:     anyTime().Draw(t, "last transition"),
			FirstSeen:          anyTime().Draw(t, "first seen"),
		}
	})
}

func anyAges() *rapid.Generator[decision.Ages] {
	d := rapid.Map(rapid.Int64Range(1, int64(24*time.Hour)), func(n int64) time.Duration { return time.Duration(n) })
	return rapid.Custom(func(t *rapid.T) decision.Ages {
		return decision.Ages{NotReady: d.Draw(t, "not ready"), Ready: d.Draw(t, "ready")}
	})
}

// TestVerdictIsItsNext: a verdict publishes if and only if its time has come,
// and the same resource is due when that time comes.
func TestVerdictIsItsNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, ages := anyResource().Draw(t, "resource"), anyAges().Draw(t, "ages")
		for _, p := range []*decision.Profile{decision.NewGenerationThenAgeProfile(ages), decision.NewTransitionAgeProfile(ages)} {
			v := p.Decide(&r, now)
			if v.ShouldPublish == now.Before(v.Next) {
				t.Fatalf("publish is %t and next is %s", v.ShouldPublish, v.Next)
			}
			want := ages.MaxAgeOf(&r)
			if v.Reason == decision.ReasonGenerationChanged {
				want = ages.NotReady // the phase is about another spec
			}
			if v.Interval != want {
				t.Fatalf("interval %s, want %s", v.Interval, want)
			}
			if v.ShouldPublish {
				continue
			}
			if most := ages.MaxAgeOf(&r) + decision.MaxClockSkew; v.Next.Sub(now) > most {
				t.Fatalf("waits %s, which is longer than %s", v.Next.Sub(now), most)
			}
			if v.Since.IsZero() {
				r.FirstSeen = now // as the loop fills it in
			}
			if then := p.Decide(&r, v.Next); !then.ShouldPublish {
				t.Fatalf("promised %s, and then said %+v", v.Next, then)
			}
		}
	})
}

// TestGenerationAlwaysWins: nothing but the generations matters while they
// differ, and they never matter to the other profile.
func TestGenerationAlwaysWins(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r, ages := anyResource().Draw(t, "resource"), anyAges().Draw(t, "ages")
		v := decision.NewGenerationThenAgeProfile(ages).Decide(&r, now)
		if ahead := r.Generation > r.ObservedGeneration; ahead != (v.Reason == decision.ReasonGenerationChanged) || ahead && !v.ShouldPublish {
			t.Fatalf("generation %d, observed %d: %+v", r.Generation, r.ObservedGeneration, v)
		}
		before := decision.NewTransitionAgeProfile(ages).Decide(&r, now)
		r.Generation, r.ObservedGeneration, r.LastUpdated, r.Updated = 7, 1, now, now
		if after := decision.NewTransitionAgeProfile(ages).Decide(&r, now); after != before {
			t.Fatalf("transition age looked at what is none of its business: %+v, %+v", before, after)
		}
	})
}

// TestHistory plays a resource through patches, reports and polls, and checks the invariants of the
// sentinel. An unobserved generation is published in the next round, one (generation, interval)
// never has two events, no two events share an id, and a resource without answers is never
// forgotten.
func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ages := decision.Ages{
			NotReady: time.Duration(rapid.IntRange(1, 60).Draw(t, "not ready")) * time.Second,
			Ready:    time.Duration(rapid.IntRange(60, 600).Draw(t, "ready")) * time.Second,
		}
		profile := decision.NewGenerationThenAgeProfile(ages)
		clock := now
		r := decision.Resource{Generation: 1, Created: clock, Updated: clock, LastUpdated: clock}
		var last decision.ConfirmedEvent
		ids := map[string]bool{}

		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			clock = clock.Add(time.Duration(rapid.IntRange(1, 20_000).Draw(t, "ms")) * time.Millisecond)
			switch rapid.IntRange(0, 9).Draw(t, "step") {
			case 0:
				r.Generation++
				r.Updated, r.Phase = clock, "Provisioning"
			case 1: // an adapter that has observed the current generation
				r.ObservedGeneration, r.LastUpdated = r.Generation, clock
			case 2: // one that has not
				r.LastUpdated = clock
			case 3:
				r.Phase = rapid.SampledFrom([]string{"Ready", "Provisioning"}).Draw(t, "phase")
			default: // a round
				v := profile.Decide(&r, clock)
				held := v.DelayRepeat(&r, last, clock)
				if r.Generation > r.ObservedGeneration && last.Generation != r.Generation && !held.ShouldPublish {
					t.Fatalf("generation %d stays unpublished: %+v", r.Generation, held)
				}
				if v.ShouldPublish && clock.Sub(last.At) >= 2*v.Interval && !held.ShouldPublish {
					t.Fatalf("starved for %s: %+v", clock.Sub(last.At), held)
				}
				if !held.ShouldPublish {
					continue
				}
				if last.Generation == r.Generation && clock.Sub(last.At) < v.Interval {
					t.Fatalf("two events within %s of an interval of %s", clock.Sub(last.At), v.Interval)
				}
				id := decision.DeriveEventID("cls", r.Generation, held, clock)
				if ids[id] {
					t.Fatalf("two nudges share the id %s", id)
				}
				ids[id] = true
				last = decision.ConfirmedEvent{Generation: r.Generation, At: clock}
			}
		}
	})
}
