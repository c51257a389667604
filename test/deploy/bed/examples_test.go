package bed_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"

	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/test/deploy"
)

const examplesDir = root + "/deploy/examples"

// A crdModule is a Go module with the CRDs of another project. It is not a dependency: only its files are read.
type crdModule struct {
	module, version string
	sum             string // hash of the module, as in go.sum
	files           []string
}

func crdModules() []crdModule {
	return []crdModule{
		{
			"github.com/prometheus-operator/prometheus-operator", "v0.92.0", "h1:tAbsod3+9sQsxDeAvLP27dAe9terToht5M+YdDwLGP0=",
			[]string{"example/prometheus-operator-crd/monitoring.coreos.com_servicemonitors.yaml", "example/prometheus-operator-crd/monitoring.coreos.com_podmonitors.yaml", "example/prometheus-operator-crd/monitoring.coreos.com_prometheusrules.yaml"},
		},
		{"github.com/cert-manager/cert-manager", "v1.21.2", "h1:UWgoYM+KLNtRlqmoWOKjKBOBUPVHeepQ6/ac3ERJW68=", []string{"deploy/crds/cert-manager.io_certificates.yaml"}},
		{
			"sigs.k8s.io/gateway-api", "v1.5.0", "h1:duoo14Ky/fJXpjpmyMISE2RTBGnfCg8zICfTYLTnBJA=",
			[]string{"config/crd/standard/gateway.networking.k8s.io_gateways.yaml", "config/crd/standard/gateway.networking.k8s.io_httproutes.yaml"},
		},
		{"github.com/external-secrets/external-secrets", "v1.3.2", "h1:u2J8RjlHIeF0oZCqtl92adI/uZWUwOesJIDkfql6LqQ=", []string{"config/crds/bases/external-secrets.io_externalsecrets.yaml"}},
		{"github.com/cloudnative-pg/cloudnative-pg", "v1.28.0", "h1:vkv0a0ewDSfJOPJrsyUr4uczsxheReAWf/k171V0Dm0=", []string{"config/crd/bases/postgresql.cnpg.io_clusters.yaml"}},
		{"github.com/rabbitmq/cluster-operator/v2", "v2.16.0", "h1:oYJm+1tXIatGHtiUWyN9hGdO+0eWsXA/j1b81wh0IqI=", []string{"config/crd/bases/rabbitmq.com_rabbitmqclusters.yaml"}},
		{"github.com/nats-io/nack", "v0.23.0", "h1:5ZWS1gZ8kua7oYM0uwRVmAOBr/lzCg0xHTAN7/Z20bc=", []string{"deploy/crds.yml"}},
	}
}

// download returns the paths of the files.
func (m crdModule) download(t *testing.T) (paths []string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", m.module+"@"+m.version)
	cmd.Dir, cmd.Env = t.TempDir(), append(os.Environ(), "GOFLAGS=-mod=mod", "GOWORK=off") // outside of this module
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("download %s: %v\n%s", m.module, err, out)
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	if got.Sum != m.sum {
		t.Fatalf("%s@%s has the hash %s, want %s", m.module, m.version, got.Sum, m.sum)
	}
	for _, file := range m.files {
		paths = append(paths, filepath.Join(got.Dir, filepath.FromSlash(file)))
	}
	return paths
}

// readExamples returns the objects of deploy/examples, and those of the chart with its values.yaml.
func readExamples(t *testing.T) (examples, release []*unstructured.Unstructured) {
	t.Helper()
	files, err := filepath.Glob(examplesDir + "/*.yaml")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d examples: %v", len(files), err)
	}
	for _, file := range files {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) == "values.yaml" {
			if release, _, err = (deploy.Release{Chart: chartDir, Values: newValues(t, string(raw))}).Render(); err != nil {
				t.Fatal(err)
			}
			continue
		}
		objects, err := deploy.ParseObjects(raw)
		if err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		examples = append(examples, objects...)
	}
	return examples, release
}

