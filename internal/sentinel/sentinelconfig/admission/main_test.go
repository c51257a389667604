// Package admission_test checks the CustomResourceDefinition of SentinelConfig against the
// specification and a real API server: the rejected specs and their messages, the defaults, and the
// output of kubectl. Package sentinelconfig rejects every spec that the API server rejects.
package admission_test

import (
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
)

const crd = "../../../../deploy/crds/hyperfleet.redhat.com_sentinelconfigs.yaml"

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) { kubebedtest.Main(m, kubebed.Options{CRDs: []string{crd}}) }

// configs returns the client for the SentinelConfigs of a namespace.
func configs(t *testing.T, namespace string) dynamic.ResourceInterface {
	t.Helper()
	client, err := dynamic.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	return client.Resource(v1alpha1.GroupVersion.WithResource("sentinelconfigs")).Namespace(namespace)
}

// newObject returns a minimal SentinelConfig, with the fields of spec, in YAML, added.
func newObject(t *testing.T, name, spec string) *unstructured.Unstructured {
	t.Helper()
	fields := map[string]any{
		"resourceType":  "clusters",
		"hyperfleetAPI": map[string]any{"url": "http://api:8080"},
		"broker":        map[string]any{"type": "rabbitmq", "topic": "events", "url": "amqp://guest:guest@rabbitmq:5672/"}, //nolint:gosec // nobody has this password
	}
	text, err := yaml.YAMLToJSON([]byte(spec))
	if err != nil {
		t.Fatal(err)
	}
	var more map[string]any
	if err := json.Unmarshal(text, &more); err != nil {
		t.Fatal(err)
	}
	maps.Copy(fields, more)
	maps.DeleteFunc(fields, func(_ string, v any) bool { return v == nil })
	object := &unstructured.Unstructured{Object: map[string]any{"spec": fields}}
	object.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("SentinelConfig"))
	object.SetName(name)
	return object
}

// newNamed creates a namespace with a name from a manifest.
func newNamed(t *testing.T, namespace string) {
	t.Helper()
	client, err := kubernetes.NewForConfig(kubebedtest.Bed(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := kubebedtest.Bed(t).Kubectl(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// newFile returns a file with a text.
func newFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "object.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// wantGolden compares with testdata/<name>.golden.
func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func set(t *testing.T, object *unstructured.Unstructured, value any, path ...string) {
	t.Helper()
	if err := unstructured.SetNestedField(object.Object, value, path...); err != nil {
		t.Fatal(err)
	}
}

func wantField(t *testing.T, object *unstructured.Unstructured, want any, path ...string) {
	t.Helper()
	got, _, err := unstructured.NestedFieldNoCopy(object.Object, path...)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%v: -want +got\n%s", path, diff)
	}
}
