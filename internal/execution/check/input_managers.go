package check

import (
	"slices"
	"strings"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// ownerNames formats a chain of owners.
func ownerNames(chain []metav1.OwnerReference) []string {
	names := make([]string, len(chain))
	for i, ref := range chain {
		names[i] = ref.Kind + "/" + ref.Name
	}
	return names
}

// firstCustomResourceOwner returns the first owner from outside Kubernetes, or an empty string.
func firstCustomResourceOwner(chain []metav1.OwnerReference) string {
	for _, ref := range chain {
		if IsCustomResourceOwner(ref) {
			return ref.Kind + "/" + ref.Name
		}
	}
	return ""
}

// IsCustomResourceOwner reports whether the API group of an owner is not part of Kubernetes.
func IsCustomResourceOwner(ref metav1.OwnerReference) bool {
	group := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
	hasDomain := strings.Contains(group, ".") // unlike the core group, apps, batch, autoscaling and policy
	// Groups below k8s.io are Kubernetes' own, those below x-k8s.io are not.
	return hasDomain && !strings.HasSuffix(group, ".k8s.io")
}

// gitOpsTool returns the tool that syncs an object from a repository or a chart, or an empty string.
func gitOpsTool(live *unstructured.Unstructured) string {
	if live == nil {
		return ""
	}
	labels, annotations := live.GetLabels(), live.GetAnnotations()
	switch {
	case annotations["argocd.argoproj.io/tracking-id"] != "" || labels["argocd.argoproj.io/instance"] != "":
		return "argocd"
	case labels["kustomize.toolkit.fluxcd.io/name"] != "" || labels["helm.toolkit.fluxcd.io/name"] != "":
		return "flux"
	case annotations["meta.helm.sh/release-name"] != "" || labels["app.kubernetes.io/managed-by"] == "Helm":
		return "helm"
	}
	return ""
}

// autoscalerName returns the HorizontalPodAutoscaler that scales a target, or an empty string. Of
// several it returns the first by name, so that equal objects give equal input.
func autoscalerName(t v1alpha1.Target, scalers []autoscalingv2.HorizontalPodAutoscaler) string {
	var names []string
	group := schema.FromAPIVersionAndKind(t.APIVersion, t.Kind).Group
	for i := range scalers {
		ref := scalers[i].Spec.ScaleTargetRef
		refGroup := schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).Group
		if refGroup == group && ref.Kind == t.Kind && ref.Name == t.Name {
			names = append(names, scalers[i].Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return slices.Min(names)
}
