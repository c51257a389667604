package clusterworker

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestFirstSuccessReportsTheCreation holds that the change event of a creation is not lost with its result, also
// if the poller has recorded the Shoot meanwhile.
func TestFirstSuccessReportsTheCreation(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		claim   Claim
		applied shoot.Applied
		want    Action // empty means no event
	}{
		"Created":            {Claim{}, shoot.Applied{Created: true, Changed: true}, ShootCreated},
		"ResultLost":         {Claim{}, shoot.Applied{}, ShootCreated},
		"LostAndObserved":    {Claim{ShootUID: "u"}, shoot.Applied{}, ShootCreated},
		"LostObservedEdited": {Claim{ShootUID: "u"}, shoot.Applied{Changed: true}, ShootCreated},
		"Recorded":           {Claim{ShootUID: "u", SyncedGeneration: 1}, shoot.Applied{}, ""},
		"Edited":             {Claim{ShootUID: "u", SyncedGeneration: 1}, shoot.Applied{Changed: true}, ShootUpdated},
		"EditLost":           {Claim{ShootUID: "u", SyncedGeneration: 1, ShootGeneration: 1}, shoot.Applied{SentBefore: 2, Generation: 2}, ShootUpdated},
	} {
		change, got := newSyncChange(test.claim, Result{Applied: test.applied})
		if got != (test.want != "") || change.Action != test.want && got {
			t.Errorf("%s: event %q (%t), want %q", name, change.Action, got, test.want)
		}
	}
}
