package execcli_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

func TestCancelAndFinalize(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	for _, name := range []string{"s1", "s2"} {
		f.wantRun(f.asUser("alice", scaleArgs("--name="+name)...), cli.CodeOK)
	}
	f.wantRun(f.asUser("alice", "exec", "finalize", "s1"), cli.CodePrecondition, "not in phase rollback_ready")
	f.wantRun(f.asUser("alice", "exec", "cancel", "s1"), cli.CodeOK, "execution/s1 is being cancelled")
	if spec := f.getExecution("s1").Spec; !spec.Cancel || spec.CancelledBy != "alice" {
		t.Errorf("s1 is cancelled: %v, by %q", spec.Cancel, spec.CancelledBy)
	}
	f.setStatus("s2", v1alpha1.PhaseRollbackReady, completedStatus)
	f.wantRun(f.asUser("alice", "exec", "cancel", "s1", "s2"), cli.CodePartial, `execution "s2" has already ended`)
	f.wantRun(f.asUser("alice", "exec", "finalize", "s2", "-o", "yaml"), cli.CodeOK, "finalize: true")
	if f.getExecution("s2").Spec.Cancel || !f.getExecution("s2").Spec.Finalize {
		t.Errorf("%+v", f.getExecution("s2").Spec)
	}
}

