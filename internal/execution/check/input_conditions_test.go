package check_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/check"
	"github.com/fleetloop/fleetloop/internal/policy"
)

// flatInput are the names that conditions have beside the input of policies.
func flatInput(t *testing.T, s *check.ClusterState, plan *v1alpha1.Plan, pods []corev1.Pod) map[string]any {
	t.Helper()
	in := s.Input()
	raw, err := s.ConditionInput(in, plan, pods)
	if err != nil {
		t.Fatal(err)
	}
	if err := policy.CheckConditionInput(raw); err != nil {
		t.Error(err)
	}
	var all, own map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(in)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &own); err != nil {
		t.Fatal(err)
	}
	for k, v := range own {
		if shown := k == "target" || k == "namespace" || k == "plan"; shown { // TestWhatConditionsSee
			delete(all, k)
			continue
		}
		if diff := cmp.Diff(v, all[k]); diff != "" {
			t.Errorf("%q is another than policies are told:\n%s", k, diff)
		}
		delete(all, k)
	}
	return all
}

func TestFlatNames(t *testing.T) {
	pods := []corev1.Pod{
		newPod("web-2", corev1.PodPending, false), newPod("web-1", corev1.PodRunning, true), newPod("web-3", corev1.PodRunning, false), newPod("gone", corev1.PodRunning, true),
	}
	pods[2].Status.ContainerStatuses = []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}}}}
	pods[3].DeletionTimestamp = &metav1.Time{Time: inputTime}
	before := &v1alpha1.Plan{Before: &runtime.RawExtension{Raw: []byte(`{"replicas":2}`)}}
	full := map[string]any{
		"deployment_found": true, "deployment_name": "web",
		"current_replicas": 3.0, "expected_baseline": 2.0, "new_replicas": 5.0, "additional_replicas": 2.0, "target_replicas": 5.0,
		"available_cpu": 3500.0, "available_memory": 7.0 * (1 << 30),
		"required_cpu_per_pod": 300.0, "required_cpu": 600.0, "required_memory_per_pod": 320.0 * (1 << 20), "required_memory": 640.0 * (1 << 20),
		"matching_nodes": 1.0, "deployment_available": true,
		"conditions":   map[string]any{"Available": true, "Progressing": false},
		"running_pods": 2.0, "ready_pods": 1.0,
		"pods": []any{
			map[string]any{"name": "web-1", "status": "Running", "oom_killed": false},
			map[string]any{"name": "web-2", "status": "Pending", "oom_killed": false},
			map[string]any{"name": "web-3", "status": "Running", "oom_killed": true},
		},
	}
	t.Run("ADeployment", func(t *testing.T) {
		if diff := cmp.Diff(full, flatInput(t, scalingState(t), before, pods)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("ThatIsGone", func(t *testing.T) {
		s := scalingState(t)
		s.Target = nil
		want := map[string]any{
			"deployment_found": false, "deployment_name": "web", "expected_baseline": 2.0, "new_replicas": 5.0, "target_replicas": 5.0,
			"available_cpu": 3500.0, "available_memory": 7.0 * (1 << 30),
		}
		if diff := cmp.Diff(want, flatInput(t, s, before, nil)); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("WithoutPods", func(t *testing.T) {
		s := scalingState(t)
		s.Used = nil
		got := flatInput(t, s, before, nil)
		for _, name := range []string{"running_pods", "ready_pods", "pods", "available_cpu", "available_memory"} {
			if v, known := got[name]; known {
				t.Errorf("%s is %v, though nobody has counted", name, v)
			}
		}
	})
	t.Run("NoPodsAreNone", func(t *testing.T) {
		if got := flatInput(t, scalingState(t), nil, []corev1.Pod{}); got["running_pods"] != 0.0 {
			t.Errorf("running_pods is %v, want 0", got["running_pods"])
		}
	})
	t.Run("FewerReplicas", func(t *testing.T) {
		s := scalingState(t)
		setField(t, s.Target, int64(9), "spec", "replicas")
		got := flatInput(t, s, nil, nil)
		if got["additional_replicas"] != -4.0 || got["required_cpu"] != 0.0 || got["expected_baseline"] != 9.0 {
			t.Errorf("%v", got)
		}
	})
	t.Run("AnotherKind", func(t *testing.T) {
		s := scalingState(t)
		s.Request.Target.Kind = "ConfigMap"
		s.Request.Parameters = json.RawMessage(`{"replicas": "many"}`)
		s.Target = parseObject(t, `{apiVersion: v1, kind: ConfigMap, metadata: {name: web}}`)
		want := map[string]any{"available_cpu": 3500.0, "available_memory": 7.0 * (1 << 30)}
		if diff := cmp.Diff(want, flatInput(t, s, nil, nil)); diff != "" {
			t.Error(diff)
		}
	})
}

func newPod(name string, phase corev1.PodPhase, ready bool) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.PodStatus{Phase: phase}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

func TestPodSelector(t *testing.T) {
	s := scalingState(t)
	if selector, ok := s.PodSelector(); !ok || selector.MatchLabels["app"] != "web" {
		t.Errorf("%v, %t", selector, ok)
	}
	setField(t, s.Target, map[string]any{}, "spec", "selector")
	if selector, ok := s.PodSelector(); ok {
		t.Errorf("an empty selector, which is all Pods, was taken: %v", selector)
	}
	s.Target = nil
	if _, ok := s.PodSelector(); ok {
		t.Error("what is gone has Pods")
	}
}

// TestRequestsByNode verifies that the requests of a Pod equal those counted by the scheduler.
func TestRequestsByNode(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	with := func(cpu string, restart *corev1.ContainerRestartPolicy) corev1.Container {
		return corev1.Container{RestartPolicy: restart, Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}}}
	}
	for name, c := range map[string]struct {
		reason string
		pod    corev1.Pod
		want   int64
	}{
		"Containers": {reason: "they run together", pod: corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{with("1", nil), with("500m", nil)}}}, want: 1500},
		"AnInitContainer": {
			reason: "it runs before the others", want: 3000,
			pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{with("3", nil), with("2", nil)}, Containers: []corev1.Container{with("1", nil)}}},
		},
		"ASidecar": {
			reason: "it stays", want: 3000,
			pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{with("2", &always)}, Containers: []corev1.Container{with("1", nil)}}},
		},
		"ASidecarBesideAnInitContainer": {
			reason: "the later one runs beside it", want: 5000,
			pod: corev1.Pod{Spec: corev1.PodSpec{InitContainers: []corev1.Container{with("2", &always), with("3", nil)}, Containers: []corev1.Container{with("1", nil)}}},
		},
		"Overhead": {
			reason: "the runtime takes some", want: 1250,
			pod: corev1.Pod{Spec: corev1.PodSpec{Overhead: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("250m")}, Containers: []corev1.Container{with("1", nil)}}},
		},
		"Ended": {
			reason: "it takes nothing any more", want: 0,
			pod: corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{with("1", nil)}}, Status: corev1.PodStatus{Phase: corev1.PodSucceeded}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c.pod.Spec.NodeName = "a"
			if got := check.RequestsByNode([]corev1.Pod{c.pod})["a"].CPU; got != c.want {
				t.Errorf("%s: %d, want %d", c.reason, got, c.want)
			}
		})
	}
	if got := check.RequestsByNode([]corev1.Pod{{Spec: corev1.PodSpec{Containers: []corev1.Container{with("1", nil)}}}}); len(got) != 0 {
		t.Errorf("a Pod that is on no node takes %v", got)
	}
}
