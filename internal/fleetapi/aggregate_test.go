package fleetapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// newAdapterStatus returns a report of adapter a at generation gen, sent at second s. The letters name the
// True conditions; those with a minus are False.
func newAdapterStatus(a string, gen int64, s int, conditions ...string) v1.AdapterStatus {
	r := v1.AdapterStatus{Adapter: a, ObservedGeneration: gen, CreatedTime: at(s), LastReportTime: at(s)}
	for _, c := range conditions {
		status, name := v1.ConditionTrue, c
		if c[0] == '-' {
			status, name = v1.ConditionFalse, c[1:]
		}
		r.Conditions = append(r.Conditions, v1.AdapterCondition{
			ReportCondition:    v1.ReportCondition{Type: name, Status: status, Reason: "Because"},
			LastTransitionTime: at(s),
		})
	}
	return r
}

const (
	available   = v1.ConditionAvailable
	unavailable = "-" + v1.ConditionAvailable
	healthy     = v1.ConditionHealth
	unhealthy   = "-" + v1.ConditionHealth
	finalized   = v1.ConditionFinalized
)

// factsOfBoth returns facts about a resource with two required adapters.
func factsOfBoth(gen int64, reports ...v1.AdapterStatus) fleetapi.StatusFacts {
	return fleetapi.StatusFacts{
		Generation:  gen,
		CreatedTime: at(0),
		UpdatedTime: at(1),
		Required:    []string{"validation", "dns"},
		Reports:     reports,
		Now:         at(50),
	}
}