// TestCancelNames holds that a cancel names who cancels, and that it is not refused
// for the name.
func TestCancelNames(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		reason    string
		by        string
		cancelled bool
		want      string
	}{
		"Known":   {"it is written", "alice", false, `{"spec":{"cancel":true,"cancelledBy":"alice"}}`},
		"Unknown": {"what is to stop does not wait for a name", "", false, `{"spec":{"cancel":true}}`},
		"Longest": {"there is room for it", strings.Repeat("é", 253), false, `{"spec":{"cancel":true,"cancelledBy":"` + strings.Repeat("é", 253) + `"}}`},
		"TooLong": {"the schema has no room for it", strings.Repeat("a", 254), false, `{"spec":{"cancel":true}}`},
		"Again":   {"the first counts", "alice", true, `{"spec":{"cancel":true}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ke := &v1alpha1.KubernetesExecution{}
			ke.Spec.Cancel = tc.cancelled
			got, err := execcli.CancelPatch(ke, tc.by).Data(ke)
			if err != nil || string(got) != tc.want {
				t.Errorf("%s: got %s, %v", tc.reason, got, err)
			}
		})
	}
}

func TestApprove(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.wantRun(f.asUser("bob", "approve", "s1", "--yes"), cli.CodePrecondition, "is not waiting for approval: its phase is new")
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 2))

	no := f.asUser("bob", "approve", "s1")
	no.interactive, no.stdin = true, "n\n"
	f.wantRun(no, cli.CodeFailed, "+ replicas: 5", "patch deployments/scale shop/web", "not approved", "Approve plan 3f8a91c2d4e5? [y/N]")
	no.stdin = ""
	f.wantRun(no, cli.CodeFailed, "not approved")
	if n := len(f.getExecution("s1").Spec.Approvals); n != 0 {
		t.Errorf("%d approvals, want none", n)
	}

	yes := f.asUser("bob", "approve", "s1", "--reason=seen it")
	yes.interactive, yes.stdin = true, "y\n"
	f.wantRun(yes, cli.CodeOK, "execution/s1 approved (plan 3f8a91c2d4e5)")
	f.wantRun(f.asUser("bob", "approve", "s1", "--yes"), cli.CodePrecondition, "has already decided: Approve")
	f.wantRun(f.asUser("carol", "approve", "s1", "--yes", "--plan=000000000000"), cli.CodePrecondition, "the plan of execution")
	f.wantRun(f.asUser("carol", "approve", "s1", "--yes", "--plan="+hash[:12]), cli.CodeOK)
	want := []v1alpha1.Approval{
		{Approver: "bob", Decision: v1alpha1.Approve, Reason: "seen it", PlanHash: hash},
		{Approver: "carol", Decision: v1alpha1.Approve, PlanHash: hash},
	}
	if diff := cmp.Diff(want, f.getExecution("s1").Spec.Approvals); diff != "" {
		t.Errorf("approvals (-want +got):\n%s", diff)
	}
	f.wantRun(f.asUser("dora", "reject", "s1", "--reason=not now"), cli.CodeOK, "execution/s1 rejected")
	if a := f.getExecution("s1").Spec.Approvals; len(a) != 3 || a[2].Decision != v1alpha1.Reject || a[2].Reason != "not now" {
		t.Errorf("approvals %+v", a)
	}
}

// An approval that was not counted yet is no reason to stop waiting.
func TestApproveAndWait(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))
	_, ended, _ := f.background(f.asUser("bob", "approve", "s1", "--yes", "--wait"))
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if len(f.readExecution(ctx, "s1").Spec.Approvals) == 0 {
			return errors.New("it is not approved yet")
		}
		return nil
	})
	f.setStatus("s1", v1alpha1.PhaseRollbackReady, completedStatus)
	if r := f.waitForRun(ended); r.code != cli.CodeOK || !strings.Contains(r.out, "execution/s1 rollback_ready") {
		t.Errorf("%s", r.outputText())
	}

	f.wantRun(f.asUser("alice", scaleArgs("--name=s2")...), cli.CodeOK)
	f.setStatus("s2", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 2))
	_, ended, _ = f.background(f.asUser("bob", "approve", "s2", "--yes", "--wait"))
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		if len(f.readExecution(ctx, "s2").Spec.Approvals) == 0 {
			return errors.New("it is not approved yet")
		}
		return nil
	})
	f.setStatus("s2", v1alpha1.PhaseWaitingApproval, nil)
	if r := f.waitForRun(ended); r.code != cli.CodePrecondition {
		t.Errorf("%s", r.outputText())
	}
}

// TestApproveBindsToThePlanThatWasShown changes the plan between its display and the approval.
func TestApproveBindsToThePlanThatWasShown(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))
	r := f.asUser("bob", "approve", "s1")
	r.interactive = true
	r.stdinFrom = readerFunc(func() string {
		f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(strings.Repeat("0", 64), 1))
		return "y\n"
	})
	f.wantRun(r, cli.CodePrecondition, "the plan of execution", "000000000000")
	if n := len(f.getExecution("s1").Spec.Approvals); n != 0 {
		t.Errorf("%d approvals, want none", n)
	}
}

// Two who approve at once both count.
func TestApproveTogether(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 2))
	r := f.asUser("bob", "approve", "s1")
	r.interactive = true
	r.stdinFrom = readerFunc(func() string {
		f.wantRun(f.asUser("carol", "approve", "s1", "--yes"), cli.CodeOK)
		return "yes\n"
	})
	f.wantRun(r, cli.CodeOK)
	if n := len(f.getExecution("s1").Spec.Approvals); n != 2 {
		t.Errorf("%d approvals, want 2", n)
	}
}

// TestGuardIsExplained verifies that a denial by the guard is shown with the next step.
func TestGuardIsExplained(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	// It is an administrator here who plays the controller.
	for _, o := range guard.ValidatingPolicyObjects(guard.Options{Namespace: f.namespace, ControllerUser: "kubebed-admin"}) {
		object, ok := o.(client.Object)
		if !ok {
			t.Fatalf("%T is no object", o)
		}
		if err := f.unscopedClient().Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.unscopedClient().Delete(context.WithoutCancel(t.Context()), object) })
	}
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseWaitingApproval, waitingStatus(hash, 1))
	s1 := f.getExecution("s1")
	kubebedtest.Eventually(t, func(ctx context.Context) error { // the API server takes a moment to notice the guard
		err := f.client.Patch(ctx, s1.DeepCopy(), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"approvals":[{"approver":"nobody","decision":"Approve","planHash":"x"}]}}`)), client.DryRunAll)
		if err == nil {
			return errors.New("nothing is guarded")
		}
		return nil
	})
	f.wantRun(f.asUser("alice", "approve", "s1", "--yes"), cli.CodePrecondition, "approve execution \"s1\": the requester is excluded from approving", "next:  ask another person to approve")
	f.wantRun(f.asUser("bob", "approve", "s1", "--yes"), cli.CodeOK)
}

