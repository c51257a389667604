package deploy_test

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestMemoryLimits holds that every container with a memory limit tells Go's
// garbage collector nine tenths of it, without what is there for the processes that
// evaluate conditions. The kustomization equals the chart.
func TestMemoryLimits(t *testing.T) {
	enabled := map[string]any{"enabled": true}
	limited := 0
	for _, o := range render(t, deploy.Release{Values: map[string]any{
		"clusterWorker": enabled, "executionController": enabled, "nodeFaultController": enabled,
		"console": map[string]any{"enabled": true, "publicURL": "https://fleet.example.com"},
	}}) {
		containers, _, err := unstructured.NestedSlice(o.Object, "spec", "template", "spec", "containers")
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range containers {
			container, _ := c.(map[string]any)
			text, found, err := unstructured.NestedString(container, "resources", "limits", "memory")
			if err != nil || !found {
				continue
			}
			limited++
			limit := resource.MustParse(text)
			own := limit.Value()
			if container["name"] == "execution-controller" {
				own -= 4 * 64 << 20 // policy.MaxEvaluatorProcesses, policy.MaxEvaluatorMemory
			}
			want := fmt.Sprintf("%dMiB", own*9/10>>20)
			got := ""
			env, _ := container["env"].([]any)
			for _, e := range env {
				if variable, _ := e.(map[string]any); variable["name"] == "GOMEMLIMIT" {
					got, _ = variable["value"].(string)
				}
			}
			if got != want {
				t.Errorf("%s %s: container %v with %s has GOMEMLIMIT %q, want %q", o.GetKind(), o.GetName(), container["name"], text, got, want)
			}
		}
	}
	if limited < 6 {
		t.Errorf("%d containers have a memory limit, want one of each component at least", limited)
	}
}
