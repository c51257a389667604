package apitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestSchema registers a schema that a cluster violates. The command warns, and the schema applies
// until it is removed.
func TestSchema(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	_, errOut := u.wantRun(cli.CodeOK, "", "schema", "get")
	u.wantOutput(errOut, "No kind has a schema")
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: eu-1\nspec: {version: \"9.99\"}\n", "create", "-f", "-")

	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte("type: object\nproperties:\n  version: {type: string, pattern: '^1\\.3[0-9]$'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut := u.wantRun(cli.CodeOK, "", "schema", "set", "clusters", "-f", file)
	u.wantOutput(out, "schema/clusters set")
	u.wantOutput(errOut, "warning: 1 of 1 existing clusters violate the schema")
	u.wantOutput(errOut, "cluster/eu-1")
	u.wantOutput(errOut, "/spec/version does not meet the schema")
	out, _ = u.wantRun(cli.CodeOK, "", "schema", "get", "cluster")
	u.wantOutput(out, `"pattern"`)
	out, _ = u.wantRun(cli.CodeOK, "", "schema", "get")
	u.wantOutput(out, "Cluster   set ")

	_, errOut = u.wantRun(cli.CodeFailed, "kind: Cluster\nname: eu-2\nspec: {version: \"9.99\"}\n", "create", "-f", "-")
	u.wantOutput(errOut, "spec.version does not meet the schema")
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: eu-2\nspec: {version: \"1.34\"}\n", "create", "-f", "-")
	out, _ = u.wantRun(cli.CodeOK, "", "schema", "delete", "clusters")
	u.wantOutput(out, "schema/clusters deleted")
	u.wantRun(cli.CodeUsage, "", "schema", "set", "clusters")
	u.wantRun(cli.CodeUsage, "", "schema", "set", "colours", "-f", file)
	_, errOut = u.wantRun(cli.CodePrecondition, "", "schema", "get", "clusters")
	u.wantOutput(errOut, "no schema is registered for clusters")
}

// TestNameOfDeleted: a name means the cluster that is not being deleted.
func TestNameOfDeleted(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	cluster := "kind: Cluster\nname: eu-1\nspec: {}\n"
	u.wantRun(cli.CodeOK, cluster, "create", "-f", "-")
	u.wantRun(cli.CodeOK, "", "delete", "cluster", "eu-1")
	u.wantRun(cli.CodeOK, cluster, "create", "-f", "-")
	out, _ := u.wantRun(cli.CodeOK, "", "get", "cluster", "eu-1", "-o", "yaml")
	u.wantOutput(out, "phase: Pending")
}
