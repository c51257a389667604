package apitest

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestUndo returns a cluster to earlier generations, with its labels.
func TestUndo(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	u.wantRun(cli.CodeOK, shop, "create", "-f", "-")
	_, errOut := u.wantRun(cli.CodePrecondition, "", "undo", "cluster", "shop", "--yes")
	u.wantOutput(errOut, "no earlier generation of cluster/shop is kept", "fleetloop history cluster/shop")
	u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"version": "1.35", "zones": null}`, "--label", "tier=gold")
	before := u.get("cluster", "shop")

	out, errOut := u.wantRun(cli.CodeOK, "", "undo", "cluster", "shop", "--dry-run")
	u.wantOutput(out, "cluster/shop returned to generation 1 (server dry run)")
	u.wantOutput(errOut, `~ spec.version: "1.35" -> "1.34"`, `+ spec.zones`, `labels`)
	_, errOut = u.wantRun(cli.CodeUsage, "", "undo", "cluster", "shop")
	u.wantOutput(errOut, "no terminal for the confirmation prompt", "--yes changes it without a prompt")
	_, errOut = u.wantRun(cli.CodeFailed, "n\n", "undo", "cluster", "shop")
	u.wantOutput(errOut, "Return cluster/shop to generation 1? [y/N]", "not confirmed, so nothing was changed")
	if now := u.get("cluster", "shop"); now.Generation != before.Generation {
		t.Fatalf("generation %d, want %d", now.Generation, before.Generation)
	}

	u.wantText("cluster/shop returned to generation 1\n", "y\n", "undo", "cluster", "shop")
	now := u.get("cluster", "shop")
	if want := `{"auth":{"token":"c0ffee"},"version":"1.34","zones":["a"]}`; string(compact(t, now.Spec)) != want {
		t.Errorf("spec %s, want %s", compact(t, now.Spec), want)
	}
	if diff := cmp.Diff(map[string]string{"tier": "silver"}, now.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	out, errOut = u.wantRun(cli.CodeOK, "", "undo", "cluster/shop", "--yes", "-o", "name") // and back
	u.wantOutput(out, "cluster/shop\n")
	u.wantOutput(errOut, `~ spec.version: "1.34" -> "1.35"`)
	if now = u.get("cluster", "shop"); !strings.Contains(string(compact(t, now.Spec)), `"version":"1.35"`) || now.Labels["tier"] != "gold" {
		t.Errorf("spec %s, labels %v", now.Spec, now.Labels)
	}
	_, errOut = u.wantRun(cli.CodeOK, "", "undo", "cluster", "shop", "--to-revision", "2", "--yes")
	u.wantOutput(errOut, "already has the spec and labels of generation 2")
	u.wantRun(cli.CodePrecondition, "", "undo", "cluster", "shop", "--to-revision", "9", "--yes")
	u.wantRun(cli.CodeUsage, "", "undo", "cluster", "shop", "--to-revision", "-1")
	u.wantRun(cli.CodeUsage, "", "undo", "clusters", "--yes")
	out, _ = u.wantRun(cli.CodeOK, "", "__complete", "undo", "cluster", "")
	u.wantOutput(out, "shop")
	u.wantRun(cli.CodeOK, "", "delete", "cluster", "shop")
	_, errOut = u.wantRun(cli.CodePrecondition, "", "undo", "cluster", "shop", "--yes")
	u.wantOutput(errOut, "cluster/shop is being deleted, and a deletion cannot be undone")
}

// TestUndoOfOldVersion changes a cluster while the user reads the question. The newer change stays.
func TestUndoOfOldVersion(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	u.wantRun(cli.CodeOK, shop, "create", "-f", "-")
	u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"version": "1.35"}`)
	answer := readerFunc(func() string {
		u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"version": "1.36"}`)
		return "y\n"
	})
	var out, errOut strings.Builder
	env := cli.Env{Stdin: answer, Interactive: true, Stdout: &out, Stderr: &errOut}
	if code := cli.Run(t.Context(), env, cli.Command(env), []string{"undo", "cluster", "shop", "--server", u.url}); code != cli.CodePrecondition || out.Len() > 0 {
		t.Errorf("exit code %d, output %q", code, out.String())
	}
	u.wantOutput(errOut.String(), "cluster/shop was changed in the meantime, so nothing was undone", "run the command again")
	if now := u.get("cluster", "shop"); !strings.Contains(string(now.Spec), `"1.36"`) {
		t.Errorf("spec %s", now.Spec)
	}
}

// A readerFunc returns a text when it is read, once.
type readerFunc func() string

func (f readerFunc) Read(p []byte) (int, error) { return copy(p, f()), io.EOF }
