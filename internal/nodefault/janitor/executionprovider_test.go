package janitor

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

func newExecutions(t *testing.T) (p Provider, executions dynamic.ResourceInterface, r Request) {
	t.Helper()
	deps := newProviderDeps(t)
	ns := kubebedtest.Namespace(t)
	p, err := NewProvider(ProviderConfig{Kind: ProviderExecution, Execution: ExecutionConfig{Namespace: ns, Reboot: ExecutionTemplate{
		Action: "notify_only", Timeout: time.Minute,
		Parameters: map[string]any{
			"message": "reboot {node} ({provider_id})", "deep": map[string]any{"list": []any{"{idempotency_key}", 3, true}}, "force": "{force}",
		},
	}}}, deps)
	if err != nil {
		t.Fatal(err)
	}
	r = newRequestedAction(t, deps, ActionReboot, "n")
	return p, deps.Dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace(ns), r
}

// TestExecution verifies that the configured execution is created once, for the node, and
// is owned by the object of the request.
func TestExecution(t *testing.T) {
	t.Parallel()
	p, executions, r := newExecutions(t)
	for range 2 {
		reference, err := p.Start(t.Context(), r)
		wantAnswer(t, reference, err, "waiting", "is new")
	}
	all, err := executions.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(all.Items) != 1 {
		t.Fatalf("there are %d executions, %v", len(all.Items), err)
	}
	ke := &all.Items[0]
	name, key := r.By.Name, string(r.Key)
	spec, _, _ := unstructured.NestedMap(ke.Object, "spec")
	delete(spec, "dryRunMode") // a default
	got, _ := json.Marshal(spec)
	wanted := `{"action":"notify_only","correlationID":"` + name + `","parameters":{"deep":{"list":["` + key + `",3,true]},"force":"false","message":"reboot n (aws:///eu/i-1)"},` +
		`"reason":"RebootNode ` + name + ` requests to reboot node n","timeout":"1m0s"}`
	if diff := cmp.Diff(wanted, string(got)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if o := ke.GetOwnerReferences(); len(o) != 1 || o[0].UID != r.Key || o[0].Kind != "RebootNode" || o[0].Name != name {
		t.Errorf("it belongs to %+v", o)
	}
	reference, err := p.Start(t.Context(), newRequest(ActionTerminate, "n"))
	wantAnswer(t, reference, err, "permanent", "no execution configured to terminate")
}

// TestExecutionPhases verifies the result of each phase of an execution.
func TestExecutionPhases(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason     string
		status     map[string]any
		want, text string
		look       State
	}{
		"Approval":  {"nothing happens before somebody agrees", map[string]any{"phase": "waiting_approval"}, "waiting", "waiting_approval", StateRunning},
		"Executing": {"it is under way", map[string]any{"phase": "executing"}, "accepted", "", StateRunning},
		"Completed": {"it is done", map[string]any{"phase": "completed", "outcome": "Succeeded"}, "accepted", "", StateDone},
		"Partial":   {"a condition that is not required does not hold", map[string]any{"phase": "completed", "outcome": "PartiallySucceeded"}, "accepted", "", StateDone},
		"TriedOut":  {"a dry run has succeeded, and nothing was done", map[string]any{"phase": "completed", "outcome": "Succeeded", "conditions": []any{triedOut()}}, "permanent", "ran in dry run", StateFailed},
		"Rejected":  {"somebody does not agree", map[string]any{"phase": "failed", "outcome": "Failed", "reason": "approval_rejected"}, "permanent", "approval_rejected", StateFailed},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, executions, r := newExecutions(t)
			_, err := p.Start(t.Context(), r)
			wantAnswer(t, "", err, "waiting", "")
			patch, err := json.Marshal(map[string]any{"status": tc.status})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := executions.Patch(t.Context(), uniqueObjectName(r), "application/merge-patch+json", patch, metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
			reference, err := p.Start(t.Context(), r)
			wantAnswer(t, reference, err, tc.want, tc.text)
			if got, err := p.CheckProgress(t.Context(), r, reference); err != nil || got.State != tc.look {
				t.Errorf("%s: %+v, %v", tc.reason, got, err)
			}
		})
	}
}

// triedOut returns the condition of an execution that has finished in dry run.
func triedOut() map[string]any {
	return map[string]any{"type": "Succeeded", "status": "True", "reason": "DryRun", "message": "dry run", "lastTransitionTime": "2026-03-01T12:00:00Z"}
}

// TestExecutionIsWithdrawn verifies that Withdraw cancels an execution, and that a
// deleted one has failed.
func TestExecutionIsWithdrawn(t *testing.T) {
	t.Parallel()
	p, executions, r := newExecutions(t)
	w, can := p.(Withdrawer)
	if !can {
		t.Fatal("it cannot be withdrawn")
	}
	if err := w.Withdraw(t.Context(), r); err != nil {
		t.Errorf("there is nothing to withdraw: %v", err)
	}
	_, err := p.Start(t.Context(), r)
	wantAnswer(t, "", err, "waiting", "")
	if err := w.Withdraw(t.Context(), r); err != nil {
		t.Error(err)
	}
	ke, err := executions.Get(t.Context(), uniqueObjectName(r), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if cancelled, _, _ := unstructured.NestedBool(ke.Object, "spec", "cancel"); !cancelled {
		t.Error("it was not cancelled")
	}
	if err := executions.Delete(t.Context(), uniqueObjectName(r), metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := p.CheckProgress(t.Context(), r, "x"); err != nil || got.State != StateFailed {
		t.Errorf("%+v, %v", got, err)
	}
}
