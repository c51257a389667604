package clusterworker

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestFirstSuccessReportsTheCreation verifies that a result reports a Shoot whose creation was not reported, also if the result of
// the creation was lost, the poller has recorded the Shoot meanwhile, or the Shoot is being deleted.
func TestFirstSuccessReportsTheCreation(t *testing.T) {
	t.Parallel()
	applied := func(a shoot.Applied) Result {
		a.UID = "u"
		return Result{Applied: a}
	}
	deleted := Result{Deleting: true, Applied: shoot.Applied{UID: "u"}}
	fresh, observed, recorded := Claim{}, Claim{ShootUID: "u"}, Claim{ShootUID: "u", ReportedShootUID: "u", SyncedGeneration: 1, ShootGeneration: 1}
	replaced := Claim{ShootUID: "u", ReportedShootUID: "before", SyncedGeneration: 1, ShootGeneration: 1}
	for name, test := range map[string]struct {
		claim  Claim
		result Result
		want   Action // empty means no event
		uid    string
	}{
		"Created":            {fresh, applied(shoot.Applied{Created: true, Changed: true}), ShootCreated, "u"},
		"ResultLost":         {fresh, applied(shoot.Applied{}), ShootCreated, "u"},
		"LostAndObserved":    {observed, applied(shoot.Applied{}), ShootCreated, "u"},
		"LostObservedEdited": {observed, applied(shoot.Applied{Changed: true}), ShootCreated, "u"},
		"CreatedAgain":       {replaced, applied(shoot.Applied{Created: true, Changed: true}), ShootCreated, "u"},
		"AgainLost":          {replaced, applied(shoot.Applied{}), ShootCreated, "u"},
		"AgainLostAndEdited": {replaced, applied(shoot.Applied{Changed: true, SentBefore: 2, Generation: 2}), ShootCreated, "u"},
		"Recorded":           {recorded, applied(shoot.Applied{}), "", ""},
		"Edited":             {recorded, applied(shoot.Applied{Changed: true}), ShootUpdated, ""},
		"EditLost":           {recorded, applied(shoot.Applied{SentBefore: 2, Generation: 2}), ShootUpdated, ""},
		"LostAndDeleted":     {fresh, deleted, ShootCreated, "u"},
		"AgainAndDeleted":    {replaced, deleted, ShootCreated, "u"},
		"DeletedBefore":      {recorded, deleted, "", ""},
		"Gone":               {recorded, Result{Deleting: true, Absent: true}, ShootDeleted, "u"},
		"NeverCreated":       {fresh, Result{Deleting: true, Absent: true}, "", ""},
	} {
		change, got := newSyncChange(test.claim, test.result)
		if got != (test.want != "") || change.Action != test.want || change.ShootUID != test.uid {
			t.Errorf("%s: event %q of %q (%t), want %q of %q", name, change.Action, change.ShootUID, got, test.want, test.uid)
		}
	}
}
