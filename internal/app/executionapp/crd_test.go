package executionapp_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/deploy/crds"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/app/apptest"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
)

// TestOldCRD holds that a controller whose CustomResourceDefinition is of a version
// before says so, what it lacks and what to do, and is ready once it is applied.
func TestOldCRD(t *testing.T) {
	t.Parallel()
	var crd map[string]any
	if err := yaml.Unmarshal(crds.KubernetesExecutions, &crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	status := []string{"schema", "openAPIV3Schema", "properties", "status", "properties"}
	unstructured.RemoveNestedField(version, append(status, "verifiedRequest")...)
	unstructured.RemoveNestedField(version, append(status, "plan", "properties", "admissionPolicyPeriod")...)
	if err := unstructured.SetNestedSlice(crd, versions, "spec", "versions"); err != nil {
		t.Fatal(err)
	}
	old, err := yaml.Marshal(crd)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "old.yaml"), old, 0o600); err != nil {
		t.Fatal(err)
	}
	bed, err := kubebed.Start(t.Context(), kubebed.Options{Dir: filepath.Join(dir, "bed"), CRDs: []string{dir}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := bed.Stop(); err != nil {
			t.Error(err)
		}
	})
	kubeconfig, err := bed.Kubeconfig("root", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c := apptest.Start(t, executionapp.Command, nil, "--kubeconfig", kubeconfig, "--namespace", guard.DefaultNamespace, "--runner-image=runner", "--audit=off", "--leader-elect=false")
	health := c.URL(t, "metrics and health")
	says := func(metric string, words ...string) {
		t.Helper()
		apptest.Eventually(t, func() error {
			_, ready := apptest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", "")
			_, metrics := apptest.SendRequest(t, http.MethodGet, health+"/metrics", "")
			if !strings.Contains(metrics, "\n"+metric+"\n") {
				return fmt.Errorf("/metrics lacks %s", metric)
			}
			for _, w := range words {
				if !strings.Contains(ready, w) {
					return fmt.Errorf("/readyz lacks %q: %s", w, ready)
				}
			}
			return nil
		})
	}
	says("kubernetesexecution_crd_outdated 1", "status.plan.admissionPolicyPeriod", "status.verifiedRequest", "kubectl apply --server-side -f deploy/crds")
	if !strings.Contains(c.Stderr.String(), "installed CustomResourceDefinition is outdated") {
		t.Error("the log does not say it")
	}
	admin, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	shipped, err := yaml.YAMLToJSON(crds.KubernetesExecutions)
	if err != nil {
		t.Fatal(err)
	}
	force := true
	_, err = admin.Resource(schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}).
		Patch(t.Context(), "kubernetesexecutions.kubernetesexecution.kubernaut.io", types.ApplyPatchType, shipped, metav1.PatchOptions{FieldManager: "test", Force: &force})
	if err != nil {
		t.Fatal(err)
	}
	says("kubernetesexecution_crd_outdated 0")
}
