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

// newPolicyFollower returns a part that calls onChange for each change of the ConfigMap of the policies.
func newPolicyFollower(
	host *rest.Config, namespace, name string, onChange func(object client.Object, deleted bool), log *slog.Logger,
) (lifecycle.Part, error) {
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return lifecycle.Part{}, err
	}
	onlyConfigMap := cache.ByObject{Field: fields.OneTermEqualSelector(metav1.ObjectNameField, name)}
	reader, err := kube.NewCachedReader(host, kube.Options{
		Scheme:     scheme,
		Namespaced: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("ConfigMap")},
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{namespace: {}},
			ByObject:          map[client.Object]cache.ByObject{&corev1.ConfigMap{}: onlyConfigMap},
		},
		Log: log,
	})
	if err != nil {
		return lifecycle.Part{}, err
	}
	return reader.NewPart("policies", kube.ChangeHandler{Kind: &corev1.ConfigMap{}, OnChange: onChange}), nil
}

// nodeCountInterval is how often the cached nodes are counted.
const nodeCountInterval = 2 * time.Second

// newGateNodeUpdater returns a part that reports the number of nodes to the gate, and the nodes that
// executions have cordoned.
func newGateNodeUpdater(clusterCache client.Reader, gate *execution.Gate, log *slog.Logger) lifecycle.Part {
	return lifecycle.Part{Name: "node budget", Run: func(ctx context.Context) error {
		ticker := time.NewTicker(nodeCountInterval)
		defer ticker.Stop()
		for {
			if err := updateGateNodes(ctx, clusterCache, gate); err != nil && ctx.Err() == nil {
				log.DebugContext(ctx, "node count is not available yet", "err", err)
			}
			select {
			case <-ctx.Done():
				return nil
			case <-ticker.C:
			}
		}
	}}
}

func updateGateNodes(ctx context.Context, clusterCache client.Reader, gate *execution.Gate) error {
	var nodes corev1.NodeList
	if err := clusterCache.List(ctx, &nodes); err != nil {
		return err
	}
	var cordoned []string
	for i := range nodes.Items {
		node := &nodes.Items[i]
		byExecution := node.Annotations[v1alpha1.AnnotationLastExecution] != ""
		if node.Spec.Unschedulable && byExecution {
			target := v1alpha1.PlanTarget{APIVersion: "v1", Kind: "Node", Name: node.Name}
			cordoned = append(cordoned, execution.TargetKey(target))
		}
	}
	gate.SetNodeCount(len(nodes.Items))
	gate.SetCordonedNodes(cordoned)
	return nil
}
