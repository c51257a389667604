package fleettest

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// RunCoreTests runs all tests in one fleet.
func RunCoreTests(t *testing.T) {
	t.Helper()
	f := Start(t, Options{})
	for name, test := range map[string]func(*Fleet){
		"Scale":              testScaleDeployment,
		"Approval":           testApproval,
		"Boolean":            testApproveByReceivedField,
		"FourEyes":           testRequesterCannotApprove,
		"Assistant":          testAssistantNeedsAnotherPerson,
		"Rejection":          testRejection,
		"ApprovalTimeout":    testApprovalTimeout,
		"DryRunOnly":         testDryRunOnly,
		"PolicyDenial":       testPolicyDenial,
		"TargetMissing":      testTargetMissing,
		"Protected":          testProtectedTarget,
		"PreconditionFails":  testPreconditionFails,
		"PreconditionWaits":  testPreconditionWaits,
		"NeverHolds":         testBrokenConditionRejected,
		"PostconditionFails": testPostconditionFails,
		"Optional":           testOptionalConditionsPartial,
		"InvalidSecrets":     testImagePullSecretPrecondition,
		"SecretsUnknown":     testSecretsUnknownWithoutRole,
		"PermissionsOK":      testPermissionsOKFollowsRoleBinding,
		"NothingIsTold":      testNoTargetPasswordDisclosed,
		"Rollback":           testRollback,
		"RollbackRefused":    testRollbackRefusedAfterChange,
		"CancelWaiting":      testCancelWaitingForApproval,
		"Finalize":           testFinalizeCommandCompletes,
		"NoWayBack":          testNoRollbackOfRestart,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(f.For(t))
		})
	}
}

const (
	alice = Requester
	bob   = Approver
	carol = Other
)

// uniqueName returns a name that no other test uses.
func uniqueName(f *Fleet) string {
	name := f.Name()
	return strings.ToLower(name[strings.LastIndexByte(name, '/')+1:])
}

// newTarget creates a Deployment with three replicas in the namespace without approvals.
func newTarget(f *Fleet) string {
	f.Helper()
	f.CreateDeploymentAndAwaitObserved(f.Cheap, uniqueName(f), 3)
	return uniqueName(f)
}

// newProtectedTarget creates a Deployment with three replicas in the namespace that requires
// approvals.
func newProtectedTarget(f *Fleet) string {
	f.Helper()
	f.CreateDeploymentAndAwaitObserved(f.Dear, uniqueName(f), 3)
	return uniqueName(f)
}

// fromThree requests five replicas for a target with three.
func fromThree(f *Fleet, namespace, name string, change func(*v1alpha1.KubernetesExecutionSpec)) {
	f.Helper()
	f.CreateExecution(alice, newScaleExecution(namespace, name, change))
}

func newScaleExecution(namespace, name string, change func(*v1alpha1.KubernetesExecutionSpec)) *v1alpha1.KubernetesExecution {
	ke := &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action:     "scale_deployment",
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":5}`, namespace, name)},
		},
	}
	if change != nil {
		change(&ke.Spec)
	}
	return ke
}

// wantNoJob verifies that no Job was created.
func wantNoJob(f *Fleet, name string) {
	f.Helper()
	if jobs := f.ListExecutionJobs(name); len(jobs) > 0 {
		f.Errorf("%d Jobs were made, want none", len(jobs))
	}
}

