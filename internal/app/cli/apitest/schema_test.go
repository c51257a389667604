package apitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestSchema registers a schema that a cluster violates, is told so, and is held to
// it from then on, until the schema is removed.
func TestSchema(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	_, errOut := u.does(cli.CodeOK, "", "schema", "get")
	u.sees(errOut, "No kind has a schema")
	u.does(cli.CodeOK, "kind: Cluster\nname: eu-1\nspec: {version: \"9.99\"}\n", "create", "-f", "-")

	file := filepath.Join(t.TempDir(), "cluster.yaml")
	if err := os.WriteFile(file, []byte("type: object\nproperties:\n  version: {type: string, pattern: '^1\\.3[0-9]$'}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errOut := u.does(cli.CodeOK, "", "schema", "set", "clusters", "-f", file)
	u.sees(out, "schema/clusters set")
	u.sees(errOut, "warning: 1 of 1 existing clusters violate the schema")
	u.sees(errOut, "cluster/eu-1")
	u.sees(errOut, "/spec/version does not meet the schema")
	out, _ = u.does(cli.CodeOK, "", "schema", "get", "cluster")
	u.sees(out, `"pattern"`)
	out, _ = u.does(cli.CodeOK, "", "schema", "get")
	u.sees(out, "Cluster   set ")

	_, errOut = u.does(cli.CodeFailed, "kind: Cluster\nname: eu-2\nspec: {version: \"9.99\"}\n", "create", "-f", "-")
	u.sees(errOut, "spec.version does not meet the schema")
	u.does(cli.CodeOK, "kind: Cluster\nname: eu-2\nspec: {version: \"1.34\"}\n", "create", "-f", "-")
	out, _ = u.does(cli.CodeOK, "", "schema", "delete", "clusters")
	u.sees(out, "schema/clusters deleted")
	u.does(cli.CodeUsage, "", "schema", "set", "clusters")
	u.does(cli.CodeUsage, "", "schema", "set", "colours", "-f", file)
	_, errOut = u.does(cli.CodePrecondition, "", "schema", "get", "clusters")
	u.sees(errOut, "no schema is registered for clusters")
}

// TestNameOfDeleted: a name means the cluster that is not being deleted.
func TestNameOfDeleted(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	cluster := "kind: Cluster\nname: eu-1\nspec: {}\n"
	u.does(cli.CodeOK, cluster, "create", "-f", "-")
	u.does(cli.CodeOK, "", "delete", "cluster", "eu-1")
	u.does(cli.CodeOK, cluster, "create", "-f", "-")
	out, _ := u.does(cli.CodeOK, "", "get", "cluster", "eu-1", "-o", "yaml")
	u.sees(out, "phase: Pending")
}
