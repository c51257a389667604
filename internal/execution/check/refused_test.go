package check_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

const validation = v1alpha1.ReasonValidationError

// raw are parameters as they were written.
func raw(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

func TestWhatIsAskedForWrongly(t *testing.T) {
	r := newFixture(t)
	for name, c := range map[string]struct {
		reason string
		change func(ke *v1alpha1.KubernetesExecution)
		detail v1alpha1.Detail
		says   []string
	}{
		"UnknownAction": {
			reason: "the catalogue has none of that name", detail: v1alpha1.DetailUnknownAction, says: []string{"scale_deploymnet", "scale_deployment"},
			change: func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Action = "scale_deploymnet" },
		},
		"MissingParameter": {
			reason: "it is required", detail: v1alpha1.DetailInvalidParameters, says: []string{"replicas"},
			change: func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.Parameters = raw(`{"deployment": "web", "namespace": "shop"}`)
			},
		},
		"AnotherCluster": {
			reason: "the controller reaches one", detail: v1alpha1.DetailInvalidParameters, says: []string{`"elsewhere"`, `"bed"`},
			change: func(ke *v1alpha1.KubernetesExecution) { ke.Spec.TargetCluster = "elsewhere" },
		},
		"RollbackOfNothing": {
			reason: "what is taken back must have been", detail: v1alpha1.DetailInvalidParameters, says: []string{"/gone", "rollbackOf"},
			change: func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.RollbackOf = &v1alpha1.ObjectReference{Name: "gone"}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out := r.check(t, r.execution(scale, c.change), begun)
			wantFailed(t, out, validation, c.detail, c.says...)
			if out.Results.ParameterValidation || out.Results.RBACValidation || out.Results.PolicyValidation != nil || out.Results.ValidationTime == nil {
				t.Errorf("%s: %+v", c.reason, out.Results)
			}
		})
	}
	if sent := r.requests.take(); len(sent) > 1 { // of the execution that is taken back
		t.Errorf("the cluster was asked: %v", sent)
	}
}

func TestTheAccountMustExist(t *testing.T) {
	r := newFixture(t)
	r.deploy(t, nil)
	out := r.check(t, r.execution(scale, nil), begun)
	wantFailed(t, out, validation, v1alpha1.DetailRBACDenied, r.executor+"/kubernaut-action-scale-deployment", "does not exist")
	if !out.Results.ParameterValidation || out.Results.RBACValidation || out.Results.ResourceExists {
		t.Errorf("%+v", out.Results)
	}
}

// TestTheRequesterMustBeAllowed verifies that the requester must be allowed to request the action,
// as far as that is known. The groups of a person are known only from the request.
func TestTheRequesterMustBeAllowed(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	const account = "system:serviceaccount:ops:bot"
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "asks"}, Rules: []rbacv1.PolicyRule{{
		APIGroups: []string{v1alpha1.GroupVersion.Group}, Resources: []string{v1alpha1.Resource}, Verbs: []string{v1alpha1.VerbExecute}, ResourceNames: []string{scale},
	}}}
	if _, err := r.admin.RbacV1().Roles(r.executor).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "asks"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "asks"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "rita"}, {Kind: rbacv1.GroupKind, APIGroup: rbacv1.GroupName, Name: "system:serviceaccounts:trusted"}},
	}
	if _, err := r.admin.RbacV1().RoleBindings(r.executor).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		reason, by string
		verified   bool
		allowed    bool
	}{
		"Allowed":         {"a role names rita", "rita", false, true},
		"AllowedByGroup":  {"the groups of an account are known", "system:serviceaccount:trusted:bot", true, true},
		"Person":          {"nobody has checked whether eve is in a group", "eve", false, false},
		"VerifiedPerson":  {"the API server did", "eve", true, true},
		"Account":         {"no role names it", account, false, false},
		"VerifiedAccount": {"it has lost its right since", account, true, false},
		"Nobody":          {"nobody is named, who could be asked about", "", true, true},
	} {
		t.Run(name, func(t *testing.T) {
			ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.RequestedBy = c.by
				ke.Spec.PreConditions = []v1alpha1.Condition{{Type: "x", Rego: "true"}}
				if !c.verified {
					ke.Status.VerifiedRequest = nil
				}
			})
			if c.allowed {
				kubebedtest.Eventually(t, func(ctx context.Context) error { // the authorizer hears of the binding
					checker, err := check.New(r.cfg, check.Deps{Identities: r.ids, Policy: r.policy, Conditions: r.conditions, Traffic: r.traffic, Reader: r.view})
					if err != nil {
						return err
					}
					out, err := checker.Check(ctx, ke, nil, begun)
					if err == nil && (out.Failed != nil || !out.Results.RBACValidation) {
						err = fmt.Errorf("%s: %+v", c.reason, out.Failed)
					}
					return err
				})
				return
			}
			out := r.check(t, ke, begun)
			wantFailed(t, out, validation, v1alpha1.DetailRBACDenied, c.by+" is not allowed to request scale_deployment", "the verb execute")
			if out.Results.RBACValidation || len(out.Results.PreConditionResults) > 0 {
				t.Errorf("%s: %+v", c.reason, out.Results)
			}
		})
	}
}