func testScaleDeployment(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name, "--wait"), "rollback_ready", "replicas: 3 -> replicas: 5")
	ke := f.AwaitPhase(name, v1alpha1.PhaseRollbackReady)
	f.WantReplicas(f.Cheap, name, 5)
	if got, want := JoinPhaseHistory(ke), "validating validated executing rollback_ready"; got != want {
		f.Errorf("phases %q, want %q", got, want)
	}
	r := ke.Status.ExecutionResults
	if r == nil || !r.Success || !strings.Contains(r.PodLogs, "deployment.apps/"+name+" scaled") || r.RetriesAttempted != 0 || r.StartTime == nil || r.EndTime == nil || r.Duration == "" {
		f.Fatalf("results %+v", r)
	}
	if a := r.ResourcesAffected; len(a) != 1 || a[0].Action != "scaled" || a[0].Before != "replicas: 3" || a[0].After != "replicas: 5" {
		f.Errorf("affected %+v", a)
	}
	v := ke.Status.ValidationResults
	if !v.ParameterValidation || !v.RBACValidation || !v.ResourceExists || !v.DryRunResults.Performed || !v.DryRunResults.Success ||
		v.DryRunResults.EstimatedImpact.ReplicasChanged != "3 -> 5" || v.DryRunResults.Warnings == nil || v.PolicyValidation.RequiredApproval {
		f.Errorf("checks %+v", v)
	}
	if back := ke.Status.RollbackInformation; back == nil || !back.Available || !strings.Contains(string(back.RollbackParameters.Raw), `"replicas":3`) {
		f.Errorf("way back %+v", back)
	}
	if ke.Spec.RequestedBy != alice {
		f.Errorf("requested by %q, want %q", ke.Spec.RequestedBy, alice)
	}
	jobs := f.ListExecutionJobs(name)
	if len(jobs) != 1 || jobs[0].Name != r.JobName || !metav1.IsControlledBy(&jobs[0], ke) || jobs[0].Labels["owner"] != "kubernetesexecution" {
		f.Errorf("Jobs %+v, want the one of the results", jobs)
	}
	f.Until(func() error { // only after the result is stored
		if ttl := f.ListExecutionJobs(name)[0].Spec.TTLSecondsAfterFinished; ttl == nil || *ttl != 300 {
			return errors.New("the Job has no time to live")
		}
		return nil
	})
	f.AwaitEvent(name, "JobCreated", "Normal")
	f.AwaitEvent(name, "ExecutionCompleted", "Normal")
}

func testApproval(f *Fleet) {
	name := newProtectedTarget(f)
	f.WantCommand(
		alice,
		cli.CodePrecondition,
		Scale(f.Dear, name, 5, "--name="+name, "--wait"),
		"is waiting for approval",
		"fleetloop approve",
	)
	wantNoJob(f, name)
	f.WantReplicas(f.Dear, name, 3)
	f.WantCommand(bob, cli.CodeUsage, []string{"approve", name}, "no terminal")
	f.WantCommand(bob, cli.CodeOK, []string{"approve", name, "--yes", "--reason=seen", "--wait"}, "approved", "rollback_ready")
	f.WantReplicas(f.Dear, name, 5)
	ke := f.GetExecution(name)
	if got, want := JoinPhaseHistory(ke), "validating validated waiting_approval executing rollback_ready"; got != want {
		f.Errorf("phases %q, want %q", got, want)
	}
	if ke.Status.ExecutionResults == nil {
		f.Fatalf("status %+v", ke.Status)
	}
	if a := ke.Status.Approval; a.State != v1alpha1.ApprovalApproved || len(a.CountedDecisions) != 1 || a.CountedDecisions[0].Approver != bob || a.CountedDecisions[0].PlanHash != ke.Status.ExecutionResults.PlanHash {
		f.Errorf("approval %+v of the plan %s", a, ke.Status.ExecutionResults.PlanHash)
	}
}

// testApproveByReceivedField approves with spec.approvalReceived, as in the specification.
func testApproveByReceivedField(f *Fleet) {
	name := newProtectedTarget(f)
	fromThree(f, f.Dear, name, nil)
	ke := f.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
	if err := f.ClientAs(bob).Patch(f.Context(), ke, mergePatch(`{"spec":{"approvalReceived":true}}`)); err != nil {
		f.Fatal(err)
	}
	f.AwaitPhase(name, v1alpha1.PhaseRollbackReady)
	f.WantReplicas(f.Dear, name, 5)
}

func mergePatch(text string) client.Patch {
	return client.RawPatch("application/merge-patch+json", []byte(text))
}

func testRequesterCannotApprove(f *Fleet) {
	name := newProtectedTarget(f)
	fromThree(f, f.Dear, name, nil)
	ke := f.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
	f.WantCommand(
		alice,
		cli.CodePrecondition,
		[]string{"approve", name, "--yes"},
		"the requester is excluded from approving",
		"ask another person to approve",
	)
	if err := f.ClientAs(alice).Patch(f.Context(), ke, mergePatch(`{"spec":{"approvalReceived":true}}`)); err == nil {
		f.Error("whoever asked could approve by the boolean")
	}
	if ke = f.GetExecution(name); ke.Status.Phase != v1alpha1.PhaseWaitingApproval || len(ke.Spec.Approvals) > 0 {
		f.Errorf("%s with %+v", ke.Status.Phase, ke.Spec.Approvals)
	}
	f.WantCommand(carol, cli.CodeOK, []string{"approve", name, "--yes"})
	f.AwaitPhase(name, v1alpha1.PhaseRollbackReady)
}

