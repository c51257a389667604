package check

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/execution"
)

const (
	// requestsAge is for how long what Pods request is not added up again. It is
	// the one thing in a check that grows with the cluster's Pods.
	requestsAge = 5 * time.Second

	maxUnschedulable = 256 // names
)

var errNoAnswer = errors.New("the Kubernetes API did not answer in time")

// resources are an amount of CPU, in millicores, and memory, in bytes.
type resources struct{ cpu, memory int64 }

// requested remembers what the Pods of each node request.
type requested struct {
	mu     sync.Mutex
	at     time.Time
	byNode map[string]resources
}

// cluster is the cluster as a whole.
func (r *round) cluster(ctx context.Context) (execution.InputCluster, error) {
	var nodes corev1.NodeList
	if err := r.deps.Reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return execution.InputCluster{}, fmt.Errorf("list Nodes: %w", err)
	}
	var used map[string]resources
	if !r.cfg.WithoutPods {
		var err error
		if used, err = r.podRequests(ctx); err != nil {
			return execution.InputCluster{}, err
		}
	}
	return clusterInput(r.cfg.ClusterName, nodes.Items, used), nil
}

// podRequests is what the Pods request, by node.
func (r *round) podRequests(ctx context.Context) (map[string]resources, error) {
	c := &r.requests
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := r.now.Sub(c.at); c.byNode != nil && age >= 0 && age < requestsAge {
		return c.byNode, nil
	}
	var pods corev1.PodList
	if err := r.deps.Reader.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	c.byNode, c.at = requestsByNode(pods.Items), r.now
	return c.byNode, nil
}

// clusterInput counts nodes. Without used nothing counts as available, so that
// a policy which wants room does not find some that nobody has counted.
func clusterInput(name string, nodes []corev1.Node, used map[string]resources) execution.InputCluster {
	in := execution.InputCluster{Name: name, TotalNodes: len(nodes), UnschedulableNodes: []string{}}
	for i := range nodes {
		n := &nodes[i]
		up := ready(n)
		if up {
			in.ReadyNodes++
		}
		if n.Spec.Unschedulable {
			in.UnschedulableNodes = append(in.UnschedulableNodes, n.Name)
		}
		if !up || n.Spec.Unschedulable {
			continue
		}
		in.SchedulableNodes++
		if used == nil {
			continue
		}
		taken := used[n.Name]
		in.AvailableCPU += max(0, n.Status.Allocatable.Cpu().MilliValue()-taken.cpu)
		in.AvailableMemory += max(0, n.Status.Allocatable.Memory().Value()-taken.memory)
	}
	slices.Sort(in.UnschedulableNodes)
	in.UnschedulableNodes = in.UnschedulableNodes[:min(len(in.UnschedulableNodes), maxUnschedulable)]
	return in
}

// ready says whether a node is.
func ready(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

// requestsByNode adds up what Pods request that have not ended.
func requestsByNode(pods []corev1.Pod) map[string]resources {
	used := make(map[string]resources)
	for i := range pods {
		p := &pods[i]
		if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		u, own := used[p.Spec.NodeName], requestsOf(&p.Spec)
		used[p.Spec.NodeName] = resources{cpu: u.cpu + own.cpu, memory: u.memory + own.memory}
	}
	return used
}

// requestsOf is what one Pod requests, as the scheduler counts: all containers
// together with the sidecars, or the largest of those that run before them, and
// what the runtime takes.
func requestsOf(spec *corev1.PodSpec) resources {
	var all, sidecars, first resources
	for i := range spec.Containers {
		all = all.plus(of(spec.Containers[i].Resources.Requests))
	}
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		own := of(c.Resources.Requests)
		if c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways {
			sidecars = sidecars.plus(own)
			first = first.most(sidecars)
			continue
		}
		first = first.most(sidecars.plus(own))
	}
	return all.plus(sidecars).most(first).plus(of(spec.Overhead))
}

func of(l corev1.ResourceList) resources {
	return resources{cpu: l.Cpu().MilliValue(), memory: l.Memory().Value()}
}

func (r resources) plus(o resources) resources {
	return resources{cpu: r.cpu + o.cpu, memory: r.memory + o.memory}
}

func (r resources) most(o resources) resources {
	return resources{cpu: max(r.cpu, o.cpu), memory: max(r.memory, o.memory)}
}
