package check

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/roles"
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

// gatherClusterState reads the policy input other than the target.
func (r *round) gatherClusterState(ctx context.Context) error {
	target := r.request.Target
	targetKey := execution.TargetKey(v1alpha1.PlanTarget{
		APIVersion: target.APIVersion, Kind: target.Kind, Namespace: target.Namespace, Name: target.Name,
	})
	traffic := r.checker.deps.Traffic
	state := &ClusterState{
		Now:              r.now,
		Execution:        r.ke,
		Request:          r.request,
		Target:           r.target.live,
		Scaled:           r.target.scaled,
		Unread:           r.target.live == nil && !r.account.permitted,
		Protected:        r.target.shield != "",
		Namespace:        r.target.space,
		PermissionsOK:    r.account.permitted,
		EnvironmentLabel: r.checker.cfg.EnvironmentLabel,
		Cluster:          r.checker.cfg.ClusterName,
		InFlight:         traffic.InFlight(r.ke.UID),
		Past:             traffic.History(r.request.Action.Name, targetKey, r.now),
	}
	r.state = state

	reader := r.checker.deps.Reader
	var nodes corev1.NodeList
	if err := reader.List(ctx, &nodes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Nodes: %w", err)
	}
	state.Nodes = nodes.Items
	if target.Namespace != "" && r.target.live != nil {
		var scalers autoscalingv2.HorizontalPodAutoscalerList
		err := reader.List(ctx, &scalers, client.InNamespace(target.Namespace), client.UnsafeDisableDeepCopy)
		if err != nil {
			return fmt.Errorf("list HorizontalPodAutoscalers in namespace %q: %w", target.Namespace, err)
		}
		state.Scalers = scalers.Items
	}
	var err error
	state.Used, err = r.checker.requests.requestsByNode(ctx, reader, r.now)
	if err != nil {
		return err
	}
	state.Owners, err = findOwnerChain(ctx, reader, r.target.live)
	return err
}

// findOwnerChain follows the controller references of the target upwards. The target holds the first
// reference; the owners above are read, and the chain ends where that fails.
func findOwnerChain(
	ctx context.Context, reader client.Reader, live *unstructured.Unstructured,
) (owners []metav1.OwnerReference, err error) {
	if live == nil {
		return nil, nil
	}
	ref := metav1.GetControllerOf(live)
	for ref != nil && len(owners) < maxOwners {
		owners = append(owners, *ref)
		mayHaveBuiltInOwner := ref.Kind == "ReplicaSet" || ref.Kind == "Job" // of the built-in kinds
		if IsCustomResourceOwner(*ref) || !mayHaveBuiltInOwner {
			return owners, nil
		}
		var owner metav1.PartialObjectMetadata
		owner.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		err := reader.Get(ctx, client.ObjectKey{Namespace: live.GetNamespace(), Name: ref.Name}, &owner)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil, fmt.Errorf("read %s %q: %w", ref.Kind, ref.Name, err)
		case err != nil || owner.UID != ref.UID:
			return owners, nil //nolint:nilerr // nobody depends on how far up is known
		}
		ref = metav1.GetControllerOf(&owner)
	}
	return owners, nil
}

// podRequestCache caches the resource requests per node.
type podRequestCache struct {
	mu     sync.Mutex
	at     time.Time
	byNode map[string]ResourceAmounts
}

// requestsByNode returns the resource requests of Pods per node.
func (c *podRequestCache) requestsByNode(ctx context.Context, reader client.Reader, now time.Time) (map[string]ResourceAmounts, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if age := now.Sub(c.at); c.byNode != nil && age >= 0 && age < requestsAge {
		return c.byNode, nil
	}
	var pods corev1.PodList
	if err := reader.List(ctx, &pods, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list Pods: %w", err)
	}
	c.byNode = RequestsByNode(pods.Items)
	c.at = now
	return c.byNode, nil
}

// listTargetPods returns the Pods of the target, or nil if they are unknown or the target selects none.
func listTargetPods(ctx context.Context, reader client.Reader, state *ClusterState) ([]corev1.Pod, error) {
	labels, selectsPods := state.PodSelector()
	if !selectsPods {
		return nil, nil
	}
	selector, err := metav1.LabelSelectorAsSelector(labels)
	if err != nil {
		return nil, nil //nolint:nilerr // the API server took it, so that it will not happen; and then nothing is known
	}
	list := corev1.PodList{Items: []corev1.Pod{}}
	err = reader.List(ctx, &list, client.InNamespace(state.Request.Target.Namespace),
		client.MatchingLabelsSelector{Selector: selector}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list Pods in namespace %q: %w", state.Request.Target.Namespace, err)
	}
	return list.Items, nil
}

// maxSecrets limits the number of Secrets looked up per target.
const maxSecrets = 64

// usesInvalidSecrets reports whether a condition uses the Secrets of its target. They are looked up
// only then, because each needs a request.
func usesInvalidSecrets(c v1alpha1.Condition) bool {
	return strings.Contains(c.Rego, "invalid_secrets")
}

// findMissingOrWrongTypeSecrets finds the Secrets that an object references and cannot use. unknownReason is
// set if the lookup is impossible; conditions that use the result do not hold then.
func findMissingOrWrongTypeSecrets(ctx context.Context, secrets lookups, live *unstructured.Unstructured, t v1alpha1.Target) (
	invalid []string, unknownReason string, err error,
) {
	refs, known := RequiredSecretRefs(live)
	if !known {
		return nil, "", nil
	}
	if len(refs) > maxSecrets {
		return nil, fmt.Sprintf("invalid_secrets is unknown: %s references %d Secrets, but the controller checks at most %d",
			formatTarget(t), len(refs), maxSecrets), nil
	}
	invalid = []string{} // not nil, which would mean that they are unknown
	for _, ref := range refs {
		secretType, found, err := secrets.SecretType(ctx, t.Namespace, ref.Name)
		_, accountMissing := errors.AsType[*roles.MissingError](err)
		switch {
		case accountMissing || apierrors.IsForbidden(err):
			return nil, fmt.Sprintf("invalid_secrets is unknown: %v: create service account %s and bind its role in namespace %q",
				err, roles.SecretLookup, t.Namespace), nil
		case err != nil:
			return nil, "", err
		case !found || ref.Pulls && !isImagePullSecretType(secretType):
			invalid = append(invalid, ref.Name)
		}
	}
	return invalid, "", nil
}

// isImagePullSecretType reports whether Secrets of a type can be used to pull images.
func isImagePullSecretType(secretType string) bool {
	return secretType == string(corev1.SecretTypeDockerConfigJson) || secretType == string(corev1.SecretTypeDockercfg)
}
