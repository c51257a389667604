package decision_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

var now = time.Date(2025, 10, 21, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// TestSpecification holds the eight scripted cases of the sentinel's
// specification, with their reasons letter for letter.
func TestSpecification(t *testing.T) {
	ages := decision.Ages{NotReady: 10 * time.Second, Ready: 30 * time.Minute}
	cases := map[string]struct {
		r           decision.Resource
		wantPublish bool
		wantReason  string
		wantNext    time.Time // checked where the specification gives one
		wantWarning string
	}{
		"1 ready, generation mismatch": {
			r:           decision.Resource{Phase: "Ready", Generation: 2, ObservedGeneration: 1, LastUpdated: ago(5 * time.Second)},
			wantPublish: true,
			wantReason:  "generation changed - new spec to reconcile",
		},
		"2 ready, generation match": {
			r:          decision.Resource{Phase: "Ready", Generation: 2, ObservedGeneration: 2, LastUpdated: ago(5 * time.Minute)},
			wantReason: "max age not expired",
			wantNext:   now.Add(25 * time.Minute),
		},
		"3 not ready, generation mismatch": {
			r:           decision.Resource{Phase: "NotReady", Generation: 3, ObservedGeneration: 2, LastUpdated: ago(2 * time.Second)},
			wantPublish: true,
			wantReason:  "generation changed - new spec to reconcile",
		},
		"4 not ready, max age expired": {
			r:           decision.Resource{Phase: "NotReady", Generation: 1, ObservedGeneration: 1, LastUpdated: ago(15 * time.Second)},
			wantPublish: true,
			wantReason:  "max age expired (not ready)",
		},
		"5 not ready, max age not expired": {
			r:          decision.Resource{Phase: "NotReady", Generation: 1, ObservedGeneration: 1, LastUpdated: ago(5 * time.Second)},
			wantReason: "max age not expired",
			wantNext:   now.Add(5 * time.Second),
		},
		"6 ready, max age expired": {
			r:           decision.Resource{Phase: "Ready", Generation: 1, ObservedGeneration: 1, LastUpdated: ago(31 * time.Minute)},
			wantPublish: true,
			wantReason:  "max age expired (ready)",
		},
		"7 observed generation ahead, no time": {
			r:           decision.Resource{Phase: "Ready", Generation: 1, ObservedGeneration: 2},
			wantReason:  "max age not expired",
			wantNext:    now.Add(30 * time.Minute),
			wantWarning: "observed_generation ahead of generation - potential API issue",
		},
		"7 observed generation ahead, within the age": {
			r:           decision.Resource{Phase: "Ready", Generation: 1, ObservedGeneration: 2, LastUpdated: ago(5 * time.Minute)},
			wantReason:  "max age not expired",
			wantNext:    now.Add(25 * time.Minute),
			wantWarning: "observed_generation ahead of generation - potential API issue",
		},
		"7 observed generation ahead, beyond the age": {
			r:           decision.Resource{Phase: "Ready", Generation: 1, ObservedGeneration: 2, LastUpdated: ago(31 * time.Minute)},
			wantPublish: true,
			wantReason:  "max age expired (ready)",
			wantWarning: "observed_generation ahead of generation - potential API issue",
		},
		"8 observed generation missing": {
			r:           decision.Resource{Phase: "NotReady", Generation: 1, LastUpdated: ago(2 * time.Second)},
			wantPublish: true,
			wantReason:  "generation changed - new spec to reconcile",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decision.NewGenerationThenAgeProfile(ages).Decide(&tc.r, now)
			if got.ShouldPublish != tc.wantPublish {
				t.Errorf("ShouldPublish: got %t, want %t", got.ShouldPublish, tc.wantPublish)
			}
			if got.Reason.String() != tc.wantReason {
				t.Errorf("Reason: got %q, want %q", got.Reason, tc.wantReason)
			}
			if !tc.wantNext.IsZero() && !got.Next.Equal(tc.wantNext) {
				t.Errorf("Next: got %s, want %s", got.Next, tc.wantNext)
			}
			if got.Warning.String() != tc.wantWarning {
				t.Errorf("Warning: got %q, want %q", got.Warning, tc.wantWarning)
			}
		})
	}
}

