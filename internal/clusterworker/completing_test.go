package clusterworker

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestFirstSuccessReportsTheCreation holds that the change event of a creation is not lost with its result, also
// if the poller has recorded the Shoot meanwhile, or if the Shoot is deleted before a success was recorded.
func TestFirstSuccessReportsTheCreation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claim  Claim
		result Result
		want   Action // empty means no event
	}{
		"Created":            {Claim{}, Result{Applied: shoot.Applied{Created: true, Changed: true}}, ShootCreated},
		"ResultLost":         {Claim{}, Result{Applied: shoot.Applied{}}, ShootCreated},
		"LostAndObserved":    {Claim{ShootUID: "u"}, Result{Applied: shoot.Applied{}}, ShootCreated},
		"LostObservedEdited": {Claim{ShootUID: "u"}, Result{Applied: shoot.Applied{Changed: true}}, ShootCreated},
		"Recorded":           {Claim{ShootUID: "u", SyncedGeneration: 1}, Result{Applied: shoot.Applied{}}, ""},
		"Edited":             {Claim{ShootUID: "u", SyncedGeneration: 1}, Result{Applied: shoot.Applied{Changed: true}}, ShootUpdated},
		"EditLost":           {Claim{ShootUID: "u", SyncedGeneration: 1, ShootGeneration: 1}, Result{Applied: shoot.Applied{SentBefore: 2, Generation: 2}}, ShootUpdated},
		"LostAndDeleted":     {Claim{}, Result{Deleting: true}, ShootCreated},
		"LostSeenAndDeleted": {Claim{ShootUID: "u"}, Result{Deleting: true}, ShootCreated},
		"DeletedBefore":      {Claim{ShootUID: "u", SyncedGeneration: 1}, Result{Deleting: true}, ""},
		"Gone":               {Claim{ShootUID: "u", SyncedGeneration: 1}, Result{Deleting: true, Absent: true}, ShootDeleted},
		"NeverCreated":       {Claim{}, Result{Deleting: true, Absent: true}, ""},
	} {
		change, got := newSyncChange(test.claim, test.result)
		if got != (test.want != "") || change.Action != test.want && got {
			t.Errorf("%s: event %q (%t), want %q", name, change.Action, got, test.want)
		}
	}
}
