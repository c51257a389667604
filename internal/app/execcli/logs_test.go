package execcli_test

import (
	"context"
	"fmt"
	"io"
	"log"
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
	r := f.waitForRun(ended)
	if r.code != cli.CodeOK || out.String() != want {
		t.Errorf("got %q, want %q\n%s", out.String(), want, r.outputText())
	}

	if note := "Waiting for logs of execution scale: "; !strings.Contains(r.errs, note) { // of the phase or of a Pod
		t.Errorf("no %q in %q", note, r.errs)
	}

	f.createPod(ke, "", "execute-0-b", "true")
	if r := f.wantRun(f.asUser("alice", "logs", "scale"), cli.CodeOK, "Pod execute-0-b has not started; its phase is Pending."); r.out != want {
		t.Errorf("got %q, want %q", r.out, want)
	}
	if r := f.wantRun(f.asUser("alice", "logs", "scale", "--tail=1", "--prefix=false"), cli.CodeOK); r.out != "three\nfour\n" {
		t.Errorf("got %q", r.out)
	}
}

// A logAPI is an API server with one execution that has one Pod with two containers.
type logAPI struct {
	t *testing.T

	phase   v1alpha1.Phase
	state   string // of the container of the action
	serve   func(w http.ResponseWriter, r *http.Request)
	queries []string // of the requests for the log
}

// newKubeconfig starts the server and returns a kubeconfig file for it.
func (a *logAPI) newKubeconfig() string {
	a.t.Helper()
	server := httptest.NewUnstartedServer(a)
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS() // clients send no tokens without TLS
	a.t.Cleanup(server.Close)
	file := filepath.Join(a.t.TempDir(), "kubeconfig")
	text := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: x\ncontexts: [{name: x, context: {cluster: x, user: x}}]\n"+
		"clusters: [{name: x, cluster: {server: %q, insecure-skip-tls-verify: true}}]\nusers: [{name: x, user: {token: s3cret}}]\n", server.URL)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
	return file
}

// ServeHTTP implements http.Handler. Its caller is one command, which sends one request at a time.
func (a *logAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var answer string
	switch {
	case r.Header.Get("Authorization") != "Bearer s3cret":
		a.t.Errorf("%s lacks the token", r.URL)
	case strings.HasSuffix(r.URL.Path, "/scale"):
		answer = fmt.Sprintf(`{"apiVersion": "kubernetesexecution.kubernaut.io/v1alpha1", "kind": "KubernetesExecution",
			"metadata": {"name": "scale", "namespace": "kubernaut-executor", "uid": "u-1"}, "status": {"phase": %q}}`, a.phase)
	case strings.HasSuffix(r.URL.Path, "/pods/run-0/log"):
		a.queries = append(a.queries, r.URL.RawQuery)
		a.serve(w, r)
		return
	case r.URL.Query().Get("labelSelector") != v1alpha1.LabelExecutionUID+"=u-1":
		a.t.Errorf("asked for %s", r.URL)
	default:
		answer = fmt.Sprintf(`{"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": [{"metadata": {"name": "run-0", "namespace": "kubernaut-executor", "uid": "p-1"},
			"spec": {"containers": [{"name": "proxy"}, {"name": "kubectl-executor"}]},
			"status": {"containerStatuses": [{"name": "proxy", "state": {"running": {}}}, {"name": "kubectl-executor", "state": %s}]}}]}`, a.state)
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = io.WriteString(w, answer)
}

const (
	runningState = `{"running": {}}`
	endedState   = `{"terminated": {"exitCode": 0}}`
)

// TestLogRequest checks the request for a log, of the right container. --verbose prints it without the token.
func TestLogRequest(t *testing.T) {
	t.Parallel()
	a := &logAPI{t: t, state: endedState, serve: func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "done") }}
	file := a.newKubeconfig()
	for args, want := range map[string]string{
		"":                         "",
		"--tail=0":                 "&tailLines=0",
		"--timestamps --since=90s": "&sinceSeconds=90&timestamps=true",
		"--since=1ms --tail 7":     "&sinceSeconds=1&tailLines=7",
		"--timestamps=false":       "",
	} {
		r := run{args: append(strings.Fields("logs scale --kubeconfig="+file), strings.Fields(args)...)}.runCLI(t.Context())
		if got := a.queries[len(a.queries)-1]; r.code != cli.CodeOK || got != "container=kubectl-executor"+want || !strings.HasSuffix(r.out, "done\n") || r.errs != "" {
			t.Errorf("%s: asked for %q, want %q\n%s", args, got, want, r.outputText())
		}
	}
	r := run{args: strings.Fields("logs scale -v --kubeconfig=" + file)}.runCLI(t.Context())
	for _, want := range []string{"/kubernetesexecutions/scale: 200 OK in ", "/pods/run-0/log?container=kubectl-executor: 200 OK in "} {
		if !strings.Contains(r.errs, want) || strings.Contains(r.outputText(), "s3cret") || strings.Contains(r.errs, "Bearer") {
			t.Errorf("want %q and no token in\n%s", want, r.outputText())
		}
	}
}

