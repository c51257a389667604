package execcli_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestContext covers that a context selects the host cluster and the namespace, for commands and completions, and
// that flags and the environment override it.
func TestContext(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	f.wantRun(f.asUser("root", "exec", "cordon_node", "node=n1", "--name=in-context", "--reason=test"), cli.CodeOK)
	admin := kubeconfig(t, "root", "system:masters")
	file := filepath.Join(t.TempDir(), "config.yaml")
	text := fmt.Sprintf("current_context: eu\ncontexts:\n  eu: {kubeconfig: %q, namespace: %s}\n  none: {kubeconfig: %q, kube_context: missing}\n", admin, f.namespace, admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	env := map[string]string{"FLEETLOOP_CONFIG": file}
	for _, tc := range []struct {
		reason string
		args   []string
		code   int
		says   string
	}{
		{"all from the context", []string{"exec", "get"}, cli.CodeOK, "in-context"},
		{"a completion", []string{"__complete", "exec", "describe", ""}, cli.CodeOK, "in-context"},
		{"a flag is stronger", []string{"exec", "get", "--namespace=default"}, cli.CodeOK, "No executions found in namespace default"},
		{"another context", []string{"--context=none", "exec", "get"}, cli.CodeUsage, "missing"},
		{"a context that is not there", []string{"--context=eux", "exec", "get"}, cli.CodeUsage, "did you mean eu?"},
		{"a mistyped command", []string{"exec", "gett"}, cli.CodeUsage, "did you mean get?"},
		{"a mistyped flag", []string{"exec", "get", "--namespce=x"}, cli.CodeUsage, "did you mean --namespace?"},
		{"the host cluster is healthy", []string{"--server=http://127.0.0.1:1", "doctor"}, cli.CodeFailed, "ok       host cluster: you may list, watch, create and patch executions in namespace " + f.namespace},
	} {
		got := f.wantRun(run{args: tc.args, env: env}, tc.code, tc.says)
		if t.Failed() {
			t.Fatalf("%s:\n%s", tc.reason, got.outputText())
		}
	}
	env["KUBECONFIG"] = kubeconfig(t, "nobody", "nobodies")
	got := f.wantRun(run{args: []string{"--server=http://127.0.0.1:1", "doctor"}, env: env}, cli.CodeFailed, "error    host cluster: list executions in namespace "+f.namespace, "fix: ask an administrator for a role")
	if strings.Contains(got.out, "ok       host cluster") {
		t.Errorf("the environment is weaker than the context:\n%s", got.out)
	}
}
