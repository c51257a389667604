package job

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

const testImage = "test/action-runner"

func began() time.Time { return time.Date(2026, 5, 4, 12, 0, 0, 0, time.UTC) }

func newExecution(namespace, name, uid string) *v1alpha1.KubernetesExecution {
	ke := &v1alpha1.KubernetesExecution{Spec: v1alpha1.KubernetesExecutionSpec{Action: "scale_deployment"}}
	ke.Namespace, ke.Name, ke.UID = namespace, name, types.UID(uid)
	ke.CreationTimestamp = metav1.NewTime(began())
	return ke
}

func newPlan(does string, target v1alpha1.PlanTarget) *v1alpha1.Plan {
	p := &v1alpha1.Plan{Action: does, Target: target, Steps: []v1alpha1.PlanStep{}, Parameters: &runtime.RawExtension{Raw: []byte(`{}`)}, CreatedAt: metav1.NewTime(began())}
	p.Hash = action.HashPlanEffect(p)
	return p
}

func web() v1alpha1.PlanTarget {
	return v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "u-web"}
}

func node(name string) v1alpha1.PlanTarget {
	return v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: name, UID: "u-node"}
}

func options() Options { return Options{Namespace: "executor", Image: testImage} }

func build(t *testing.T, ke *v1alpha1.KubernetesExecution, p *v1alpha1.Plan, purpose string, o Options) *batchv1.Job {
	t.Helper()
	j, err := Build(ke, p, purpose, 1, o)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

// TestNamesAndLabelsAreValid verifies names and labels for every valid execution name and for
// invalid ones.
func TestNamesAndLabelsAreValid(t *testing.T) {
	odd := rapid.OneOf(
		rapid.StringMatching(`[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?`),
		rapid.String(),
		rapid.StringOfN(rapid.RuneFrom([]rune("-._aZ9é/ ")), 0, 253, -1),
	)
	rapid.Check(t, func(t *rapid.T) {
		ke := newExecution("executor", odd.Draw(t, "name"), "u"+strings.ReplaceAll(odd.Draw(t, "uid"), "$", ""))
		purpose := rapid.SampledFrom([]string{v1alpha1.PurposeExecute, v1alpha1.PurposeDryRun}).Draw(t, "purpose")
		does := rapid.SampledFrom(actions()).Draw(t, "action")
		n := rapid.IntRange(1, 1000).Draw(t, "n")
		j, err := Build(ke, newPlan(does, web()), purpose, n, options())
		if err != nil {
			t.Fatal(err)
		}
		if problems := validation.IsDNS1123Label(j.Name); len(problems) > 0 || len(j.Name) > 52 {
			t.Fatalf("Job name %q: %v", j.Name, problems)
		}
		for _, labels := range []map[string]string{j.Labels, j.Spec.Template.Labels} {
			for key, value := range labels {
				if problems := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(problems) > 0 {
					t.Fatalf("label %s=%q: %v", key, value, problems)
				}
			}
		}
		if problems := validation.IsDNS1123Subdomain(j.Spec.Template.Spec.ServiceAccountName); len(problems) > 0 {
			t.Fatalf("service account: %v", problems)
		}
		if got := j.Annotations[v1alpha1.AnnotationExecution]; got != ke.Name {
			t.Fatalf("the whole name is %q, want %q", got, ke.Name)
		}
		again, err := Build(ke, newPlan(does, web()), purpose, n, options())
		if err != nil || !cmp.Equal(j, again) {
			t.Fatalf("the same gave another Job: %v\n%s", err, cmp.Diff(j, again))
		}
	})
}

func actions() []string {
	var names []string
	for _, a := range action.Catalogue() {
		names = append(names, a.Name)
	}
	return names
}

// TestNamesNeverComeAgain verifies that another execution, purpose or number has another name.
func TestNamesNeverComeAgain(t *testing.T) {
	seen := make(map[string]bool)
	for _, uid := range []types.UID{"a", "b", "ab"} {
		for _, purpose := range []string{v1alpha1.PurposeExecute, v1alpha1.PurposeDryRun} {
			for n := 1; n <= 12; n++ {
				name := Name(uid, purpose, n)
				if seen[name] {
					t.Errorf("%q came again", name)
				}
				seen[name] = true
			}
		}
	}
	if got, want := Name("a", v1alpha1.PurposeDryRun, 2), "kx-ca978112ca1bbdca-dry-2"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestNothingButDataReachesThePod verifies that text from an execution is only in the environment
// as JSON.
func TestNothingButDataReachesThePod(t *testing.T) {
	const evil = "zz$(id)`id`;zz"
	ke := newExecution("executor", "e1", "uid-1")
	ke.Spec.Reason, ke.Spec.RequestedBy, ke.Spec.CorrelationID, ke.Spec.Environment = evil, evil, evil, evil
	ke.Labels, ke.Annotations = map[string]string{"x": evil}, map[string]string{"x": evil}
	ke.Spec.Parameters = &runtime.RawExtension{Raw: []byte(`{"x":"` + evil + `"}`)}
	p := newPlan("scale_deployment", web())
	p.Parameters = ke.Spec.Parameters
	p.Diff = evil
	j := build(t, ke, p, v1alpha1.PurposeExecute, options())
	for i := range j.Spec.Template.Spec.Containers[0].Env {
		e := &j.Spec.Template.Spec.Containers[0].Env[i]
		if e.Name == runner.EnvPlan {
			if !strings.Contains(e.Value, `zz\u0024(id)`) {
				t.Errorf("the plan lost what it says: %s", e.Value)
			}
			e.Value = ""
		}
	}
	text, err := j.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(text), "zz") {
		t.Errorf("it is elsewhere, too: %s", text)
	}
	if c := j.Spec.Template.Spec.Containers[0]; c.Command != nil || c.Args != nil {
		t.Errorf("command %v, args %v", c.Command, c.Args)
	}
}

func TestLayers(t *testing.T) {
	for name, c := range map[string]struct {
		timeout time.Duration
		want    deadlines
	}{
		"Usual":    {5 * time.Minute, deadlines{300, 295, 290 * time.Second}},
		"Longest":  {time.Hour, deadlines{3600, 3595, 3590 * time.Second}},
		"Half":     {30 * time.Second, deadlines{30, 25, 20 * time.Second}},
		"Short":    {12 * time.Second, deadlines{12, 10, 8 * time.Second}},
		"Shortest": {5 * time.Second, deadlines{5, 4, 3 * time.Second}},
		"Zero":     {0, deadlines{5, 4, 3 * time.Second}},
		"Fraction": {5500 * time.Millisecond, deadlines{6, 5, 4 * time.Second}},
	} {
		if diff := cmp.Diff(c.want, nestDeadlines(c.timeout), cmp.AllowUnexported(deadlines{})); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		l := nestDeadlines(time.Duration(rapid.Int64Range(0, int64(2*time.Hour)).Draw(t, "timeout")))
		if l.pod >= l.job || l.runner >= time.Duration(l.pod)*time.Second || l.runner < 2*time.Second {
			t.Fatalf("not one within the other: %+v", l)
		}
	})
}

