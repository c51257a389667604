package check

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
)

const (
	// requestsAge is the maximum age of the cached sum of Pod requests. The sum is
	// the only part of a check that grows with the number of Pods: 10,000 take
	// about 10 ms.
	requestsAge = 5 * time.Second

	requestTimeout = 10 * time.Second // per request

	maxOwners = 5
)

var errNoAnswer = errors.New("the Kubernetes API did not respond in time")

// gatherState reads the policy input other than the target.
func (r *round) gatherState(ctx context.Context) error {
	t := r.request.Target
	r.state = &ClusterState{
		Now: r.now, Execution: r.ke, Request: r.request,
		Target: r.live, Scaled: r.scaled, Unread: r.live == nil && !r.permitted, Protected: r.shield != "", Namespace: r.space,
		PermissionsOK:    r.permitted,
		EnvironmentLabel: r.cfg.EnvironmentLabel, Cluster: r.cfg.ClusterName,
		InFlight: r.deps.Traffic.InFlight(r.ke.UID),
		Past: r.deps.Traffic.History(r.request.Action.Name, gate.TargetKey(v1alpha1.PlanTarget{
			APIVersion: t.APIVersion, Kind: t.Kind, Namespace: t.Namespace, Name: t.Name,
		}), r.now),
	}
	var nodes corev1.NodeList
	if err := r.deps.Reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	r.state.Nodes = nodes.Items
	if t.Namespace != "" && r.live != nil {
		var scalers autoscalingv2.HorizontalPodAutoscalerList
		if err := r.deps.Reader.List(ctx, &scalers, client.InNamespace(t.Namespace), client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("list HorizontalPodAutoscalers in namespace %q: %w", t.Namespace, err)
		}
		r.state.Scalers = scalers.Items
	}
	var err error
	if r.state.Used, err = r.podRequests(ctx); err != nil {
		return err
	}
	return r.gatherOwners(ctx)
}

// gatherOwners follows the controller references of the target upwards. The target holds the first
// reference; the owners above are read, and the chain ends where that fails.
func (r *round) gatherOwners(ctx context.Context) error {
	if r.live == nil {
		return nil
	}
	for ref := metav1.GetControllerOf(r.live); ref != nil && len(r.state.Owners) < maxOwners; {
		r.state.Owners = append(r.state.Owners, *ref)
		if IsForeignOwner(*ref) || ref.Kind != "ReplicaSet" && ref.Kind != "Job" {
			return nil // of the built-in kinds only these two have built-in owners
		}
		var o metav1.PartialObjectMetadata
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		err := r.deps.Reader.Get(ctx, client.ObjectKey{Namespace: r.live.GetNamespace(), Name: ref.Name}, &o)
		switch {
		case err != nil && ctx.Err() != nil:
			return fmt.Errorf("read %s %q: %w", ref.Kind, ref.Name, err)
		case err != nil || o.UID != ref.UID:
			return nil //nolint:nilerr // nobody depends on how far up is known
		}
		ref = metav1.GetControllerOf(&o)
	}
	return nil
}

// requested caches the resource requests per node.
type requested struct {
	mu     sync.Mutex
	at     time.Time
	byNode map[string]ResourceAmounts
}

// podRequests returns the resource requests of Pods per node.
func (r *round) podRequests(ctx context.Context) (map[string]ResourceAmounts, error) {
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
	c.byNode, c.at = RequestsByNode(pods.Items), r.now
	return c.byNode, nil
}

// listPods returns the Pods of the target, or nil if they are unknown or the target selects none.
func (r *round) listPods(ctx context.Context) ([]corev1.Pod, error) {
	labels, ok := r.state.PodSelector()
	if !ok {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(labels)
	if err != nil {
		return nil, nil //nolint:nilerr // the API server took it, so that it will not happen; and then nothing is known
	}
	list := corev1.PodList{Items: []corev1.Pod{}}
	err = r.deps.Reader.List(ctx, &list, client.InNamespace(r.request.Target.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Pods in namespace %q: %w", r.request.Target.Namespace, err)
	}
	return list.Items, nil
}
