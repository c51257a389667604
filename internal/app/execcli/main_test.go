package execcli_test

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/kube"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // once for all, before the tests run side by side
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

// A run is one command as a user would give it, and what came of it.
type run struct {
	args        []string
	stdin       string
	env         map[string]string
	stdinFrom   io.Reader // instead of stdin
	interactive bool
	stdout      io.Writer // nil is kept in out

	out, errs string
	code      int
}

// A safeBuffer is read while a command writes.
type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func (r run) runCLI(ctx context.Context) run {
	var out, errs safeBuffer
	env := cli.Env{
		Stdin: strings.NewReader(r.stdin), Stdout: &out, Stderr: &errs, Interactive: r.interactive,
		LookupEnv: func(name string) (string, bool) { v, ok := r.env[name]; return v, ok },
	}
	if r.stdout != nil {
		env.Stdout = r.stdout
	}
	if r.stdinFrom != nil {
		env.Stdin = r.stdinFrom
	}
	root := cli.Command(env)                  //nolint:contextcheck // commands take theirs when they run
	root.AddCommand(execcli.Commands(env)...) //nolint:contextcheck // likewise
	r.code = cli.Run(ctx, env, root, r.args)
	r.out, r.errs = out.String(), errs.String()
	return r
}

// outputText shows a run as a golden file keeps it.
func (r run) outputText() string {
	var b strings.Builder
	b.WriteString("$ fleetloop " + strings.Join(r.args, " ") + "\n" + r.out)
	if r.errs != "" {
		b.WriteString("--- stderr\n" + r.errs)
	}
	if r.code != 0 {
		fmt.Fprintf(&b, "--- exit code %d\n", r.code)
	}
	return b.String()
}

func wantGolden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

