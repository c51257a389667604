package check_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/policy"
)

var inputTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// scalingState is a ClusterState of scaling a Deployment from three replicas to five.
func scalingState(tb testing.TB) *check.ClusterState {
	tb.Helper()
	spec := v1alpha1.KubernetesExecutionSpec{
		Action:      "scale_deployment",
		Parameters:  &runtime.RawExtension{Raw: []byte(`{"deployment": "web", "namespace": "shop", "replicas": 5}`)},
		RequestedBy: "jane", RequestedByAgent: "claude-code 2.1",
	}
	request, err := action.Parse(&spec)
	if err != nil {
		tb.Fatal(err)
	}
	return &check.ClusterState{
		Now: inputTime, Request: request, Cluster: "bed", EnvironmentLabel: "environment",
		Execution:     &v1alpha1.KubernetesExecution{ObjectMeta: metav1.ObjectMeta{Namespace: "kubernaut-executor", Name: "scale-web", UID: "uid-1"}, Spec: spec},
		Namespace:     &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
		Target:        parseObject(tb, deploymentYAML),
		Nodes:         []corev1.Node{newNode("a", "4", "8Gi", true, false), newNode("b", "4", "8Gi", true, true), newNode("c", "4", "8Gi", false, false)},
		PermissionsOK: true,
		Used:          map[string]check.ResourceAmounts{"a": {CPU: 500, Memory: 1 << 30}, "b": {CPU: 1}, "c": {CPU: 1}},
	}
}

const deploymentYAML = `
apiVersion: apps/v1
kind: Deployment
metadata:
  namespace: shop
  name: web
  uid: uid-web
  labels: {app: web}
spec:
  replicas: 3
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      nodeSelector: {disk: fast}
      containers:
      - {name: web, image: "web:1", resources: {requests: {cpu: 250m, memory: 256Mi}}}
      - {name: proxy, image: "proxy:1", resources: {requests: {cpu: 50m, memory: 64Mi}}}
status:
  replicas: 3
  conditions:
  - {type: Available, status: "True"}
  - {type: Progressing, status: "False"}
`

func parseObject(tb testing.TB, text string) *unstructured.Unstructured {
	tb.Helper()
	raw, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		tb.Fatal(err)
	}
	var u unstructured.Unstructured
	if err := u.UnmarshalJSON(raw); err != nil {
		tb.Fatal(err)
	}
	return &u
}

func newNode(name, cpu, memory string, ready, cordoned bool) corev1.Node {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	return corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"disk": "fast"}},
		Spec:       corev1.NodeSpec{Unschedulable: cordoned},
		Status: corev1.NodeStatus{
			Allocatable: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)},
			Conditions:  []corev1.NodeCondition{{Type: corev1.NodeReady, Status: status}},
		},
	}
}