// testAssistantNeedsAnotherPerson verifies that what an assistant requests needs an approval where the request of a
// person needs none, and that its user cannot give it. Its dry run needs none.
func testAssistantNeedsAnotherPerson(f *Fleet) {
	const agent = "--agent=claude-code 2.1"
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name+"-dry", agent, "--dry-run", "--wait"), "the dry run passed")
	f.WantCommand(alice, cli.CodePrecondition, Scale(f.Cheap, name, 5, "--name="+name, agent, "--wait"), "is waiting for approval")
	wantNoJob(f, name)
	f.WantCommand(
		alice,
		cli.CodePrecondition,
		[]string{"approve", name, "--yes"},
		"the requester is excluded from approving",
		"ask another person to approve",
	)
	ke := f.GetExecution(name)
	if err := f.ClientAs(alice).Patch(f.Context(), ke, mergePatch(`{"spec":{"requestedByAgent":null}}`)); err == nil {
		f.Error("the user removed the mark of the assistant")
	}
	if a := f.GetExecution(name).Status.Approval; a == nil || !a.RequesterCannotApprove {
		f.Errorf("approval %+v, want one that excludes the requester", a)
	}
	f.WantReplicas(f.Cheap, name, 3)
	f.WantCommand(
		bob,
		cli.CodeOK,
		[]string{"exec", "describe", name},
		"claude-code 2.1, for alice",
		"requested by the assistant claude-code 2.1",
	)
	f.WantCommand(bob, cli.CodeOK, []string{"approve", name, "--yes", "--wait"}, "rollback_ready")
	f.WantReplicas(f.Cheap, name, 5)
}

func testRejection(f *Fleet) {
	name := newProtectedTarget(f)
	fromThree(f, f.Dear, name, nil)
	f.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
	f.WantCommand(bob, cli.CodeOK, []string{"reject", name, "--reason=not now"})
	ke := f.AwaitFailure(name, v1alpha1.ReasonApprovalRejected, "")
	if !strings.Contains(ke.Status.Message, bob) {
		f.Errorf("message %q does not say who", ke.Status.Message)
	}
	wantNoJob(f, name)
	f.WantReplicas(f.Dear, name, 3)
	f.AwaitEvent(name, "ExecutionFailed", "Warning")
}

func testApprovalTimeout(f *Fleet) {
	name := newProtectedTarget(f)
	begin := time.Now()
	fromThree(f, f.Dear, name, func(s *v1alpha1.KubernetesExecutionSpec) {
		s.ApprovalTimeout = &metav1.Duration{Duration: 2 * time.Second}
	})
	f.AwaitFailure(name, v1alpha1.ReasonApprovalTimeout, "")
	if took := time.Since(begin); took < 2*time.Second {
		f.Errorf("it failed after %s, before its time", took)
	}
	f.WantCommand(bob, cli.CodePrecondition, []string{"approve", name, "--yes"}, "is not waiting for approval")
	wantNoJob(f, name)
}

func testDryRunOnly(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name, "--dry-run", "--wait"), "nothing was changed")
	ke := f.AwaitPhase(name, v1alpha1.PhaseCompleted)
	if d := ke.Status.ValidationResults.DryRunResults; !d.Performed || !d.Success || ke.Status.Plan == nil || ke.Status.ExecutionResults != nil {
		f.Errorf("status %+v", ke.Status)
	}
	wantNoJob(f, name)
	f.WantReplicas(f.Cheap, name, 3)
}

func testPolicyDenial(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeFailed, Scale(f.Cheap, name, 21, "--name="+name, "--wait"), "failed")
	ke := f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailPolicyDenied)
	if p := ke.Status.ValidationResults.PolicyValidation; p.Allowed || len(p.Violations) != 1 || !strings.Contains(p.Violations[0], "21 replicas") || p.PolicyName == "" {
		f.Errorf("policy %+v", p)
	}
	f.WantCommand(
		alice,
		cli.CodeOK,
		[]string{"exec", "describe", name},
		"Policy:       denied by",
		"violation: 21 replicas are more than the maximum of 20",
	)
	wantNoJob(f, name)
}

