package deploy_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

const (
	servesStamps     = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	executionIsThere = "executionController: {enabled: true}"
)

// kustomized is a component whose kustomization is made of the chart.
type kustomized struct {
	component string // the label, and the folder in kustomizeDir
	values    string // that enable it
	files     int
	// plain and full are the kustomizations that equal the chart without and with its optional parts:
	// what is for Prometheus, and for newer clusters.
	plain, full string
}

func kustomizedComponents() []kustomized {
	return []kustomized{
		{"execution-controller", executionIsThere, 5, "testdata/execution-controller", "testdata/execution-controller-monitored"},
		{"node-fault-controller", "nodeFaultController: {enabled: true}", 3, "testdata/node-fault-controller", "testdata/node-fault-controller-monitored"},
		{"console", "console: {enabled: true, publicURL: 'https://fleet.example.com/'}", 3, kustomizeDir + "/console", "testdata/console-monitored"},
	}
}

// rendered returns the component's objects in a rendering of the chart, with its optional parts if full.
func (k kustomized) rendered(t *testing.T, full bool) []*unstructured.Unstructured {
	t.Helper()
	r := deploy.Release{}
	if full {
		r = monitored()
		r.APIVersions = append(r.APIVersions, servesStamps)
	}
	r.Values = newValues(t, k.values)
	return slices.DeleteFunc(withoutHelm(render(t, r)), func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/component"] != k.component && o.GetName() != "fleetloop-"+k.component
	})
}

// isPolicies reports whether an object is the ConfigMap of the policies. It has a separate kustomization.
func isPolicies(o *unstructured.Unstructured) bool {
	return o.GetKind() == "ConfigMap" && o.GetName() == "safety-policies"
}

// fileOf returns the file of an object in the kustomization, empty if it is not in one.
func (k kustomized) fileOf(o *unstructured.Unstructured) string {
	switch group := o.GroupVersionKind().Group; {
	case isPolicies(o):
		return ""
	case group == "monitoring.coreos.com":
		return "monitoring/monitoring.yaml"
	case strings.HasPrefix(o.GetKind(), "Mutating"):
		return "mutating/mutating.yaml"
	case group == "admissionregistration.k8s.io":
		return "admission-policies.yaml"
	case group == rbacv1.GroupName, o.GetKind() == "ServiceAccount":
		return "rbac.yaml"
	}
	return k.component + ".yaml"
}

// TestGeneratedComponentKustomizations compares the files of the kustomizations with the chart. They name
// the namespace: by it Kustomize knows whom the bindings are for, and puts another one there.
func TestGeneratedComponentKustomizations(t *testing.T) {
	for _, k := range kustomizedComponents() {
		t.Run(k.component, func(t *testing.T) {
			files := map[string]*bytes.Buffer{}
			for _, o := range k.rendered(t, true) {
				name := k.fileOf(o)
				if name == "" {
					continue
				}
				b := files[name]
				if b == nil {
					b = bytes.NewBufferString("# Made of the chart by 'make generate'.\n")
					files[name] = b
				} else {
					b.WriteString("---\n")
				}
				raw, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				b.Write(raw)
			}
			if len(files) != k.files {
				t.Errorf("there are %d files, want %d", len(files), k.files)
			}
			for name, b := range files {
				wantFile(t, filepath.Join(kustomizeDir, k.component, name), b.Bytes())
			}
		})
	}
}

// TestComponentKustomizationsEqual builds the kustomizations and compares them with the chart, object by
// object. Policies have no labels of the chart.
func TestComponentKustomizationsEqual(t *testing.T) {
	for _, k := range kustomizedComponents() {
		for folder, full := range map[string]bool{k.plain: false, k.full: true} {
			t.Run(filepath.Base(folder), func(t *testing.T) {
				built, err := deploy.Kustomize(folder)
				if err != nil {
					t.Fatal(err)
				}
				rendered := k.rendered(t, full)
				for _, o := range slices.Concat(built, rendered) {
					if isPolicies(o) {
						o.SetLabels(nil)
					}
				}
				if diff := cmp.Diff(byName(t, rendered), byName(t, built)); diff != "" {
					t.Errorf("chart (-) and kustomization (+) differ:\n%s", diff)
				}
			})
		}
	}
}
