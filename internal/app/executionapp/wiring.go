package executionapp

import (
	"context"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// newPolicyFollower returns a part that keeps the policies in line with their ConfigMap.
func newPolicyFollower(host *rest.Config, namespace, name string, onChange func(client.Object, bool), log *slog.Logger) (lifecycle.Part, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return lifecycle.Part{}, err
	}
	r, err := kube.NewCachedReader(host, kube.Options{
		Scheme:     scheme,
		Namespaced: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}},
		},
		Log: log,
	})
	if err != nil {
		return lifecycle.Part{}, err
	}
	return r.NewPart("policies", kube.ChangeHandler{Kind: &corev1.ConfigMap{}, OnChange: onChange}), nil
}

// nodesEvery is the interval at which the cached nodes are counted.
const nodesEvery = 2 * time.Second

// newGateNodeUpdater returns a part that reports the number of nodes to the gate, and the nodes that
// executions have cordoned.
func newGateNodeUpdater(view client.Reader, g *execution.Gate, log *slog.Logger) lifecycle.Part {
	return lifecycle.Part{Name: "node budget", Run: func(ctx context.Context) error {
		tick := time.NewTicker(nodesEvery)
		defer tick.Stop()
		for {
			if err := updateGateNodes(ctx, view, g); err != nil && ctx.Err() == nil {
				log.DebugContext(ctx, "node count is not available yet", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-tick.C:
			}
		}
	}}
}

func updateGateNodes(ctx context.Context, view client.Reader, g *execution.Gate) error {
	var list corev1.NodeList
	if err := view.List(ctx, &list); err != nil {
		return err
	}
	var cordoned []string
	for i := range list.Items {
		n := &list.Items[i]
		if n.Spec.Unschedulable && n.Annotations[v1alpha1.AnnotationLastExecution] != "" {
			cordoned = append(cordoned, execution.TargetKey(v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: n.Name}))
		}
	}
	g.SetNodeCount(len(list.Items))
	g.SetCordonedNodes(cordoned)
	return nil
}
