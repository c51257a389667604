package apitest

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
)

const applied = `
kind: NodePool
name: workers
cluster: shop
labels: {team: shop}
spec: {replicas: 3}
---
kind: Cluster
name: shop
labels: {team: shop, tier: silver}
annotations: {owner: "anna & bob"}
spec: {version: "1.34", auth: {token: c0ffee, mode: strict}, zones: [a, b], big: 9007199254740993}
`

// get reads one resource.
func (u user) get(args ...string) v1.Resource {
	u.Helper()
	out, _ := u.wantRun(cli.CodeOK, "", append([]string{"get", "-o", "json"}, args...)...)
	var r v1.Resource
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		u.Fatal(err)
	}
	return r
}

// wantText compares the standard output of a command.
func (u user) wantText(want, stdin string, args ...string) {
	u.Helper()
	out, _ := u.wantRun(cli.CodeOK, stdin, args...)
	if diff := cmp.Diff(want, out); diff != "" {
		u.Errorf("fleetloop %s (-want +got):\n%s", strings.Join(args, " "), diff)
	}
}

// TestApply applies a file again and again, with changes of others in between.
func TestApply(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	const both = "cluster/shop %\nnodepool/shop/workers %\n"
	u.wantText(strings.ReplaceAll(both, "%", "created (server dry run)"), applied, "apply", "-f", "-", "--dry-run")
	u.wantText(strings.ReplaceAll(both, "%", "created"), applied, "apply", "-f", "-")
	u.wantText(strings.ReplaceAll(both, "%", "unchanged"), applied, "apply", "-f", "-")
	if got := u.get("cluster", "shop"); strings.Contains(got.Annotations["fleetloop.io/applied-fields"], "c0ffee") || got.Generation != 1 {
		t.Errorf("generation %d, annotations %v", got.Generation, got.Annotations)
	}

	// Others change a field of the file, add fields, and set a label.
	u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"version": "1.33", "size": 9, "auth": {"issuer": "x"}}`, "--label", "by=other")
	next := strings.NewReplacer("tier: silver", "zone: a", "token: c0ffee, mode: strict", "mode: lax", "zones: [a, b]", "zones: [b]").Replace(applied)
	u.wantText("cluster/shop configured (server dry run)\nnodepool/shop/workers unchanged (server dry run)\n", next, "apply", "-f", "-", "--dry-run=server")
	if got := u.get("cluster", "shop"); got.Generation != 2 {
		t.Errorf("a dry run made generation %d", got.Generation)
	}
	u.wantText("cluster/shop configured\nnodepool/shop/workers unchanged\n", next, "apply", "-f", "-", "--dry-run=none")
	got := u.get("cluster", "shop")
	spec := `{"auth":{"issuer":"x","mode":"lax"},"big":9007199254740993,"size":9,"version":"1.34","zones":["b"]}`
	if string(compact(t, got.Spec)) != spec {
		t.Errorf("spec %s, want %s", compact(t, got.Spec), spec)
	}
	if diff := cmp.Diff(map[string]string{"team": "shop", "zone": "a", "by": "other"}, got.Labels); diff != "" {
		t.Errorf("labels (-want +got):\n%s", diff)
	}
	without := strings.NewReplacer(`annotations: {owner: "anna & bob"}`, "", "auth: {mode: lax}, ", "").Replace(next)
	u.wantRun(cli.CodeOK, without, "apply", "-f", "-")
	if got = u.get("cluster", "shop"); got.Annotations["owner"] != "" || !strings.Contains(string(compact(t, got.Spec)), `"auth":{"issuer":"x"},`) {
		t.Errorf("annotations %v, spec %s", got.Annotations, got.Spec)
	}
	out, _ := u.wantRun(cli.CodeOK, "", "get", "cluster", "shop", "-o", "yaml")
	u.wantText("cluster/shop configured\n", out, "apply", "-f", "-") // now the file has every field
	u.wantText("cluster/shop unchanged\n", out, "apply", "-f", "-")

	u.wantRun(cli.CodeOK, `{"kind": "Cluster", "name": "ratio", "spec": {"r": 1.50}}`, "apply", "-f", "-")
	u.wantText("cluster/ratio unchanged\n", `{"kind": "Cluster", "name": "ratio", "spec": {"r": 15e-1}}`, "apply", "-f", "-")
}

func compact(t *testing.T, raw json.RawMessage) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// TestApplyRefuses checks what is refused before anything is sent, and that one refusal does not stop the rest.
func TestApplyRefuses(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	_, errOut := u.wantRun(cli.CodeUsage, applied+"---\nkind: Cluster\nname: shop\n", "apply", "-f", "-")
	u.wantOutput(errOut, `cluster "shop" is given twice`)
	_, errOut = u.wantRun(cli.CodeUsage, applied, "apply", "-f", "-", "--prune")
	u.wantOutput(errOut, "--prune needs a label selector")
	_, errOut = u.wantRun(cli.CodeUsage, applied, "apply", "-f", "-", "--prune", "-l", "team=shop")
	u.wantOutput(errOut, "--yes")
	_, errOut = u.wantRun(cli.CodeUsage, applied, "apply", "-f", "-", "--dry-run=client")
	u.wantOutput(errOut, "use server or none")
	out, errOut := u.wantRun(cli.CodePartial, applied+"---\nkind: Cluster\nname: B\n", "apply", "-f", "-", "--prune", "-l", "team=shop", "--yes")
	u.wantOutput(out, "cluster/shop created", "nodepool/shop/workers created")
	u.wantOutput(errOut, `apply cluster "B"`, "nothing was pruned")
	u.wantRun(cli.CodeOK, "", "delete", "cluster", "shop")
	_, errOut = u.wantRun(cli.CodePrecondition, "kind: Cluster\nname: shop\n", "apply", "-f", "-")
	u.wantOutput(errOut, "being deleted")
}

// TestPrune deletes what was applied and is not in the files any more, and nothing else.
func TestPrune(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	dir := t.TempDir()
	write := func(name, text string) {
		t.Helper()
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("shop.yaml", applied)
	write("more/old.json", `{"kind": "Cluster", "name": "old", "labels": {"team": "shop"}, "spec": {}}`)
	write("more/other.yaml", "kind: Cluster\nname: other\nlabels: {team: other}\n")
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: manual\nlabels: {team: shop}\n", "create", "-f", "-")
	u.wantRun(cli.CodeOK, "", "apply", "-f", dir, "-R")
	for _, name := range []string{"more/old.json", "more/other.yaml"} {
		if err := os.Remove(filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	prune := []string{"apply", "-f", dir, "-R", "--prune", "-l", "team=shop"}
	const unchanged = "cluster/shop unchanged\nnodepool/shop/workers unchanged\n"
	u.wantText(strings.ReplaceAll(unchanged, "unchanged", "unchanged (server dry run)")+"cluster/old pruned (server dry run)\n", "", append(prune, "--dry-run")...)
	_, errOut := u.wantRun(cli.CodeUsage, "", prune...)
	u.wantOutput(errOut, "no terminal for the confirmation prompt", "--yes deletes it without a prompt")
	_, errOut = u.wantRun(cli.CodePartial, "n\n", prune...)
	u.wantOutput(errOut, "cluster/old is not in the files", "Delete 1 resource (cluster/old)?", "not confirmed")
	u.wantText(unchanged+"cluster/old pruned\n", "y\n", prune...)
	u.wantText(unchanged, "", append(prune, "--yes")...) // it is being deleted

	write("shop.yaml", "kind: NodePool\nname: workers\ncluster: shop\nlabels: {team: shop}\nspec: {replicas: 3}\n")
	u.wantText("nodepool/shop/workers unchanged\n", "", append(prune, "--yes")...) // its parent stays
	write("shop.yaml", "kind: Cluster\nname: new\n")
	u.wantText("cluster/new created\nnodepool/shop/workers pruned\ncluster/shop pruned\n", "", append(prune, "--yes")...)
	for name, deleting := range map[string]bool{"manual": false, "other": false, "new": false, "old": true, "shop": true} {
		if got := u.get("cluster", name); (got.DeletedTime != nil) != deleting {
			t.Errorf("cluster %s: deleted at %v", name, got.DeletedTime)
		}
	}
}

// TestDryRunOfChanges checks that every command with --dry-run leaves the resource as it is.
func TestDryRunOfChanges(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	u.wantText("cluster/shop created (server dry run)\n", "kind: Cluster\nname: shop\n", "create", "-f", "-", "--dry-run")
	u.wantRun(cli.CodePrecondition, "", "get", "cluster", "shop")
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: shop\nspec: {version: \"1\"}\n", "create", "-f", "-")
	before := u.get("cluster", "shop")
	u.wantText("cluster/shop patched (server dry run)\n", "", "patch", "cluster", "shop", "--spec", `{"version": "2"}`, "--dry-run")
	u.wantText("cluster/shop patched (server dry run)\n", "", "label", "cluster", "shop", "a=b", "--dry-run=server")
	u.wantText("cluster/shop deletion requested (server dry run)\n", "", "delete", "cluster", "shop", "--dry-run")
	_, errOut := u.wantRun(cli.CodeUsage, "", "delete", "cluster", "shop", "--dry-run", "--wait")
	u.wantOutput(errOut, "--wait")
	out, _ := u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"version": "2"}`, "--dry-run", "-o", "json")
	u.wantOutput(out, `"generation": 2`)
	if diff := cmp.Diff(before, u.get("cluster", "shop")); diff != "" {
		t.Errorf("dry runs changed it (-before +after):\n%s", diff)
	}
	_, errOut = u.wantRun(cli.CodePrecondition, "kind: Cluster\nname: shop\n", "create", "-f", "-", "--dry-run")
	u.wantOutput(errOut, "already exists")
}

