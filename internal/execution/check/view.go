package check

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A View reads what checks look at of a cluster. Nodes, Namespaces,
// HorizontalPodAutoscalers and Pods of all namespaces are kept up to date in
// memory, as far as they are looked at: some 4 KiB for a Pod with two containers.
// All else is asked of the API server.
//
// It may get, list and watch those, and get the executions, ReplicaSets and Jobs
// that are asked for one by one.
type View struct {
	cache cache.Cache
	live  client.Client
	kinds []client.Object // that are kept
}

// NewView makes a View. It asks nothing of the cluster before its part runs.
func NewView(cfg *rest.Config, log *slog.Logger) (*View, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(corev1.AddToScheme(scheme), autoscalingv2.AddToScheme(scheme), v1alpha1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make view: %w", err)
	}
	mapper := knownKinds()
	live, err := client.New(cfg, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make view: %w", err)
	}
	v := &View{live: live, kinds: []client.Object{&corev1.Node{}, &corev1.Namespace{}, &autoscalingv2.HorizontalPodAutoscaler{}, &corev1.Pod{}}}
	kept := make(map[client.Object]cache.ByObject)
	for _, o := range v.kinds {
		kept[o] = cache.ByObject{Transform: lean}
	}
	v.cache, err = cache.New(cfg, cache.Options{
		Scheme: scheme, Mapper: mapper, ByObject: kept, ReaderFailOnMissingInformer: true,
		NewInformer: func(lw toolscache.ListerWatcher, example runtime.Object, _ time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
			return toolscache.NewSharedIndexInformer(kube.Patient(lw, log, nil), example, 0, by)
		},
	})
	if err != nil {
		return nil, fmt.Errorf("make view: %w", err)
	}
	return v, nil
}

// knownKinds are the kinds that a View reads. The server is not asked.
func knownKinds() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper(nil)
	for _, kind := range []string{"Node", "Namespace"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	m.Add(corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace)
	m.Add(autoscalingv2.SchemeGroupVersion.WithKind("HorizontalPodAutoscaler"), meta.RESTScopeNamespace)
	m.Add(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), meta.RESTScopeNamespace)
	m.Add(appsv1.SchemeGroupVersion.WithKind("ReplicaSet"), meta.RESTScopeNamespace)
	m.Add(batchv1.SchemeGroupVersion.WithKind("Job"), meta.RESTScopeNamespace)
	return m
}

// Get reads one object.
func (v *View) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	if v.keeps(o) {
		return v.cache.Get(ctx, key, o, opts...)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	return v.live.Get(ctx, key, o, opts...)
}

// List lists the kinds that are kept.
func (v *View) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return v.cache.List(ctx, list, opts...)
}

func (v *View) keeps(o client.Object) bool {
	return slices.ContainsFunc(v.kinds, func(k client.Object) bool { return reflect.TypeOf(k) == reflect.TypeOf(o) })
}

// Part is the View as a part of a process.
func (v *View) Part() lifecycle.Part {
	return lifecycle.Part{Name: "view of the cluster", Run: v.run, Ready: v.ready}
}

func (v *View) run(ctx context.Context) error {
	for _, o := range v.kinds {
		if _, err := v.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch the cluster: %w", err)
		}
	}
	return v.cache.Start(ctx)
}

// ready says why checks cannot be made.
func (v *View) ready() error {
	// A context that is over asks whether it is so, and does not wait.
	over, cancel := context.WithCancel(context.Background())
	cancel()
	for _, o := range v.kinds {
		i, err := v.cache.GetInformer(over, o, cache.BlockUntilSynced(false))
		if err != nil || !i.HasSynced() {
			return fmt.Errorf("%ss have not been listed yet", reflect.TypeOf(o).Elem().Name())
		}
	}
	return nil
}

// lean is an object as far as checks look at it.
func lean(object any) (any, error) {
	if o, ok := object.(metav1.Object); ok {
		o.SetManagedFields(nil)
	}
	switch o := object.(type) {
	case *corev1.Node:
		o.Status.Images = nil
	case *autoscalingv2.HorizontalPodAutoscaler:
		o.Status = autoscalingv2.HorizontalPodAutoscalerStatus{}
	case *corev1.Pod:
		return leanPod(o), nil
	}
	return object, nil
}

// leanPod has what is needed to count Pods and what they request.
func leanPod(p *corev1.Pod) *corev1.Pod {
	kept := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion,
		Labels: p.Labels, DeletionTimestamp: p.DeletionTimestamp,
	}}
	kept.Spec = corev1.PodSpec{NodeName: p.Spec.NodeName, Overhead: p.Spec.Overhead, Containers: leanContainers(p.Spec.Containers), InitContainers: leanContainers(p.Spec.InitContainers)}
	kept.Status = corev1.PodStatus{Phase: p.Status.Phase}
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			kept.Status.Conditions = []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	for _, c := range p.Status.ContainerStatuses {
		if c.State.Terminated != nil || c.LastTerminationState.Terminated != nil {
			kept.Status.ContainerStatuses = append(kept.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: c.Name, State: corev1.ContainerState{Terminated: c.State.Terminated}, LastTerminationState: corev1.ContainerState{Terminated: c.LastTerminationState.Terminated},
			})
		}
	}
	return kept
}

func leanContainers(all []corev1.Container) []corev1.Container {
	kept := make([]corev1.Container, len(all))
	for i, c := range all {
		kept[i] = corev1.Container{Name: c.Name, RestartPolicy: c.RestartPolicy, Resources: corev1.ResourceRequirements{Requests: c.Resources.Requests}}
	}
	return kept
}