// TestWhatIsScaled verifies that the object scaled by an autoscaler is part of the input.
func TestWhatIsScaled(t *testing.T) {
	s := scalingState(t)
	s.Scaled = parseObject(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, labels: {critical: "true"}}}`)
	in := s.Input()
	if diff := cmp.Diff(execution.InputScales{Kind: "Deployment", Name: "web", Labels: map[string]string{"critical": "true"}}, in.Target.Scales); diff != "" {
		t.Error(diff)
	}
	wantSchema(t, in)
}

// TestRequesterGroups verifies that policies see the groups of a verified request only.
func TestRequesterGroups(t *testing.T) {
	s := scalingState(t)
	s.Execution.Spec.RequesterGroups = []string{"sre", "oncall"}
	if got := s.Input().Request.RequestedBy.Groups; len(got) != 0 {
		t.Errorf("groups of an unverified request are %q, want none", got)
	}
	s.Execution.Status.VerifiedRequest = &v1alpha1.VerifiedRequest{AdmissionPolicyPeriod: "p1"}
	in := s.Input()
	if diff := cmp.Diff([]string{"sre", "oncall"}, in.Request.RequestedBy.Groups); diff != "" {
		t.Error(diff)
	}
	wantSchema(t, in)
}

func TestInputOfAScale(t *testing.T) {
	s := scalingState(t)
	got := s.Input()
	want := &execution.Input{
		APIVersion: "fleetloop.io/policy/v1", Now: inputTime.Unix(),
		Request: execution.InputRequest{
			Name: "scale-web", Namespace: "kubernaut-executor", UID: "uid-1", Action: "scale_deployment",
			Parameters:  json.RawMessage(`{"deployment":"web","namespace":"shop","replicas":5}`),
			RequestedBy: execution.InputUser{Username: "jane", Groups: []string{}}, RequestedByAgent: "claude-code 2.1",
			Environment: "production", Labels: map[string]string{}, Annotations: map[string]string{}, DryRunMode: "Policy",
		},
		Action: execution.InputAction{
			Name: "scale_deployment", Risk: "medium", Idempotent: true, Reversible: true, Scope: "Namespaced",
			RequiredPermissions: []string{"get apps/deployments", "patch apps/deployments/scale"},
		},
		Target: execution.InputTarget{
			APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web", UID: "uid-web",
			Labels: map[string]string{"app": "web"}, Annotations: map[string]string{}, OwnerChain: []string{},
			Object: map[string]any{"spec": s.Target.Object["spec"], "status": s.Target.Object["status"]},
			Scales: execution.InputScales{Labels: map[string]string{}},
		},
		Namespace: execution.InputNamespace{Name: "shop", Labels: map[string]string{}, Annotations: map[string]string{}},
		Cluster: execution.InputCluster{
			Name: "bed", TotalNodes: 3, ReadyNodes: 2, SchedulableNodes: 1, UnschedulableNodes: []string{"b"},
			AvailableCPU: 3500, AvailableMemory: 7 << 30,
		},
		InFlight:       execution.InputInFlight{ByAction: map[string]int{}, ByNamespace: map[string]int{}, SameTarget: []string{}},
		ServiceAccount: execution.InputServiceAccount{Name: "kubernaut-action-scale-deployment", PermissionsOK: true},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	wantSchema(t, got)
}

// wantSchema holds an input to the schema of policies.
func wantSchema(t *testing.T, in *execution.Input) {
	t.Helper()
	raw, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.CheckPolicyInput(raw); err != nil {
		t.Error(err)
	}
}

func TestEnvironment(t *testing.T) {
	labelled := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"environment": "staging", "example.com/stage": "development"}}}
	for name, c := range map[string]struct {
		reason    string
		says      string
		label     string
		namespace *corev1.Namespace
		want      string
		labelled  string
	}{
		"TheExecution": {
			reason: "what the execution says goes first, and hides no label", says: "test", want: "test", labelled: "development",
			label: "example.com/stage", namespace: labelled,
		},
		"TheNamespace": {
			reason: "then its namespace's label", label: "example.com/stage", namespace: labelled, want: "development", labelled: "development",
		},
		"AnotherLabel": {
			reason: "no label but the one of the settings counts", label: "example.com/tier", namespace: labelled, want: "production",
		},
		"Nothing":     {reason: "what nobody has classified is treated with care", namespace: &corev1.Namespace{}, want: "production"},
		"NoNamespace": {reason: "a Node has none", want: "production"},
	} {
		t.Run(name, func(t *testing.T) {
			s := scalingState(t)
			s.Execution.Spec.Environment, s.Namespace, s.EnvironmentLabel = c.says, c.namespace, c.label
			in := s.Input()
			got := []string{in.Request.Environment, in.Request.RequestedEnvironment, in.Namespace.Environment}
			if diff := cmp.Diff([]string{c.want, c.says, c.labelled}, got); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
		})
	}
}

func TestWhatElseChangesTheTarget(t *testing.T) {
	owner := func(api, kind, name string) metav1.OwnerReference {
		return metav1.OwnerReference{APIVersion: api, Kind: kind, Name: name}
	}
	scales := func(name, api, kind, of string) autoscalingv2.HorizontalPodAutoscaler {
		h := autoscalingv2.HorizontalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: name}}
		h.Spec.ScaleTargetRef = autoscalingv2.CrossVersionObjectReference{APIVersion: api, Kind: kind, Name: of}
		return h
	}
	for name, c := range map[string]struct {
		reason              string
		labels, annotations map[string]string
		owners              []metav1.OwnerReference
		scalers             []autoscalingv2.HorizontalPodAutoscaler
		want                execution.InputManagedBy
		chain               []string
	}{
		"Nobody": {reason: "a Deployment that somebody made by hand"},
		"ArgoCDByAnnotation": {
			reason: "how Argo CD marks what is its own, unless it is told otherwise", annotations: map[string]string{"argocd.argoproj.io/tracking-id": "shop:apps/Deployment:shop/web"},
			want: execution.InputManagedBy{GitOps: "argocd"},
		},
		"ArgoCDByLabel": {reason: "the other way it has", labels: map[string]string{"argocd.argoproj.io/instance": "shop"}, want: execution.InputManagedBy{GitOps: "argocd"}},
		"FluxKustomization": {
			reason: "Flux from a folder", labels: map[string]string{"kustomize.toolkit.fluxcd.io/name": "shop"}, want: execution.InputManagedBy{GitOps: "flux"},
		},
		"FluxHelmRelease": {
			reason: "a chart that Flux installs is Flux's, though it is Helm's, too",
			labels: map[string]string{"helm.toolkit.fluxcd.io/name": "shop", "app.kubernetes.io/managed-by": "Helm"},
			want:   execution.InputManagedBy{GitOps: "flux"},
		},
		"Helm": {
			reason: "a release by hand", labels: map[string]string{"app.kubernetes.io/managed-by": "Helm"},
			annotations: map[string]string{"meta.helm.sh/release-name": "shop"}, want: execution.InputManagedBy{GitOps: "helm"},
		},
		"InstanceAlone": {reason: "the recommended label says nothing of who manages", labels: map[string]string{"app.kubernetes.io/instance": "shop"}},
		"Operator": {
			reason: "a custom resource that owns it", owners: []metav1.OwnerReference{owner("monitoring.coreos.com/v1", "Prometheus", "main")},
			want: execution.InputManagedBy{Operator: "Prometheus/main"}, chain: []string{"Prometheus/main"},
		},
		"OperatorFurtherUp": {
			reason: "above what Kubernetes makes in between",
			owners: []metav1.OwnerReference{owner("apps/v1", "ReplicaSet", "web-1"), owner("apps/v1", "Deployment", "web"), owner("argoproj.io/v1alpha1", "Rollout", "web")},
			want:   execution.InputManagedBy{Operator: "Rollout/web"}, chain: []string{"ReplicaSet/web-1", "Deployment/web", "Rollout/web"},
		},
		"KubernetesOwn": {
			reason: "none of these is an operator",
			owners: []metav1.OwnerReference{owner("batch/v1", "Job", "j"), owner("batch/v1", "CronJob", "c"), owner("v1", "Node", "n"), owner("networking.k8s.io/v1", "Ingress", "i")},
			chain:  []string{"Job/j", "CronJob/c", "Node/n", "Ingress/i"},
		},
		"Sigs": {
			reason: "what is developed beside Kubernetes is an operator as any", owners: []metav1.OwnerReference{owner("jobset.x-k8s.io/v1alpha2", "JobSet", "train")},
			want: execution.InputManagedBy{Operator: "JobSet/train"}, chain: []string{"JobSet/train"},
		},
		"Scaled": {
			reason:  "by one that names it; of several it is always the same",
			scalers: []autoscalingv2.HorizontalPodAutoscaler{scales("z", "apps/v1", "Deployment", "web"), scales("b", "apps/v1", "Deployment", "web"), scales("a", "apps/v1", "Deployment", "db")},
			want:    execution.InputManagedBy{HPA: "b"},
		},
		"AnotherIsScaled": {
			reason:  "another kind, group or name is another object",
			scalers: []autoscalingv2.HorizontalPodAutoscaler{scales("a", "apps/v1", "StatefulSet", "web"), scales("b", "example.com/v1", "Deployment", "web"), scales("c", "apps/v1", "Deployment", "webs")},
		},
		"ScaledInAnotherVersion": {
			reason: "versions of one group are the same object", scalers: []autoscalingv2.HorizontalPodAutoscaler{scales("a", "apps/v1beta2", "Deployment", "web")},
			want: execution.InputManagedBy{HPA: "a"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := scalingState(t)
			s.Target.SetLabels(c.labels)
			s.Target.SetAnnotations(c.annotations)
			s.Owners, s.Scalers = c.owners, c.scalers
			in := s.Input()
			if diff := cmp.Diff(c.want, in.Target.ManagedBy); diff != "" {
				t.Errorf("%s:\n%s", c.reason, diff)
			}
			if diff := cmp.Diff(append([]string{}, c.chain...), in.Target.OwnerChain); diff != "" {
				t.Error(diff)
			}
			wantSchema(t, in)
		})
	}
}

func TestWhatIsNotTold(t *testing.T) {
	long := strings.Repeat("x", 5000)
	t.Run("Annotations", func(t *testing.T) {
		s := scalingState(t)
		s.Target.SetAnnotations(map[string]string{
			corev1.LastAppliedConfigAnnotation: `{"kind":"Deployment"}`, "long": long, "short": "y",
		})
		want := map[string]string{"short": "y"}
		if diff := cmp.Diff(want, s.Input().Target.Annotations); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("ManyAnnotations", func(t *testing.T) {
		s := scalingState(t)
		many := map[string]string{}
		for i := range 100 {
			many[strings.Repeat("k", 1+i)] = strings.Repeat("v", 1000)
		}
		s.Target.SetAnnotations(many)
		if n := len(s.Input().Target.Annotations); n == 0 || n > 16 {
			t.Errorf("%d annotations of 1000 bytes were kept", n)
		}
	})
	t.Run("LongTexts", func(t *testing.T) {
		s := scalingState(t)
		setField(t, s.Target, long, "spec", "template", "metadata", "annotations", "note")
		got, _, err := unstructured.NestedString(s.Input().Target.Object, "spec", "template", "metadata", "annotations", "note")
		if err != nil || len(got) > 1024 || !strings.HasSuffix(got, "…") {
			t.Errorf("%d bytes are left, ending in %q: %v", len(got), got[max(0, len(got)-8):], err)
		}
	})
	t.Run("LargeFields", func(t *testing.T) {
		s := scalingState(t)
		list := make([]any, 100)
		for i := range list {
			list[i] = strings.Repeat("x", 1000)
		}
		setField(t, s.Target, list, "status", "noise")
		got := s.Input().Target.Object
		if diff := cmp.Diff([]any{"status.noise"}, got["truncated"]); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff(s.Target.Object["spec"], got["spec"]); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("ImagesOfANode", func(t *testing.T) {
		s := scalingState(t)
		setField(t, s.Target, []any{"image"}, "status", "images")
		if _, found, _ := unstructured.NestedSlice(s.Input().Target.Object, "status", "images"); found {
			t.Error("the images are there")
		}
		if _, found, _ := unstructured.NestedSlice(s.Target.Object, "status", "images"); !found {
			t.Error("the target itself has lost its images")
		}
	})
	t.Run("Secrets", func(t *testing.T) {
		const hidden = "aHVudGVyMg=="
		s := scalingState(t)
		s.Request.Target = v1alpha1.Target{APIVersion: "v1", Kind: "Secret", Namespace: "shop", Name: "db"}
		s.Target = parseObject(t, `{apiVersion: v1, kind: Secret, metadata: {name: db, namespace: shop, labels: {a: b}, annotations: {copy: "`+hidden+`"}}, data: {password: "`+hidden+`"}, spec: {x: "`+hidden+`"}}`)
		in := s.Input()
		in.Plan = check.PlanInput(&v1alpha1.Plan{
			Target: v1alpha1.PlanTarget{Kind: "Secret"}, Diff: "- " + hidden, Before: &runtime.RawExtension{Raw: []byte(`{"password":"` + hidden + `"}`)},
			Steps: []v1alpha1.PlanStep{{Verb: "patch", Body: hidden}},
		}, nil)
		raw, err := json.Marshal(in)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(raw), hidden) {
			t.Errorf("a value of the Secret is told: %s", raw)
		}
		if diff := cmp.Diff(map[string]string{"a": "b"}, in.Target.Labels); diff != "" {
			t.Error(diff)
		}
		wantSchema(t, in)
	})
}

func setField(t *testing.T, o *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(o.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func TestNothingCountsAsAvailableThatNobodyCounted(t *testing.T) {
	s := scalingState(t)
	s.Used = nil
	if c := s.Input().Cluster; c.AvailableCPU != 0 || c.AvailableMemory != 0 {
		t.Errorf("available: %d millicores, %d bytes", c.AvailableCPU, c.AvailableMemory)
	}
}

func TestPlanOfAScale(t *testing.T) {
	plan := &v1alpha1.Plan{
		Hash: "h", Target: v1alpha1.PlanTarget{Kind: "Deployment"}, Diff: "- replicas: 3\n+ replicas: 5\n",
		Before: &runtime.RawExtension{Raw: []byte(`{"replicas":3}`)},
		Impact: v1alpha1.EstimatedImpact{ResourcesAffected: 1, ReplicasChanged: "3 -> 5"},
		Steps: []v1alpha1.PlanStep{{
			Description: "scale Deployment shop/web from 3 to 5 replicas", Verb: "patch", APIVersion: "apps/v1", Resource: "deployments",
			Subresource: "scale", Namespace: "shop", Name: "web", Body: `{"spec":{"replicas":5}}`,
		}},
		Rollback: &v1alpha1.RollbackInformation{Available: true},
	}
	want := &execution.InputPlan{
		Hash: "h", Affected: 1, ReplicasChanged: "3 -> 5", Diff: plan.Diff, Before: json.RawMessage(`{"replicas":3}`), Reversible: true,
		Changes: []map[string]any{{
			"verb": "patch", "apiVersion": "apps/v1", "resource": "deployments", "subresource": "scale", "namespace": "shop", "name": "web",
			"description": "scale Deployment shop/web from 3 to 5 replicas",
		}},
		DryRunPerformed: true, DryRunWarnings: []string{"careful"},
	}
	got := check.PlanInput(plan, &v1alpha1.DryRunResults{Performed: true, Warnings: []string{"careful"}})
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	in := scalingState(t).Input()
	in.Plan = check.PlanInput(&v1alpha1.Plan{}, nil) // that has next to nothing
	wantSchema(t, in)
}