// TestDiffOfFiles compares files with the resources before and after an apply.
func TestDiffOfFiles(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	diff := func(code int, want, stdin string, args ...string) string {
		t.Helper()
		out, errOut := u.wantRun(code, stdin, append([]string{"diff", "-f", "-"}, args...)...)
		if diff := cmp.Diff(want, out); diff != "" {
			t.Errorf("diff (-want +got):\n%s", diff)
		}
		return errOut
	}
	const cluster = "kind: Cluster\nname: shop\nlabels: {team: shop}\nspec: {version: \"1\", zones: [a, b], size: 3}\n"
	const created = `--- cluster/shop (live)
+++ cluster/shop (applied)
@@ -0,0 +1,8 @@
+labels:
+  team: shop
+spec:
+  size: 3
+  version: "1"
+  zones:
+    - a
+    - b
--- nodepool/shop/np-a (live)
+++ nodepool/shop/np-a (applied)
@@ -0,0 +1 @@
+spec: {}
`
	const pool = "---\nkind: NodePool\nname: np-a\ncluster: shop\n"
	diff(cli.CodeFailed, created, cluster+pool)
	u.wantRun(cli.CodeOK, cluster+pool, "apply", "-f", "-")
	diff(cli.CodeOK, "", cluster+pool)
	u.wantRun(cli.CodeOK, "", "patch", "cluster", "shop", "--spec", `{"other": 1, "version": "0"}`)
	const changed = `--- cluster/shop (live)
+++ cluster/shop (applied)
@@ -2,8 +2,6 @@
   team: shop
 spec:
   other: 1
-  size: 3
-  version: "0"
+  version: "1"
   zones:
     - a
-    - b
`
	next := strings.Replace(cluster, "zones: [a, b], size: 3", "zones: [a]", 1)
	if errOut := diff(cli.CodeFailed, changed, next+pool); errOut != "" {
		t.Errorf("a difference is no error: %s", errOut)
	}
	diff(cli.CodeUsage, "", next, "cluster", "shop")
	diff(cli.CodeUsage, "", "kind: Clutser\n")
	u.url = "http://127.0.0.1:1"
	diff(cli.CodeDiffFailed, "", cluster)
}

