package deploy_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/test/deploy"
)

var update = flag.Bool("update", false, "write the generated files anew")

const (
	root     = "../.."
	chartDir = root + "/deploy/chart/fleetloop"
)

// wantFile compares a generated file with what it should be, or writes it.
func wantFile(t *testing.T, path string, want []byte) {
	t.Helper()
	if *update {
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is not what it is made of (%v): run 'make generate' and commit the result", path, err)
	}
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return raw
}

// TestGeneratedCopies holds that what the chart has a copy of is that copy, no file
// more and none less: a chart cannot reach outside of its folder.
func TestGeneratedCopies(t *testing.T) {
	for copied, of := range map[string]string{
		chartDir + "/crds":              root + "/deploy/crds/*.yaml",
		chartDir + "/files/rules":       root + "/deploy/prometheus/*.rules.yaml",
		chartDir + "/files/dashboards":  root + "/deploy/dashboards/*.json",
		chartDir + "/files/policies":    root + "/deploy/policies/*.rego",
		root + "/deploy/kustomize/crds": root + "/deploy/crds/*.yaml",
	} {
		sources, err := filepath.Glob(of)
		if err != nil || len(sources) == 0 {
			t.Fatalf("nothing matches %s: %v", of, err)
		}
		want := map[string]bool{"kustomization.yaml": strings.Contains(copied, "kustomize")}
		for _, source := range sources {
			wantFile(t, filepath.Join(copied, filepath.Base(source)), readFile(t, source))
			want[filepath.Base(source)] = true
		}
		entries, err := os.ReadDir(copied)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			if !want[e.Name()] {
				t.Errorf("%s/%s is a copy of nothing in %s", copied, e.Name(), of)
			}
		}
	}
}

// TestGeneratedSchema holds that the values which are configuration are checked
// by the schemas of that configuration.
func TestGeneratedSchema(t *testing.T) {
	path := chartDir + "/values.schema.json"
	var schema map[string]any
	if err := json.Unmarshal(readFile(t, path), &schema); err != nil {
		t.Fatal(err)
	}
	defs, ok := schema["$defs"].(map[string]any)
	if !ok {
		t.Fatalf("%s has no $defs", path)
	}
	for name, file := range map[string]string{"fleetApiConfig": "fleet-api", "sentinelFile": "sentinel", "clusterWorkerFile": "cluster-worker", "executionControllerFile": "execution-controller", "nodeFaultControllerFile": "node-fault-controller", "consoleFile": "console"} {
		var part map[string]any
		if err := json.Unmarshal(readFile(t, root+"/docs/schema/"+file+".schema.json"), &part); err != nil {
			t.Fatal(err)
		}
		delete(part, "$schema")
		delete(part, "title")
		defs[name] = part
	}
	defs["sentinelConfigSpec"] = specSchema(t)
	defs["changeEventsFile"], defs["changeEventsSink"] = changeEventsSchemas(t, defs)
	format, found, err := unstructured.NestedFieldNoCopy(schema, "properties", "global", "properties", "changeEvents", "properties", "format")
	if members, ok := format.(map[string]any); ok {
		members["enum"] = changeevent.Formats()
	} else {
		t.Fatalf("%s has no format of change events: found %v, %v", path, found, err)
	}
	var want bytes.Buffer
	encoder := json.NewEncoder(&want)
	encoder.SetIndent("", "  ")
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(schema); err != nil {
		t.Fatal(err)
	}
	wantFile(t, path, want.Bytes())
}

// specSchema is the schema of a SentinelConfig's spec, as JSON Schema that
// refuses unknown fields. Nothing is required, because a spec is laid over
// sentinel.defaults; what is missing in the end the API server says.
func specSchema(t *testing.T) any {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal(readFile(t, root+"/deploy/crds/hyperfleet.redhat.com_sentinelconfigs.yaml"), &crd); err != nil {
		t.Fatal(err)
	}
	versions, _, err := unstructured.NestedSlice(crd, "spec", "versions")
	if err != nil || len(versions) != 1 {
		t.Fatalf("the definition has %d versions, %v", len(versions), err)
	}
	version, ok := versions[0].(map[string]any)
	if !ok {
		t.Fatalf("a version is a %T", versions[0])
	}
	spec, found, err := unstructured.NestedMap(version, "schema", "openAPIV3Schema", "properties", "spec")
	if err != nil || !found {
		t.Fatalf("the definition has no spec: %v", err)
	}
	return closed(spec)
}

// closed turns the schema of a definition into one that refuses unknown fields.
func closed(schema map[string]any) map[string]any {
	out := map[string]any{}
	for key, value := range schema {
		switch v := value.(type) {
		case map[string]any:
			if key == "properties" {
				properties := map[string]any{}
				for name, p := range v {
					if p, ok := p.(map[string]any); ok {
						properties[name] = closed(p)
					}
				}
				out[key] = properties
				continue
			}
			out[key] = closed(v)
		default:
			out[key] = value
		}
	}
	maps.DeleteFunc(out, func(key string, _ any) bool {
		return key == "required" || key == "default" || key == "format" || strings.HasPrefix(key, "x-kubernetes-")
	})
	if _, ok := out["properties"]; ok && schema["x-kubernetes-preserve-unknown-fields"] != true {
		out["additionalProperties"] = false
	}
	return out
}

// helmOnly are the labels that only Helm's renderings have.
func helmOnly() []string { return []string{"helm.sh/chart", "app.kubernetes.io/managed-by"} }

// withoutHelm takes from objects what only Helm's renderings have: its labels.
func withoutHelm(objects []*unstructured.Unstructured) []*unstructured.Unstructured {
	var out []*unstructured.Unstructured
	for _, o := range objects {
		o = o.DeepCopy()
		labels := o.GetLabels()
		for _, name := range helmOnly() {
			delete(labels, name)
		}
		o.SetLabels(labels)
		out = append(out, o)
	}
	return out
}

// render renders the chart.
func render(t *testing.T, r deploy.Release) []*unstructured.Unstructured {
	t.Helper()
	r.Chart = chartDir
	objects, _, err := r.Render()
	if err != nil {
		t.Fatal(err)
	}
	return objects
}
