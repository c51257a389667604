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

// withConsole returns the objects of the console in a rendering, with those for Prometheus if full.
func withConsole(t *testing.T, full bool) []*unstructured.Unstructured {
	t.Helper()
	r := deploy.Release{}
	if full {
		r = monitored()
	}
	r.Values = newValues(t, "console: {enabled: true, publicURL: 'https://fleet.example.com/'}")
	return slices.DeleteFunc(withoutHelm(render(t, r)), func(o *unstructured.Unstructured) bool {
		return o.GetLabels()["app.kubernetes.io/component"] != "console" && o.GetName() != consoleName
	})
}

// TestGeneratedConsoleKustomization compares the kustomization's files with the chart.
func TestGeneratedConsoleKustomization(t *testing.T) {
	files := map[string]*bytes.Buffer{}
	for _, o := range withConsole(t, true) {
		name := "console.yaml"
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
		wantFile(t, filepath.Join(kustomizeDir, "console", name), b.Bytes())
	}
}

// TestConsoleKustomizeEquals builds the kustomization and compares it with the chart, object by object.
func TestConsoleKustomizeEquals(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		folder string
		full   bool
	}{
		"Default": {"a kustomization is the chart with an example of a URL", kustomizeDir + "/console", false},
		"Full":    {"the component adds what is for Prometheus", "testdata/console-monitored", true},
	} {
		t.Run(name, func(t *testing.T) {
			built, err := deploy.Kustomize(test.folder)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(byName(t, withConsole(t, test.full)), byName(t, built)); diff != "" {
				t.Errorf("%s: chart (-) and kustomization (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}
