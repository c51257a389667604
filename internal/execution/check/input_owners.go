package check

import (
	"context"
	"fmt"
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

const maxOwners = 5

// owners follows the controllers of the target upwards. The first is in the
// target itself; those above are looked for, and where they are not to be had
// the chain ends.
func (r *round) owners(ctx context.Context) ([]metav1.OwnerReference, error) {
	if r.live == nil {
		return nil, nil
	}
	ref := metav1.GetControllerOf(r.live)
	var chain []metav1.OwnerReference
	for ref != nil && len(chain) < maxOwners {
		chain = append(chain, *ref)
		if foreign(*ref) || top(*ref) { // nobody we know of is above
			break
		}
		var o metav1.PartialObjectMetadata
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind))
		if err := r.deps.Reader.Get(ctx, client.ObjectKey{Namespace: r.live.GetNamespace(), Name: ref.Name}, &o); err != nil {
			if ctx.Err() != nil {
				return nil, fmt.Errorf("read %s %q: %w", ref.Kind, ref.Name, err)
			}
			break
		}
		ref = metav1.GetControllerOf(&o)
	}
	return chain, nil
}

// top says whether an owner is of a kind that people and operators make. Only
// ReplicaSets and Jobs are made by another kind of Kubernetes' own.
func top(ref metav1.OwnerReference) bool { return ref.Kind != "ReplicaSet" && ref.Kind != "Job" }

// owners are a chain for readers.
func owners(chain []metav1.OwnerReference) []string {
	names := make([]string, len(chain))
	for i, ref := range chain {
		names[i] = ref.Kind + "/" + ref.Name
	}
	return names
}

// operator is the first owner that is not of Kubernetes itself; empty is none.
func operator(chain []metav1.OwnerReference) string {
	for _, ref := range chain {
		if foreign(ref) {
			return ref.Kind + "/" + ref.Name
		}
	}
	return ""
}

// foreign says whether an owner is of a group that Kubernetes does not have.
func foreign(ref metav1.OwnerReference) bool {
	group, _, grouped := strings.Cut(ref.APIVersion, "/")
	switch {
	case !grouped: // the core group
		return false
	case !strings.Contains(group, "."): // apps, batch, autoscaling, policy
		return false
	}
	// Groups below k8s.io are Kubernetes' own, those below x-k8s.io are not.
	return !strings.HasSuffix(group, ".k8s.io")
}

// gitOps is the tool that keeps an object as a repository or a chart has it;
// empty is none.
func gitOps(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	labels, notes := live.GetLabels(), live.GetAnnotations()
	switch {
	case notes["argocd.argoproj.io/tracking-id"] != "" || labels["argocd.argoproj.io/instance"] != "":
		return "argocd"
	case labels["kustomize.toolkit.fluxcd.io/name"] != "" || labels["helm.toolkit.fluxcd.io/name"] != "":
		return "flux"
	case notes["meta.helm.sh/release-name"] != "" || labels["app.kubernetes.io/managed-by"] == "Helm":
		return "helm"
	}
	return ""
}

// scaler is the HorizontalPodAutoscaler that scales the target; empty is none.
func (r *round) scaler(ctx context.Context) (string, error) {
	t := r.request.Target
	if t.Namespace == "" || r.live == nil {
		return "", nil
	}
	var list autoscalingv2.HorizontalPodAutoscalerList
	if err := r.deps.Reader.List(ctx, &list, client.InNamespace(t.Namespace), client.UnsafeDisableDeepCopy); err != nil {
		return "", fmt.Errorf("list HorizontalPodAutoscalers in namespace %q: %w", t.Namespace, err)
	}
	return scalerOf(t, list.Items), nil
}

// scalerOf is the first by name, so that the same objects give the same input.
func scalerOf(t v1alpha1.Target, scalers []autoscalingv2.HorizontalPodAutoscaler) string {
	var names []string
	group := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind).Group
	for i := range scalers {
		ref := scalers[i].Spec.ScaleTargetRef
		if ref.Kind == t.Kind && ref.Name == t.Name && schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group == group {
			names = append(names, scalers[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
