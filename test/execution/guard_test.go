package execution

import (
	"fmt"
	"slices"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// Where an installation does without the guard, what needs no approval runs, and no
// approval counts.
func TestGuardIsOff(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{NoGuard: true, Args: []string{"--admission-policies=off"}})
	f.CreateDeploymentAndAwaitObserved(f.Dear, "web", 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Dear, "web", 5, "--name=web"))
	f.AwaitPhase("web", v1alpha1.PhaseWaitingApproval)
	f.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", "web", "--yes"})
	f.AwaitExecution("web", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.ReasonDetail != v1alpha1.DetailAdmissionPoliciesMissing || ke.Status.ObservedGeneration < ke.Generation {
			return fmt.Errorf("it is %s because of %q, seen up to %d of %d", ke.Status.Phase, ke.Status.ReasonDetail, ke.Status.ObservedGeneration, ke.Generation)
		}
		return nil
	})
	f.WantCommand(alice, cli.CodeOK, []string{"exec", "describe", "web"}, "An administrator must apply them")
	if ke := f.GetExecution("web"); ke.Status.Phase != v1alpha1.PhaseWaitingApproval || len(f.ListExecutionJobs("web")) > 0 {
		t.Errorf("it is %s", ke.Status.Phase)
	}
	f.WantReplicas(f.Dear, "web", 3)

	f.CreateDeploymentAndAwaitObserved(f.Cheap, "web", 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=cheap", "--wait"))
	f.GrantExecutionVerbsAndAwait("eve", "create", "get") // and not to ask for any action
	f.CreateExecution("eve", asks(f, "eve", "own", 6))
	f.AwaitFailure("own", v1alpha1.ReasonValidationError, v1alpha1.DetailRBACDenied)
}

// While nothing checks who asks, nobody can ask in another's name: what was created
// then is never executed, also not what was created together with the guard.
func TestRequesterUnverified(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{NoGuard: true, NoController: true})
	f.StartControllerWithoutWaiting("--admission-policy-propagation-delay=10m") // no period begins before what is asked for early
	f.CreateDeploymentAndAwaitObserved(f.Cheap, "web", 3)
	f.GrantExecutionVerbsAndAwait("eve", "create", "get")
	f.CreateExecution("eve", asks(f, alice, "as-alice", 5))
	f.AwaitFailure("as-alice", v1alpha1.ReasonValidationError, v1alpha1.DetailRequesterUnverified)
	f.InstallAdmissionGuard()
	f.CreateExecution(alice, asks(f, alice, "early", 6))
	early := f.AwaitFailure("early", v1alpha1.ReasonValidationError, v1alpha1.DetailRequesterUnverified)
	if len(f.ListExecutionJobs("early"))+len(f.ListExecutionJobs("as-alice")) > 0 {
		t.Error("a Job was made")
	}
	f.Controller().Stop()
	f.StartController()
	f.WantReplicas(f.Cheap, "web", 3)
	if ke := f.GetExecution("early"); ke.Status.Phase != early.Status.Phase {
		t.Errorf("it is %s once the guard is in force", ke.Status.Phase)
	}
	late := asks(f, alice, "late", 7)
	late.Namespace = f.Namespace
	if err := f.ClientAs("eve").Create(t.Context(), late); !apierrors.IsForbidden(err) {
		t.Errorf("with the guard eve asks as alice: %v", err)
	}
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=honest", "--wait"))
	if ke := f.GetExecution("honest"); ke.Status.VerifiedRequest == nil {
		t.Error("it does not say that the request was checked")
	}

	// A restart of the controller is no gap.
	period := f.GetExecution("honest").Status.VerifiedRequest.AdmissionPolicyPeriod
	f.Controller().Kill()
	f.StartController()
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 4, "--name=after", "--wait"))
	if ke := f.GetExecution("after"); ke.Status.VerifiedRequest == nil || ke.Status.VerifiedRequest.AdmissionPolicyPeriod != period {
		t.Errorf("after a restart the request was checked as %+v, and before in %s", ke.Status.VerifiedRequest, period)
	}
}

// A right of a group that is withdrawn after an execution was created stops it before it
// acts, and so does the right of a user.
func TestRightIsWithdrawn(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	may := rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.Resource}, Verbs: []string{"create", "get", v1alpha1.VerbExecute}}
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: "on-call"}, Rules: []rbacv1.PolicyRule{may}}
	if err := f.Client.Create(t.Context(), role); err != nil {
		t.Fatal(err)
	}
	for subject, group := range map[string]string{"gina": "on-call", "uma": ""} {
		f.CreateDeploymentAndAwaitObserved(f.Dear, subject, 3)
		binding := &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: f.Namespace, Name: subject}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: subject}},
		}
		var groups []string
		if group != "" {
			binding.Subjects[0].Kind, binding.Subjects[0].Name, groups = rbacv1.GroupKind, group, append(groups, group)
		}
		if err := f.Client.Create(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
		ke := asks(f, subject, subject, 5)
		ke.Namespace = f.Namespace
		ke.Spec.Parameters.Raw = fmt.Appendf(nil, `{"namespace":%q,"deployment":%q,"replicas":5}`, f.Dear, subject)
		f.Until(func() error {
			return client.IgnoreAlreadyExists(f.ClientAs(subject, groups...).Create(t.Context(), ke.DeepCopy()))
		})
		f.AwaitPhase(subject, v1alpha1.PhaseWaitingApproval)
		if err := f.Client.Delete(t.Context(), binding); err != nil {
			t.Fatal(err)
		}
	}
	f.Controller().Stop() // an answer of the API server is believed for a minute
	f.StartController()
	for _, name := range []string{"gina", "uma"} {
		f.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", name, "--yes"})
		f.AwaitFailure(name, v1alpha1.ReasonValidationError, v1alpha1.DetailRBACDenied)
		f.WantReplicas(f.Dear, name, 3)
	}
}

