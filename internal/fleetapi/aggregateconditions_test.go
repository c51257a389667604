package fleetapi_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func TestLastKnownReconciledIsSticky(t *testing.T) {
	type known struct {
		Status     v1.ConditionStatus
		Generation int64
		Since      time.Time
		Updated    time.Time
	}
	steps := []struct {
		reason  string
		gen     int64
		now     int
		reports []v1.AdapterStatus
		want    known
	}{
		{
			"never reconciled", 1, 0, nil,
			known{v1.ConditionFalse, 0, at(0), at(0)},
		},
		{
			"half is not all", 1, 10,
			[]v1.AdapterStatus{newAdapterStatus("validation", 1, 10, available)},
			known{v1.ConditionFalse, 0, at(0), at(0)},
		},
		{
			"half is not all, whichever half", 1, 11,
			[]v1.AdapterStatus{newAdapterStatus("dns", 1, 11, available)},
			known{v1.ConditionFalse, 0, at(0), at(0)},
		},
		{
			"all at one generation", 1, 20,
			[]v1.AdapterStatus{newAdapterStatus("validation", 1, 12, available), newAdapterStatus("dns", 1, 20, available)},
			known{v1.ConditionTrue, 1, at(20), at(12)},
		},
		{
			"a new generation does not undo it", 2, 25,
			[]v1.AdapterStatus{newAdapterStatus("validation", 2, 25, available), newAdapterStatus("dns", 1, 20, available)},
			known{v1.ConditionTrue, 1, at(20), at(12)},
		},
		{
			"nor does a failure at the newer generation", 2, 30,
			[]v1.AdapterStatus{newAdapterStatus("validation", 2, 30, unavailable), newAdapterStatus("dns", 1, 20, available)},
			known{v1.ConditionTrue, 1, at(20), at(12)},
		},
		{
			"a failure at the tracked one does", 2, 35,
			[]v1.AdapterStatus{newAdapterStatus("validation", 2, 30, unavailable), newAdapterStatus("dns", 1, 35, unavailable)},
			known{v1.ConditionFalse, 1, at(35), at(35)},
		},
		{
			"once taken back it stays so", 2, 36,
			[]v1.AdapterStatus{newAdapterStatus("validation", 2, 36, unavailable), newAdapterStatus("dns", 1, 35, unavailable)},
			known{v1.ConditionFalse, 1, at(35), at(35)},
		},
		{
			"all at the newer one", 2, 40,
			[]v1.AdapterStatus{newAdapterStatus("validation", 2, 38, available), newAdapterStatus("dns", 2, 40, available)},
			known{v1.ConditionTrue, 2, at(40), at(38)},
		},
	}
	var previous v1.Status
	for _, s := range steps {
		f := factsOfBoth(s.gen, s.reports...)
		f.Previous, f.Now = previous, at(s.now)
		previous = fleetapi.AggregateStatus(f)
		c := findCondition(t, previous, v1.ConditionLastKnownReconciled)
		got := known{c.Status, c.ObservedGeneration, c.LastTransitionTime, c.LastUpdatedTime}
		if diff := cmp.Diff(s.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", s.reason, diff)
		}
		if !c.CreatedTime.Equal(at(0)) {
			t.Errorf("%s: created at %v", s.reason, c.CreatedTime)
		}
		wantReason := fleetapi.ReasonMissingAdapters
		if c.Status == v1.ConditionTrue {
			wantReason = fleetapi.ReasonReconciledAll
		}
		if c.Reason != wantReason {
			t.Errorf("%s: reason %q, want %q", s.reason, c.Reason, wantReason)
		}
	}
}

// TestNewlyRequiredAdapterHidesNothing checks that an adapter without a report does not keep
// another from withdrawing its availability.
func TestNewlyRequiredAdapterHidesNothing(t *testing.T) {
	f := factsOfBoth(1, newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 9, available))
	f.Previous = fleetapi.AggregateStatus(f)
	f.Required = []string{"provisioning", "validation", "dns"}
	f.Reports = []v1.AdapterStatus{newAdapterStatus("validation", 1, 4, available), newAdapterStatus("dns", 1, 19, unavailable)}
	if c := findCondition(t, fleetapi.AggregateStatus(f), v1.ConditionLastKnownReconciled); c.Status != v1.ConditionFalse {
		t.Errorf("still known as reconciled: %+v", c)
	}
}

func TestSuccessfulPerAdapter(t *testing.T) {
	silent := newAdapterStatus("validation", 1, 4) // does not report Available at all
	got := fleetapi.AggregateStatus(factsOfBoth(2, newAdapterStatus("dns", 1, 9, available), silent))
	want := v1.Condition{
		Type: "DnsSuccessful", Status: v1.ConditionTrue, Reason: "Because", ObservedGeneration: 1,
		CreatedTime: at(9), LastUpdatedTime: at(9), LastTransitionTime: at(9),
	}
	if diff := cmp.Diff(want, findCondition(t, got, "DnsSuccessful")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if len(got.Conditions) != 3 {
		t.Errorf("an adapter that does not say whether it is available has a condition: %v", got.Conditions)
	}
	got = fleetapi.AggregateStatus(factsOfBoth(2, newAdapterStatus("dns", 1, 9, available)))
	if len(got.Conditions) != 3 {
		t.Errorf("an adapter that never reported has a condition: %v", got.Conditions)
	}
}

func TestSuccessfulConditionType(t *testing.T) {
	for adapter, want := range map[string]string{
		"dns":                "DnsSuccessful",
		"cluster-validation": "ClusterValidationSuccessful",
		"a--b":               "ABSuccessful",
		"v2-x":               "V2XSuccessful",
	} {
		if got := fleetapi.FormatSuccessfulConditionType(adapter); got != want {
			t.Errorf("SuccessfulType(%q) = %q, want %q", adapter, got, want)
		}
	}
}
