package check

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const (
	maxPods  = 100  // that conditions are told of one by one
	maxNames = 1000 // of nodes
)

// aliases are the flat names that conditions know beside the input of policies.
// What does not apply, or cannot be known, has no name, so that a condition
// which asks for it does not hold.
func (r *round) aliases(ctx context.Context, plan *v1alpha1.Plan) (map[string]any, error) {
	names := map[string]any{
		"available_cpu":    r.input.Cluster.AvailableCPU,
		"available_memory": r.input.Cluster.AvailableMemory,
	}
	if r.cfg.WithoutPods {
		clear(names)
	}
	t := r.request.Target
	if t.Kind == kindDeployment {
		names["deployment_found"] = r.live != nil
		names["deployment_name"] = t.Name
	}
	addReplicas(names, r.live, r.request.Parameters, plan)
	if r.live == nil {
		return names, nil
	}
	w, ok := workloadOf(r.live)
	if !ok {
		return names, nil
	}
	w.addStatus(names)
	w.addRequests(names)
	var nodes corev1.NodeList
	if err := r.deps.Reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Nodes: %w", err)
	}
	names["matching_nodes"] = matching(w.Spec.Template.Spec.NodeSelector, nodes.Items)
	if r.cfg.WithoutPods {
		return names, nil
	}
	return names, r.addPods(ctx, names, w)
}

const kindDeployment = "Deployment"

// addReplicas adds how many replicas there are to be, were and will be.
func addReplicas(names map[string]any, live *unstructured.Unstructured, parameters json.RawMessage, plan *v1alpha1.Plan) {
	var asked, before struct {
		Replicas *int64 `json:"replicas"`
	}
	// Of other actions these have no replicas, or something else by that name.
	_ = json.Unmarshal(parameters, &asked)
	if plan != nil && plan.Before != nil {
		_ = json.Unmarshal(plan.Before.Raw, &before)
	}
	var current *int64
	if live != nil {
		if n, found, err := unstructured.NestedInt64(live.Object, "spec", "replicas"); err == nil && found {
			current = &n
		}
	}
	if current != nil {
		names["current_replicas"] = *current
		names["expected_baseline"] = *current
		names["target_replicas"] = *current
	}
	if before.Replicas != nil {
		names["expected_baseline"] = *before.Replicas
	}
	if asked.Replicas != nil {
		names["new_replicas"] = *asked.Replicas
		names["target_replicas"] = *asked.Replicas
		if current != nil {
			names["additional_replicas"] = *asked.Replicas - *current
		}
	}
}

// A workload is what Deployments, StatefulSets, DaemonSets and ReplicaSets have
// in common.
type workload struct {
	Spec struct {
		Selector *metav1.LabelSelector  `json:"selector"`
		Template corev1.PodTemplateSpec `json:"template"`
	} `json:"spec"`
	Status struct {
		Conditions []struct {
			Type   string                 `json:"type"`
			Status corev1.ConditionStatus `json:"status"`
		} `json:"conditions"`
	} `json:"status"`
	kind string
}

// workloadOf reads an object as one that has Pods.
func workloadOf(live *unstructured.Unstructured) (*workload, bool) {
	if !slices.Contains([]string{kindDeployment, "StatefulSet", "DaemonSet", "ReplicaSet"}, live.GetKind()) {
		return nil, false
	}
	w := &workload{kind: live.GetKind()}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(live.Object, w); err != nil {
		return nil, false
	}
	return w, true
}

// addStatus adds the object's own conditions.
func (w *workload) addStatus(names map[string]any) {
	conditions := map[string]bool{}
	for _, c := range w.Status.Conditions {
		conditions[c.Type] = c.Status == corev1.ConditionTrue
	}
	names["conditions"] = conditions
	if w.kind == kindDeployment {
		names["deployment_available"] = conditions["Available"]
	}
}

// addRequests adds what one more Pod takes, and all that are to come.
func (w *workload) addRequests(names map[string]any) {
	each := requestsOf(&w.Spec.Template.Spec)
	names["required_cpu_per_pod"], names["required_memory_per_pod"] = each.cpu, each.memory
	if more, ok := names["additional_replicas"].(int64); ok {
		more = max(0, more)
		names["required_cpu"], names["required_memory"] = each.cpu*more, each.memory*more
	}
}

// matching are the nodes that Pods with a selector can be put on.
func matching(selector map[string]string, nodes []corev1.Node) []string {
	names := []string{}
	for i := range nodes {
		n := &nodes[i]
		if !ready(n) || n.Spec.Unschedulable {
			continue
		}
		fits := true
		for k, v := range selector {
			if own, ok := n.Labels[k]; !ok || own != v {
				fits = false
			}
		}
		if fits {
			names = append(names, n.Name)
		}
	}
	slices.Sort(names)
	return names[:min(len(names), maxNames)]
}

// addPods adds the Pods of a workload.
func (r *round) addPods(ctx context.Context, names map[string]any, w *workload) error {
	selector, err := metav1.LabelSelectorAsSelector(w.Spec.Selector)
	if err != nil || selector.Empty() {
		return nil //nolint:nilerr // the object has no Pods that anybody could tell; its own checks are not ours
	}
	var pods corev1.PodList
	err = r.deps.Reader.List(ctx, &pods, client.InNamespace(r.request.Target.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return fmt.Errorf("list Pods in namespace %q: %w", r.request.Target.Namespace, err)
	}
	podAliases(names, pods.Items)
	return nil
}

// A podAlias is what conditions are told of one Pod. Whether it is throttled is
// not: nothing that we read says so.
type podAlias struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	OOMKilled bool   `json:"oom_killed"`
}

// podAliases counts Pods that are not being deleted, and tells of some.
func podAliases(names map[string]any, pods []corev1.Pod) {
	running, up := int64(0), int64(0)
	list := []podAlias{}
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
		if podReady(p) {
			up++
		}
		list = append(list, podAlias{Name: p.Name, Status: string(p.Status.Phase), OOMKilled: oomKilled(p)})
	}
	slices.SortFunc(list, func(a, b podAlias) int { return strings.Compare(a.Name, b.Name) })
	names["running_pods"], names["ready_pods"] = running, up
	names["pods"] = list[:min(len(list), maxPods)]
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// oomKilled says whether a container has run out of memory, now or the last time.
func oomKilled(p *corev1.Pod) bool {
	const reason = "OOMKilled"
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		now, last := s.State.Terminated, s.LastTerminationState.Terminated
		return now != nil && now.Reason == reason || last != nil && last.Reason == reason
	})
}
