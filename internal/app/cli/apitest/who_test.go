package apitest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

const shop = `
kind: Cluster
name: shop
labels: {tier: silver}
spec: {version: "1.34", auth: {token: c0ffee}, zones: [a]}
---
kind: NodePool
name: workers
cluster: shop
spec: {replicas: 3}
`

// newTokenAPI starts a fleet API that alice and bob have tokens of, and gives its
// URL.
func newTokenAPI(t *testing.T) string {
	t.Helper()
	tokens := writeFile(t, "tokens.yaml", "tokens:\n- {token: alice-token, subject: alice, tenant: red}\n- {token: bob-token, subject: bob, tenant: red}\n")
	return newAPIWith(t, pgtest.NewMigratedDatabaseURL(t), auth.Config{Mode: auth.ModeBearer, TokenFile: tokens})
}

// writeFile writes a file in a new folder and returns its path.
func writeFile(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestWhoChangedWhat changes a cluster as alice and reads back who changed what.
func TestWhoChangedWhat(t *testing.T) {
	t.Parallel()
	u := user{t, newTokenAPI(t)}
	as := func(who string, stdin string, args ...string) string {
		t.Helper()
		out, _ := u.wantRun(cli.CodeOK, stdin, append(args, "--token-file", writeFile(t, who, who+"-token"))...)
		return out
	}
	as("bob", shop, "create", "-f", "-")
	as("alice", "", "patch", "cluster", "shop", "--spec", `{"version": "1.35"}`)
	as("alice", "", "patch", "cluster", "shop", "--spec", `{"auth": {"token": "decaf0"}, "zones": ["a", "b"]}`)
	as("alice", "", "label", "cluster", "shop", "tier=gold")
	as("bob", "", "patch", "nodepool", "shop/workers", "--spec", `{"replicas": 5}`)
	as("bob", "", "delete", "nodepool", "shop/workers")

	u.wantOutput(as("alice", "", "changes"),
		"ACTOR", "alice   alice changed spec.version 1.34 → 1.35 of shop",
		"alice changed spec.auth.token (redacted), spec.zones [\"a\"] → [\"a\",\"b\"] of shop",
		"alice changed labels.tier silver → gold of shop",
		"bob created cluster shop", "bob created nodepool workers", "bob changed spec.replicas 3 → 5 of nodepool workers of shop",
		"bob requested the deletion of nodepool workers",
	)
	for query, want := range map[string]int{
		"--actor alice":                                 3,
		"--actor bob":                                   4,
		"--actor carol":                                 0,
		"--field spec.version":                          1,
		"--field spec":                                  3,
		"--field spec.zones":                            1,
		"--field labels.tier":                           1,
		"--field spec.ver":                              0,
		"--field spec --actor alice":                    2,
		"--field spec.replicas --actor alice":           0,
		"--actor bob --action cluster-created":          1,
		"--field spec.version --cluster shop --limit 1": 1,
	} {
		out := as("alice", "", append([]string{"changes", "-o", "json"}, strings.Fields(query)...)...)
		var list struct {
			Items []v1.ChangeEvent `json:"items"`
		}
		if err := json.Unmarshal([]byte(out), &list); err != nil {
			t.Fatalf("%v in %s", err, out)
		}
		if len(list.Items) != want {
			t.Errorf("changes %s: %d events, want %d: %s", query, len(list.Items), want, out)
		}
		if strings.Contains(out, "c0ffee") || strings.Contains(out, "decaf0") {
			t.Errorf("changes %s tells a token: %s", query, out)
		}
	}
	out := as("alice", "", "changes", "--field", "spec.version", "-o", "yaml")
	u.wantOutput(out, "field: spec.version", `before: "1.34"`, `after: "1.35"`)
}
