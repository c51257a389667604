package execcli_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// runNode runs a node with a name until the test ends. It serves the logs of its Pods.
func (f *fixture) runNode(name string) {
	f.Helper()
	n, err := processnode.New(kubebedtest.Bed(f.T).Config(), processnode.Options{NodeName: name})
	if err != nil {
		f.Fatal(err)
	}
	ctx, cancel := context.WithCancel(f.Context())
	ended := make(chan error, 1)
	go func() { ended <- n.Run(ctx) }()
	f.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			f.Errorf("the node ended: %v", err)
		}
	})
	kubebedtest.Eventually(f, func(context.Context) error { return n.Ready() })
}

// createPod creates a Pod of an execution, as its Job does. An empty node leaves it pending.
func (f *fixture) createPod(ke *v1alpha1.KubernetesExecution, node, name, script string) {
	f.Helper()
	purpose, _, _ := strings.Cut(name, "-0")
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: f.namespace, Name: name,
			Labels: map[string]string{v1alpha1.LabelExecutionUID: string(ke.UID), v1alpha1.LabelPurpose: purpose},
		},
		Spec: corev1.PodSpec{
			NodeName: node, RestartPolicy: corev1.RestartPolicyNever, AutomountServiceAccountToken: new(false),
			Containers: []corev1.Container{{Name: "runner", Image: "any", Command: []string{"sh", "-c", script}}},
		},
	}
	if err := f.client.Create(f.Context(), pod); err != nil {
		f.Fatal(err)
	}
}

// waitForPod waits until a Pod is in a phase.
func (f *fixture) waitForPod(name string, phase corev1.PodPhase) {
	f.Helper()
	kubebedtest.Eventually(f, func(ctx context.Context) error {
		var pod corev1.Pod
		err := f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &pod)
		if err == nil && pod.Status.Phase != phase {
			err = fmt.Errorf("Pod %s is %s, want %s", name, pod.Status.Phase, phase)
		}
		return err
	})
}

// TestLogs prints the logs of an execution while its Pods run and after they have ended.
func TestLogs(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.runNode(f.namespace)
	f.wantRun(f.asUser("alice", "exec", "scale_deployment", "namespace=shop", "deployment=web", "replicas=5", "--name=scale"), cli.CodeOK)
	ke := f.getExecution("scale")
	f.wantRun(f.asUser("alice", "logs", "scale"), cli.CodePrecondition, `execution "scale" has no logs: its phase is new`, "fleetloop exec describe scale")
	f.wantRun(f.asUser("alice", "logs", "other"), cli.CodePrecondition, "not found")
	f.wantRun(f.asUser("alice", "logs", "scale", "--tail=-2"), cli.CodeUsage)
	f.wantRun(f.asUser("alice", "logs", "scale", "--since=-2s"), cli.CodeUsage)

	out, ended, _ := f.background(f.asUser("alice", "logs", "scale", "-f"))
	f.createPod(ke, f.namespace, "dry-run-0-a", `echo one; printf 'two\t\033[31mred\n'; printf three`)
	f.waitForPod("dry-run-0-a", corev1.PodSucceeded)
	f.createPod(ke, f.namespace, "execute-0-a", "echo four; exit 1")
	f.waitForPod("execute-0-a", corev1.PodFailed)
	f.setStatus("scale", v1alpha1.PhaseFailed, nil)
	const want = "[dry-run/dry-run-0-a] one\n[dry-run/dry-run-0-a] two\t\x1b[31mred\n[dry-run/dry-run-0-a] three\n[execute/execute-0-a] four\n"
	if r := f.waitForRun(ended); r.code != cli.CodeOK || out.String() != want {
		t.Errorf("got %q, want %q\n%s", out.String(), want, r.outputText())
	}

	f.createPod(ke, "", "execute-0-b", "true")
	if r := f.wantRun(f.asUser("alice", "logs", "scale"), cli.CodeOK, "Pod execute-0-b has not started; its phase is Pending."); r.out != want {
		t.Errorf("got %q, want %q", r.out, want)
	}
	if r := f.wantRun(f.asUser("alice", "logs", "scale", "--tail=1", "--prefix=false"), cli.CodeOK); r.out != "three\nfour\n" {
		t.Errorf("got %q", r.out)
	}
}

// TestLogRequest checks the request for a log. The node of TestLogs ignores times.
func TestLogRequest(t *testing.T) {
	t.Parallel()
	var query string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := `{"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "run-0", "namespace": "kubernaut-executor"},
			"status": {"containerStatuses": [{"name": "runner", "state": {"terminated": {"exitCode": 0}}}]}}]}`
		switch {
		case strings.HasSuffix(r.URL.Path, "/scale"):
			answer = `{"apiVersion": "kubernetesexecution.kubernaut.io/v1alpha1", "kind": "KubernetesExecution", "metadata": {"name": "scale", "namespace": "kubernaut-executor", "uid": "u-1"}}`
		case strings.HasSuffix(r.URL.Path, "/pods/run-0/log"):
			query, answer = r.URL.RawQuery, "done"
		case r.URL.Query().Get("labelSelector") != v1alpha1.LabelExecutionUID+"=u-1":
			t.Errorf("asked for %s", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"+
		"clusters: [{name: x, cluster: {server: %q}}]\nusers: [{name: x, user: {token: secret}}]\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"":                         "",
		"--tail=0":                 "tailLines=0",
		"--timestamps --since=90s": "sinceSeconds=90&timestamps=true",
		"--since=1ms --tail 7":     "sinceSeconds=1&tailLines=7",
		"--timestamps=false":       "",
	} {
		r := run{args: append(strings.Fields("logs scale --kubeconfig="+file), strings.Fields(args)...)}.runCLI(t.Context())
		if r.code != cli.CodeOK || query != want || !strings.HasSuffix(r.out, "done\n") {
			t.Errorf("%s: asked for %q, want %q\n%s", args, query, want, r.outputText())
		}
	}
}
