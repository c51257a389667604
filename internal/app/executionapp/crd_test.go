package executionapp_test

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/deploy"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

const crdFile = "deploy/crds/kubernetesexecution.kubernaut.io_kubernetesexecutions.yaml"

// newOldCluster starts a cluster whose CustomResourceDefinition lacks fields. A field is a path
// below properties of the schema.
func newOldCluster(t *testing.T, fields ...string) *kubebed.Bed {
	t.Helper()
	var crd map[string]any
	if err := yaml.Unmarshal(deploy.KubernetesExecutionCRD, &crd); err != nil {
		t.Fatal(err)
	}
	versions, _, _ := unstructured.NestedSlice(crd, "spec", "versions")
	version, _ := versions[0].(map[string]any)
	for _, f := range fields {
		unstructured.RemoveNestedField(version, append([]string{"schema", "openAPIV3Schema", "properties"}, strings.Split(f, ".")...)...)
	}
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
	return bed
}

// wantCRDState waits until the metric, readiness and the log of a controller report the state of
// the CustomResourceDefinition.
func wantCRDState(t *testing.T, c *processtest.RunningCommand, outdated int, ready, logs []string) {
	t.Helper()
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.Eventually(t, func() error {
		_, page := processtest.SendRequest(t, http.MethodGet, health+"/readyz?verbose", "")
		_, metrics := processtest.SendRequest(t, http.MethodGet, health+"/metrics", "")
		if metric := fmt.Sprintf("\nkubernetesexecution_crd_outdated %d\n", outdated); !strings.Contains(metrics, metric) {
			return fmt.Errorf("/metrics lacks %s", metric)
		}
		for _, w := range ready {
			if !strings.Contains(page, w) {
				return fmt.Errorf("/readyz lacks %q: %s", w, page)
			}
		}
		for _, w := range logs {
			if !strings.Contains(c.Stderr.String(), w) {
				return fmt.Errorf("the log lacks %q", w)
			}
		}
		return nil
	})
}

// TestOldCRD verifies that a controller reports the fields that an older CustomResourceDefinition
// lacks, and the command that installs the current one. It is ready after that command.
func TestOldCRD(t *testing.T) {
	t.Parallel()
	bed := newOldCluster(t, "status.properties.verifiedRequest", "status.properties.plan.properties.admissionPolicyPeriod", "spec.properties.approvals.items.properties.reason")
	kubeconfig, err := bed.WriteUserKubeconfig("root", "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	c := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, nil, "--kubeconfig", kubeconfig, "--namespace", guard.DefaultNamespace, "--runner-image=runner", "--audit=off", "--leader-elect=false")
	const command = "kubectl apply --server-side --force-conflicts -f "
	wantCRDState(t, c, 1, []string{"spec.approvals.reason", "status.plan.admissionPolicyPeriod", "status.verifiedRequest", command + crdFile}, []string{"installed CustomResourceDefinition is outdated"})
	if out, err := bed.Kubectl(t.Context(), append(strings.Fields(command)[1:], filepath.Join("../../..", crdFile))...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	wantCRDState(t, c, 0, nil, []string{"installed CustomResourceDefinition is up to date"})
}

// TestOldCRDWithoutSchema verifies that a controller that may not read the schema detects an older
// CustomResourceDefinition by a field that the API server rejects.
func TestOldCRDWithoutSchema(t *testing.T) {
	t.Parallel()
	bed := newOldCluster(t, "status.properties.observedGeneration")
	host, err := kubernetes.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	// Every user may read the schema by this role.
	if err := host.RbacV1().ClusterRoleBindings().Delete(t.Context(), "system:discovery", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	role := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: "all-objects"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"*"}, Resources: []string{"*"}, Verbs: []string{"*"}}},
	}
	if _, err := host.RbacV1().ClusterRoles().Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := host.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "all-objects"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "controller"}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	kubeconfig, err := bed.WriteUserKubeconfig("controller")
	if err != nil {
		t.Fatal(err)
	}
	c := processtest.StartCommandInGoroutine(t, executionapp.NewCommand, nil, "--kubeconfig", kubeconfig, "--namespace", "default", "--runner-image=runner", "--audit=off", "--leader-elect=false", "--admission-policies=off")
	wantCRDState(t, c, 0, nil, []string{"schema of the CustomResourceDefinition not read", "forbidden"})
	admin, err := dynamic.NewForConfig(bed.Config())
	if err != nil {
		t.Fatal(err)
	}
	request := func(name string) {
		t.Helper()
		_, err := admin.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace("default").Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": v1alpha1.GroupVersion.String(), "kind": v1alpha1.Kind, "metadata": map[string]any{"name": name},
			"spec": map[string]any{"action": "rollout_restart", "parameters": map[string]any{"deployment": "web", "namespace": "shop"}},
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	request("first")
	wantCRDState(t, c, 1, []string{"lacks status.observedGeneration,", crdFile}, []string{"installed CustomResourceDefinition is outdated"})
	if out, err := bed.Kubectl(t.Context(), "apply", "--server-side", "--force-conflicts", "-f", filepath.Join("../../..", crdFile)); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	request("second")
	wantCRDState(t, c, 0, nil, []string{"installed CustomResourceDefinition is up to date"})
}
