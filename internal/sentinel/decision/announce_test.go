package decision_test

import (
	"math"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

func TestHold(t *testing.T) {
	const interval = 10 * time.Second
	due := decision.Verdict{
		ShouldPublish: true, Reason: decision.ReasonGenerationChanged,
		Since: ago(time.Hour), Next: ago(time.Hour), Interval: interval,
	}
	held := func(until time.Time) decision.Verdict {
		v := due
		v.ShouldPublish, v.Reason, v.Next = false, decision.ReasonAnnounced, until
		return v
	}
	skip := decision.Verdict{Reason: decision.ReasonMaxAgeNotExpired, Interval: interval}

	cases := map[string]struct {
		reason string
		v      decision.Verdict
		r      decision.Resource
		last   decision.ConfirmedEvent
		want   decision.Verdict
	}{
		"NothingAnnounced": {
			reason: "what was never announced is not held",
			v:      due, r: decision.Resource{LastUpdated: now}, want: due,
		},
		"NewGeneration": {
			reason: "a new generation goes out at once",
			v:      due, r: decision.Resource{Generation: 3},
			last: decision.ConfirmedEvent{Generation: 2, At: ago(time.Second)}, want: due,
		},
		"OlderGeneration": {
			reason: "an API restored from a backup goes back; that is a change too",
			v:      due, r: decision.Resource{Generation: 1},
			last: decision.ConfirmedEvent{Generation: 2, At: ago(time.Second)}, want: due,
		},
		"JustAnnounced": {
			reason: "its adapters may be at work",
			v:      due, r: decision.Resource{Generation: 2},
			last: decision.ConfirmedEvent{Generation: 2, At: now}, want: held(now.Add(interval)),
		},
		"ANanosecondShort": {
			reason: "the whole interval is waited",
			v:      due, last: decision.ConfirmedEvent{At: ago(interval - 1)}, want: held(now.Add(1)),
		},
		"IntervalOver": {
			reason: "due means now >= time",
			v:      due, last: decision.ConfirmedEvent{At: ago(interval)}, want: due,
		},
		"ReportAfterAnnouncement": {
			reason: "the interval counts from the later of the two",
			v:      due, r: decision.Resource{LastUpdated: ago(4 * time.Second)},
			last: decision.ConfirmedEvent{At: ago(12 * time.Second)}, want: held(now.Add(6 * time.Second)),
		},
		"ReportBeforeAnnouncement": {
			reason: "the interval counts from the later of the two",
			v:      due, r: decision.Resource{LastUpdated: ago(9 * time.Second)},
			last: decision.ConfirmedEvent{At: ago(8 * time.Second)}, want: held(now.Add(2 * time.Second)),
		},
		"ReportsThatNeverEnd": {
			reason: "two intervals after the last event reports are no excuse any more",
			v:      due, r: decision.Resource{LastUpdated: now},
			last: decision.ConfirmedEvent{At: ago(2 * interval)}, want: due,
		},
		"ReportsThatNeverEndYet": {
			reason: "until then they are",
			v:      due, r: decision.Resource{LastUpdated: now},
			last: decision.ConfirmedEvent{At: ago(2*interval - 1)}, want: held(now.Add(1)),
		},
		"ReportFromTheFuture": {
			reason: "tells nothing",
			v:      due, r: decision.Resource{LastUpdated: now.Add(1)},
			last: decision.ConfirmedEvent{At: ago(9 * time.Second)}, want: held(now.Add(time.Second)),
		},
		"ReportOfThisMoment": {
			reason: "is not from the future",
			v:      due, r: decision.Resource{LastUpdated: now},
			last: decision.ConfirmedEvent{At: ago(9 * time.Second)}, want: held(now.Add(10 * time.Second)),
		},
		"AnnouncementFromTheFuture": {
			reason: "a clock that was set back must not silence anything",
			v:      due, last: decision.ConfirmedEvent{At: now.Add(1)}, want: due,
		},
		"CenturiesOld": {
			reason: "who says never is not told every round",
			v:      decision.Verdict{ShouldPublish: true, Interval: math.MaxInt64 / 3 * 2},
			last:   decision.ConfirmedEvent{At: ago(time.Minute)},
			want:   decision.Verdict{Reason: decision.ReasonAnnounced, Next: ago(time.Minute).Add(math.MaxInt64 / 3 * 2), Interval: math.MaxInt64 / 3 * 2},
		},
		"NotDueAnyway": {
			reason: "its own reason and time stay",
			v:      skip, last: decision.ConfirmedEvent{At: now}, want: skip,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.v.DelayRepeat(&tc.r, tc.last, now)); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEventID(t *testing.T) {
	const interval = 10 * time.Second
	base := decision.Verdict{
		ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady,
		Since: ago(15 * time.Second), Next: ago(5 * time.Second), Interval: interval,
	}
	with := func(change func(*decision.Verdict)) decision.Verdict {
		v := base
		change(&v)
		return v
	}
	first := decision.DeriveEventID("cls-123", 2, base, now)
	// Fixed: another version of the sentinel must name the same event alike.
	if want := "evt-f7568af2c23c3ddf5d0cf9c8776be09a"; first != want {
		t.Errorf("got %q, want %q", first, want)
	}

	same := map[string]struct {
		v  decision.Verdict
		at time.Time
	}{
		"a resend":                     {v: base, at: now},
		"the first instant":            {v: base, at: ago(5 * time.Second)},
		"the end of the interval":      {v: base, at: now.Add(5*time.Second - 1)},
		"another clock, before it":     {v: base, at: ago(8 * time.Second)},
		"before by more than a whole":  {v: base, at: ago(time.Minute)},
		"fewer digits of the time":     {v: with(func(v *decision.Verdict) { v.Since = v.Since.Add(999 * time.Microsecond) }), at: now},
		"what the rule does not count": {v: with(func(v *decision.Verdict) { v.Warning = decision.WarningObservedAhead }), at: now},
	}
	for name, tc := range same {
		if got := decision.DeriveEventID("cls-123", 2, tc.v, tc.at); got != first {
			t.Errorf("%s: got %q, want %q", name, got, first)
		}
	}

	seen := map[string]string{first: "the first"}
	other := map[string]string{
		"another resource":   decision.DeriveEventID("cls-124", 2, base, now),
		"another generation": decision.DeriveEventID("cls-123", 3, base, now),
		"another rule":       decision.DeriveEventID("cls-123", 2, with(func(v *decision.Verdict) { v.Reason = decision.ReasonGenerationChanged }), now),
		"another report": decision.DeriveEventID(
			"cls-123", 2, with(func(v *decision.Verdict) { v.Since = v.Since.Add(time.Millisecond) }), now),
		"the next interval":    decision.DeriveEventID("cls-123", 2, base, now.Add(5*time.Second)),
		"another interval":     decision.DeriveEventID("cls-123", 2, with(func(v *decision.Verdict) { v.Interval++ }), now),
		"the one after":        decision.DeriveEventID("cls-123", 2, base, now.Add(15*time.Second)),
		"id and generation":    decision.DeriveEventID("cls-12", 32, base, now),
		"no interval to count": decision.DeriveEventID("cls-123", 9, with(func(v *decision.Verdict) { v.Interval = 0 }), now),
	}
	for name, id := range other {
		if prior, taken := seen[id]; taken {
			t.Errorf("%s has the id of %s", name, prior)
		}
		seen[id] = name
	}
}

// TestEventIDWithoutTime checks that a resource that is always due gets a new id in each interval.
// Durations do not reach from year 1 to now.
func TestEventIDWithoutTime(t *testing.T) {
	v := decision.Verdict{ShouldPublish: true, Interval: 10 * time.Second}
	at := time.Unix(1_761_048_000, 0)
	a := decision.DeriveEventID("x", 1, v, at)
	if b := decision.DeriveEventID("x", 1, v, at.Add(10*time.Second-1)); b != a {
		t.Error("the id changed within the interval")
	}
	if b := decision.DeriveEventID("x", 1, v, at.Add(10*time.Second)); b == a {
		t.Error("the next interval has the same id")
	}
	v.Interval = 0
	if decision.DeriveEventID("x", 1, v, at) != decision.DeriveEventID("x", 1, v, at.Add(time.Hour)) {
		t.Error("without an interval there is nothing to count")
	}
	v.Interval = 1
	if decision.DeriveEventID("x", 1, v, at) == decision.DeriveEventID("x", 1, v, at.Add(1)) {
		t.Error("the shortest interval is one too")
	}
}

// TestEventIDAcrossClocks checks event ids with an API clock that differs from the local one. A
// repeated attempt gets the same id and each later announcement a new one, however far the API's
// clock is ahead.
func TestEventIDAcrossClocks(t *testing.T) {
	const interval = 10 * time.Second
	profile := decision.NewGenerationThenAgeProfile(decision.Ages{NotReady: interval})
	for _, ahead := range []time.Duration{-time.Millisecond, 0, time.Millisecond, 300 * time.Millisecond, time.Second, 5 * time.Second, time.Minute, time.Hour} {
		r := decision.Resource{Generation: 2, ObservedGeneration: 1, Updated: now.Add(ahead)}
		id := func(at time.Time) string {
			return decision.DeriveEventID("cls", 2, profile.Decide(&r, at), at)
		}
		if id(now) != id(now.Add(interval/4)) {
			t.Errorf("%s ahead: another id after a restart", ahead)
		}
		seen := map[string]time.Duration{}
		for after := time.Duration(0); after <= 12*interval; after += interval {
			if before, ok := seen[id(now.Add(after))]; ok {
				t.Errorf("%s ahead: the nudge after %s has the id of that after %s", ahead, after, before)
			}
			seen[id(now.Add(after))] = after
		}
	}
}

// TestRepeatsAfterTheClockIsSet holds that a wall clock which is set ahead or back does not end the wait after an event,
// nor extend it, while adapters report.
func TestRepeatsAfterTheClockIsSet(t *testing.T) {
	t.Parallel()
	const interval = 10 * time.Second
	now := time.Now()
	for name, ahead := range map[string]time.Duration{"Ahead": 28 * time.Second, "Behind": -28 * time.Second, "Right": 0} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			due := decision.Verdict{ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady, Interval: interval}
			event := shiftWallClock(t, now.Add(-time.Second), -ahead) // it was published before the clock was set
			report := now.Round(0).Add(-ahead - time.Second/2)
			got := due.DelayRepeat(&decision.Resource{LastUpdated: report}, decision.ConfirmedEvent{At: event}, now)
			if wait := got.Next.Sub(now); got.ShouldPublish || wait < 9*time.Second || wait > interval {
				t.Errorf("%+v, next in %s: it must wait for about the interval", got, wait)
			}
		})
	}
}

// shiftWallClock returns a time as before the wall clock was set: with the same monotonic reading, and another wall time.
func shiftWallClock(t *testing.T, at time.Time, by time.Duration) time.Time {
	t.Helper()
	const secondsShift = 30 // the lower bits are nanoseconds
	shifted := at
	wall := (*uint64)(unsafe.Pointer(&shifted)) //nolint:gosec // the first field of a Time
	*wall += uint64(int64(by/time.Second) << secondsShift)
	if moved := shifted.Round(0).Sub(at.Round(0)); moved != by || !shifted.Equal(at) {
		t.Fatalf("a Time is stored in another way: the wall clock moved by %s", moved)
	}
	return shifted
}