func testTargetMissing(f *Fleet) {
	fromThree(f, f.Cheap, uniqueName(f), nil)
	if ke := f.AwaitFailure(uniqueName(f), v1alpha1.ReasonValidationError, v1alpha1.DetailTargetNotFound); ke.Status.ValidationResults.ResourceExists {
		f.Errorf("checks %+v", ke.Status.ValidationResults)
	}
	wantNoJob(f, uniqueName(f))
}

func testProtectedTarget(f *Fleet) {
	name := newTarget(f)
	d := f.CreateDeploymentAndAwaitObserved(f.Cheap, name+"-2", 3)
	if err := f.Client.Patch(f.Context(), d, mergePatch(`{"metadata":{"labels":{"kubernaut.io/protected":"true"}}}`)); err != nil {
		f.Fatal(err)
	}
	fromThree(f, f.Cheap, name+"-2", nil)
	f.AwaitFailure(name+"-2", v1alpha1.ReasonValidationError, v1alpha1.DetailTargetProtected)
	f.WantReplicas(f.Cheap, name+"-2", 3)
}

func testRollback(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name, "--wait"))
	f.WantCommand(alice, cli.CodeOK, []string{"rollback", name, "--name=" + name + "-back", "--wait"}, "replicas: 5 -> replicas: 3")
	f.WantReplicas(f.Cheap, name, 3)
	if ke := f.GetExecution(name + "-back"); ke.Spec.RollbackOf == nil || ke.Spec.RollbackOf.Name != name {
		f.Errorf("it takes back %+v, want %s", ke.Spec.RollbackOf, name)
	}
}

// testRollbackRefusedAfterChange verifies that a rollback does not change a target that another client has changed
// since.
func testRollbackRefusedAfterChange(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name, "--wait"))
	f.PatchDeploymentAndAwaitObserved(f.Cheap, name, `{"spec":{"replicas":7}}`)
	f.WantCommand(alice, cli.CodeFailed, []string{"rollback", name, "--name=" + name + "-back", "--wait"}, "replicas")
	f.AwaitFailure(name+"-back", v1alpha1.ReasonValidationError, v1alpha1.DetailTargetChanged)
	f.WantReplicas(f.Cheap, name, 7)
}

func testCancelWaitingForApproval(f *Fleet) {
	name := newProtectedTarget(f)
	fromThree(f, f.Dear, name, nil)
	f.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
	f.WantCommand(bob, cli.CodeOK, []string{"exec", "cancel", name})
	f.AwaitFailure(name, v1alpha1.ReasonCancelled, "")
	wantNoJob(f, name)
}

func testFinalizeCommandCompletes(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(alice, cli.CodeOK, Scale(f.Cheap, name, 5, "--name="+name, "--wait"))
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "finalize", name})
	if ke := f.AwaitPhase(name, v1alpha1.PhaseCompleted); ke.Status.Outcome != v1alpha1.OutcomeSucceeded {
		f.Errorf("outcome %q", ke.Status.Outcome)
	}
	f.AwaitExecution(name, func(ke *v1alpha1.KubernetesExecution) error {
		if !meta.IsStatusConditionTrue(ke.Status.Conditions, v1alpha1.ConditionAuditRecorded) {
			return errors.New("what became of it is not in the audit")
		}
		return nil
	})
	f.AwaitEvent(name, "ExecutionCompletedPermanent", "Normal")
}

// testNoRollbackOfRestart verifies that an action that cannot be rolled back ends as completed.
func testNoRollbackOfRestart(f *Fleet) {
	name := newTarget(f)
	f.WantCommand(
		alice,
		cli.CodeOK,
		[]string{"exec", "rollout_restart", "namespace=" + f.Cheap, "kind=Deployment", "name=" + name, "--name=" + name, "--wait"},
		"completed",
	)
	if ke := f.GetExecution(name); ke.Status.RollbackInformation == nil || ke.Status.RollbackInformation.Available {
		f.Errorf("way back %+v", ke.Status.RollbackInformation)
	}
	f.WantCommand(alice, cli.CodePrecondition, []string{"rollback", name}, "cannot be rolled back")
}
