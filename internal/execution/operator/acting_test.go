package operator

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	dto "github.com/prometheus/client_model/go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

// An act is a change of a target by an inline action.
type act struct {
	execution types.UID
	by        *v1alpha1.KubernetesExecution // as it was stored at that time
	target    string
}

// begins remembers an effect, of an execution as it is stored.
func (w *fixture) begins(stored *v1alpha1.KubernetesExecution, p *v1alpha1.Plan) {
	w.effects = append(w.effects, effect{
		execution: stored.UID, plan: *p.DeepCopy(), needed: w.approval,
		approvals: stored.Spec.Approvals, flag: stored.Spec.ApprovalReceived, requester: stored.Spec.RequestedBy,
		replicas: w.targets[p.Target.Name], policy: w.policy, unguarded: !w.trusted[stored.UID],
	})
}

// letGo remembers that an approval was counted, and that an inline action may
// begin, which it may once that is stored.
func (w *fixture) letGo(stored, next *v1alpha1.KubernetesExecution) {
	approved := func(ke *v1alpha1.KubernetesExecution) bool {
		return ke.Status.Approval != nil && ke.Status.Approval.State == v1alpha1.ApprovalApproved
	}
	if approved(next) && !approved(stored) {
		w.trusted[stored.UID] = w.guard == nil
	}
	results := next.Status.ExecutionResults
	if next.Status.Phase == v1alpha1.PhaseExecuting && stored.Status.Phase != v1alpha1.PhaseExecuting && results != nil && results.Mode == v1alpha1.ExecuteInline {
		w.begins(stored, next.Status.Plan)
	}
}

// accounts act in a fixture.
type accounts struct{ w *fixture }

func (a accounts) Client(context.Context, *action.Action) (action.Client, error) {
	return action.Client{Dynamic: cluster{w: a.w}}, a.w.away
}

// A cluster has the targets of a fixture, as Deployments. Their version is how many
// replicas they have.
type cluster struct {
	dynamic.NamespaceableResourceInterface

	w *fixture
}

func (c cluster) Resource(schema.GroupVersionResource) dynamic.NamespaceableResourceInterface {
	return c
}

func (c cluster) Namespace(string) dynamic.ResourceInterface { return c }

func (c cluster) Get(_ context.Context, name string, _ metav1.GetOptions, _ ...string) (*unstructured.Unstructured, error) {
	return c.object("Deployment", name), nil
}

func (c cluster) object(kind, name string) *unstructured.Unstructured {
	n := c.w.targets[name]
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apps/v1", "kind": kind,
		"metadata": map[string]any{"namespace": "shop", "name": name, "uid": "target-" + name, "resourceVersion": strconv.Itoa(n)},
		"spec":     map[string]any{"replicas": int64(n)},
	}}
}

func (c cluster) Patch(_ context.Context, name string, _ types.PatchType, body []byte, _ metav1.PatchOptions, _ ...string) (*unstructured.Unstructured, error) { //nolint:revive // as client-go has it
	var patch struct {
		Metadata metav1.ObjectMeta
		Spec     struct{ Replicas int }
	}
	if err := json.Unmarshal(body, &patch); err != nil {
		return nil, err
	}
	err := c.w.write("act", func() error {
		if patch.Metadata.ResourceVersion != strconv.Itoa(c.w.targets[name]) {
			return apierrors.NewConflict(schema.GroupResource{Group: "apps", Resource: "deployments"}, name, errors.New("it has changed"))
		}
		stored := c.w.get(c.w.looking).DeepCopy()
		c.w.acts = append(c.w.acts, act{execution: stored.UID, by: stored, target: name})
		c.w.targets[name] = patch.Spec.Replicas
		return nil
	})
	return c.object("Scale", name), err
}

// behind are executions of which one is read as it was before.
type behind struct {
	storedExecutions

	old *v1alpha1.KubernetesExecution
}

func (b behind) Get(context.Context, types.NamespacedName) (*v1alpha1.KubernetesExecution, error) {
	return b.old.DeepCopy(), nil
}

// following remembers what it heard.
type following struct{ heard []string }

func (f *following) watchTarget(name types.NamespacedName, _ v1alpha1.Target) {
	f.heard = append(f.heard, "follow "+name.Name)
}

func (f *following) stopWaiting(name types.NamespacedName) {
	f.heard = append(f.heard, "leave "+name.Name)
}

// counted are the metrics of a reconciler that has seen one execution.
func counted(t *testing.T, r *reconciler) map[string]float64 {
	t.Helper()
	got := map[string]float64{
		"created":   testutil.ToFloat64(r.metrics.created),
		"ended":     testutil.ToFloat64(r.metrics.executions.WithLabelValues("succeeded", "scale_deployment")),
		"rollbacks": testutil.ToFloat64(r.metrics.rollbacks.WithLabelValues("scale_deployment")),
		"ran":       samples(t, r.metrics.duration.WithLabelValues("scale_deployment")),
		"lifecycle": samples(t, r.metrics.lifetime),
	}
	for _, p := range nonFinalPhases() {
		if n := samples(t, r.metrics.phases.WithLabelValues(string(p))); n > 0 {
			got[string(p)] = n
		}
	}
	return got
}

// samples is how often something was observed.
func samples(t *testing.T, o prometheus.Observer) float64 {
	t.Helper()
	var m dto.Metric
	h, ok := o.(prometheus.Metric)
	if !ok {
		t.Fatalf("%T is no metric", o)
	}
	if err := h.Write(&m); err != nil {
		t.Fatal(err)
	}
	return float64(m.GetHistogram().GetSampleCount())
}
