package apitest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// edit runs fleetloop edit with a shell command as the editor, which finds the file in $1.
func (u user) edit(code int, script string, args ...string) (stdout, stderr string) {
	u.Helper()
	editor := filepath.Join(u.TempDir(), "editor")
	if err := os.WriteFile(editor, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		u.Fatal(err)
	}
	var out, errOut strings.Builder
	env := cli.Env{
		Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errOut,
		LookupEnv: func(name string) (string, bool) {
			v, ok := map[string]string{"FLEETLOOP_SERVER": u.url, "EDITOR": editor}[name]
			return v, ok
		},
	}
	if got := cli.Run(u.Context(), env, cli.Command(env), append([]string{"edit"}, args...)); got != code {
		u.Fatalf("fleetloop edit %s: exit code %d, want %d\n%s%s", strings.Join(args, " "), got, code, out.String(), errOut.String())
	}
	return out.String(), errOut.String()
}

// TestEdit edits resources, is refused, and cancels.
func TestEdit(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir()) // for the files of failed edits
	u := user{t, newAPI(t)}
	u.wantRun(cli.CodeOK, applied, "apply", "-f", "-")
	out, _ := u.edit(cli.CodeOK, `sed -i 's/tier: silver/tier: gold/; s/"1.34"/"1.35"/; /token/d' "$1"`, "cluster", "shop")
	u.wantOutput(out, "cluster/shop edited")
	got := u.get("cluster", "shop")
	if got.Labels["tier"] != "gold" || got.Labels["team"] != "shop" || got.Annotations["owner"] != "anna & bob" || got.Annotations["fleetloop.io/applied-fields"] == "" {
		t.Errorf("labels %v, annotations %v", got.Labels, got.Annotations)
	}
	if spec := `{"auth":{"mode":"strict"},"big":9007199254740993,"version":"1.35","zones":["a","b"]}`; string(compact(t, got.Spec)) != spec {
		t.Errorf("spec %s, want %s", compact(t, got.Spec), spec)
	}

	_, errOut := u.edit(cli.CodeOK, "true", "cluster", "shop")
	u.wantOutput(errOut, "Edit cancelled, no changes made.")
	_, errOut = u.edit(cli.CodeOK, `: > "$1"`, "cluster", "shop")
	u.wantOutput(errOut, "Edit cancelled, no changes made.")
	out, _ = u.edit(cli.CodeOK, `sed -i 's/replicas: 3/replicas: 4/' "$1"`, "nodepool", "shop/workers", "--dry-run")
	u.wantOutput(out, "nodepool/shop/workers edited (server dry run)")

	// The first edit is refused by the parser, the second by the server; the third is accepted.
	out, _ = u.edit(cli.CodeOK, `
if grep -q '^# error: .*consist of' "$1"; then sed -i 's/b b/b/' "$1"
elif grep -q '^# error: .*unknown field "nope"' "$1"; then sed -i 's/^nope: 1//; s/team: shop/team: b b/' "$1"
else echo 'nope: 1' >> "$1"; fi`, "nodepool", "shop/workers")
	u.wantOutput(out, "nodepool/shop/workers edited")
	if got := u.get("nodepool", "shop/workers"); got.Labels["team"] != "b" || got.Generation != 1 {
		t.Errorf("labels %v in generation %d", got.Labels, got.Generation)
	}
	_, errOut = u.edit(cli.CodeUsage, `grep -q '^# error' "$1" || sed -i 's/name: shop/name: other/' "$1"`, "cluster", "shop")
	u.wantOutput(errOut, "kind and name cannot be changed", "the edit was cancelled")

	if left, err := filepath.Glob(filepath.Join(os.TempDir(), "fleetloop-edit-*")); len(left) > 0 || err != nil { //nolint:usetesting // where the command writes
		t.Errorf("files are left: %v, %v", left, err)
	}
	// Another user changes the resource while the editor is open.
	other := writeFile(t, "patch", "")
	_, errOut = u.edit(cli.CodePrecondition, `sed -i 's/team: shop/team: mine/' "$1"
curl -sf -X PATCH -H 'Content-Type: application/json' -d '{"labels":{"team":"theirs"}}' '`+u.url+got.Href+`' > '`+other+`'`, "cluster", "shop")
	u.wantOutput(errOut, "has changed", "your edit is in ")
	if got := u.get("cluster", "shop"); got.Labels["team"] != "theirs" {
		t.Errorf("labels %v", got.Labels)
	}
}

// TestExplain shows the fields of a kind, without a server.
func TestExplain(t *testing.T) {
	t.Parallel()
	u := user{t, "http://127.0.0.1:1"}
	out, _ := u.wantRun(cli.CodeOK, "", "explain", "clusters")
	u.wantOutput(out, "KIND:   Cluster\n", "  generation <integer> -required-\n    Increases when the spec changes", "  labels <map[string]string>\n", "  deleted_time <date-time>\n")
	out, _ = u.wantRun(cli.CodeOK, "", "explain", "np.status.conditions")
	u.wantOutput(out, "KIND:   NodePool\nFIELD:  status.conditions <[]object>\n", "  status <string> -required-\n    One of: True, False.\n")
	out, _ = u.wantRun(cli.CodeOK, "", "explain", "cluster", "--recursive")
	u.wantOutput(out, "  status <object> -required-\n    conditions <[]object> -required-\n      created_time <date-time> -required-\n")
	out, _ = u.wantRun(cli.CodeOK, "", "explain", "cluster.status.phase")
	u.wantOutput(out, "FIELD:  status.phase <string>\n\nPending: no required adapter", "One of: Pending, Provisioning, Ready, Failed, Deleting.\n")
	_, errOut := u.wantRun(cli.CodeUsage, "", "explain", "cluster.stats")
	u.wantOutput(errOut, `Cluster has no field "stats"; did you mean status?`)
	_, errOut = u.wantRun(cli.CodeUsage, "", "explain", "cluster.name.x")
	u.wantOutput(errOut, `name has no field "x"`)
}
