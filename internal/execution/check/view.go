package check

import (
	"errors"
	"fmt"
	"log/slog"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// NewCachedReader creates the reader of checks. It caches Nodes, Namespaces, HorizontalPodAutoscalers and
// Pods of all namespaces, reduced to the fields that checks read: about 4 KiB for a Pod with two
// containers. Executions, ReplicaSets and Jobs are read one by one.
//
// The reader needs get, list and watch for the cached kinds, and get for the others. It contacts
// the cluster only when its part runs.
func NewCachedReader(cfg *rest.Config, log *slog.Logger) (*kube.Reader, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("create view: %w", err)
	}
	kept := make(map[client.Object]cache.ByObject)
	for _, o := range []client.Object{&corev1.Node{}, &corev1.Namespace{}, &autoscalingv2.HorizontalPodAutoscaler{}, &corev1.Pod{}} {
		kept[o] = cache.ByObject{Transform: stripUnreadFields}
	}
	return kube.NewCachedReader(cfg, kube.Options{
		Scheme:        scheme,
		ClusterScoped: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node"), corev1.SchemeGroupVersion.WithKind("Namespace")},
		Namespaced: []schema.GroupVersionKind{
			corev1.SchemeGroupVersion.WithKind("Pod"), autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"),
			v1alpha1.GroupVersion.WithKind(
				v1alpha1.Kind,
			), appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), batchv1.SchemeGroupVersion.WithKind("Job"),
		},
		Cache: cache.Options{ByObject: kept},
		Log:   log,
	})
}

// stripUnreadFields reduces an object to the fields that checks read.
func stripUnreadFields(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Node:
		o.Status.Images = nil
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	case *corev1.Pod:
		return stripPod(o), nil
	}
	return object, nil
}

// stripPod keeps the fields needed to count Pods and their requests.
func stripPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
		Labels: p.Labels, DeletionTimestamp: p.DeletionTimestamp,
	}}
	kept.Spec = corev1.PodSpec{
		NodeName:       p.Spec.NodeName,
		Overhead:       p.Spec.Overhead,
		Containers:     stripContainers(p.Spec.Containers),
		InitContainers: stripContainers(p.Spec.InitContainers),
	}
	kept.Status = corev1.PodStatus{Phase: p.Status.Phase}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, corev1.ContainerStatus{
				Name:                 c.Name,
				State:                corev1.ContainerState{Terminated: c.State.Terminated},
				LastTerminationState: corev1.ContainerState{Terminated: c.LastTerminationState.Terminated},
			})
		}
	}
	return kept
}

func stripContainers(all []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i, c := range all {
		requests := corev1.ResourceRequirements{Requests: c.Resources.Requests}
		kept[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: requests}
	}
	return kept
}