// TestLogsContinue loses connections in a line, at the end of a stream and before an answer. No line is missing,
// and none is printed twice.
func TestLogsContinue(t *testing.T) {
	t.Parallel()
	const stamp = "2026-03-01T12:00:0%d.000000000Z line %d\n"
	a := &logAPI{t: t, phase: v1alpha1.PhaseExecuting, state: runningState}
	a.serve = func(w http.ResponseWriter, _ *http.Request) {
		switch len(a.queries) {
		case 1:
			_, _ = fmt.Fprintf(w, stamp+stamp+"2026-03-01T12:00:0", 1, 1, 2, 2)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		case 2:
			http.Error(w, "proxy error", http.StatusBadGateway)
		case 3:
			_, _ = fmt.Fprintf(w, stamp+stamp, 2, 2, 3, 3)
		default:
			_, _ = fmt.Fprintf(w, stamp+stamp+"2026-03-01T12:00:04.000000000Z the end", 3, 3, 4, 4)
			a.phase, a.state = v1alpha1.PhaseCompleted, endedState
		}
	}
	r := run{args: strings.Fields("logs scale -f --prefix=false --tail=5 --kubeconfig=" + a.newKubeconfig())}.runCLI(t.Context())
	if want := "line 1\nline 2\nline 3\nline 4\nthe end\n"; r.code != cli.CodeOK || r.out != want {
		t.Errorf("got %q, want %q", r.out, want)
	}
	if strings.Count(r.errs, "; retrying") != 2 {
		t.Errorf("want two warnings in\n%s", r.errs)
	}
	const again = "container=kubectl-executor&follow=true&sinceTime=2026-03-01T12%3A00%3A0"
	for n, want := range []string{"container=kubectl-executor&follow=true&tailLines=5&timestamps=true", again + "2Z&timestamps=true", again + "2Z&timestamps=true", again + "3Z&timestamps=true"} {
		if a.queries[n] != want {
			t.Errorf("request %d: %s, want %s", n, a.queries[n], want)
		}
	}
}

// TestLogsInterrupted interrupts the command: it ends without an error.
func TestLogsInterrupted(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	a := &logAPI{t: t, phase: v1alpha1.PhaseExecuting, state: runningState}
	a.serve = func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}
	out := writerFunc(func([]byte) { cancel() })
	if r := (run{args: strings.Fields("logs scale --follow --kubeconfig=" + a.newKubeconfig()), stdout: out}).runCLI(ctx); r.code != cli.CodeOK || r.errs != "" {
		t.Errorf("exit code %d, %q", r.code, r.errs)
	}
}

// A writerFunc is called with what is written.
type writerFunc func(p []byte)

func (f writerFunc) Write(p []byte) (int, error) {
	f(p)
	return len(p), nil
}

// TestLogsLost ends with an error if the node of an execution that has ended does not answer, and if lines without
// times cannot be continued.
func TestLogsLost(t *testing.T) {
	t.Parallel()
	a := &logAPI{t: t, phase: v1alpha1.PhaseFailed, state: endedState, serve: func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "proxy error", http.StatusBadGateway)
	}}
	args := strings.Fields("logs scale -f --kubeconfig=" + a.newKubeconfig())
	if r := (run{args: args}).runCLI(t.Context()); r.code != cli.CodeFailed || len(a.queries) != 6 || !strings.Contains(r.errs, "error: read the log of Pod run-0: ") {
		t.Errorf("exit code %d after %d requests: %s", r.code, len(a.queries), r.errs)
	}
	a.serve = func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, "one\n")
		_ = http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	}
	if r := (run{args: args}).runCLI(t.Context()); r.code != cli.CodeFailed || r.out != "[/run-0] one\n" || !strings.Contains(r.errs, "--since or --tail") {
		t.Errorf("exit code %d: %s", r.code, r.outputText())
	}
}