func TestTheAccountMustBeBoundWhereTheTargetIs(t *testing.T) {
	r := newFixture(t, scale)
	elsewhere := kubebedtest.Namespace(t)
	out := r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Parameters = parameters(scale, elsewhere) }), begun)
	wantFailed(t, out, validation, v1alpha1.DetailRBACDenied,
		"kubernaut-action-scale-deployment", "get apps/deployments", "patch apps/deployments/scale", elsewhere)
	if out.Results.RBACValidation || out.Results.ResourceExists {
		t.Errorf("%+v", out.Results)
	}
}

// TestRightsThatGoMeanwhile verifies that a response of the API server corrects cached rights.
func TestRightsThatGoMeanwhile(t *testing.T) {
	t.Parallel() // the API server knows a deleted account for ten seconds
	t.Run("TheBinding", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, scale)
		r.deploy(t, nil)
		ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunAlways })
		wantPassed(t, r.check(t, ke, begun))
		a, _ := action.Find(scale)
		if err := r.admin.RbacV1().RoleBindings(r.shop).Delete(t.Context(), a.ServiceAccount(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.wantRights(t, a, r.shop, false)
		out := r.check(t, ke, begun)
		wantFailed(t, out, validation, v1alpha1.DetailRBACDenied, a.ServiceAccount(), "get apps/deployments", r.shop)
		if out.Results.RBACValidation {
			t.Error("the rights are said to be there")
		}
	})
	t.Run("TheRightToWrite", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, scale)
		r.deploy(t, nil)
		ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunAlways })
		wantPassed(t, r.check(t, ke, begun))
		a, _ := action.Find(scale)
		roles := r.admin.RbacV1().Roles(r.shop)
		role, err := roles.Get(t.Context(), a.ServiceAccount(), metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		role.Rules = role.Rules[:1]
		if _, err := roles.Update(t.Context(), role, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		r.wantRights(t, a, r.shop, false)
		out := r.check(t, ke, begun)
		wantFailed(t, out, validation, v1alpha1.DetailRBACDenied, a.ServiceAccount(), "patch apps/deployments/scale", r.shop)
	})
	t.Run("TheAccount", func(t *testing.T) {
		t.Parallel()
		r := newFixture(t, scale)
		r.deploy(t, nil)
		ke := r.execution(scale, nil)
		wantPassed(t, r.check(t, ke, begun))
		a, _ := action.Find(scale)
		accounts := r.admin.CoreV1().ServiceAccounts(r.executor)
		if err := accounts.Delete(t.Context(), a.ServiceAccount(), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// Tokens of it are known for a moment longer.
		kubebedtest.Eventually(t, func(ctx context.Context) error {
			out, err := r.checker(t).Check(ctx, ke, nil, begun)
			if err == nil && out.Failed == nil {
				err = errors.New("the token is still taken")
			}
			return err
		})
		out := r.check(t, ke, begun)
		wantFailed(t, out, validation, v1alpha1.DetailRBACDenied, a.ServiceAccount(), "does not exist")
		if out.Results.RBACValidation {
			t.Error("the rights are said to be there")
		}
		if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: a.ServiceAccount()}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		wantPassed(t, r.check(t, ke, begun))
	})
}

