package bed_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/binaries"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/test/deploy"
)

// TestExecutions installs the execution controller from the chart, runs it as
// the Deployment would, as its account and with its environment, and has it
// bring an execution to its Job: with the rights, the policies and the guard of
// the chart, and no others. The Job's pod is one that the namespace admits.
func TestExecutions(t *testing.T) {
	ns, target, c := restricted(t), kubebedtest.Namespace(t), newCluster(t)
	admin := kubernetes.NewForConfigOrDie(kubebedtest.Bed(t).Config())
	relabel(t, admin, target, func(o *corev1.Namespace) { o.Labels["environment"] = "development" })

	objects, _, err := deploy.Release{
		Chart: chartDir, Namespace: ns, APIVersions: c.kinds(t),
		Values: newValues(t, fmt.Sprintf("{fleetApi: {enabled: false}, sentinel: {enabled: false}, executionController: {enabled: true, namespace: %s, audit: {mode: 'off'}, targetNamespaces: [%s], extraEnv: [{name: GUARD_PROPAGATION, value: 1s}]}}", ns, target)),
	}.Render()
	if err != nil {
		t.Fatal(err)
	}
	stamped := slices.ContainsFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "MutatingAdmissionPolicy" })
	if serves := slices.Contains(c.kinds(t), "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy"); stamped != serves {
		t.Errorf("names are filled in: %t; the cluster can: %t", stamped, serves)
	}
	t.Cleanup(func() { c.withdraw(t, objects) })
	c.wantApplied(t, objects, ns)
	said := startController(t, objects, ns)
	kubebedtest.Eventually(t, func(context.Context) error { // what is asked for before is refused
		if !strings.Contains(said(), "admission policies in force") {
			return errors.New("the admission policies are not in force yet")
		}
		return nil
	})

	web := &unstructured.Unstructured{Object: newValues(t, `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec: {containers: [{name: main, image: "localhost/web:1"}]}
`)}
	if _, err := c.apply(t.Context(), web, target); err != nil {
		t.Fatal(err)
	}
	executions := c.dynamic.Resource(v1alpha1.GroupVersion.WithResource(v1alpha1.Resource)).Namespace(ns)
	ke := &unstructured.Unstructured{Object: newValues(t, fmt.Sprintf("{metadata: {name: scale-web}, spec: {action: scale_deployment, reason: a trial, parameters: {deployment: web, namespace: %s, replicas: 3}}}", target))}
	ke.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	if _, err := executions.Create(t.Context(), ke, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	var job string
	kubebedtest.Eventually(t, func(ctx context.Context) error {
		got, err := executions.Get(ctx, "scale-web", metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _, err := unstructured.NestedMap(got.Object, "status")
		if err != nil {
			return err
		}
		if job, _ = status["jobName"].(string); job == "" {
			return fmt.Errorf("there is no Job, but the status %v", status)
		}
		return nil
	})
	made, err := c.dynamic.Resource(schema.GroupVersionResource{Group: "batch", Version: "v1", Resource: "jobs"}).Namespace(ns).Get(t.Context(), job, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.apply(t.Context(), podOf(t, made), ns, metav1.DryRunAll); err != nil {
		t.Errorf("the pod of the Job: %v", err)
	}
	if text := said(); strings.Contains(strings.ToLower(text), "forbidden") {
		t.Errorf("the account lacks a right:\n%s", text)
	}
}

func relabel(t *testing.T, admin kubernetes.Interface, name string, change func(*corev1.Namespace)) {
	t.Helper()
	ns, err := admin.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(ns)
	if _, err := admin.CoreV1().Namespaces().Update(t.Context(), ns, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// withdraw deletes what is outside of namespaces.
func (c *cluster) withdraw(t *testing.T, objects []*unstructured.Unstructured) {
	t.Helper()
	for _, o := range objects {
		gvk := o.GroupVersionKind()
		mapping, err := c.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		if err == nil && o.GetNamespace() == "" {
			err = c.dynamic.Resource(mapping.Resource).Delete(context.WithoutCancel(t.Context()), o.GetName(), metav1.DeleteOptions{})
		}
		if err != nil {
			t.Errorf("delete %s/%s: %v", gvk.Kind, o.GetName(), err)
		}
	}
}

// startController runs the controller until the test ends: the program of this
// repository, with the environment of the Deployment among objects, as its
// account. What it has said so far is what said gives.
func startController(t *testing.T, objects []*unstructured.Unstructured, ns string) (said func() string) {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == "Deployment" })
	containers, _, err := unstructured.NestedSlice(objects[i].Object, "spec", "template", "spec", "containers")
	if err != nil {
		t.Fatal(err)
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		t.Fatalf("a container is a %T", containers[0])
	}
	account, _, err := unstructured.NestedString(objects[i].Object, "spec", "template", "spec", "serviceAccountName")
	if err != nil {
		t.Fatal(err)
	}
	as, err := kubebedtest.Bed(t).EnsureServiceAccountConfig(t.Context(), ns, account)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	program := filepath.Join(folder, "execution-controller")
	if err := binaries.Build(t.Context(), folder, "execution-controller"); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "--kubeconfig="+kubeconfig(t, folder, as),
		"--metrics-bind-address=127.0.0.1:0", "--health-probe-bind-address=127.0.0.1:0")
	env, _ := container["env"].([]any)
	cmd.Env = append(cmd.Env, "HOME="+folder)
	for _, e := range env {
		variable, ok := e.(map[string]any)
		if !ok {
			t.Fatalf("a variable is a %T", e)
		}
		cmd.Env = append(cmd.Env, fmt.Sprintf("%s=%s", variable["name"], variable["value"]))
	}
	out := &output{}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself, which Wait tells
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("the controller ended: %v; it said\n%s", err, out.text())
		}
	})
	return out.text
}

func kubeconfig(t *testing.T, folder string, cfg *rest.Config) string {
	t.Helper()
	path := filepath.Join(folder, "kubeconfig")
	file := clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"bed": {Server: cfg.Host, CertificateAuthorityData: cfg.CAData, CertificateAuthority: cfg.CAFile}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{"me": {Token: cfg.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{"bed": {Cluster: "bed", AuthInfo: "me"}},
		CurrentContext: "bed",
	}
	if err := clientcmd.WriteToFile(file, path); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// An output keeps what a process says.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write keeps a line.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) text() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
