package guard_test

import (
	"context"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

// A given is an execution that is there before anybody tries anything. The zero
// value was asked for by rita and waits for approval.
type given struct {
	name       string // empty is any
	by         string // empty is rita
	spec       map[string]any
	anonymous  bool   // it does not say who asked
	phase      string // empty is waiting_approval
	approved   bool   // the approvals are counted, and it waits for its target
	noPlan     bool
	fourEyes   bool
	groups     []string
	finalizer  bool
	owner      bool              // it has an owner
	approvedBy map[string]string // decisions
	replanned  bool              // after these there is another plan
	configMap  string            // it is not an execution at all
}

// make makes it, and gives its name.
func (g given) make(w *fixture) string {
	w.tb.Helper()
	ctx := w.tb.Context()
	if g.configMap != "" {
		return g.makeConfigMap(w)
	}
	by, phase := g.by, g.phase
	if by == "" {
		by = rita
	}
	if phase == "" {
		phase = string(v1alpha1.PhaseWaitingApproval)
	}
	o := &unstructured.Unstructured{Object: asked(g.spec)}
	if _, set := g.spec["requestedBy"]; !set && !g.anonymous {
		must(w.tb, unstructured.SetNestedField(o.Object, w.user(by), "spec", "requestedBy"))
	}
	if g.name != "" {
		o.SetGenerateName("")
		o.SetName(g.name)
	}
	if g.owner {
		o.SetOwnerReferences([]metav1.OwnerReference{w.parent})
	}
	made, err := w.as(by).objects.Create(ctx, o, metav1.CreateOptions{})
	must(w.tb, err)
	us := w.as(controller).firmly()
	if g.finalizer {
		must(w.tb, us.merge(made.GetName(), `{"metadata":{"finalizers":["`+v1alpha1.Finalizer+`"]}}`))
		all := w.as(boss)
		w.tb.Cleanup(func() { // or else the namespace stays
			_, err := all.objects.Patch(context.WithoutCancel(ctx), made.GetName(), "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				w.tb.Error(err)
			}
		})
	}
	must(w.tb, us.merge(made.GetName(), text(w.tb, map[string]any{"status": g.status(phase)}), "status"))
	for person, decision := range g.approvedBy {
		must(w.tb, w.as(person).firmly().patch(made.GetName(), first(text(w.tb, entry(w.user(person), decision, hash)))))
	}
	if g.replanned {
		must(w.tb, us.merge(made.GetName(), `{"status":{"plan":{"hash":"`+newHash+`"}}}`, "status"))
	}
	return made.GetName()
}

func (g given) status(phase string) map[string]any {
	state := v1alpha1.ApprovalPending
	if g.approved {
		state = v1alpha1.ApprovalApproved
	}
	status := map[string]any{
		"phase":    phase,
		"approval": map[string]any{"state": state, "required": true, "requiredCount": int64(2), "requesterCannotApprove": g.fourEyes, "groups": append([]string{}, g.groups...)},
	}
	if !g.noPlan {
		status["plan"] = map[string]any{
			"hash": hash, "action": "scale_deployment", "steps": []any{}, "createdAt": "2026-01-02T03:04:05Z",
			"target": map[string]any{"apiVersion": "apps/v1", "kind": "Deployment", "namespace": "shop", "name": "web"},
			"impact": map[string]any{"resourcesAffected": int64(1)},
		}
	}
	return status
}

func (g given) makeConfigMap(w *fixture) string {
	w.tb.Helper()
	must(w.tb, w.settings(mona).firmly().create(configMap(g.configMap)))
	return g.configMap
}

func configMap(name string) map[string]any {
	return map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"key": "value"}}
}

// parentOf makes an object that executions can have as their owner: the garbage
// collector deletes what has an owner that is not there.
func parentOf(w *fixture) metav1.OwnerReference {
	w.tb.Helper()
	made, err := w.admin.CoreV1().ConfigMaps(w.ns).Create(w.tb.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "parent"}}, metav1.CreateOptions{})
	must(w.tb, err)
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: made.Name, UID: made.UID, Controller: new(true)}
}

// entry is an approval.
func entry(approver, decision, planHash string) map[string]any {
	return map[string]any{"approver": approver, "decision": decision, "planHash": planHash}
}

// first is a JSON patch that adds the first approvals.
func first(entries string) string {
	return `[{"op":"add","path":"/spec/approvals","value":[` + entries + `]}]`
}

// another is a JSON patch that adds an approval to those that there are.
func another(entry string) string {
	return `[{"op":"add","path":"/spec/approvals/-","value":` + entry + `}]`
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}

// serveSecondVersion has the API server serve executions in another version.
func serveSecondVersion(tb testing.TB) {
	tb.Helper()
	must(tb, secondVersionOnce(kubebedtest.Bed(tb)))
	client, err := dynamic.NewForConfig(kubebedtest.Bed(tb).Config())
	must(tb, err)
	kubebedtest.Eventually(tb, func(ctx context.Context) error {
		_, err := client.Resource(resourceOf(secondVersion)).Namespace("default").List(ctx, metav1.ListOptions{})
		return err
	})
}

var second struct {
	sync.Once
	err error
}

func secondVersionOnce(bed *kubebed.Bed) error {
	second.Do(func() { second.err = addSecondVersion(bed) })
	return second.err
}

func addSecondVersion(bed *kubebed.Bed) error {
	ctx := context.Background() // for all tests, whichever comes first
	client, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		return err
	}
	crds := client.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"})
	crd, err := crds.Get(ctx, executions+"."+group, metav1.GetOptions{})
	if err != nil {
		return err
	}
	versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
	if err != nil {
		return err
	}
	only, ok := versions[0].(map[string]any)
	if !ok {
		return fmt.Errorf("the version is a %T", versions[0])
	}
	copied := (&unstructured.Unstructured{Object: only}).DeepCopy().Object
	copied["name"], copied["storage"] = secondVersion, false
	if err := unstructured.SetNestedSlice(crd.Object, append(versions, copied), "spec", "versions"); err != nil {
		return err
	}
	_, err = crds.Update(ctx, crd, metav1.UpdateOptions{})
	return err
}
