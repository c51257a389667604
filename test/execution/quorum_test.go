package execution

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/audit"
	"github.com/fleetloop/fleetloop/test/execution/fleettest"
)

// A desk is a fleet whose policies want two approvals in production, each of
// somebody in one of two groups.
type desk struct {
	*fleettest.Fleet
}

func newDesk(t *testing.T) desk {
	t.Helper()
	files, err := deploy.PolicyFiles()
	if err != nil {
		t.Fatal(err)
	}
	const shipped, wanted = `{"count": 1, "groups": [], "requesterCannotApprove": true}`, `{"count": 2, "groups": ["sre", "leads"], "requesterCannotApprove": true}`
	over := map[string]string{}
	for _, name := range []string{"config.rego", "decision_test.rego"} { // what it is, and what is held of it
		over[name] = strings.Replace(files[name], shipped, wanted, 1)
		if over[name] == files[name] {
			t.Fatalf("%s has no %s", name, shipped)
		}
	}
	d := desk{fleettest.Start(t, fleettest.Options{Policies: over})}
	b := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: "approvers"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: v1alpha1.ApproverRole},
	}
	for _, group := range []string{"sre", "leads", "interns"} {
		b.Subjects = append(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: group})
	}
	if err := d.Client.Create(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	return d
}

// in is a user of groups.
func in(user string, groups ...string) fleettest.User {
	return fleettest.User{Name: user, Groups: groups}
}

// asks has alice ask for an execution that has to be approved.
func (d desk) asks(name string) {
	d.Helper()
	d.CreateDeploymentAndAwaitObserved(d.Dear, name, 3)
	d.WantCommand(alice, cli.CodeOK, fleettest.Scale(d.Dear, name, 5, "--name="+name))
	ke := d.AwaitPhase(name, v1alpha1.PhaseWaitingApproval)
	if a := ke.Status.Approval; a.RequiredCount != 2 || !slices.Equal(a.Groups, []string{"leads", "sre"}) || !a.RequesterCannotApprove {
		d.Fatalf("approval %+v", a)
	}
}

// wantApproved waits until so many have approved as the controller counts, and
// nothing has begun.
func (d desk) wantApproved(n int) {
	d.Helper()
	const name = "web"
	ke := d.AwaitExecution(name, func(ke *v1alpha1.KubernetesExecution) error {
		if a := ke.Status.Approval; len(a.CountedDecisions) != n || len(ke.Spec.Approvals) != n || ke.Status.ObservedGeneration < ke.Generation {
			return fmt.Errorf("the controller counts %d of %d approvals, want %d", len(a.CountedDecisions), len(ke.Spec.Approvals), n)
		}
		return nil
	})
	if ke.Status.Phase != v1alpha1.PhaseWaitingApproval || len(d.ListExecutionJobs(name)) > 0 {
		d.Errorf("it is %s with %d Jobs, with %d approvals of two", ke.Status.Phase, len(d.ListExecutionJobs(name)), n)
	}
}

// TestQuorumOfGroups: where the policies want two of some groups, it takes two
// people who are in them, and the API server says who is.
func TestQuorumOfGroups(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.asks("web")
	approve := []string{"approve", "web", "--yes"}

	const refused = "must be in group leads or sre"
	d.WantCommandAs(in(fleettest.Approver), cli.CodePrecondition, approve, refused) // who may, and is in no group
	d.WantCommandAs(in("erin", "interns"), cli.CodePrecondition, approve, refused)
	d.WantCommandAs(in("erin", "interns"), cli.CodePrecondition, []string{"reject", "web", "--reason=no"}, refused)
	d.WantCommandAs(in(fleettest.Other, "sre-interns", "SRE"), cli.CodePrecondition, approve, refused) // who may, and is in groups that are called alike
	d.WantCommandAs(in(alice, "sre", "leads"), cli.CodePrecondition, approve, "requested it")
	d.wantApproved(0)

	d.WantCommandAs(in("dana", "interns", "sre"), cli.CodeOK, approve)
	d.wantApproved(1)
	d.WantCommandAs(in("dana", "leads"), cli.CodePrecondition, approve) // the same person in another group
	d.WantCommandAs(in("erin", "interns"), cli.CodePrecondition, approve, refused)
	d.wantApproved(1)

	d.WantCommandAs(in("frank", "leads"), cli.CodeOK, approve)
	ke := d.AwaitPhase("web", v1alpha1.PhaseRollbackReady)
	d.WantReplicas(d.Dear, "web", 5)
	want := []string{"dana", "frank"}
	var counted, recorded []string
	for _, a := range ke.Status.Approval.CountedDecisions {
		counted = append(counted, a.Approver)
	}
	d.Until(func() error {
		recorded = nil
		trail := d.ListAuditTrail(d.OpenAudit(), ke)
		for i := range trail {
			if trail[i].Type == audit.Approved {
				recorded = append(recorded, trail[i].ActorID)
			}
		}
		if len(recorded) < len(want) {
			return fmt.Errorf("the audit has the approvals of %q", recorded)
		}
		return nil
	})
	if diff := cmp.Diff(want, counted); diff != "" {
		t.Errorf("counted (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want, recorded); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}

// TestQuorumOfOneGroup: two of the same group are enough, also where somebody else
// asks in their name, and one who rejects is.
func TestQuorumOfOneGroup(t *testing.T) {
	t.Parallel()
	d := newDesk(t)
	d.asks("web")
	for n, user := range []string{"dana", "erin"} {
		d.wantApproved(n)
		if err := d.impersonated(in(user, "interns"), "web"); !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			t.Errorf("%s of another group approves: %v", user, err)
		}
		if err := d.impersonated(in(user, "sre"), "web"); err != nil {
			t.Fatal(err)
		}
	}
	d.AwaitPhase("web", v1alpha1.PhaseRollbackReady)
	d.WantReplicas(d.Dear, "web", 5)

	d.asks("db")
	d.WantCommandAs(in("frank", "leads"), cli.CodeOK, []string{"approve", "db", "--yes"})
	d.WantCommandAs(in("dana", "sre"), cli.CodeOK, []string{"reject", "db", "--reason=not now"})
	d.AwaitFailure("db", v1alpha1.ReasonApprovalRejected, "")
	d.WantReplicas(d.Dear, "db", 3)
}

// impersonated approves in the name of a user, as what stands before the API
// server and knows who is there does.
func (d desk) impersonated(user fleettest.User, name string) error {
	d.Helper()
	cfg := d.UserConfig(fleettest.Admin)
	cfg.Impersonate = rest.ImpersonationConfig{UserName: user.Name, Groups: user.Groups}
	c, err := client.New(cfg, client.Options{Scheme: fleettest.Scheme(d)})
	if err != nil {
		d.Fatal(err)
	}
	ke := d.GetExecution(name)
	before := ke.DeepCopy()
	ke.Spec.Approvals = append(ke.Spec.Approvals, v1alpha1.Approval{Approver: user.Name, Decision: v1alpha1.Approve, PlanHash: ke.Status.Plan.Hash})
	return c.Patch(d.Context(), ke, client.MergeFrom(before))
}
