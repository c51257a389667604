package deploy_test

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// withNodeFaults is what a rendering with the node fault controller has of it,
// with what is for Prometheus if full.
func withNodeFaults(t *testing.T, full bool) []*unstructured.Unstructured {
	t.Helper()
	r := deploy.Release{}
	if full {
		r = monitored()
	}
	r.Values = newValues(t, "nodeFaultController: {enabled: true}")
	return slices.DeleteFunc(withoutHelm(render(t, r)), func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/component"] != "node-fault-controller" && o.GetName() != repairing
	})
}

// TestGeneratedNodeFaultsKustomization holds the kustomization's files to the
// chart. They have the namespace in them: by it Kustomize knows whom the bindings
// are for, and puts another one there.
func TestGeneratedNodeFaultsKustomization(t *testing.T) {
	files := map[string]*bytes.Buffer{}
	for _, o := range withNodeFaults(t, true) {
		name := "node-fault-controller.yaml"
		switch group := o.GroupVersionKind().Group; {
		case group == "monitoring.coreos.com":
			name = "monitoring/monitoring.yaml"
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
	if len(files) != 3 {
		t.Errorf("there are %d files", len(files))
	}
	for name, b := range files {
		wantFile(t, filepath.Join(kustomizeDir, "node-fault-controller", name), b.Bytes())
	}
}

// TestNodeFaultsKustomizeEquals builds the kustomization and compares it with
// the chart, object by object.
func TestNodeFaultsKustomizeEquals(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		folder string
		full   bool
	}{
		"Default": {"a kustomization is the chart with its own values", "testdata/node-fault-controller", false},
		"Full":    {"the component adds what is for Prometheus", "testdata/node-fault-controller-monitored", true},
	} {
		t.Run(name, func(t *testing.T) {
			built, err := deploy.Kustomize(test.folder)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byName(t, withNodeFaults(t, test.full)), byName(t, built)); diff != "" {
				t.Errorf("%s: chart (-) and kustomization (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}