func TestPhaseGenerationAndAge(t *testing.T) {
	type want struct {
		Phase    v1.Phase
		Observed int64
		Updated  time.Time
	}
	deleting := factsOfBoth(2, newAdapterStatus("validation", 1, 5, available), newAdapterStatus("dns", 1, 6, available))
	deleting.Deleting = true

	cases := map[string]struct {
		reason string
		facts  fleetapi.StatusFacts
		want   want
	}{
		"NobodyReported": {
			reason: "nothing was looked at, and the age counts from creation",
			facts:  factsOfBoth(1),
			want:   want{v1.PhasePending, 0, at(0)},
		},
		"OnlyAStrangerReported": {
			reason: "an adapter that is not required does not count",
			facts:  factsOfBoth(1, newAdapterStatus("billing", 1, 9, available)),
			want:   want{v1.PhasePending, 0, at(0)},
		},
		"OneReported": {
			reason: "the one that never reported holds generation and age back",
			facts:  factsOfBoth(1, newAdapterStatus("dns", 1, 9, available)),
			want:   want{v1.PhaseProvisioning, 0, at(0)},
		},
		"AllAvailable": {
			reason: "the age is that of the oldest report",
			facts:  factsOfBoth(1, newAdapterStatus("dns", 1, 9, available), newAdapterStatus("validation", 1, 4, available)),
			want:   want{v1.PhaseReady, 1, at(4)},
		},
		"OneNotAvailable": {
			reason: "all of them have to be available",
			facts:  factsOfBoth(1, newAdapterStatus("dns", 1, 9, unavailable), newAdapterStatus("validation", 1, 4, available)),
			want:   want{v1.PhaseProvisioning, 1, at(4)},
		},
		"NewGeneration": {
			reason: "what was ready for the last spec is not ready for this one",
			facts:  factsOfBoth(2, newAdapterStatus("dns", 1, 9, available), newAdapterStatus("validation", 1, 4, available)),
			want:   want{v1.PhaseProvisioning, 1, at(4)},
		},
		"OneBehind": {
			reason: "the lowest generation counts",
			facts:  factsOfBoth(3, newAdapterStatus("dns", 3, 9, available), newAdapterStatus("validation", 2, 10, available)),
			want:   want{v1.PhaseProvisioning, 2, at(9)},
		},
		"Unhealthy": {
			reason: "bad health at the current generation is a failure, available or not",
			facts:  factsOfBoth(1, newAdapterStatus("dns", 1, 9, available, unhealthy), newAdapterStatus("validation", 1, 4, available, healthy)),
			want:   want{v1.PhaseFailed, 1, at(4)},
		},
		"UnhealthyBefore": {
			reason: "bad health at an older generation says nothing of this one",
			facts:  factsOfBoth(2, newAdapterStatus("dns", 1, 9, unavailable, unhealthy), newAdapterStatus("validation", 2, 4, available)),
			want:   want{v1.PhaseProvisioning, 1, at(4)},
		},
		"Deleting": {
			reason: "deletion outweighs everything else",
			facts:  deleting,
			want:   want{v1.PhaseDeleting, 1, at(5)},
		},
		"NoneRequired": {
			reason: "nobody to wait for",
			facts:  fleetapi.StatusFacts{Generation: 7, CreatedTime: at(0), UpdatedTime: at(3), Now: at(50)},
			want:   want{v1.PhaseReady, 7, at(3)},
		},
		"NoneRequiredDeleting": {
			reason: "deleting shows even if it will not last",
			facts:  fleetapi.StatusFacts{Generation: 7, Deleting: true, UpdatedTime: at(3), Now: at(50)},
			want:   want{v1.PhaseDeleting, 7, at(3)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := fleetapi.AggregateStatus(tc.facts)
			if diff := cmp.Diff(tc.want, want{got.Phase, got.ObservedGeneration, got.LastUpdatedTime}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestTransitionTimeFollowsThePhase(t *testing.T) {
	f := factsOfBoth(1)
	f.Now = at(0)
	s := fleetapi.AggregateStatus(f)
	if s.LastTransitionTime != at(0) {
		t.Errorf("a new resource entered its phase at %v, want its creation", s.LastTransitionTime)
	}

	f.Previous, f.Now = s, at(10)
	f.Reports = []v1.AdapterStatus{newAdapterStatus("dns", 1, 10, unavailable)}
	s = fleetapi.AggregateStatus(f)
	if s.Phase != v1.PhaseProvisioning || s.LastTransitionTime != at(10) {
		t.Errorf("got %s since %v, want Provisioning since the report", s.Phase, s.LastTransitionTime)
	}

	f.Previous, f.Now = s, at(20)
	f.Reports = []v1.AdapterStatus{newAdapterStatus("dns", 1, 20, unavailable)}
	if s = fleetapi.AggregateStatus(f); s.LastTransitionTime != at(10) {
		t.Errorf("a report that kept the phase moved the transition to %v", s.LastTransitionTime)
	}
}

func TestNoConditionsWithoutRequiredAdapters(t *testing.T) {
	got := fleetapi.AggregateStatus(fleetapi.StatusFacts{Generation: 1, Reports: []v1.AdapterStatus{newAdapterStatus("dns", 1, 1, available)}})
	if diff := cmp.Diff([]v1.Condition{}, got.Conditions); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
}

func TestReconciled(t *testing.T) {
	ready := fleetapi.AggregateStatus(factsOfBoth(1, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available)))
	was := func(f fleetapi.StatusFacts) fleetapi.StatusFacts {
		f.Previous, f.Now = ready, at(59)
		return f
	}
	del := func(children int, f fleetapi.StatusFacts) fleetapi.StatusFacts {
		f.Deleting, f.Children = true, children
		return f
	}

	cases := map[string]struct {
		reason string
		facts  fleetapi.StatusFacts
		want   v1.Condition
	}{
		"New": {
			reason: "it exists from creation on and names who is missing",
			facts:  factsOfBoth(1),
			want: v1.Condition{
				Status: v1.ConditionFalse, Reason: fleetapi.ReasonMissingAdapters, Message: "waiting for validation, dns",
				ObservedGeneration: 1,
				CreatedTime:        at(50), LastUpdatedTime: at(1), LastTransitionTime: at(50),
			},
		},
		"All": {
			reason: "true at the generation that all have seen",
			facts:  factsOfBoth(1, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available)),
			want: v1.Condition{
				Status: v1.ConditionTrue, Reason: fleetapi.ReasonReconciledAll, ObservedGeneration: 1,
				Message:     "all required adapters have reconciled the current generation",
				CreatedTime: at(50), LastUpdatedTime: at(4), LastTransitionTime: at(50),
			},
		},
		"StillAll": {
			reason: "a fresh report moves the update and not the transition",
			facts:  was(factsOfBoth(1, newAdapterStatus("validation", 1, 14, available), newAdapterStatus("dns", 1, 19, available))),
			want: v1.Condition{
				Status: v1.ConditionTrue, Reason: fleetapi.ReasonReconciledAll, ObservedGeneration: 1,
				Message:     "all required adapters have reconciled the current generation",
				CreatedTime: at(50), LastUpdatedTime: at(14), LastTransitionTime: at(50),
			},
		},
		"NewGeneration": {
			reason: "it states how far the new generation is; the change counts from the owner's update",
			facts:  was(factsOfBoth(2, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available))),
			want: v1.Condition{
				Status: v1.ConditionFalse, Reason: fleetapi.ReasonMissingAdapters, Message: "waiting for validation, dns",
				ObservedGeneration: 2,
				CreatedTime:        at(50), LastUpdatedTime: at(1), LastTransitionTime: at(1),
			},
		},
		"NewGenerationHalfWay": {
			reason: "the update is the oldest report at the current generation",
			facts:  was(factsOfBoth(2, newAdapterStatus("validation", 2, 24, available), newAdapterStatus("dns", 1, 9, available))),
			want: v1.Condition{
				Status: v1.ConditionFalse, Reason: fleetapi.ReasonMissingAdapters, Message: "waiting for dns",
				ObservedGeneration: 2,
				CreatedTime:        at(50), LastUpdatedTime: at(24), LastTransitionTime: at(59),
			},
		},
		"DeletingAvailable": {
			reason: "while deleting, available is not enough",
			facts:  del(0, factsOfBoth(1, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available))),
			want: v1.Condition{
				Status: v1.ConditionFalse, Reason: fleetapi.ReasonMissingAdapters, Message: "waiting for validation, dns",
				ObservedGeneration: 1,
				CreatedTime:        at(50), LastUpdatedTime: at(4), LastTransitionTime: at(50),
			},
		},
		"DeletingWithChildren": {
			reason: "all finalized, but something that belongs to it is left",
			facts:  del(2, factsOfBoth(1, newAdapterStatus("validation", 1, 4, finalized), newAdapterStatus("dns", 1, 9, finalized))),
			want: v1.Condition{
				Status: v1.ConditionFalse, Reason: fleetapi.ReasonWaitingForChildren, ObservedGeneration: 1,
				Message:     "waiting for the deletion of its child resources",
				CreatedTime: at(50), LastUpdatedTime: at(4), LastTransitionTime: at(50),
			},
		},
		"DeletingDone": {
			reason: "nothing is left to wait for",
			facts:  del(0, factsOfBoth(1, newAdapterStatus("validation", 1, 4, finalized), newAdapterStatus("dns", 1, 9, finalized))),
			want: v1.Condition{
				Status: v1.ConditionTrue, Reason: fleetapi.ReasonReconciledAll, ObservedGeneration: 1,
				Message:     "all required adapters have reconciled the current generation",
				CreatedTime: at(50), LastUpdatedTime: at(4), LastTransitionTime: at(50),
			},
		},
		"LivingWithChildren": {
			reason: "children hold nothing up but deletion",
			facts: func() fleetapi.StatusFacts {
				f := factsOfBoth(1, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available))
				f.Children = 3
				return f
			}(),
			want: v1.Condition{
				Status: v1.ConditionTrue, Reason: fleetapi.ReasonReconciledAll, ObservedGeneration: 1,
				Message:     "all required adapters have reconciled the current generation",
				CreatedTime: at(50), LastUpdatedTime: at(4), LastTransitionTime: at(50),
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.want.Type = v1.ConditionReconciled
			if diff := cmp.Diff(tc.want, findCondition(t, fleetapi.AggregateStatus(tc.facts), v1.ConditionReconciled)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func TestIsFinalized(t *testing.T) {
	done := factsOfBoth(2, newAdapterStatus("validation", 2, 4, finalized), newAdapterStatus("dns", 2, 9, finalized))
	done.Deleting = true
	cases := map[string]struct {
		reason string
		change func(*fleetapi.StatusFacts)
		want   bool
	}{
		"Done":          {"all finalized, no child", func(*fleetapi.StatusFacts) {}, true},
		"Living":        {"nobody asked for deletion", func(f *fleetapi.StatusFacts) { f.Deleting = false }, false},
		"Child":         {"a child is left", func(f *fleetapi.StatusFacts) { f.Children = 1 }, false},
		"Behind":        {"finalized before deletion was asked for", func(f *fleetapi.StatusFacts) { f.Generation = 3 }, false},
		"OneMissing":    {"one has not reported", func(f *fleetapi.StatusFacts) { f.Reports = f.Reports[:1] }, false},
		"NoneRequired":  {"nobody to wait for", func(f *fleetapi.StatusFacts) { f.Required, f.Reports = nil, nil }, true},
		"NotYetDoneOne": {"one says no", func(f *fleetapi.StatusFacts) { f.Reports[1] = newAdapterStatus("dns", 2, 9, available) }, false},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := done
			f.Reports = append([]v1.AdapterStatus(nil), done.Reports...)
			tc.change(&f)
			if got := fleetapi.IsDeletionComplete(f); got != tc.want {
				t.Errorf("%s: got %v", tc.reason, got)
			}
		})
	}
}

func findCondition(t *testing.T, s v1.Status, kind string) v1.Condition {
	t.Helper()
	for _, c := range s.Conditions {
		if c.Type == kind {
			return c
		}
	}
	t.Fatalf("no condition %s in %v", kind, s.Conditions)
	return v1.Condition{}
}
