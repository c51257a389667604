package faultcli_test

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/kubebedtest"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/faultcli"
	"github.com/fleetloop/fleetloop/internal/kube"
)

var update = flag.Bool("update", false, "write the golden files anew")

func TestMain(m *testing.M) {
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // once for all, before the tests run side by side
	kubebedtest.Main(m, kubebed.Options{CRDs: []string{"../../../deploy/crds"}})
}

// now is when the commands are given.
var now = time.Date(2026, time.March, 4, 12, 0, 0, 0, time.UTC)

func timeBefore(d time.Duration) *metav1.Time { return &metav1.Time{Time: now.Add(-d)} }

// A run is one command as a user would give it, and what came of it.
type run struct {
	args      []string
	out, errs string
	code      int
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

func runCommand(t *testing.T, kubeconfig string, args ...string) run {
	t.Helper()
	var out, errs bytes.Buffer
	env := cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs, Now: func() time.Time { return now },
		LookupEnv: func(name string) (string, bool) { return kubeconfig, name == "KUBECONFIG" },
	}
	root := cli.Command(env)
	root.AddCommand(faultcli.Commands(env)...)
	cli.AddChangesSubcommands(root, faultcli.DeliveriesCommand(env))
	r := run{args: args}
	r.code = cli.Run(t.Context(), env, root, args)
	r.out, r.errs = out.String(), errs.String()
	return r
}

// wantRun runs a command of an administrator, which must exit so and say so.
func wantRun(t *testing.T, code int, says string, args ...string) run {
	t.Helper()
	kubeconfig, err := kubebedtest.Bed(t).WriteUserKubeconfig("admin-"+strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name())), "system:masters")
	if err != nil {
		t.Fatal(err)
	}
	r := runCommand(t, kubeconfig, args...)
	if r.code != code || !strings.Contains(r.out+r.errs, says) {
		t.Errorf("exit code %d, want %d and %q\n%s", r.code, code, says, r.outputText())
	}
	return r
}

func wantGolden(t *testing.T, name string, runs ...run) {
	t.Helper()
	var b strings.Builder
	for _, r := range runs {
		b.WriteString(r.outputText() + "\n")
	}
	file := filepath.Join("testdata", name+".golden")
	if *update {
		if err := os.WriteFile(file, []byte(b.String()), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), b.String()); diff != "" {
		t.Errorf("%s (-want +got):\n%s", file, diff)
	}
}

func adminClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(kubebedtest.Bed(t).Config(), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newFault makes the NodeFault of a node, as the controller has brought it.
func newFault(t *testing.T, node string, status v1alpha1.NodeFaultStatus, faults ...v1alpha1.Fault) {
	t.Helper()
	c := adminClient(t)
	f := &v1alpha1.NodeFault{ObjectMeta: metav1.ObjectMeta{Name: node}, Spec: v1alpha1.NodeFaultSpec{Faults: faults}}
	if err := c.Create(t.Context(), f); err != nil {
		t.Fatal(err)
	}
	f.Status = status
	if err := c.Status().Update(t.Context(), f); err != nil {
		t.Fatal(err)
	}
}

func getFault(t *testing.T, node string) *v1alpha1.NodeFault {
	t.Helper()
	var f v1alpha1.NodeFault
	if err := adminClient(t).Get(t.Context(), client.ObjectKey{Name: node}, &f); err != nil {
		t.Fatal(err)
	}
	return &f
}