func TestGenerationThenAge(t *testing.T) {
	const notReady, ready = 10 * time.Second, 30 * time.Minute
	cases := map[string]struct {
		reason string
		r      decision.Resource
		want   decision.Verdict
	}{
		"NotReadyAtTheInstant": {
			reason: "due means now >= time",
			r:      decision.Resource{LastUpdated: ago(notReady)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady,
				Since: ago(notReady), Next: now, Interval: notReady,
			},
		},
		"NotReadyJustBefore": {
			reason: "a nanosecond early is early",
			r:      decision.Resource{LastUpdated: ago(notReady - 1)},
			want: decision.Verdict{
				Reason: decision.ReasonMaxAgeNotExpired, Since: ago(notReady - 1), Next: now.Add(1), Interval: notReady,
			},
		},
		"ReadyAtTheInstant": {
			reason: "due means now >= time",
			r:      decision.Resource{Phase: "Ready", LastUpdated: ago(ready)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeReady,
				Since: ago(ready), Next: now, Interval: ready,
			},
		},
		"LowerCaseIsNotReady": {
			reason: "only the exact word counts as ready",
			r:      decision.Resource{Phase: "ready", LastUpdated: ago(notReady)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady,
				Since: ago(notReady), Next: now, Interval: notReady,
			},
		},
		"TransitionIsNotLookedAt": {
			reason: "a resource may stay in one phase for hours while it is looked after",
			r:      decision.Resource{LastUpdated: ago(time.Second), LastTransition: ago(time.Hour)},
			want: decision.Verdict{
				Reason: decision.ReasonMaxAgeNotExpired, Since: ago(time.Second), Next: now.Add(9 * time.Second), Interval: notReady,
			},
		},
		"GenerationOutranksAge": {
			reason: "the first rule that speaks decides",
			r: decision.Resource{
				Generation: 2, ObservedGeneration: 1, Updated: ago(3 * time.Second),
				LastUpdated: ago(time.Hour), Created: ago(2 * time.Hour),
			},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonGenerationChanged,
				Since: ago(3 * time.Second), Next: ago(3*time.Second + notReady/10), Interval: notReady,
			},
		},
		"GenerationWithoutUpdatedTime": {
			reason: "the report is the next best time to count from",
			r:      decision.Resource{Generation: 2, LastUpdated: ago(time.Minute), Created: ago(time.Hour)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonGenerationChanged,
				Since: ago(time.Minute), Next: ago(time.Minute + notReady/10), Interval: notReady,
			},
		},
		"GenerationWithCreationOnly": {
			reason: "a new resource has no report",
			r:      decision.Resource{Generation: 1, Created: ago(time.Hour)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonGenerationChanged,
				Since: ago(time.Hour), Next: ago(time.Hour + notReady/10), Interval: notReady,
			},
		},
		"GenerationAheadOfTheClock": {
			reason: "a new spec is due now although the API's clock is a little ahead",
			r:      decision.Resource{Phase: "Ready", Generation: 2, ObservedGeneration: 1, Updated: now.Add(notReady / 10)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonGenerationChanged, Since: now.Add(notReady / 10), Next: now, Interval: notReady,
			},
		},
		"GenerationFromTheFuture": {
			reason: "or far ahead, in which case it is nothing to count nudges from",
			r:      decision.Resource{Phase: "Ready", Generation: 2, ObservedGeneration: 1, Updated: now.Add(notReady/10 + 1)},
			want:   decision.Verdict{ShouldPublish: true, Reason: decision.ReasonGenerationChanged, Interval: notReady},
		},
		"GenerationWithoutAnyTime": {
			reason: "due since ever",
			r:      decision.Resource{Generation: 1},
			want:   decision.Verdict{ShouldPublish: true, Reason: decision.ReasonGenerationChanged, Interval: notReady},
		},
		"CreationStandsInForAReport": {
			reason: "a resource that nobody reported on ages from its creation",
			r:      decision.Resource{Created: ago(4 * time.Second), FirstSeen: ago(time.Hour)},
			want: decision.Verdict{
				Reason: decision.ReasonMaxAgeNotExpired, Since: ago(4 * time.Second), Next: now.Add(6 * time.Second), Interval: notReady,
			},
		},
		"NoTimeNotReady": {
			reason: "nobody has seen to it: due since ever",
			r:      decision.Resource{Phase: "Provisioning"},
			want:   decision.Verdict{ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady, Interval: notReady},
		},
		"NoTimeNotReadyAhead": {
			reason: "the warning does not depend on the rule that speaks",
			r:      decision.Resource{ObservedGeneration: 1},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady, Interval: notReady,
				Warning: decision.WarningObservedAhead,
			},
		},
		"NoTimeReady": {
			reason: "somebody made it ready; it waits until the caller has known it for its age",
			r:      decision.Resource{Phase: "Ready"},
			want: decision.Verdict{
				Reason: decision.ReasonMaxAgeNotExpired, Next: now.Add(ready), Interval: ready, Warning: decision.WarningNoTime,
			},
		},
		"NoTimeReadyKnownForLong": {
			reason: "and then it is due, or it would never be looked at again",
			r:      decision.Resource{Phase: "Ready", FirstSeen: ago(ready)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeReady, Since: ago(ready), Next: now, Interval: ready,
			},
		},
		"WithinSkew": {
			reason: "clocks differ a little; the time is believed",
			r:      decision.Resource{LastUpdated: now.Add(decision.MaxClockSkew)},
			want: decision.Verdict{
				Reason: decision.ReasonMaxAgeNotExpired, Since: now.Add(decision.MaxClockSkew),
				Next: now.Add(decision.MaxClockSkew + notReady), Interval: notReady,
			},
		},
		"BeyondSkew": {
			reason: "waiting for it could be waiting for ever",
			r:      decision.Resource{LastUpdated: now.Add(decision.MaxClockSkew + 1)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeNotReady, Interval: notReady, Warning: decision.WarningFutureTime,
			},
		},
		"BeyondSkewReady": {
			reason: "ready or not",
			r:      decision.Resource{Phase: "Ready", LastUpdated: now.Add(24 * time.Hour)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonMaxAgeReady, Interval: ready, Warning: decision.WarningFutureTime,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decision.NewGenerationThenAgeProfile(decision.Ages{NotReady: notReady, Ready: ready}).Decide(&tc.r, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTransitionAge(t *testing.T) {
	cases := map[string]struct {
		reason string
		r      decision.Resource
		want   decision.Verdict
	}{
		"NotReadyExpired": {
			reason: "ten seconds after the change of phase",
			r:      decision.Resource{Phase: "Provisioning", LastTransition: ago(11 * time.Second), LastUpdated: now},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonBackoffExpired,
				Since: ago(11 * time.Second), Next: ago(time.Second), Interval: 10 * time.Second,
			},
		},
		"ReadyExpired": {
			reason: "half an hour after it became ready",
			r:      decision.Resource{Phase: "Ready", LastTransition: ago(31 * time.Minute)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonBackoffExpired,
				Since: ago(31 * time.Minute), Next: ago(time.Minute), Interval: 30 * time.Minute,
			},
		},
		"GenerationPlaysNoPart": {
			reason: "neither a mismatch nor an adapter ahead of it",
			r:      decision.Resource{Phase: "Ready", Generation: 5, ObservedGeneration: 1, LastTransition: ago(time.Minute)},
			want: decision.Verdict{
				Reason: decision.ReasonBackoffNotExpired, Since: ago(time.Minute), Next: now.Add(29 * time.Minute), Interval: 30 * time.Minute,
			},
		},
		"AheadPlaysNoPart": {
			reason: "neither a mismatch nor an adapter ahead of it",
			r:      decision.Resource{Phase: "Ready", Generation: 1, ObservedGeneration: 5, LastTransition: ago(time.Minute)},
			want: decision.Verdict{
				Reason: decision.ReasonBackoffNotExpired, Since: ago(time.Minute), Next: now.Add(29 * time.Minute), Interval: 30 * time.Minute,
			},
		},
		"ReportPlaysNoPart": {
			reason: "an old report does not make it due",
			r:      decision.Resource{LastTransition: ago(9 * time.Second), LastUpdated: ago(time.Hour)},
			want: decision.Verdict{
				Reason: decision.ReasonBackoffNotExpired, Since: ago(9 * time.Second), Next: now.Add(time.Second), Interval: 10 * time.Second,
			},
		},
		"NoTime": {
			reason: "due since ever",
			r:      decision.Resource{},
			want:   decision.Verdict{ShouldPublish: true, Reason: decision.ReasonBackoffExpired, Interval: 10 * time.Second},
		},
		"NoTimeReady": {
			reason: "somebody made it ready",
			r:      decision.Resource{Phase: "Ready"},
			want: decision.Verdict{
				Reason: decision.ReasonBackoffNotExpired, Next: now.Add(30 * time.Minute), Interval: 30 * time.Minute,
				Warning: decision.WarningNoTime,
			},
		},
		"Future": {
			reason: "can not be waited for",
			r:      decision.Resource{LastTransition: now.Add(time.Hour)},
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonBackoffExpired, Interval: 10 * time.Second, Warning: decision.WarningFutureTime,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decision.NewTransitionAgeProfile(decision.Ages{}).Decide(&tc.r, now)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestAges(t *testing.T) {
	cases := map[string]struct {
		reason string
		ages   decision.Ages
		phase  string
		want   time.Duration
	}{
		"Ready":           {reason: "own value", ages: decision.Ages{Ready: 1}, phase: "Ready", want: 1},
		"NotReady":        {reason: "own value", ages: decision.Ages{NotReady: 1}, want: 1},
		"ReadyDefault":    {reason: "zero means default", ages: decision.Ages{NotReady: 1}, phase: "Ready", want: 30 * time.Minute},
		"NotReadyDefault": {reason: "zero means default", ages: decision.Ages{Ready: 1}, want: 10 * time.Second},
		"Negative":        {reason: "a negative age would be due for ever", ages: decision.Ages{NotReady: -1}, want: 10 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if got := tc.ages.MaxAgeOf(&decision.Resource{Phase: tc.phase}); got != tc.want {
				t.Errorf("%s: got %s, want %s", tc.reason, got, tc.want)
			}
		})
	}
}

// TestWords holds every word that leaves the process in logs, metrics and
// payloads: they are part of the contract.
func TestWords(t *testing.T) {
	reasons := []string{
		"generation changed - new spec to reconcile",
		"max age expired (ready)",
		"max age expired (not ready)",
		"max age not expired",
		"backoff-expired",
		"backoff not expired",
		"message decision matched",
		"message decision result is false",
		"message decision failed",
		"already published, waiting for adapters",
		"publish budget exhausted, deferred",
		"no reason",
	}
	if len(reasons) != int(decision.NumReasons)+1 {
		t.Fatalf("there are %d reasons, the list has %d", decision.NumReasons, len(reasons)-1)
	}
	for i, want := range reasons {
		if got := decision.Reason(i).String(); got != want {
			t.Errorf("reason %d: got %q, want %q", i, got, want)
		}
	}
	warnings := []string{
		"",
		"observed_generation ahead of generation - potential API issue",
		"status time in the future - potential clock issue",
		"no status time to calculate the age - potential API issue",
		"",
	}
	if len(warnings) != int(decision.NumWarnings)+1 {
		t.Fatalf("there are %d warnings, the list has %d", decision.NumWarnings, len(warnings)-1)
	}
	for i, want := range warnings {
		if got := decision.Warning(i).String(); got != want {
			t.Errorf("warning %d: got %q, want %q", i, got, want)
		}
	}
}
