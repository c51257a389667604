package check

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

const maxConditionPods = 100 // listed individually for conditions

// ConditionInput returns the input of conditions: the parts of the policy input that a requester may
// see, and flat names beside them. A name that does not apply or is unknown is absent, so a
// condition that uses it does not hold. pods are those of PodSelector; nil means unknown.
func (s *ClusterState) ConditionInput(in *execution.Input, plan *v1alpha1.Plan, pods []corev1.Pod) (json.RawMessage, error) {
	names := map[string]any{}
	if s.Used != nil {
		names["available_cpu"] = in.Cluster.AvailableCPU
		names["available_memory"] = in.Cluster.AvailableMemory
	}
	t := s.Request.Target
	if t.Kind == kindDeployment {
		names["deployment_name"] = t.Name
		if !s.Unread {
			names["deployment_found"] = s.Target != nil
		}
	}
	if s.InvalidSecrets != nil {
		names["invalid_secrets"] = s.InvalidSecrets
	}
	addReplicaVariables(names, s.Target, s.Request.Parameters, plan)
	if w, ok := decodeWorkload(s.Target); ok {
		w.addStatusConditionVariables(names, t.Kind)
		w.addResourceRequestVariables(names)
		names["matching_nodes"] = countSchedulableNodes(w.Spec.Template.Spec.NodeSelector, s.Nodes)
		if pods != nil {
			addPodVariables(names, pods)
		}
	}
	all, err := inputVisibleToConditions(in, s.Target)
	if err != nil {
		return nil, err
	}
	return encodeInputMergedWithVariables(all, names)
}

// PodSelector returns the selector of the Pods of the target. ok is false if it has none.
func (s *ClusterState) PodSelector() (selector *metav1.LabelSelector, ok bool) {
	w, ok := decodeWorkload(s.Target)
	if !ok || w.Spec.Selector == nil || len(w.Spec.Selector.MatchLabels)+len(w.Spec.Selector.MatchExpressions) == 0 {
		return nil, false // an empty selector would select all Pods
	}
	return w.Spec.Selector, true
}

// encodeInputMergedWithVariables adds names to the top level of an input. Existing members of the input take
// precedence.
func encodeInputMergedWithVariables(input map[string]json.RawMessage, variables map[string]any) (json.RawMessage, error) {
	all := maps.Clone(variables)
	for name, value := range input {
		all[name] = value
	}
	text, err := json.Marshal(all)
	if err != nil {
		return nil, fmt.Errorf("encode condition input: %w", err)
	}
	return text, nil
}

const kindDeployment = "Deployment"

// addReplicaVariables adds the requested, previous and resulting numbers of replicas.
func addReplicaVariables(variables map[string]any, live *unstructured.Unstructured, parameters json.RawMessage, plan *v1alpha1.Plan) {
	var current int64
	var hasCurrent bool
	if live != nil {
		current, hasCurrent, _ = unstructured.NestedInt64(live.Object, "spec", "replicas") // another type counts as none
	}
	if hasCurrent {
		variables["current_replicas"] = current
		variables["expected_baseline"] = current
		variables["target_replicas"] = current
	}
	if plan != nil && plan.Before != nil {
		if before := parseReplicasField(plan.Before.Raw); before != nil {
			variables["expected_baseline"] = *before
		}
	}
	if requested := parseReplicasField(parameters); requested != nil {
		variables["new_replicas"] = *requested
		variables["target_replicas"] = *requested
		if hasCurrent {
			variables["additional_replicas"] = *requested - current
		}
	}
}

// parseReplicasField returns the field replicas, or nil. Other actions may use the name for another type.
func parseReplicasField(raw json.RawMessage) *int64 {
	var fields struct {
		Replicas *int64 `json:"replicas"`
	}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return nil
	}
	return fields.Replicas
}

// A workload holds the common fields of Deployments, StatefulSets, DaemonSets and ReplicaSets.
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
}

// decodeWorkload decodes an object that has Pods.
func decodeWorkload(live *unstructured.Unstructured) (decoded *workload, isWorkload bool) {
	if live == nil || !slices.Contains([]string{kindDeployment, "StatefulSet", "DaemonSet", "ReplicaSet"}, live.GetKind()) {
		return nil, false
	}
	text, err := json.Marshal(map[string]any{"spec": live.Object["spec"], "status": live.Object["status"]})
	if err != nil {
		return nil, false
	}
	w := new(workload)
	if err := json.Unmarshal(text, w); err != nil {
		return nil, false
	}
	return w, true
}

// addStatusConditionVariables adds the status conditions of the object.
func (w *workload) addStatusConditionVariables(variables map[string]any, kind string) {
	conditions := map[string]bool{}
	for _, c := range w.Status.Conditions {
		conditions[c.Type] = c.Status == corev1.ConditionTrue
	}
	variables["conditions"] = conditions
	if kind == kindDeployment {
		variables["deployment_available"] = conditions["Available"]
	}
}

// addResourceRequestVariables adds the requests of one more Pod and of all additional Pods.
func (w *workload) addResourceRequestVariables(variables map[string]any) {
	each := podRequests(&w.Spec.Template.Spec)
	variables["required_cpu_per_pod"], variables["required_memory_per_pod"] = each.CPU, each.Memory
	if more, ok := variables["additional_replicas"].(int64); ok {
		more = max(0, more)
		variables["required_cpu"], variables["required_memory"] = each.CPU*more, each.Memory*more
	}
}

// countSchedulableNodes returns the number of nodes on which Pods with the selector can be scheduled.
func countSchedulableNodes(selector map[string]string, nodes []corev1.Node) int {
	count := 0
	for i := range nodes {
		n := &nodes[i]
		if isNodeReady(n) && !n.Spec.Unschedulable && containsAll(n.Labels, selector) {
			count++
		}
	}
	return count
}

func containsAll(labels, wanted map[string]string) bool {
	for name, value := range wanted {
		if own, ok := labels[name]; !ok || own != value {
			return false
		}
	}
	return true
}

// A podAlias is the condition input of one Pod. It does not include throttling, which no available
// data shows.
type podAlias struct {
	Name      string `json:"name"`
	Status    string `json:"status"`
	OOMKilled bool   `json:"oom_killed"`
}

// addPodVariables counts the Pods that are not being deleted, and lists some of them.
func addPodVariables(variables map[string]any, pods []corev1.Pod) {
	var running, ready int64
	list := []podAlias{}
	for i := range pods {
		p := &pods[i]
		if p.DeletionTimestamp != nil {
			continue
		}
		if p.Status.Phase == corev1.PodRunning {
			running++
		}
		if isPodReady(p) {
			ready++
		}
		list = append(list, podAlias{Name: p.Name, Status: string(p.Status.Phase), OOMKilled: wasOOMKilled(p)})
	}
	slices.SortFunc(list, func(a, b podAlias) int { return strings.Compare(a.Name, b.Name) })
	variables["running_pods"] = running
	variables["ready_pods"] = ready
	variables["pods"] = list[:min(len(list), maxConditionPods)]
}

func isPodReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// wasOOMKilled reports whether a container ran out of memory, in this run or the previous one.
func wasOOMKilled(p *corev1.Pod) bool {
	const reason = "OOMKilled"
	return slices.ContainsFunc(p.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool {
		now, last := s.State.Terminated, s.LastTerminationState.Terminated
		return now != nil && now.Reason == reason || last != nil && last.Reason == reason
	})
}