func TestTheTargetMustBeThere(t *testing.T) {
	t.Run("Missing", func(t *testing.T) {
		r := newFixture(t, scale)
		r.known(t, r.shop)
		out := r.check(t, r.execution(scale, nil), begun)
		wantFailed(t, out, validation, v1alpha1.DetailTargetNotFound, "Deployment "+r.shop+"/web")
		if !out.Results.RBACValidation || out.Results.ResourceExists || out.Results.PolicyValidation != nil {
			t.Errorf("%+v", out.Results)
		}
	})
	t.Run("BeingDeleted", func(t *testing.T) {
		r := newFixture(t, scale)
		d := r.deploy(t, func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/held"} })
		deployments := r.admin.AppsV1().Deployments(r.shop)
		if err := deployments.Delete(t.Context(), d.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		out := r.check(t, r.execution(scale, nil), begun)
		wantFailed(t, out, validation, v1alpha1.DetailInvalidTargetState, "is being deleted")
		if !out.Results.ResourceExists {
			t.Error("it is said not to be there")
		}
		patch := []byte(`{"metadata":{"finalizers":null}}`)
		if _, err := deployments.Patch(t.Context(), d.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("Paused", func(t *testing.T) {
		r := newFixture(t, restart)
		r.deploy(t, func(d *appsv1.Deployment) { d.Spec.Paused = true })
		out := r.check(t, r.execution(restart, nil), begun)
		wantFailed(t, out, validation, v1alpha1.DetailInvalidTargetState, "paused")
	})
	t.Run("AnotherUID", func(t *testing.T) {
		r := newFixture(t, scale)
		r.deploy(t, nil)
		out := r.check(t, r.execution(scale, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.Target = &v1alpha1.Target{UID: "another"} }), begun)
		wantFailed(t, out, validation, v1alpha1.DetailTargetChanged, "another")
	})
}

func TestThePolicySaysNo(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	for name, c := range map[string]struct {
		reason string
		policy *fakePolicy
		detail v1alpha1.Detail
		says   []string
		plan   bool
	}{
		"Denied": {
			reason: "a rule spoke", detail: v1alpha1.DetailPolicyDenied, says: []string{"safety-policy-v1", "not on a Friday", "not so many"},
			policy: &fakePolicy{decision: execution.Decision{PolicyName: "safety-policy-v1", Violations: []string{"not on a Friday", "not so many"}}},
		},
		"DeniedWithoutAWord": {
			reason: "the default is no", detail: v1alpha1.DetailPolicyDenied, says: []string{"without a reason"}, policy: &fakePolicy{},
		},
		"NoDecision": {
			reason: "an undefined decision is no leave", detail: v1alpha1.DetailPolicyUnavailable, says: []string{"undefined"},
			policy: &fakePolicy{err: errors.New("the decision is undefined")},
		},
		"DeniedForItsPlan": {
			reason: "what is allowed in general may not be in particular", detail: v1alpha1.DetailPolicyDenied, says: []string{"3 -> 5"}, plan: true,
			policy: &fakePolicy{decide: func(in *execution.Input) (execution.Decision, error) {
				if in.Plan == nil {
					return execution.Decision{Allow: true}, nil
				}
				return execution.Decision{Violations: []string{"not " + in.Plan.ReplicasChanged}}, nil
			}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.policy = c.policy
			out := r.check(t, r.execution(scale, nil), begun)
			wantFailed(t, out, validation, c.detail, c.says...)
			v := out.Results.PolicyValidation
			if v == nil || v.Allowed || v.EvaluatedAt == nil || !out.Results.ResourceExists || (out.Plan != nil) != c.plan {
				t.Errorf("%s: %+v, plan %v", c.reason, v, out.Plan)
			}
		})
	}
}

// TestWhatMayPassIsAnError verifies that an unanswered question does not refuse the execution: it
// is asked again.
func TestWhatMayPassIsAnError(t *testing.T) {
	for name, c := range map[string]struct {
		reason string
		ids    fakeIdentities
	}{
		"NoAnswer":    {reason: "of the API server", ids: fakeIdentities{exists: errors.New("connection refused")}},
		"Rights":      {reason: "nobody knows them", ids: fakeIdentities{denied: apierrors.NewInternalError(errors.New("etcd"))}},
		"TooBusy":     {reason: "it will have time", ids: fakeIdentities{client: apierrors.NewTooManyRequests("later", 1)}},
		"NotKnownYet": {reason: "a token that was just made", ids: fakeIdentities{client: apierrors.NewUnauthorized("who?")}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t)
			checker, err := check.New(r.cfg, check.Deps{Identities: c.ids, Policy: r.policy, Conditions: r.conditions, Traffic: r.traffic, Reader: r.view})
			if err != nil {
				t.Fatal(err)
			}
			out, err := checker.Check(t.Context(), r.execution(scale, nil), nil, begun)
			if err == nil || out.Failed != nil {
				t.Errorf("%s: error %v, failed %v", c.reason, err, out.Failed)
			}
			if !out.Results.ParameterValidation {
				t.Error("what was found out before is lost")
			}
		})
	}
}

type fakeIdentities struct{ exists, denied, client error }

func (f fakeIdentities) AccountExists(context.Context, *action.Action) (bool, error) {
	return true, f.exists
}
func (f fakeIdentities) ForgetAnswers(*action.Action) {}
func (f fakeIdentities) ListDenied(context.Context, *action.Action, []action.Right) ([]action.Right, error) {
	return nil, f.denied
}

func (f fakeIdentities) SecretType(context.Context, string, string) (string, bool, error) {
	return "", false, f.client
}

func (f fakeIdentities) MayRequest(context.Context, string, []string, string) (bool, error) {
	return true, f.denied
}

func (f fakeIdentities) Client(context.Context, *action.Action) (action.Client, error) {
	return action.Client{}, f.client
}

func TestNewWantsWhatItNeeds(t *testing.T) {
	r := newFixture(t)
	deps := check.Deps{Identities: r.ids, Policy: r.policy, Conditions: r.conditions, Traffic: r.traffic, Reader: r.view}
	for name, c := range map[string]struct {
		reason string
		cfg    check.Config
		deps   check.Deps
	}{
		"NoNamespace": {reason: "accounts are somewhere", deps: deps},
		"NoDeps":      {reason: "nothing can be asked", cfg: check.Config{Namespace: "x"}},
		"Executor":    {reason: "there are two places", cfg: check.Config{Namespace: "x", DryRunExecutor: "moon"}, deps: deps},
	} {
		if _, err := check.New(c.cfg, c.deps); err == nil {
			t.Errorf("%s: taken, though %s", name, c.reason)
		}
	}
}