// A fixture is a namespace for executions. The test plays the controller.
type fixture struct {
	*testing.T
	client    client.WithWatch
	namespace string
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.NewWithWatch(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &fixture{t, c, kubebedtest.Namespace(t)}
}

// asUser runs a command as a user, an administrator if it has no groups.
func (f *fixture) asUser(user string, args ...string) run {
	f.Helper()
	return run{args: append(args, "--namespace="+f.namespace), env: map[string]string{"KUBECONFIG": kubeconfig(f.T, user, "system:masters")}}
}

var writing sync.Mutex // of kubeconfigs, which many tests ask for

// kubeconfig is the file of a user, which is written once.
func kubeconfig(t *testing.T, user string, groups ...string) string {
	t.Helper()
	writing.Lock()
	defer writing.Unlock()
	if path, ok := written[user]; ok {
		return path
	}
	path, err := kubebedtest.Bed(t).WriteUserKubeconfig(user, groups...)
	if err != nil {
		t.Fatal(err)
	}
	written[user] = path
	return path
}

var written = map[string]string{}

// wantRun runs a command, which must exit so.
func (f *fixture) wantRun(r run, code int, says ...string) run {
	f.Helper()
	r = r.runCLI(f.Context())
	if r.code != code {
		f.Errorf("exit code %d, want %d\n%s", r.code, code, r.outputText())
	}
	for _, text := range says {
		if !strings.Contains(r.out+r.errs, text) {
			f.Errorf("lacks %q\n%s", text, r.outputText())
		}
	}
	return r
}

func (f *fixture) getExecution(name string) *v1alpha1.KubernetesExecution {
	f.Helper()
	return f.readExecution(f.Context(), name)
}

func (f *fixture) readExecution(ctx context.Context, name string) *v1alpha1.KubernetesExecution {
	f.Helper()
	var ke v1alpha1.KubernetesExecution
	if err := f.client.Get(ctx, client.ObjectKey{Namespace: f.namespace, Name: name}, &ke); err != nil {
		f.Fatal(err)
	}
	return &ke
}

// setStatus writes the status of an execution, as the controller does.
func (f *fixture) setStatus(name string, phase v1alpha1.Phase, change func(*v1alpha1.KubernetesExecutionStatus)) {
	f.Helper()
	ke := f.getExecution(name)
	before := ke.DeepCopy()
	ke.Status.Phase, ke.Status.ObservedGeneration = phase, ke.Generation
	ke.Status.PhaseTransitions = append(ke.Status.PhaseTransitions, v1alpha1.PhaseTransition{Phase: phase, At: metav1.NowMicro()})
	if change != nil {
		change(&ke.Status)
	}
	if err := f.client.Status().Patch(f.Context(), ke, client.MergeFrom(before)); err != nil {
		f.Fatal(err)
	}
}

func rawJSON(text string) *runtime.RawExtension { return &runtime.RawExtension{Raw: []byte(text)} }

const hash = "3f8a91c2d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f"

// waitingStatus has an execution wait for approvals of a plan.
func waitingStatus(plan string, count int32) func(*v1alpha1.KubernetesExecutionStatus) {
	return func(s *v1alpha1.KubernetesExecutionStatus) {
		s.Plan = &v1alpha1.Plan{
			Hash: plan, Action: "scale_deployment", CreatedAt: metav1.Now(), Diff: "- replicas: 3\n+ replicas: 5\n",
			Target: v1alpha1.PlanTarget{APIVersion: "apps/v1", Kind: "Deployment", Namespace: "shop", Name: "web"},
			Steps:  []v1alpha1.PlanStep{{Verb: "patch", Resource: "deployments", Subresource: "scale", Namespace: "shop", Name: "web", Description: "scale Deployment shop/web"}},
			Impact: v1alpha1.EstimatedImpact{ResourcesAffected: 1, ReplicasChanged: "3 -> 5"},
		}
		s.Approval = &v1alpha1.ApprovalStatus{State: v1alpha1.ApprovalPending, Required: true, RequiredCount: count, RequesterCannotApprove: true}
	}
}

// completedStatus is the status of an execution whose action was done.
func completedStatus(s *v1alpha1.KubernetesExecutionStatus) {
	s.Outcome = v1alpha1.OutcomeSucceeded
	s.ExecutionResults = &v1alpha1.ExecutionResults{
		Success: true, ResourcesAffectedCount: 1,
		ResourcesAffected: []v1alpha1.AffectedResource{{Kind: "Deployment", Namespace: "shop", Name: "web", Action: "scaled", Before: "replicas: 3", After: "replicas: 5"}},
	}
	s.RollbackInformation = &v1alpha1.RollbackInformation{
		Available: true, RollbackAction: "scale_deployment", RollbackParameters: rawJSON(`{"deployment":"web","namespace":"shop","replicas":3}`),
	}
}

// readerFunc does something when it is read for the first time, and then gives
// what that returns.
func readerFunc(f func() string) io.Reader { return &lazyReader{f: f} }

type lazyReader struct {
	f    func() string
	text io.Reader
}

func (l *lazyReader) Read(p []byte) (int, error) {
	if l.text == nil {
		l.text = strings.NewReader(l.f())
	}
	return l.text.Read(p)
}

// unscopedClient is a client for objects of any kind.
func (f *fixture) unscopedClient() client.Client {
	f.Helper()
	scheme := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(scheme); err != nil {
		f.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(f).Config(), client.Options{Scheme: scheme})
	if err != nil {
		f.Fatal(err)
	}
	return c
}

// background runs a command until it ends or the test does. Its output can be
// read meanwhile.
func (f *fixture) background(r run) (out *safeBuffer, ended <-chan run, stop func()) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	out = &safeBuffer{}
	r.stdout = out
	done := make(chan run, 1)
	var running sync.WaitGroup
	running.Go(func() {
		r = r.runCLI(ctx)
		r.out = out.String()
		done <- r
	})
	f.Cleanup(func() { cancel(); running.Wait() })
	return out, done, cancel
}

func (f *fixture) waitForRun(ended <-chan run) run {
	f.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	select {
	case r := <-ended:
		return r
	case <-timer.C:
		f.Fatal("the command did not end")
		return run{}
	}
}
