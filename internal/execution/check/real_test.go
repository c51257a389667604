package check_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// law is the real policies, asked with what they take and nothing else.
type law struct{ store *policy.Store }

func (l law) Decide(ctx context.Context, in *execution.Input) (execution.Decision, error) {
	text, err := json.Marshal(in)
	if err != nil {
		return execution.Decision{}, err
	}
	if err := policy.CheckPolicyInput(text); err != nil {
		return execution.Decision{}, err
	}
	d, hash, err := l.store.Decide(ctx, text, begun)
	return execution.Decision{
		Allow: d.Allow, Violations: d.Violations, Warnings: d.Warnings, RequireDryRun: d.RequireDryRun, RequireApproval: d.RequireApproval,
		PolicyName: d.PolicyName, PolicyHash: hash, Mode: d.Mode,
	}, err
}

// rego evaluates conditions as the program does.
type rego struct{ *policy.Evaluator }

func (r rego) ReservePlace(requester string) (execution.Place, error) {
	p, err := r.Evaluator.ReservePlace(requester)
	if retry := (*policy.RetryError)(nil); errors.As(err, &retry) {
		return nil, &execution.RetryError{After: retry.After, Err: err}
	}
	return regoPlace{p}, err
}

type regoPlace struct{ *policy.EvaluationPlace }

func (p regoPlace) EvaluateModule(ctx context.Context, module string, input any, now time.Time) (bool, string, error) {
	text, err := json.Marshal(input)
	if err != nil {
		return false, "", err
	}
	return p.EvaluationPlace.EvaluateModule(ctx, module, text, now)
}

// crowded are conditions of so many requesters that none is evaluated before each of
// them has asked for a place.
type crowded struct {
	rego
	missing sync.WaitGroup
	evaluated,
	refused atomic.Int32
	once sync.Map // by requester
}

func (c *crowded) ReservePlace(requester string) (execution.Place, error) {
	p, err := c.rego.ReservePlace(requester)
	if err != nil {
		c.refused.Add(1)
	}
	if _, known := c.once.LoadOrStore(requester, true); !known {
		c.missing.Done()
	}
	return crowdedPlace{p, c}, err
}

type crowdedPlace struct {
	execution.Place
	of *crowded
}

func (p crowdedPlace) EvaluateModule(ctx context.Context, module string, input any, now time.Time) (bool, string, error) {
	p.of.missing.Wait()
	p.of.evaluated.Add(1)
	return p.Place.EvaluateModule(ctx, module, input, now)
}

// TestManyRequestersGetThrough verifies that more requesters than slots succeed: each evaluates all
// conditions in one slot, and contention causes no repeated evaluation.
func TestManyRequestersGetThrough(t *testing.T) {
	const requesters, each = policy.MaxEvaluatorProcesses + 2, 3
	r := newFixture(t, scale)
	r.deploy(t, nil)
	crowd := &crowded{rego: rego{policy.NewEvaluator()}}
	crowd.missing.Add(requesters)
	c, err := check.New(r.cfg, check.Deps{Identities: r.ids, Policy: r.policy, Conditions: crowd, Traffic: r.traffic, Reader: r.view})
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for i := range requesters {
		ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
			ke.Spec.RequestedBy = fmt.Sprintf("requester-%d", i)
			for range each {
				ke.Spec.PreConditions = append(ke.Spec.PreConditions, within(0, "a", "package a\nallow if input.now > 0", true))
			}
		})
		all.Go(func() {
			for {
				out, err := c.Check(t.Context(), ke, nil, begun)
				if retry := (*execution.RetryError)(nil); errors.As(err, &retry) {
					<-time.NewTimer(retry.After).C // as the operator does
					continue
				}
				if err != nil || out.Failed != nil || len(out.Results.PreConditionResults) != each {
					t.Errorf("%s: %+v, %v", ke.Spec.RequestedBy, out, err)
				}
				return
			}
		})
	}
	all.Wait()
	if n := crowd.refused.Load(); n < requesters-policy.MaxEvaluatorProcesses {
		t.Errorf("%d were refused a place, want %d at least", n, requesters-policy.MaxEvaluatorProcesses)
	}
	if n := crowd.evaluated.Load(); n != requesters*each {
		t.Errorf("%d conditions were evaluated, want each of %d once", n, requesters*each)
	}
}