func TestTimesAndRetries(t *testing.T) {
	of := func(timeout time.Duration, retries int32) *v1alpha1.KubernetesExecution {
		ke := newExecution("executor", "e1", "uid-1")
		if timeout > 0 {
			ke.Spec.Timeout = &metav1.Duration{Duration: timeout}
		}
		if retries >= 0 {
			ke.Spec.MaxRetries = &retries
		}
		return ke
	}
	a, _ := action.Find("scale_deployment")
	type times struct {
		Deadline, Token int64
		Backoff         int32
	}
	for name, c := range map[string]struct {
		ke      *v1alpha1.KubernetesExecution
		purpose string
		want    times
	}{
		"Catalogue": {of(0, -1), v1alpha1.PurposeExecute, times{int64(a.Timeout.Seconds()), 600, a.Retries}},
		"Asked":     {of(90*time.Second, 3), v1alpha1.PurposeExecute, times{90, 600, 3}},
		"Never":     {of(15*time.Minute, 0), v1alpha1.PurposeExecute, times{900, 900, 0}},
		"Hour":      {of(time.Hour, 5), v1alpha1.PurposeExecute, times{3600, 3600, 5}},
		"DryRun":    {of(15*time.Minute, 3), v1alpha1.PurposeDryRun, times{60, 600, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			j := build(t, c.ke, newPlan("scale_deployment", web()), c.purpose, options())
			got := times{*j.Spec.ActiveDeadlineSeconds, *j.Spec.Template.Spec.Volumes[0].Projected.Sources[0].ServiceAccountToken.ExpirationSeconds, *j.Spec.BackoffLimit}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if j.Spec.TTLSecondsAfterFinished != nil {
				t.Error("it may go before its result is stored")
			}
		})
	}
}

func TestNodeActionsKeepOffTheirNode(t *testing.T) {
	ke, p := newExecution("executor", "e1", "uid-1"), newPlan("drain_node", node("n1"))
	term := corev1.NodeSelectorTerm{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"n1"}}}}
	j := build(t, ke, p, v1alpha1.PurposeExecute, options())
	want := &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{term}}}
	if diff := cmp.Diff(want, j.Spec.Template.Spec.Affinity.NodeAffinity); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	o := options()
	o.OnTargetNode = true
	want = &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{{Weight: 100, Preference: term}}}
	if diff := cmp.Diff(want, build(t, ke, p, v1alpha1.PurposeExecute, o).Spec.Template.Spec.Affinity.NodeAffinity); diff != "" {
		t.Errorf("where there is one node (-want +got):\n%s", diff)
	}
	if a := build(t, ke, newPlan("scale_deployment", web()), v1alpha1.PurposeExecute, options()).Spec.Template.Spec.Affinity; a != nil {
		t.Errorf("what is on no node keeps off one: %+v", a)
	}
}

