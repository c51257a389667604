package deploy_test

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

const (
	actingDir        = kustomizeDir + "/execution-controller"
	servesStamps     = "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"
	executionIsThere = "executionController: {enabled: true}"
)

// withExecutions is a rendering with the execution controller: all that is its
// own, with its alerts and where names are filled in if full.
func withExecutions(t *testing.T, full bool) []*unstructured.Unstructured {
	t.Helper()
	r := deploy.Release{}
	if full {
		r = monitored()
		r.APIVersions = append(r.APIVersions, servesStamps)
	}
	r.Values = newValues(t, executionIsThere)
	var list []*unstructured.Unstructured
	for _, o := range withoutHelm(render(t, r)) {
		if o.GetLabels()["app.kubernetes.io/component"] == "execution-controller" || o.GetName() == "fleetloop-execution-controller" {
			list = append(list, o)
		}
	}
	return list
}

// TestGeneratedExecutionKustomization holds the kustomization's files to the
// chart. The policies are a kustomization of their own.
func TestGeneratedExecutionKustomization(t *testing.T) {
	files := map[string]*bytes.Buffer{}
	for _, o := range withExecutions(t, true) {
		name := "execution-controller.yaml"
		switch group := o.GroupVersionKind().Group; {
		case o.GetKind() == "ConfigMap":
			continue
		case group == "monitoring.coreos.com":
			name = "monitoring/monitoring.yaml"
		case strings.HasPrefix(o.GetKind(), "Mutating"):
			name = "mutating/mutating.yaml"
		case group == "admissionregistration.k8s.io":
			name = "admission-policies.yaml"
		case group == rbacv1.GroupName, o.GetKind() == "ServiceAccount":
			name = "rbac.yaml"
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
	if len(files) != 5 {
		t.Errorf("there are %d files", len(files))
	}
	for name, b := range files {
		wantFile(t, filepath.Join(actingDir, name), b.Bytes())
	}
}

// TestExecutionKustomizeEquals builds the kustomization and compares it with
// the chart, object by object. The policies have no labels of the chart.
func TestExecutionKustomizeEquals(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		folder string
		full   bool
	}{
		"Default": {"a kustomization is the chart with its own values", "testdata/execution-controller", false},
		"Full":    {"the components add what is for Prometheus and for newer clusters", "testdata/execution-controller-monitored", true},
	} {
		t.Run(name, func(t *testing.T) {
			built, err := deploy.Kustomize(test.folder)
			if err != nil {
				t.Fatal(err)
			}
			rendered := withExecutions(t, test.full)
			for _, list := range [][]*unstructured.Unstructured{built, rendered} {
				for _, o := range list {
					if o.GetKind() == "ConfigMap" {
						o.SetLabels(nil)
					}
				}
			}
			if diff := cmp.Diff(byName(t, rendered), byName(t, built)); diff != "" {
				t.Errorf("%s: chart (-) and kustomization (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}
