package mcp

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestImpersonation covers that the commands of tools are for the person whom the server's command line names, and that a
// server for several people refuses to name one.
func TestImpersonation(t *testing.T) {
	var errOut strings.Builder
	env := cli.Env{Stdin: strings.NewReader(""), Stdout: &strings.Builder{}, Stderr: &errOut}
	root, sub := cli.Command(env), &cobra.Command{Use: "sub"}
	var got []string
	sub.Run = func(cmd *cobra.Command, _ []string) { got = connectionFlags(cmd) }
	root.AddCommand(sub, Command(env, cli.Command))
	flags := []string{"--as=alice", "--as-role=viewer", "--as-role=operator", "--as-tenant=blue"}
	if code := cli.Run(t.Context(), env, root, append([]string{"sub"}, flags...)); code != cli.CodeOK {
		t.Fatalf("exit code %d, %s", code, errOut.String())
	}
	if diff := cmp.Diff([]string{"--as=alice", "--as-role=viewer", "--as-role=operator", "--as-tenant=blue"}, got); diff != "" {
		t.Errorf("flags (-want +got):\n%s", diff)
	}
	args := append([]string{"mcp", "--listen-address=127.0.0.1:0", "--oidc-issuer=http://127.0.0.1:1", "--oidc-audience=x"}, flags...)
	ended, cancel := context.WithCancel(t.Context())
	cancel() // a server that starts ends at once
	if code := cli.Run(ended, env, root, args); code != cli.CodeUsage || !strings.Contains(errOut.String(), "each request has the rights of its token") {
		t.Errorf("exit code %d, %s", code, errOut.String())
	}
}
