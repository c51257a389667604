package check

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/internal/execution"
)

const maxUnschedulable = 256 // maximum number of names

// ResourceAmounts is an amount of CPU in millicores and memory in bytes.
type ResourceAmounts struct{ CPU, Memory int64 }

// clusterInput counts the nodes. If used is nil, no capacity counts as available, so a policy never
// relies on uncounted capacity.
func clusterInput(name string, nodes []corev1.Node, used map[string]ResourceAmounts) execution.InputCluster {
	in := execution.InputCluster{Name: name, TotalNodes: len(nodes), UnschedulableNodes: []string{}}
	for i := range nodes {
		n := &nodes[i]
		ready := isNodeReady(n)
		if ready {
			in.ReadyNodes++
		}
		if n.Spec.Unschedulable {
			in.UnschedulableNodes = append(in.UnschedulableNodes, n.Name)
		}
		if !ready || n.Spec.Unschedulable {
			continue
		}
		in.SchedulableNodes++
		if used == nil {
			continue
		}
		taken := used[n.Name]
		in.AvailableCPU += max(0, n.Status.Allocatable.Cpu().MilliValue()-taken.CPU)
		in.AvailableMemory += max(0, n.Status.Allocatable.Memory().Value()-taken.Memory)
	}
	slices.Sort(in.UnschedulableNodes)
	in.UnschedulableNodes = in.UnschedulableNodes[:min(len(in.UnschedulableNodes), maxUnschedulable)]
	return in
}

// isNodeReady reports whether a node is ready.
func isNodeReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// RequestsByNode sums the requests of Pods that have not ended, per node.
func RequestsByNode(pods []corev1.Pod) map[string]ResourceAmounts {
	used := make(map[string]ResourceAmounts)
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		used[p.Spec.NodeName] = used[p.Spec.NodeName].addResources(podRequests(&p.Spec))
	}
	return used
}

// podRequests returns the requests of one Pod as the scheduler counts them: the sum of containers
// and sidecars, or the largest init container, plus the runtime overhead.
func podRequests(spec *corev1.PodSpec) ResourceAmounts {
	var containers, sidecars, largestInit ResourceAmounts
	for i := range spec.Containers {
		containers = containers.addResources(toResourceAmounts(spec.Containers[i].Resources.Requests))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		own := toResourceAmounts(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.addResources(own)
			largestInit = largestInit.maxResources(sidecars)
			continue
		}
		largestInit = largestInit.maxResources(sidecars.addResources(own))
	}
	return containers.addResources(sidecars).maxResources(largestInit).addResources(toResourceAmounts(spec.Overhead))
}

func toResourceAmounts(l corev1.ResourceList) ResourceAmounts {
	return ResourceAmounts{CPU: l.Cpu().MilliValue(), Memory: l.Memory().Value()}
}

func (r ResourceAmounts) addResources(o ResourceAmounts) ResourceAmounts {
	return ResourceAmounts{CPU: r.CPU + o.CPU, Memory: r.Memory + o.Memory}
}

func (r ResourceAmounts) maxResources(o ResourceAmounts) ResourceAmounts {
	return ResourceAmounts{CPU: max(r.CPU, o.CPU), Memory: max(r.Memory, o.Memory)}
}