// TestExamples applies the examples for other operators, and the chart with their values, to an API server that has the
// real CRDs of these operators.
func TestExamples(t *testing.T) {
	crds := []string{root + "/deploy/crds"}
	for _, m := range crdModules() {
		crds = append(crds, m.download(t)...)
	}
	bed, err := kubebed.Start(t.Context(), kubebed.Options{CRDs: crds})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	client := kubernetes.NewForConfigOrDie(bed.Config())
	for _, name := range []string{"hyperfleet-system", "argocd"} {
		if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	examples, release := readExamples(t)
	c := newClusterOf(bed)
	for _, o := range examples {
		if _, err := c.apply(t.Context(), o, ""); err != nil {
			t.Errorf("%s/%s: %v", o.GetKind(), o.GetName(), err)
		}
	}
	c.wantApplied(t, release, "hyperfleet-system")
	for _, kind := range []string{"ServiceMonitor", "PodMonitor", "PrometheusRule", "Certificate", "Gateway", "HTTPRoute", "Ingress", "ExternalSecret", "Cluster", "RabbitmqCluster", "Stream"} {
		if !slices.ContainsFunc(slices.Concat(examples, release), func(o *unstructured.Unstructured) bool { return o.GetKind() == kind }) {
			t.Errorf("no example of a %s", kind)
		}
	}
}

// TestExamplesFitTheChart covers what an API server does not check: that the names of Services, ports, Secrets and
// labels in the examples are those of the chart.
func TestExamplesFitTheChart(t *testing.T) {
	examples, release := readExamples(t)
	secrets := map[string][]string{} // keys of the Secrets that the operators write
	for _, o := range examples {
		switch o.GetKind() {
		case "Cluster":
			secrets[o.GetName()+"-app"] = []string{"uri"}
		case "RabbitmqCluster":
			secrets[o.GetName()+"-default-user"] = []string{"username", "password"}
		case "ExternalSecret":
			secrets[fieldOf[string](t, o, "spec", "target", "name")] = externalSecretKeys(t, o)
		}
	}
	for name, keys := range secretReferences(t, release) {
		for _, key := range keys {
			if !slices.Contains(secrets[name], key) {
				t.Errorf("the chart reads key %q of Secret %q; the examples write %v", key, name, secrets[name])
			}
		}
	}
	backends := serviceBackends(t, examples)
	if len(backends) != 4 {
		t.Errorf("the routes lead to %v, want API and console from both kinds of route", backends)
	}
	for _, backend := range backends {
		if !slices.ContainsFunc(release, func(o *unstructured.Unstructured) bool { return hasPort(t, o, backend) }) {
			t.Errorf("a route leads to %s, which the chart does not create", backend)
		}
	}
	monitor := examples[slices.IndexFunc(examples, func(o *unstructured.Unstructured) bool { return o.GetKind() == "PodMonitor" })]
	selector := fieldOf[map[string]any](t, monitor, "spec", "selector", "matchLabels")
	for _, o := range release {
		pod := podOf(t, o)
		if pod == nil {
			continue
		}
		matches := true
		for name, value := range selector {
			matches = matches && pod.GetLabels()[name] == value
		}
		if !matches || !strings.Contains(marshal(t, pod), `"name":"metrics"`) {
			t.Errorf("the PodMonitor does not scrape %s/%s: labels %v", o.GetKind(), o.GetName(), pod.GetLabels())
		}
	}
}

// secretReferences returns the keys that the chart's objects read, by the name of the Secret.
func secretReferences(t *testing.T, release []*unstructured.Unstructured) map[string][]string {
	t.Helper()
	references := map[string][]string{}
	add := func(m map[string]any, nameField string, keys ...string) {
		if name, _ := m[nameField].(string); name != "" {
			references[name] = append(references[name], keys...)
		}
	}
	walk(release, func(field string, m map[string]any) {
		key, _ := m["key"].(string)
		switch field {
		case "secretKeyRef", "clientSecretRef":
			add(m, "name", key)
		case "tokenSecretRef":
			add(m, "name", "token")
		case "credentialsSecretRef":
			add(m, "name", "username", "password")
		case "secret": // of a volume
			for _, item := range sliceOf(m["items"]) {
				key, _ := item["key"].(string)
				add(m, "secretName", key)
			}
			add(m, "secretName")
		}
	})
	for _, want := range []string{"fleetloop-postgres-app", "fleetloop-rabbitmq-default-user", "fleetloop-api-tokens", "fleetloop-console-session"} {
		if _, ok := references[want]; !ok {
			t.Errorf("no object of the chart reads Secret %q: the check does not see it, or values.yaml does not name it; it sees %v", want, references)
		}
	}
	return references
}

// serviceBackends returns the Services of HTTPRoutes and Ingresses, as name:port.
func serviceBackends(t *testing.T, examples []*unstructured.Unstructured) (backends []string) {
	t.Helper()
	walk(examples, func(field string, m map[string]any) {
		switch field {
		case "backendRefs":
			backends = append(backends, fmt.Sprintf("%v:%v", m["name"], m["port"]))
		case "service":
			if port, ok := m["port"].(map[string]any); ok {
				backends = append(backends, fmt.Sprintf("%v:%v", m["name"], port["name"]))
			}
		}
	})
	return backends
}

// hasPort reports whether o is the Service of a backend.
func hasPort(t *testing.T, o *unstructured.Unstructured, backend string) bool {
	t.Helper()
	if o.GetKind() != "Service" {
		return false
	}
	return slices.ContainsFunc(sliceOf(any(fieldOf[[]any](t, o, "spec", "ports"))), func(port map[string]any) bool {
		return backend == fmt.Sprintf("%s:%v", o.GetName(), port["name"]) || backend == fmt.Sprintf("%s:%v", o.GetName(), port["port"])
	})
}

func externalSecretKeys(t *testing.T, o *unstructured.Unstructured) (keys []string) {
	t.Helper()
	if template, found, err := unstructured.NestedMap(o.Object, "spec", "target", "template", "data"); err != nil {
		t.Fatal(err)
	} else if found {
		for key := range template {
			keys = append(keys, key)
		}
		return keys
	}
	for _, item := range sliceOf(any(fieldOf[[]any](t, o, "spec", "data"))) {
		key, _ := item["secretKey"].(string)
		keys = append(keys, key)
	}
	return keys
}

// walk calls visit for each object in objects, with the name of its field. The elements of a list have the list's name.
func walk(objects []*unstructured.Unstructured, visit func(field string, m map[string]any)) {
	var descend func(field string, v any)
	descend = func(field string, v any) {
		switch v := v.(type) {
		case map[string]any:
			visit(field, v)
			for name, value := range v {
				descend(name, value)
			}
		case []any:
			for _, value := range v {
				descend(field, value)
			}
		}
	}
	for _, o := range objects {
		descend("", o.Object)
	}
}

func sliceOf(v any) (maps []map[string]any) {
	list, _ := v.([]any)
	for _, item := range list {
		if m, ok := item.(map[string]any); ok {
			maps = append(maps, m)
		}
	}
	return maps
}

// fieldOf returns a field of an object. The test fails without it.
func fieldOf[T any](t *testing.T, o *unstructured.Unstructured, fields ...string) T {
	t.Helper()
	value, found, err := unstructured.NestedFieldNoCopy(o.Object, fields...)
	typed, ok := value.(T)
	if err != nil || !found || !ok {
		t.Fatalf("%s/%s has no %s: %v", o.GetKind(), o.GetName(), strings.Join(fields, "."), err)
	}
	return typed
}

func marshal(t *testing.T, o runtime.Object) string {
	t.Helper()
	raw, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(raw)
}
