package decision_test

import (
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

// TestEarly: a resource that may fall due early does so by that part of its
// age, to the instant; a changed generation has the whole interval.
func TestEarly(t *testing.T) {
	ages := decision.Ages{NotReady: 10 * time.Second, Ready: 30 * time.Minute}
	cases := map[string]struct {
		r    decision.Resource
		want time.Duration
	}{
		"Ready":      {decision.Resource{Phase: "Ready", Early: 0.1}, 27 * time.Minute},
		"NotReady":   {decision.Resource{Phase: "Pending", Early: 0.5}, 5 * time.Second},
		"NotEarly":   {decision.Resource{Phase: "Ready"}, 30 * time.Minute},
		"Generation": {decision.Resource{Phase: "Ready", Generation: 2, ObservedGeneration: 1, Early: 0.5}, 10 * time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := tc.r
			r.LastUpdated, r.LastTransition = now.Add(-tc.want), now.Add(-tc.want)
			v := decision.NewGenerationThenAgeProfile(ages).Decide(&r, now)
			if !v.ShouldPublish || v.Interval != tc.want {
				t.Errorf("at its age: %+v, want it due, with an interval of %s", v, tc.want)
			}
			if v := decision.NewGenerationThenAgeProfile(ages).Decide(&r, now.Add(-1)); v.ShouldPublish != (r.Generation > 0) {
				t.Errorf("an instant before: %+v", v)
			}
			if v := decision.NewTransitionAgeProfile(ages).Decide(&r, now.Add(-1)); r.Generation == 0 && (v.ShouldPublish || !v.Next.Equal(now)) {
				t.Errorf("by the transition, an instant before: %+v, want it due at %s", v, now)
			}
		})
	}
}
