package check_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
)

func always(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = v1alpha1.DryRunAlways }

// refuse has the API server refuse, or warn of, five replicas in a namespace.
func (r *fixture) refuse(t *testing.T, do admissionv1.ValidationAction, reason metav1.StatusReason) {
	t.Helper()
	name, fail := r.shop, admissionv1.Fail
	equivalent := admissionv1.Equivalent
	policies := r.admin.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	bindings := r.admin.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	p := &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
		FailurePolicy: &fail,
		MatchConstraints: &admissionv1.MatchResources{
			MatchPolicy:       &equivalent,
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": r.shop}},
			ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
				Operations: []admissionv1.OperationType{admissionv1.Update},
				Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments/scale"}},
			}}},
		},
		Validations: []admissionv1.Validation{{Expression: "object.spec.replicas < 5", Message: "five are too many", Reason: &reason}},
	}}
	if _, err := policies.Create(t.Context(), p, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	b := &admissionv1.ValidatingAdmissionPolicyBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
		PolicyName: name, ValidationActions: []admissionv1.ValidationAction{do},
	}}
	if _, err := bindings.Create(t.Context(), b, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		if err := policies.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
		if err := bindings.Delete(ctx, name, metav1.DeleteOptions{}); err != nil {
			t.Error(err)
		}
	})
}

func TestTheDryRunIsRefused(t *testing.T) {
	for name, reason := range map[string]metav1.StatusReason{
		"Invalid":   metav1.StatusReasonInvalid,
		"Forbidden": metav1.StatusReasonForbidden, // as a quota or a webhook answers: that is no matter of rights
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, scale)
			r.deploy(t, nil)
			r.refuse(t, admissionv1.Deny, reason)
			var out check.Outcome
			kubebedtest.Eventually(t, func(ctx context.Context) (err error) { // until the policy is in force
				out, err = r.checker(t).Check(ctx, r.execution(scale, always), nil, begun)
				if err == nil && out.Failed == nil {
					err = fmt.Errorf("it passes")
				}
				return err
			})
			wantFailed(t, out, v1alpha1.ReasonDryRunFailed, v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), "five are too many", "Deployment "+r.shop+"/web")
			d := out.Results.DryRunResults
			if !d.Performed || d.Success || len(d.Errors) != 1 || !strings.Contains(d.Errors[0], "five are too many") || d.Warnings == nil {
				t.Errorf("%+v", d)
			}
			if !out.Results.RBACValidation || out.Plan == nil {
				t.Errorf("the rights are said to be missing, or the plan is: %+v", out)
			}
		})
	}
}

func TestTheDryRunWarns(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	r.refuse(t, admissionv1.Warn, metav1.StatusReasonInvalid)
	var seen execution.InputPlan
	r.policy.decide = func(in *execution.Input) (execution.Decision, error) {
		if in.Plan != nil {
			seen = *in.Plan
		}
		return execution.Decision{Allow: true, RequireDryRun: true}, nil
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		out, err := r.checker(t).Check(ctx, r.execution(scale, nil), nil, begun)
		if err != nil {
			return err
		}
		wantPassed(t, out)
		if d := out.Results.DryRunResults; !d.Success || len(d.Warnings) != 1 || !strings.Contains(d.Warnings[0], "five are too many") {
			return fmt.Errorf("%+v", d)
		}
		return nil
	})
	if !seen.DryRunPerformed || len(seen.DryRunWarnings) != 1 {
		t.Errorf("the policy was told %+v", seen)
	}
}

func TestWhoAsksForADryRun(t *testing.T) {
	r := newFixture(t, scale, notify)
	r.deploy(t, nil)
	for name, c := range map[string]struct {
		reason string
		does   string
		mode   v1alpha1.DryRunMode
		policy execution.Decision
		later  bool // the policy wants it once it sees the plan
		want   bool
	}{
		"Nobody":          {reason: "it is not needed", does: scale, mode: v1alpha1.DryRunPolicy},
		"ThePolicy":       {reason: "a rule wants it", does: scale, mode: v1alpha1.DryRunPolicy, policy: execution.Decision{RequireDryRun: true}, want: true},
		"ThePolicyLater":  {reason: "a rule wants it for this plan", does: scale, mode: v1alpha1.DryRunPolicy, later: true, want: true},
		"Always":          {reason: "whoever asks wants it", does: scale, mode: v1alpha1.DryRunAlways, want: true},
		"Only":            {reason: "nothing else is asked for", does: scale, mode: v1alpha1.DryRunOnly, want: true},
		"NothingIsChange": {reason: "there is nothing to try out", does: notify, mode: v1alpha1.DryRunAlways, policy: execution.Decision{RequireDryRun: true}},
	} {
		t.Run(name, func(t *testing.T) {
			r := *r
			r.policy = &fakePolicy{decide: func(in *execution.Input) (execution.Decision, error) {
				d := c.policy
				d.Allow, d.RequireDryRun = true, d.RequireDryRun || c.later && in.Plan != nil && !in.Plan.DryRunPerformed
				return d, nil
			}}
			out := r.check(t, r.execution(c.does, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.DryRunMode = c.mode }), begun)
			wantPassed(t, out)
			d := out.Results.DryRunResults
			if d.Performed != c.want || d.Success != c.want || d.Warnings == nil || d.EstimatedImpact == nil {
				t.Errorf("%s: %+v", c.reason, d)
			}
			if out.Results.PolicyValidation.RequiredDryRun != (c.policy.RequireDryRun || c.later) {
				t.Errorf("required: %t", out.Results.PolicyValidation.RequiredDryRun)
			}
		})
	}
}

