package gardener_test

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/gardentest"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

func TestSuite(t *testing.T) { gardentest.RunSuite(t, open) }

// others are the other clients with rights in a project.
type others struct {
	shoots dynamic.ResourceInterface
}

func open(t *testing.T) *gardentest.Bed {
	t.Helper()
	bed := kubebedtest.Garden(t)
	project, namespace := kubebedtest.NewGardenProject(t)
	o := newOthers(t, bed.Config(), namespace)
	return &gardentest.Bed{
		Garden: newClient(t, bed.Config(), gardener.Config{Namespace: namespace}), Project: project,
		Put: o.put, Edit: o.edit, Spec: o.spec, Linger: o.linger,
		Forgotten: func(*testing.T) string { return "1" },
	}
}

func newClient(t *testing.T, rc *rest.Config, cfg gardener.Config) *gardener.Client {
	t.Helper()
	cfg.QPS, cfg.Burst = 1000, 1000
	c, err := gardener.NewForConfig(rc, cfg, gardentest.Installation)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func newOthers(t *testing.T, rc *rest.Config, namespace string) others {
	t.Helper()
	d, err := dynamic.NewForConfig(rc)
	if err != nil {
		t.Fatal(err)
	}
	return others{d.Resource(schema.GroupVersionResource{Group: "core.gardener.cloud", Version: "v1beta1", Resource: "shoots"}).Namespace(namespace)}
}

func (o others) get(t *testing.T, name string) *unstructured.Unstructured {
	t.Helper()
	u, err := o.shoots.Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatalf("get %q: %v", name, err)
	}
	return u
}

func (o others) update(t *testing.T, u *unstructured.Unstructured) {
	t.Helper()
	if _, err := o.shoots.Update(t.Context(), u, metav1.UpdateOptions{FieldManager: "somebody"}); err != nil {
		t.Fatalf("update %q: %v", u.GetName(), err)
	}
}

func (o others) put(t *testing.T, m shoot.Manifest) {
	t.Helper()
	u := &unstructured.Unstructured{}
	convert(t, m, &u.Object)
	if _, err := o.shoots.Create(t.Context(), u, metav1.CreateOptions{FieldManager: "somebody"}); err != nil {
		t.Fatalf("create %q: %v", m.Metadata.Name, err)
	}
}

func (o others) spec(t *testing.T, name string) (s shoot.Spec) {
	t.Helper()
	convert(t, o.get(t, name).Object["spec"], &s)
	return s
}

// edit changes the fields of a Spec, and leaves the rest unchanged.
func (o others) edit(t *testing.T, name string, edit func(*shoot.Spec)) {
	t.Helper()
	u := o.get(t, name)
	var s shoot.Spec
	convert(t, u.Object["spec"], &s)
	edit(&s)
	var changed map[string]any
	convert(t, s, &changed)
	u.Object["spec"] = over(u.Object["spec"], changed)
	o.update(t, u)
}

// over merges one object over another. Lists are those of workers, in order.
func over(under, top any) any {
	switch top := top.(type) {
	case map[string]any:
		all, _ := under.(map[string]any)
		if all == nil {
			all = map[string]any{}
		}
		for k, v := range top {
			all[k] = over(all[k], v)
		}
		return all
	case []any:
		all, _ := under.([]any)
		for i, v := range top {
			if i < len(all) {
				top[i] = over(all[i], v)
			}
		}
		return top
	default:
		return top
	}
}

func (o others) linger(t *testing.T, name string, on bool) {
	t.Helper()
	u := o.get(t, name)
	u.SetFinalizers(nil)
	if on {
		u.SetFinalizers([]string{"gardener"})
	}
	o.update(t, u)
}

func convert(t *testing.T, from, to any) {
	t.Helper()
	text, err := json.Marshal(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, to); err != nil {
		t.Fatal(err)
	}
}