func TestRollback(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1", "--environment=test", "--correlation-id=inc-7")...), cli.CodeOK)
	f.wantRun(f.asUser("bob", "rollback", "s1"), cli.CodePrecondition, "has not ended: its phase is new")
	f.setStatus("s1", v1alpha1.PhaseFailed, nil)
	f.wantRun(f.asUser("bob", "rollback", "s1"), cli.CodePrecondition, "changed nothing")
	f.setStatus("s1", v1alpha1.PhaseFailed, func(s *v1alpha1.KubernetesExecutionStatus) {
		s.ExecutionResults = &v1alpha1.ExecutionResults{JobName: "never-began"}
	})
	f.wantRun(f.asUser("bob", "rollback", "s1"), cli.CodePrecondition, "ended without a known change")
	f.setStatus("s1", v1alpha1.PhaseRollbackReady, completedStatus)
	f.wantRun(f.asUser("bob", "rollback", "s1", "--name=back", "--reason=too slow"), cli.CodeOK, "execution/back created")
	back, s1 := f.getExecution("back"), f.getExecution("s1")
	want := v1alpha1.KubernetesExecutionSpec{
		Action: "scale_deployment", RollbackOf: &v1alpha1.ObjectReference{Name: "s1", UID: s1.UID},
		RequestedBy: "bob", RequesterGroups: []string{"system:masters", "system:authenticated"}, Reason: "too slow", Environment: "test", CorrelationID: "inc-7", DryRunMode: v1alpha1.DryRunPolicy,
	}
	got := back.Spec
	if text := string(got.Parameters.Raw); !strings.Contains(text, `"replicas":3`) {
		t.Errorf("parameters %s", text)
	}
	got.Parameters = nil
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	f.wantRun(f.asUser("bob", "rollback", "s1"), cli.CodeOK, "execution/s1-rollback-")
	f.setStatus("s1", v1alpha1.PhaseCompleted, func(s *v1alpha1.KubernetesExecutionStatus) {
		s.RollbackInformation = &v1alpha1.RollbackInformation{Reason: "a Pod that was deleted does not come back"}
	})
	f.wantRun(f.asUser("bob", "rollback", "s1"), cli.CodePrecondition, "cannot be rolled back: a Pod that was deleted does not come back")
}

func TestStopAndResume(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", "exec", "end-stop"), cli.CodeOK, "the emergency stop was not active")
	f.wantRun(f.asUser("alice", "exec", "stop", "--reason=fire"), cli.CodeOK, "emergency stop active")
	f.wantRun(f.asUser("alice", "exec", "stop", "--reason=flood", "--cancel-running"), cli.CodeOK, "running executions are being cancelled", `the previous reason was "fire"`)
	// A stop without the flag does not end the cancelling.
	f.wantRun(f.asUser("alice", "exec", "stop", "--reason=water"), cli.CodeOK, `the previous reason was "flood"`)
	var m corev1.ConfigMap
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.EmergencyStop}, &m); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"reason": "water", "cancel-running": "true", "by": "alice"}, m.Data); diff != "" {
		t.Errorf("data (-want +got):\n%s", diff)
	}
	nobody := map[string]string{"KUBECONFIG": kubeconfig(t, "somebody-without-roles")}
	for role, args := range map[string][]string{
		"administrator":      {"exec", "end-stop"},
		"administrator in":   {"exec", "stop", "--reason=x"},
		"viewer":             {"exec", "get"},
		"requester-medium":   scaleArgs(),
		"requester-critical": {"exec", "apply_manifest", `manifest={"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a", "namespace": "shop"}}`},
	} {
		r := f.asUser("alice", args...)
		r.env = nobody
		f.wantRun(r, cli.CodeFailed, "forbidden", "the role kubernaut-"+role)
	}
	f.wantRun(f.asUser("alice", "exec", "end-stop"), cli.CodeOK, "emergency stop ended")
	if err := f.client.Get(t.Context(), client.ObjectKey{Namespace: f.namespace, Name: v1alpha1.EmergencyStop}, &m); !apierrors.IsNotFound(err) {
		t.Errorf("the stop is still there: %v", err)
	}
}

func TestNobodyReads(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("alice", scaleArgs("--name=s1")...), cli.CodeOK)
	f.setStatus("s1", v1alpha1.PhaseRollbackReady, completedStatus)
	for _, args := range [][]string{
		{"exec", "get"},
		{"exec", "get", "-o", "json"},
		{"exec", "get", "-o", "name"},
		{"exec", "describe", "s1"},
		{"exec", "watch"},
		{"exec", "watch", "s1"},
		{"exec", "finalize", "s1"},
		{"exec", "stop", "--reason=x"},
		{"exec", "end-stop"},
		scaleArgs(), scaleArgs("-o", "yaml"),
		{"rollback", "s1"},
	} {
		r := f.asUser("alice", args...)
		r.stdout = brokenPipe{}
		if r = r.runCLI(t.Context()); r.code != cli.CodeFailed {
			t.Errorf("%v: exit code %d, want %d: %s", args, r.code, cli.CodeFailed, r.errs)
		}
	}
}

type brokenPipe struct{}

func (brokenPipe) Write([]byte) (int, error) { return 0, errors.New("broken pipe") }
