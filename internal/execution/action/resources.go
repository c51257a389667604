package action

import (
	"context"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A knownKind is a kind of object that actions can access. Kinds are fixed and not discovered, so a
// runner sends only requests that it is allowed to make.
type knownKind struct {
	schema.GroupVersionResource

	kind    string
	cluster bool // cluster-scoped
}

func (k knownKind) apiVersion() string { return k.GroupVersion().String() }

// knownKinds returns all kinds that actions access.
func knownKinds() []knownKind {
	namespaced := func(group, version, resource, kind string) knownKind {
		return knownKind{GroupVersionResource: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}, kind: kind}
	}
	cluster := func(group, resource, kind string) knownKind {
		k := namespaced(group, "v1", resource, kind)
		k.cluster = true
		return k
	}
	return []knownKind{
		namespaced("apps", "v1", "deployments", "Deployment"),
		namespaced("apps", "v1", "statefulsets", "StatefulSet"),
		namespaced("apps", "v1", "daemonsets", "DaemonSet"),
		namespaced("apps", "v1", "replicasets", "ReplicaSet"),
		namespaced("autoscaling", "v2", "horizontalpodautoscalers", "HorizontalPodAutoscaler"),
		namespaced("batch", "v1", "jobs", "Job"),
		namespaced("batch", "v1", "cronjobs", "CronJob"),
		namespaced("networking.k8s.io", "v1", "networkpolicies", "NetworkPolicy"),
		namespaced("networking.k8s.io", "v1", "ingresses", "Ingress"),
		namespaced("policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget"),
		namespaced("", "v1", "pods", "Pod"),
		namespaced("", "v1", "services", "Service"),
		namespaced("", "v1", "configmaps", "ConfigMap"),
		namespaced("", "v1", "secrets", "Secret"),
		namespaced("", "v1", "events", "Event"),
		namespaced("", "v1", "persistentvolumeclaims", "PersistentVolumeClaim"),
		namespaced("", "v1", "limitranges", "LimitRange"),
		namespaced("", "v1", "resourcequotas", "ResourceQuota"),
		namespaced("", "v1", "serviceaccounts", "ServiceAccount"),
		cluster("", "nodes", "Node"),
		cluster("", "namespaces", "Namespace"),
		cluster("", "persistentvolumes", "PersistentVolume"),
		cluster("storage.k8s.io", "storageclasses", "StorageClass"),
		cluster("storage.k8s.io", "volumeattachments", "VolumeAttachment"),
	}
}

// findKind returns a kind by its name. An empty apiVersion matches any.
func findKind(apiVersion, kind string) (k knownKind, found bool) {
	for _, k := range knownKinds() {
		if k.kind == kind && (apiVersion == "" || apiVersion == k.apiVersion()) {
			return k, true
		}
	}
	return knownKind{}, false
}

// ResourceOf returns the resource of a kind that actions access.
func ResourceOf(apiVersion, kind string) (resource schema.GroupVersionResource, known bool) {
	k, known := findKind(apiVersion, kind)
	return k.GroupVersionResource, known
}

// resourceClient returns the client of a resource. An empty namespace means cluster-scoped.
func (c Client) resourceClient(resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return c.Dynamic.Resource(resource)
	}
	return c.Dynamic.Resource(resource).Namespace(namespace)
}

// getObjectOnce reads the present state of an object of a known kind.
func (c Client) getObjectOnce(ctx context.Context, t v1alpha1.Target) (*unstructured.Unstructured, error) {
	k, ok := findKind(t.APIVersion, t.Kind)
	if !ok {
		return nil, &InvalidError{Action: "the target", Problems: []string{"kind: no action supports kind " + t.Kind}}
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	return c.resourceClient(k.GroupVersionResource, t.Namespace).Get(ctx, t.Name, metav1.GetOptions{})
}

// formatTarget formats an object for messages, such as Deployment shop/web.
func formatTarget(t v1alpha1.Target) string {
	if t.Namespace == "" {
		return t.Kind + " " + t.Name
	}
	return t.Kind + " " + t.Namespace + "/" + t.Name
}

// kubectlName formats an object as kubectl does, such as deployment.apps/web.
func kubectlName(apiVersion, kind, name string) string {
	group, _, grouped := strings.Cut(apiVersion, "/")
	if !grouped {
		return strings.ToLower(kind) + "/" + name
	}
	return strings.ToLower(kind) + "." + group + "/" + name
}