// realChecker is one with the policies as they are shipped.
func (r *fixture) realChecker(t *testing.T) *check.Checker {
	t.Helper()
	files, err := deploy.PolicyFiles()
	if err != nil {
		t.Fatal(err)
	}
	store := policy.NewStore(0, nil)
	if err := store.LoadPolicies(t.Context(), files, policy.Enforce); err != nil {
		t.Fatal(err)
	}
	g, err := execution.NewGate(execution.GateConfig{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := check.New(r.cfg, check.Deps{Identities: r.ids, Policy: law{store}, Conditions: rego{policy.NewEvaluator()}, Traffic: g, Reader: r.view})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestWithTheRealPolicies(t *testing.T) {
	r := newFixture(t, scale, kill)
	r.deploy(t, nil)
	c := r.realChecker(t)
	const small = `
package precondition

allow if {
	input.deployment_found
	input.current_replicas == input.expected_baseline
	input.serviceAccount.permissionsOk
	input.target.object.spec.replicas < 10
}`
	const impossible = `
package precondition

default allow := false

allow if input.available_cpu >= 1000000000

message := sprintf("there are %d millicores", [input.available_cpu])`
	ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
		ke.Spec.PreConditions = []v1alpha1.Condition{within(0, "small", small, true), within(0, "room", impossible, false), within(0, "broken", "allow {", false)}
	})
	out, err := c.Check(t.Context(), ke, nil, begun)
	if err != nil {
		t.Fatal(err)
	}
	wantPassed(t, out)
	v := out.Results.PolicyValidation
	if v.PolicyName != "fleetloop-default-v1" || !v.Allowed || !v.RequiredApproval || !v.RequiredDryRun || v.PolicyHash == "" || out.Plan.PolicyHash != v.PolicyHash {
		t.Errorf("%+v", v)
	}
	if !out.Results.DryRunResults.Performed {
		t.Error("it was not tried out, though the policy wants it")
	}
	pre := out.Results.PreConditionResults
	if !pre[0].Passed || pre[1].Passed || !pre[1].Evaluated || !strings.HasPrefix(pre[1].ErrorMessage, "there are ") || pre[2].Evaluated || pre[2].ErrorMessage == "" {
		t.Errorf("%+v", pre)
	}

	for _, a := range action.Catalogue() { // what is told of others is an input as well
		if a.NoJob || a.Scope == action.Cluster {
			continue
		}
		t.Run(a.Name, func(t *testing.T) {
			ke := r.execution(a.Name, func(ke *v1alpha1.KubernetesExecution) { ke.Spec.ResourceName, ke.Spec.TargetNamespace = "web", r.shop })
			out, err := c.Check(t.Context(), ke, nil, begun)
			if err != nil {
				t.Fatal(err)
			}
			if out.Failed != nil && out.Failed.Detail == v1alpha1.DetailPolicyUnavailable {
				t.Error(out.Failed.Message)
			}
		})
	}
}

// TestWhoElseChangesTheTarget verifies that the owners of a target and its other managers are
// found.
func TestWhoElseChangesTheTarget(t *testing.T) {
	r := newFixture(t, kill, scale)
	d := r.deploy(t, func(d *appsv1.Deployment) {
		d.OwnerReferences = []metav1.OwnerReference{controlled("apps.example.com/v1", "Shop", "main", "uid-shop")}
	})
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", OwnerReferences: []metav1.OwnerReference{controlled("apps/v1", "Deployment", d.Name, d.UID)}},
		Spec:       appsv1.ReplicaSetSpec{Selector: d.Spec.Selector, Template: d.Spec.Template},
	}
	set, err := r.admin.AppsV1().ReplicaSets(r.shop).Create(t.Context(), set, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1-a", Labels: d.Spec.Template.Labels, OwnerReferences: []metav1.OwnerReference{controlled("apps/v1", "ReplicaSet", set.Name, set.UID)}},
		Spec:       d.Spec.Template.Spec,
	}
	if _, err := r.admin.CoreV1().Pods(r.shop).Create(t.Context(), pod, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	r.autoscale(t, "apps/v1", "Deployment")
	wantPassed(t, r.check(t, r.execution(kill, nil), begun))
	in := r.policy.asked[len(r.policy.asked)-1]
	if diff := cmp.Diff([]string{"ReplicaSet/web-1", "Deployment/web"}, in.Target.OwnerChain); diff != "" {
		t.Error(diff)
	}
	wantPassed(t, r.check(t, r.execution(scale, nil), begun))
	in = r.policy.asked[len(r.policy.asked)-1]
	if diff := cmp.Diff(execution.InputManagedBy{HPA: "web", Operator: "Shop/main"}, in.Target.ManagedBy); diff != "" {
		t.Error(diff)
	}
}

// autoscale has a HorizontalPodAutoscaler "web" scale the object "web" of a kind.
func (r *fixture) autoscale(t *testing.T, apiVersion, kind string) {
	t.Helper()
	scaler := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			MaxReplicas: 9, ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: apiVersion, Kind: kind, Name: "web"},
		},
	}
	if _, err := r.admin.AutoscalingV2().HorizontalPodAutoscalers(r.shop).Create(t.Context(), scaler, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		return r.view.Get(ctx, types.NamespacedName{Namespace: r.shop, Name: "web"}, &autoscalingv2.HorizontalPodAutoscaler{})
	})
}