func TestADryRunInAJob(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	r.cfg.DryRunExecutor = check.DryRunJob
	ke := r.execution(scale, always)
	out := r.check(t, ke, begun)
	if !out.NeedDryRunJob || out.Failed != nil || out.Plan == nil || out.Plan.PolicyHash != "p1" || out.Results.ValidationTime != nil {
		t.Fatalf("no Job is asked for: %+v", out)
	}
	hash := out.Plan.Hash
	good := action.Result{PlanHash: hash, DryRun: &v1alpha1.DryRunResults{Performed: true, Success: true, Warnings: []string{"careful"}}}
	for name, c := range map[string]struct {
		reason string
		result action.Result
		detail v1alpha1.Detail // empty is that it passes
		says   string
	}{
		"Good": {reason: "that is what was asked for", result: good},
		"OfAnotherPlan": {
			reason: "what was tried out is not what would run", detail: v1alpha1.DetailTargetChanged, says: "changed",
			result: action.Result{PlanHash: "other", DryRun: good.DryRun},
		},
		"Failed": {
			reason: "the API server refused", detail: v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), says: "too many",
			result: action.Result{Code: action.CodeInvalid, PlanHash: hash, Message: "five are too many", DryRun: &v1alpha1.DryRunResults{Performed: true, Errors: []string{"five are too many"}}},
		},
		"Died": {
			reason: "nobody knows what it would have said", detail: v1alpha1.Detail(v1alpha1.ReasonDryRunFailed), says: "killed",
			result: action.Result{Code: action.CodeTransient, Message: "the container was killed"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := r.checker(t).Check(t.Context(), ke, &c.result, begun)
			if err != nil {
				t.Fatal(err)
			}
			if c.detail != "" {
				wantFailed(t, out, v1alpha1.ReasonDryRunFailed, c.detail, c.says)
				return
			}
			wantPassed(t, out)
			if diff := cmp.Diff([]string{"careful"}, out.Results.DryRunResults.Warnings); diff != "" {
				t.Error(diff)
			}
			if out.Plan.Hash != hash {
				t.Error("the plan is another now")
			}
		})
	}
}