// An approval that was forged while the guard was changed does not count after the
// guard is as it was. It is asked for again, and the one whose name was forged can
// approve.
func TestApprovalForgedInAGap(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{Args: []string{"--admission-policy-propagation-delay=3s"}})
	f.CreateDeploymentAndAwaitObserved(f.Dear, "web", 3)
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Dear, "web", 5, "--name=web"))
	asked := f.AwaitPhase("web", v1alpha1.PhaseWaitingApproval).Status
	f.Controller().Kill() // it sees nothing of the gap, and decides as soon as it is back
	var binding admissionv1.ValidatingAdmissionPolicyBinding
	name := client.ObjectKey{Name: f.Namespace + "-execution-approvals"}
	act := func(actions ...admissionv1.ValidationAction) {
		t.Helper()
		if err := f.Client.Get(t.Context(), name, &binding); err != nil {
			t.Fatal(err)
		}
		binding.Spec.ValidationActions = actions
		if err := f.Client.Update(t.Context(), &binding); err != nil {
			t.Fatal(err)
		}
	}
	act(admissionv1.Audit)
	forger := f.ClientAs(alice)
	forge := func() error {
		before := f.GetExecution("web")
		ke := before.DeepCopy()
		ke.Spec.Approvals = []v1alpha1.Approval{{Approver: fleettest.Approver, Decision: v1alpha1.Approve, PlanHash: asked.Plan.Hash}}
		return forger.Patch(t.Context(), ke, client.MergeFrom(before))
	}
	f.Until(forge)
	act(admissionv1.Deny)
	f.StartController()
	again := f.AwaitExecution("web", func(ke *v1alpha1.KubernetesExecution) error {
		if ke.Status.Plan.Hash == asked.Plan.Hash {
			return fmt.Errorf("it is %s (%s), and not asked for again", ke.Status.Phase, ke.Status.Message)
		}
		return nil
	})
	if s := again.Status; s.Phase != v1alpha1.PhaseWaitingApproval || s.Approval.State != v1alpha1.ApprovalPending || len(s.Approval.CountedDecisions) > 0 || len(f.ListExecutionJobs("web")) > 0 {
		t.Fatalf("it is %s with %+v", s.Phase, s.Approval)
	}
	f.WantReplicas(f.Dear, "web", 3)
	f.WantCommand(fleettest.Approver, cli.CodeOK, []string{"approve", "web", "--yes", "--wait"})
	f.WantReplicas(f.Dear, "web", 5)
	store, want := f.OpenAudit(), []string{fleettest.Approver + " " + again.Status.Plan.Hash}
	f.Until(func() error {
		var approved []string
		for _, e := range f.ListAuditTrail(store, again) {
			if e.Type == audit.Approved {
				approved = append(approved, e.ActorID+" "+e.PlanHash)
			}
		}
		if !slices.Equal(approved, want) {
			return fmt.Errorf("the audit has the approvals %v, want %v", approved, want)
		}
		return nil
	})
}

// asks is an execution that says who asks for it, and needs no approval.
func asks(f *fleettest.Fleet, by, name string, replicas int) *v1alpha1.KubernetesExecution {
	return &v1alpha1.KubernetesExecution{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: v1alpha1.KubernetesExecutionSpec{
			Action: "scale_deployment", RequestedBy: by,
			Parameters: &runtime.RawExtension{Raw: fmt.Appendf(nil, `{"deployment":"web","namespace":%q,"replicas":%d}`, f.Cheap, replicas)},
		},
	}
}

// Policies that are broken are not taken; those before them stay.
func TestBrokenPoliciesAreNotTaken(t *testing.T) {
	t.Parallel()
	f := fleettest.Start(t, fleettest.Options{})
	f.SetPolicies(map[string]string{"decision.rego": "package fleetloop.safety\n\nthis is no policy\n"})
	f.Until(func() error { return f.Controller().CheckLogged("policies rejected") })
	f.CreateDeploymentAndAwaitObserved(f.Cheap, "web", 3)
	f.WantCommand(alice, cli.CodeFailed, fleettest.Scale(f.Cheap, "web", 21, "--name=many", "--wait"), "21 replicas")
	f.WantCommand(alice, cli.CodeOK, fleettest.Scale(f.Cheap, "web", 5, "--name=some", "--wait"))

	// Others that are good are, without a restart.
	f.SetPolicies(map[string]string{"more.rego": "package fleetloop.safety\n\nviolations contains \"nothing today\" if input.action.name\n", "decision_test.rego": "", "nodes_test.rego": "", "targets_test.rego": "", "workloads_test.rego": ""})
	f.Until(func() error {
		if f.Controller().Count("policies loaded") < 2 {
			return fmt.Errorf("the new policies are not loaded")
		}
		return nil
	})
	f.WantCommand(alice, cli.CodeFailed, fleettest.Scale(f.Cheap, "web", 6, "--name=none", "--wait"), "nothing today")
}