// TestTemplates prints by templates wherever there is JSON.
func TestTemplates(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	u.wantText(`3`, "kind: Cluster\nname: eu-1\nlabels: {team: a}\nspec: {size: 3}\n", "create", "-f", "-", "-o", "jsonpath={.spec.size}")
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: us-1\n", "create", "-f", "-")
	u.wantText("eu-1 us-1", "", "get", "clusters", "-o", "jsonpath={.items[*].name}")
	u.wantText("eu-1;", "", "get", "cluster", "eu-1", "-o", "go-template={{.name}};")
	u.wantText("3", "", "get", "cluster", "eu-1", "-o", "go-template-file="+writeFile(t, "size.tmpl", "{{.spec.size}}"))
	u.wantText("N      TEAM\neu-1   a\nus-1   <none>\n", "", "get", "clusters", "-o", "custom-columns=N:.name,TEAM:.labels.team")
	u.wantText("eu-1   a\n", "", "get", "clusters", "-o", "custom-columns=N:.name,TEAM:.labels.team", "-l", "team", "--no-headers")
	out, _ := u.wantRun(cli.CodeOK, "", "get", "clusters", "-o", "csv")
	u.wantOutput(out, "id,kind,name,", ",spec.size,", ",status.phase,")
	u.wantText("cluster-created", "", "changes", "--cluster", "eu-1", "-o", "jsonpath={.items[0].action}")
	u.wantText("default", "", "whoami", "-o", "jsonpath={.tenant}")
	_, errOut := u.wantRun(cli.CodeUsage, "", "get", "clusters", "-o", "jsonpath={.a")
	u.wantOutput(errOut, "unclosed action")
	_, errOut = u.wantRun(cli.CodeFailed, "", "get", "clusters", "-o", "jsonpath={.items[9].name}")
	u.wantOutput(errOut, "out of bounds")
	_, errOut = u.wantRun(cli.CodeFailed, "", "get", "clusters", "-o", "go-template={{index .items 9}}")
	u.wantOutput(errOut, "out of range")
	_, errOut = u.wantRun(cli.CodeUsage, "", "get", "clusters", "-o", "go-template-file=/nope")
	u.wantOutput(errOut, "no such file")
	out, _ = u.wantRun(cli.CodePartial, "", "get", "cluster", "eu-1", "nope", "-o", "jsonpath={.items[*].name}")
	u.wantOutput(out, "eu-1")
}