// TestAnAutoscalerIsAsCriticalAsWhatItScales verifies that changing the bounds of an autoscaler
// counts as scaling its target.
func TestAnAutoscalerIsAsCriticalAsWhatItScales(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		labels map[string]string
		absent bool
		kind   string
		says   string
	}{
		"Critical":  {reason: "one replica is too few", labels: map[string]string{"critical": "true"}, kind: "apps/v1 Deployment", says: "critical"},
		"Older":     {reason: "versions of one group are the same object", labels: map[string]string{"critical": "true"}, kind: "apps/v1beta2 Deployment", says: "critical"},
		"Other":     {reason: "it may, with an approval", kind: "apps/v1 Deployment"},
		"NotThere":  {reason: "nothing is scaled yet", absent: true, kind: "apps/v1 Deployment"},
		"OfSomeone": {reason: "nobody can look whether it may be touched", kind: "example.com/v1 Rollout", says: "Rollout"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, bounds)
			if r.known(t, r.shop); !tc.absent {
				r.deploy(t, func(d *appsv1.Deployment) { d.Labels = tc.labels })
			}
			version, kind, _ := strings.Cut(tc.kind, " ")
			r.autoscale(t, version, kind)
			out, err := r.realChecker(t).Check(t.Context(), r.execution(bounds, nil), nil, begun)
			switch {
			case err != nil:
				t.Fatal(err)
			case tc.says == "critical":
				wantFailed(t, out, validation, v1alpha1.DetailPolicyDenied, "web is critical and needs at least 2 replicas")
			case tc.says != "":
				wantFailed(t, out, validation, v1alpha1.DetailInvalidTargetState, tc.says)
			default:
				wantPassed(t, out)
				if v := out.Results.PolicyValidation; !v.RequiredApproval || !v.RequiredDryRun {
					t.Errorf("%s: %+v", tc.reason, v)
				}
			}
		})
	}
}

const (
	bounds = "update_hpa"
	patch  = "patch_deployment"
	drain  = "drain_node"
)

// A patch can give Pods a hold on their node, and take away the label that would
// keep the next one from happening.
func TestPatchesThatReachFurther(t *testing.T) {
	for name, tc := range map[string]struct {
		patch    string
		approval bool
		denied   bool
	}{
		"Host":       {patch: `{"spec":{"template":{"spec":{"hostNetwork":true,"hostPID":true,"containers":[{"name":"web","securityContext":{"privileged":true}}]}}}}`, approval: true},
		"Image":      {patch: `{"spec":{"template":{"spec":{"containers":[{"name":"web","image":"web:2"}]}}}}`},
		"Label":      {patch: `{"metadata":{"labels":{"critical":null}}}`, denied: true},
		"LabelFalse": {patch: `{"metadata":{"labels":{"critical":"false"}}}`, denied: true},
		"OtherLabel": {patch: `{"metadata":{"labels":{"team":"a"}}}`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newFixture(t, patch)
			label := []byte(`{"metadata":{"labels":{"environment":"development"}}}`)
			if _, err := r.admin.CoreV1().Namespaces().Patch(t.Context(), r.shop, types.MergePatchType, label, metav1.PatchOptions{}); err != nil {
				t.Fatal(err)
			}
			kubebedtest.Eventually(t, func(ctx context.Context) error {
				var ns corev1.Namespace
				if err := r.view.Get(ctx, types.NamespacedName{Name: r.shop}, &ns); err != nil || ns.Labels["environment"] == "" {
					return errors.Join(err, errors.New("the view does not know yet"))
				}
				return nil
			})
			r.deploy(t, func(d *appsv1.Deployment) { d.Labels = map[string]string{"critical": "true"} })
			ke := r.execution(patch, func(ke *v1alpha1.KubernetesExecution) {
				ke.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"deployment": "web", "namespace": "` + r.shop + `", "patch": ` + tc.patch + `}`)}
			})
			out, err := r.realChecker(t).Check(t.Context(), ke, nil, begun)
			if err != nil {
				t.Fatal(err)
			}
			if tc.denied {
				wantFailed(t, out, validation, v1alpha1.DetailPolicyDenied, "actions must not change that label")
				return
			}
			wantPassed(t, out)
			if v := out.Results.PolicyValidation; v.RequiredApproval != tc.approval {
				t.Errorf("approval %t, want %t: %v", v.RequiredApproval, tc.approval, v.Warnings)
			}
		})
	}
}

func controlled(api, kind, name string, uid types.UID) metav1.OwnerReference {
	yes := true
	return metav1.OwnerReference{APIVersion: api, Kind: kind, Name: name, UID: uid, Controller: &yes}
}

// Checks of many executions at once share what they know, and nothing else.
func TestChecksAtOnce(t *testing.T) {
	r := newFixture(t, scale)
	r.deploy(t, nil)
	c := r.checker(t)
	r.requests.take()
	var all sync.WaitGroup
	for i := range 20 {
		all.Go(func() {
			ke := r.execution(scale, func(ke *v1alpha1.KubernetesExecution) {
				always(ke)
				ke.Name, ke.UID = fmt.Sprint("scale-", i), types.UID(fmt.Sprint("uid-", i))
			})
			out, err := c.Check(t.Context(), ke, nil, begun.Add(time.Duration(i)*time.Second))
			if err != nil || out.Failed != nil {
				t.Errorf("%v, %+v", err, out.Failed)
			}
		})
	}
	all.Wait()
	tokens := 0
	for _, s := range r.requests.take() {
		if strings.HasSuffix(s, "/token") {
			tokens++
		}
	}
	if tokens != 1 {
		t.Errorf("%d tokens were made for one account", tokens)
	}
}
