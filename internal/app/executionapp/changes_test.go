package executionapp_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution"
)

func approvedChange() execution.Change {
	return execution.Change{
		Action: execution.ChangeApproved, Execution: "kubernaut-executor/scale-web", UID: "u-1", Does: "scale_deployment",
		Target: v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
		By:     "bob", Reason: "StaleReason", Message: "the sale begins", At: time.Date(2026, time.March, 4, 5, 6, 7, 0, time.UTC),
	}
}

// TestEventOf verifies the change event of an execution.
func TestEventOf(t *testing.T) {
	t.Parallel()
	c := approvedChange()
	got := executionapp.EventOf(c, "prod")
	want := changeevent.ChangeEvent{
		Action: changeevent.ActionExecutionApproved, Source: "fleetloop/execution-controller", Cluster: "prod", Subject: "executions/scale-web",
		Reason: "the sale begins", Outcome: "succeeded", Timestamp: c.At, Session: "u-1", ID: got.ID,
		Details: map[string]string{"action": "scale_deployment", "target": "Deployment/shop/web", "actor": "bob", "namespace": "kubernaut-executor"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if want, line := "Fleetloop recorded the approval of execution scale-web by bob - the sale begins", changeevent.Summarize(got); line != want {
		t.Errorf("people read %q, want %q", line, want)
	}
}

// TestEventOfVaries holds what differs between executions.
func TestEventOfVaries(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*execution.Change)
		want   func(*changeevent.ChangeEvent)
	}{
		"Failed": {
			"the reason is the one of the failure",
			func(c *execution.Change) { c.Action, c.Reason, c.By = execution.ChangeFailed, "DeadlineExceeded", "" },
			func(e *changeevent.ChangeEvent) {
				e.Action, e.Outcome, e.Reason = "execution-failed", "failed", "DeadlineExceeded: the sale begins"
				delete(e.Details, "actor")
			},
		},
		"FailedWithoutWords": {
			"a reason alone is one",
			func(c *execution.Change) { c.Action, c.Message = execution.ChangeFailed, "" },
			func(e *changeevent.ChangeEvent) {
				e.Action, e.Outcome, e.Reason = "execution-failed", "failed", "StaleReason"
			},
		},
		"Node": {
			"the timeline of a node has what was done to it",
			func(c *execution.Change) {
				c.Target = v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: "gpu-1"}
			},
			func(e *changeevent.ChangeEvent) { e.NodeName, e.Details["target"] = "gpu-1", "Node/gpu-1" },
		},
		"NoPlan": {
			"one that was refused before it was planned has no target",
			func(c *execution.Change) { c.Target = v1alpha1.PlanTarget{} },
			func(e *changeevent.ChangeEvent) { delete(e.Details, "target") },
		},
		"Assistant": {
			"the actor is its user",
			func(c *execution.Change) { c.Agent = "claude-code 2.1" },
			func(e *changeevent.ChangeEvent) { e.Details["requestedByAgent"] = "claude-code 2.1" },
		},
		"DryRun": {
			"nothing was done",
			func(c *execution.Change) { c.DryRun = true },
			func(e *changeevent.ChangeEvent) { e.DryRun = true },
		},
	}
	for name, tc := range cases {
		c, want := approvedChange(), executionapp.EventOf(approvedChange(), "prod")
		tc.change(&c)
		tc.want(&want)
		got := executionapp.EventOf(c, "prod")
		want.ID = got.ID
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s: -want +got\n%s", name, tc.reason, diff)
		}
	}
}

// TestIDs verifies that a change has one ID, however often it is sent, and that other changes have
// other IDs.
func TestIDs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*execution.Change)
		same   bool
	}{
		"SentAgain":     {"the change is the same", func(c *execution.Change) { c.At = c.At.Local() }, true},
		"InOtherWords":  {"words are no other change", func(c *execution.Change) { c.Message, c.Reason = "x", "y" }, true},
		"ApprovedAgain": {"a sink must not drop the second approval as a repeat", func(c *execution.Change) { c.At = c.At.Add(time.Minute) }, false},
		"OtherAction":   {"", func(c *execution.Change) { c.Action = execution.ChangeStarted }, false},
		"OtherUID":      {"one of the same name came later", func(c *execution.Change) { c.UID = "u-2" }, false},
	}
	for name, tc := range cases {
		other := approvedChange()
		tc.change(&other)
		if same := executionapp.EventOf(approvedChange(), "prod").ID == executionapp.EventOf(other, "prod").ID; same != tc.same {
			t.Errorf("%s: %s: same id is %t, want %t", name, tc.reason, same, tc.same)
		}
	}
}
