package bed_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/loader"
	"helm.sh/helm/v4/pkg/cli"
	"helm.sh/helm/v4/pkg/kube"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/deploy"
)

func newValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values := map[string]any{}
	if err := yaml.Unmarshal([]byte(text), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// TestHelm installs the chart, changes its form, and takes it away again, as
// the helm command does. The definition, and with it the SentinelConfigs of
// others, stays.
func TestHelm(t *testing.T) {
	ns := restricted(t)
	bed := kubebedtest.Bed(t)
	client := kubernetes.NewForConfigOrDie(bed.Config())
	settings := cli.New()
	settings.KubeConfig = bed.AdminKubeconfig()
	settings.SetNamespace(ns)
	cfg := action.NewConfiguration(action.ConfigurationSetLogger(slog.DiscardHandler))
	if err := cfg.Init(settings.RESTClientGetter(), ns, "secret"); err != nil {
		t.Fatal(err)
	}
	chart, err := loader.LoadDir(chartDir)
	if err != nil {
		t.Fatal(err)
	}
	deployments := func() (names []string) {
		t.Helper()
		list, err := client.AppsV1().Deployments(ns).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			names = append(names, list.Items[i].Name)
		}
		slices.Sort(names)
		return names
	}

	install := action.NewInstall(cfg)
	install.ReleaseName, install.Namespace, install.WaitStrategy = "fleetloop", ns, kube.HookOnlyStrategy
	if _, err := install.RunWithContext(t.Context(), chart, map[string]any{}); err != nil {
		t.Fatal(err)
	}
	if got, want := deployments(), []string{"fleetloop-fleet-api", "fleetloop-sentinel-clusters", "fleetloop-sentinel-nodepools"}; !slices.Equal(got, want) {
		t.Errorf("installed: %v, want %v", got, want)
	}

	upgrade := action.NewUpgrade(cfg)
	upgrade.Namespace, upgrade.WaitStrategy = ns, kube.HookOnlyStrategy
	acting := restricted(t)
	values := fmt.Sprintf("{sentinel: {deploymentMode: all}, executionController: {enabled: true, namespace: %s}}", acting)
	for range 2 { // the second time its guard is there already
		if _, err := upgrade.RunWithContext(t.Context(), "fleetloop", chart, newValues(t, values)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := deployments(), []string{"fleetloop-fleet-api", "fleetloop-sentinel"}; !slices.Equal(got, want) {
		t.Errorf("upgraded: %v, want %v", got, want)
	}
	if _, err := client.AppsV1().Deployments(acting).Get(t.Context(), "fleetloop-execution-controller", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	if _, err := client.AdmissionregistrationV1().MutatingAdmissionPolicies().Get(t.Context(), acting+"-execution-requests-defaults", metav1.GetOptions{}); err != nil {
		t.Errorf("Helm asks the cluster what it serves: %v", err)
	}

	uninstall := action.NewUninstall(cfg)
	uninstall.WaitStrategy = kube.HookOnlyStrategy
	if _, err := uninstall.Run("fleetloop"); err != nil {
		t.Fatal(err)
	}
	if got := deployments(); len(got) > 0 {
		t.Errorf("taken away, there are %v", got)
	}
	if _, err := client.AppsV1().Deployments(acting).Get(t.Context(), "fleetloop-execution-controller", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("taken away, the execution controller is there: %v", err)
	}
	c := newCluster(t)
	definition := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
		"metadata": map[string]any{"name": "sentinelconfigs.hyperfleet.redhat.com"},
	}}
	if err := c.missing(t.Context(), []*unstructured.Unstructured{definition}, ""); err != nil {
		t.Error(err)
	}
}

// TestKubectl applies the kustomization as the guide says, in a namespace of
// the user's.
func TestKubectl(t *testing.T) {
	ns := restricted(t)
	bed, c := kubebedtest.Bed(t), newCluster(t)
	overlay := t.TempDir()
	base, err := filepath.Abs(root + "/deploy/kustomize")
	if err != nil {
		t.Fatal(err)
	}
	if base, err = filepath.Rel(overlay, base); err != nil {
		t.Fatal(err)
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %[1]s\nresources: [%[2]s]\ncomponents: [%[2]s/cluster-worker]\nimages:\n  - {name: fleetloop/sentinel, newName: registry.example.com/sentinel, newTag: v1}\n", ns, base)
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{
		{"apply", "-k", root + "/deploy/kustomize/crds"},
		{"wait", "--for=condition=Established", "crd/sentinelconfigs.hyperfleet.redhat.com"},
		{"apply", "-k", overlay},
		{"apply", "--server-side", "--force-conflicts", "-k", overlay},
	} {
		if out, err := bed.Kubectl(t.Context(), args...); err != nil {
			t.Fatalf("kubectl %v: %v\n%s", args, err, out)
		}
	}
	objects, err := deploy.Kustomize(overlay)
	if err != nil {
		t.Fatal(err)
	}
	c.wantApplied(t, objects, ns)
	if err := c.missing(t.Context(), slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "" }), ns); err != nil {
		t.Error(err)
	}
	sentinel, err := kubernetes.NewForConfigOrDie(bed.Config()).AppsV1().Deployments(ns).Get(t.Context(), "fleetloop-sentinel-clusters", metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err != nil {
		t.Fatal(err)
	}
	if got := sentinel.Spec.Template.Spec.Containers[0].Image; got != "registry.example.com/sentinel:v1" {
		t.Errorf("the image is %s", got)
	}
}

// TestKubectlComponents applies the kustomization of a component as the guide says, and takes it away.
func TestKubectlComponents(t *testing.T) {
	for component, namespace := range map[string]string{
		"execution-controller": "kubernaut-executor", "node-fault-controller": "hyperfleet-system", "console": "hyperfleet-system",
	} {
		t.Run(component, func(t *testing.T) {
			bed, c := kubebedtest.Bed(t), newCluster(t)
			folder := root + "/deploy/kustomize/" + component
			if out, err := bed.Kubectl(t.Context(), "create", "namespace", namespace); err != nil && !strings.Contains(err.Error(), "AlreadyExists") {
				t.Fatalf("%v\n%s", err, out)
			}
			t.Cleanup(func() {
				if out, err := bed.Kubectl(context.WithoutCancel(t.Context()), "delete", "--ignore-not-found", "-k", folder); err != nil {
					t.Errorf("%v\n%s", err, out)
				}
			})
			for range 2 {
				if out, err := bed.Kubectl(t.Context(), "apply", "-k", folder); err != nil {
					t.Fatalf("%v\n%s", err, out)
				}
			}
			objects, err := deploy.Kustomize(folder)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.missing(t.Context(), slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetNamespace() == "" }), namespace); err != nil {
				t.Error(err)
			}
		})
	}
}
