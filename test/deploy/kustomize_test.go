package deploy_test

import (
	"bytes"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/test/deploy"
)

const (
	kustomizeDir    = root + "/deploy/kustomize"
	workerComponent = "cluster-worker"
)

// monitored is the rendering with all that is for Prometheus and Grafana.
func monitored() deploy.Release {
	return deploy.Release{
		APIVersions: []string{"monitoring.coreos.com/v1/ServiceMonitor", "monitoring.coreos.com/v1/PrometheusRule"},
		Values:      map[string]any{"monitoring": map[string]any{"dashboards": map[string]any{"enabled": true}}},
	}
}

// withWorker is a rendering with the cluster-worker, which is off by itself.
func withWorker(r deploy.Release) deploy.Release {
	values := map[string]any{"clusterWorker": map[string]any{"enabled": true}}
	maps.Copy(values, r.Values)
	r.Values = values
	return r
}

// TestGeneratedKustomization holds the kustomization's files to the chart. They
// have the namespace in them: by it Kustomize knows whom bindings are for, and
// puts another one there.
func TestGeneratedKustomization(t *testing.T) {
	files := map[string][]*unstructured.Unstructured{}
	for _, o := range withoutHelm(render(t, withWorker(monitored()))) {
		component := o.GetLabels()["app.kubernetes.io/component"]
		name := component + ".yaml"
		switch {
		case o.GetKind() == "ConfigMap":
			continue // the dashboards, which have a kustomization of their own
		case strings.HasPrefix(o.GetAPIVersion(), "monitoring.coreos.com/"):
			name = "monitoring/monitoring.yaml"
		case o.GetKind() == "SentinelConfig":
			name = "sentinelconfigs.yaml"
		}
		if component == workerComponent || o.GetName() == "fleetloop-"+workerComponent {
			name = filepath.Join(workerComponent, name) // a component of its own
		}
		files[name] = append(files[name], o)
	}
	// The fleet API waits for the worker by a patch of that component.
	files["fleet-api.yaml"] = nil
	for _, o := range withoutHelm(render(t, deploy.Release{})) {
		if o.GetLabels()["app.kubernetes.io/component"] == "fleet-api" {
			files["fleet-api.yaml"] = append(files["fleet-api.yaml"], o)
		}
	}
	for name, objects := range files {
		var b bytes.Buffer
		b.WriteString("# Made of the chart by 'make generate'.\n")
		for i, o := range objects {
			if i > 0 {
				b.WriteString("---\n")
			}
			raw, err := yaml.Marshal(o.Object)
			if err != nil {
				t.Fatal(err)
			}
			b.Write(raw)
		}
		wantFile(t, filepath.Join(kustomizeDir, name), b.Bytes())
	}
}

// TestKustomizeEquals builds the kustomizations and compares them with the
// chart, object by object. Only the labels in helmOnly may differ.
func TestKustomizeEquals(t *testing.T) {
	tests := map[string]struct {
		reason string
		folder string
		with   deploy.Release
	}{
		"Default":         {"a kustomization is the chart with its own values", kustomizeDir, deploy.Release{}},
		"Monitoring":      {"the components add what monitoring.* adds", "testdata/monitored", monitored()},
		"Worker":          {"a component adds the cluster-worker", "testdata/cluster-worker", withWorker(deploy.Release{})},
		"WorkerMonitored": {"and another what monitoring.* adds for it", "testdata/cluster-worker-monitored", withWorker(monitored())},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			built, err := deploy.Kustomize(test.folder)
			if err != nil {
				t.Fatal(err)
			}
			built = slices.DeleteFunc(built, func(o *unstructured.Unstructured) bool { return o.GetKind() == "CustomResourceDefinition" })
			if diff := cmp.Diff(byName(t, withoutHelm(render(t, test.with))), byName(t, built)); diff != "" {
				t.Errorf("%s: chart (-) and kustomization (+) differ:\n%s", test.reason, diff)
			}
		})
	}
}

// TestKustomizeElsewhere: in another namespace all is there, and the bindings are
// for the accounts there.
func TestKustomizeElsewhere(t *testing.T) {
	built, err := deploy.Kustomize("testdata/elsewhere")
	if err != nil {
		t.Fatal(err)
	}
	bindings := 0
	for _, o := range built {
		for _, namespace := range []any{at(o, "metadata.namespace"), at(o, "subjects.0.namespace")} {
			if namespace != nil && namespace != "elsewhere" {
				t.Errorf("%s/%s: there is %v", o.GetKind(), o.GetName(), namespace)
			}
		}
		if at(o, "subjects.0.namespace") != nil {
			bindings++
		}
	}
	if bindings < 7 {
		t.Errorf("there are %d bindings", bindings)
	}
}

// TestKustomizeDefinitions holds that one apply brings what Helm takes from
// crds/.
func TestKustomizeDefinitions(t *testing.T) {
	built, err := deploy.Kustomize(kustomizeDir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, o := range built {
		if o.GetKind() == "CustomResourceDefinition" {
			names = append(names, o.GetName())
		}
	}
	if want := []string{"nodefaults.fleetloop.io", "sentinelconfigs.hyperfleet.redhat.com", "rebootnodes.janitor.dgxc.nvidia.com", "terminatenodes.janitor.dgxc.nvidia.com", "kubernetesexecutions.kubernetesexecution.kubernaut.io"}; !slices.Equal(names, want) {
		t.Errorf("it defines %v, want %v", names, want)
	}
}

func byName(t *testing.T, objects []*unstructured.Unstructured) map[string]any {
	t.Helper()
	out := map[string]any{}
	for _, o := range objects {
		key := o.GetKind() + " " + o.GetNamespace() + "/" + o.GetName()
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = o.Object
	}
	return out
}
