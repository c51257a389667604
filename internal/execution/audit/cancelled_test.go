package audit_test

import (
	"encoding/json"
	"testing"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
)

// TestWhoCancelled verifies that the end of a cancelled execution names the user that cancelled it,
// if known.
func TestWhoCancelled(t *testing.T) {
	for name, who := range map[string]string{"Known": "bob@example.com", "Unknown": ""} {
		t.Run(name, func(t *testing.T) {
			ke := newExecution()
			ke.Spec.Cancel, ke.Spec.CancelledBy = true, who
			ke.Status.Reason, ke.Status.Outcome = v1alpha1.ReasonCancelled, v1alpha1.OutcomeFailed
			enter(ke, v1alpha1.PhaseFailed, 9)
			records := audit.Records(ke, "local")
			last := records[len(records)-1]
			var said struct {
				Cancel      bool    `json:"cancel"`
				CancelledBy *string `json:"cancelledBy"`
			}
			if err := json.Unmarshal(last.Payload, &said); err != nil {
				t.Fatal(err)
			}
			if last.Type != audit.Failed || !said.Cancel || (said.CancelledBy != nil) != (who != "") || said.CancelledBy != nil && *said.CancelledBy != who {
				t.Errorf("%s says %s", last.Type, last.Payload)
			}
		})
	}
}