func TestResources(t *testing.T) {
	of := func(o Options, does string) corev1.ResourceRequirements {
		return build(t, newExecution("executor", "e1", "uid-1"), newPlan(does, web()), v1alpha1.PurposeExecute, o).Spec.Template.Spec.Containers[0].Resources
	}
	o := options()
	usual := of(o, "scale_deployment")
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		limit, request := usual.Limits[name], usual.Requests[name]
		if limit.IsZero() || request.IsZero() {
			t.Errorf("no bounds of %s: %+v", name, usual)
		}
	}
	own := corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: usual.Requests[corev1.ResourceMemory]}}
	o.ActionResources = map[string]corev1.ResourceRequirements{"restart_pod": own}
	if diff := cmp.Diff(own, of(o, "restart_pod")); diff != "" {
		t.Errorf("of the action (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(usual, of(o, "scale_deployment")); diff != "" {
		t.Errorf("of another action (-want +got):\n%s", diff)
	}
}

func TestBuildRefuses(t *testing.T) {
	ke, p := newExecution("executor", "e1", "uid-1"), newPlan("scale_deployment", web())
	large := newPlan("scale_deployment", web())
	large.Diff = strings.Repeat("x", runner.MaxPlanBytes)
	for name, c := range map[string]struct {
		reason  string
		ke      *v1alpha1.KubernetesExecution
		plan    *v1alpha1.Plan
		purpose string
		o       Options
		want    string
	}{
		"Action":    {"it has no account", ke, newPlan("format_disk", web()), v1alpha1.PurposeExecute, options(), "unknown action"},
		"Image":     {"there is nothing to run", ke, p, v1alpha1.PurposeExecute, Options{Namespace: "executor"}, "no runner image"},
		"Namespace": {"an owner in another namespace is none", newExecution("shop", "e1", "uid-1"), p, v1alpha1.PurposeExecute, options(), `must be in "executor"`},
		"UID":       {"the name is made of it", newExecution("executor", "e1", ""), p, v1alpha1.PurposeExecute, options(), "no UID"},
		"Purpose":   {"a typing error would act instead of trying out", ke, p, "dryrun", options(), "invalid purpose"},
		"Large":     {"the API server would refuse the Job with less to go by", ke, large, v1alpha1.PurposeExecute, options(), "at most 65536"},
	} {
		_, err := Build(c.ke, c.plan, c.purpose, 1, c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %s: got %v, want %q", name, c.reason, err, c.want)
		}
	}
}

// TestRules verifies that only attempts that may be repeated and could help are repeated.
func TestRules(t *testing.T) {
	fails := func(a *action.Action, code int32, disrupted bool) batchv1.PodFailurePolicyAction {
		b := builder{action: a}
		j := &batchv1.Job{Spec: batchv1.JobSpec{PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: b.podFailureRules()}}}
		pod := newPod("p").ended(code, "")
		if disrupted {
			pod = pod.disrupted("EvictionByEvictionAPI")
		}
		return newAttempt(j, pod.pod()).failurePolicyAction(j)
	}
	again, once := &action.Action{Name: "a", Idempotent: true}, &action.Action{Name: "b"}
	for name, c := range map[string]struct {
		got, want batchv1.PodFailurePolicyAction
	}{
		"Transient":     {fails(again, 20, false), batchv1.PodFailurePolicyActionCount},
		"Crash":         {fails(again, 2, false), batchv1.PodFailurePolicyActionCount},
		"Killed":        {fails(again, 137, false), batchv1.PodFailurePolicyActionCount},
		"Guard":         {fails(again, 10, false), batchv1.PodFailurePolicyActionFailJob},
		"Deadline":      {fails(again, 40, false), batchv1.PodFailurePolicyActionFailJob},
		"Cancelled":     {fails(again, 50, false), batchv1.PodFailurePolicyActionFailJob},
		"Evicted":       {fails(again, 50, true), batchv1.PodFailurePolicyActionIgnore},
		"OnceTransient": {fails(once, 20, false), batchv1.PodFailurePolicyActionFailJob},
		"OnceKilled":    {fails(once, 137, false), batchv1.PodFailurePolicyActionFailJob},
		"OnceEvicted":   {fails(once, 50, true), batchv1.PodFailurePolicyActionFailJob},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", name, c.got, c.want)
		}
	}
}