func TestReplan(t *testing.T) {
	r := newFixture(t, scale)
	d := r.deploy(t, nil)
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		always(ke)
		ke.Spec.PreConditions = []v1alpha1.Condition{{Type: "fit", Rego: "true", Required: true}}
	})
	first := r.check(t, ke, begun)
	wantPassed(t, first)
	ke.Status.Plan, ke.Status.ValidationResults = first.Plan, &first.Results
	again := func() check.Outcome {
		t.Helper()
		out, err := r.checker(t).Replan(t.Context(), ke, begun.Add(minute))
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	r.requests.take()
	out := again()
	wantPassed(t, out)
	if diff := cmp.Diff(first.Plan, out.Plan); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(first.Results.DryRunResults, out.Results.DryRunResults); diff != "" {
		t.Errorf("the dry run is forgotten:\n%s", diff)
	}
	if now := out.Results.PreConditionResults; len(now) != 1 || !now[0].Passed || !now[0].EvaluationTime.Time.Equal(begun.Add(minute)) {
		t.Errorf("the preconditions are not asked once more: %+v", now)
	}
	if sent := r.requests.take(); len(sent) != 1 || !strings.HasPrefix(sent[0], "GET ") {
		t.Errorf("it took %v, want to read the target", sent)
	}

	patch := []byte(`{"metadata":{"annotations":{"changed":"meanwhile"}},"spec":{"replicas":4}}`)
	if _, err := r.admin.AppsV1().Deployments(r.shop).Patch(t.Context(), d.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d.Annotations = map[string]string{"changed": "meanwhile"}
	r.requests.take()
	if out = again(); out.Plan == nil || out.Plan.Hash == first.Plan.Hash {
		t.Errorf("the plan for what was changed is the same: %+v", out)
	}
	if sent := r.requests.take(); len(sent) != 2 || !strings.Contains(sent[1], "dryRun=All") {
		t.Errorf("another plan than the one that was tried out took %v, want to read the target and to try it out", sent)
	}
	ke.Spec.PreConditions[0].Rego = "false"
	wantFailed(t, again(), validation, v1alpha1.DetailPreConditionFailed, "passed before and now fails")
	ke.Spec.PreConditions[0].Required = false
	wantPassed(t, again())

	ke.Status.ValidationResults.DryRunResults = &v1alpha1.DryRunResults{}
	r.policy.decision.RequireDryRun = true
	wantFailed(t, again(), v1alpha1.ReasonPlanStale, v1alpha1.Detail(v1alpha1.ReasonPlanStale), "requires a dry run")
	r.policy.decision = execution.Decision{Violations: []string{"closed"}}
	wantFailed(t, again(), validation, v1alpha1.DetailPolicyDenied, "closed")
}

func TestTakingBack(t *testing.T) {
	r := newFixture(t, scale)
	d := r.deploy(t, nil)
	original := r.execution(scale, nil)
	original.Name, original.UID = "original", ""
	executions := newView(t, kubebedtest.Bed(t).Config())
	c := newClient(t)
	if err := c.Create(t.Context(), original); err != nil {
		t.Fatal(err)
	}
	// It scaled to three, from one.
	plan := r.check(t, r.execution(scale, nil), begun).Plan
	original.Status = v1alpha1.KubernetesExecutionStatus{Phase: v1alpha1.PhaseRollbackReady, Plan: plan, RollbackInformation: &v1alpha1.RollbackInformation{
		Available: true, RollbackAction: scale, RollbackParameters: raw(`{"namespace": "` + r.shop + `", "replicas": 1, "deployment": "web"}`),
		ExpectedCurrentValues: raw(`{"replicas": 3}`),
	}}
	if err := c.Status().Update(t.Context(), original); err != nil {
		t.Fatal(err)
	}
	back := func(change func(ke *v1alpha1.KubernetesExecution)) check.Outcome {
		t.Helper()
		ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
			always(ke)
			ke.Spec.RollbackOf = &v1alpha1.ObjectReference{Name: "original"}
			ke.Spec.Parameters = raw(`{"deployment": "web", "namespace": "` + r.shop + `", "replicas": 1}`)
			if change != nil {
				change(ke)
			}
		})
		return r.check(t, ke, begun)
	}
	r.view = executions

	r.requests.take()
	out := back(nil)
	wantPassed(t, out)
	if sent := r.requests.take(); len(sent) != 2 {
		t.Errorf("it took %v, want to read the target and to try it out", sent)
	}
	if in := r.policy.asked[len(r.policy.asked)-1]; !in.Request.Rollback {
		t.Error("the policy does not know that something is taken back")
	}
	out = back(func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.Parameters = raw(`{"deployment": "web", "namespace": "` + r.shop + `", "replicas": 2}`)
	})
	wantFailed(t, out, validation, v1alpha1.DetailInvalidParameters, "status.rollbackInformation")
	out = back(func(ke *v1alpha1.KubernetesExecution) { ke.Spec.RollbackOf.UID = "another" })
	wantFailed(t, out, validation, v1alpha1.DetailInvalidParameters, "does not exist any more")

	patch := []byte(`{"metadata":{"annotations":{"changed":"meanwhile"}},"spec":{"replicas":4}}`)
	if _, err := r.admin.AppsV1().Deployments(r.shop).Patch(t.Context(), d.Name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	d.Annotations = map[string]string{"changed": "meanwhile"}
	out = back(nil)
	wantFailed(t, out, validation, v1alpha1.DetailTargetChanged, "original", "replicas")
	if !out.Results.ResourceExists || out.Results.PolicyValidation != nil {
		t.Errorf("%+v", out.Results)
	}

	original.Status.RollbackInformation = &v1alpha1.RollbackInformation{Reason: "nothing was changed"}
	if err := c.Status().Update(t.Context(), original); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	wantFailed(t, back(nil), validation, v1alpha1.DetailInvalidTargetState, "cannot be rolled back", "nothing was changed")

	original.Status.RollbackInformation, original.Status.ExecutionResults = nil, nil
	if err := c.Status().Update(t.Context(), original); err != nil && !apierrors.IsConflict(err) {
		t.Fatal(err)
	}
	wantFailed(t, back(nil), validation, v1alpha1.DetailInvalidTargetState, "nothing to roll back", "never started")
}
