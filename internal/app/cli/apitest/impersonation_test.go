package apitest

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestImpersonation acts as another person: with the rights of that one, and with both names on record.
func TestImpersonation(t *testing.T) {
	t.Parallel()
	tokens := writeFile(t, "tokens.yaml", "tokens:\n- {token: root-token, subject: root, roles: [operator]}\n- {token: bob-token, subject: bob, tenant: red}\n")
	u := user{t, newAPIWith(t, pgtest.NewMigratedDatabaseURL(t), auth.Config{Mode: auth.ModeBearer, TokenFile: tokens})}
	run := func(who string, code int, stdin string, args ...string) (out, errOut string) {
		t.Helper()
		return u.wantRun(code, stdin, append(args, "--token-file", writeFile(t, who, who+"-token"))...)
	}
	blue, red, viewer := []string{"--as=alice", "--as-tenant=blue"}, []string{"--as=alice", "--as-tenant=red"}, []string{"--as=alice", "--as-role=viewer"}
	as := func(flags []string, args ...string) []string { return append(args, flags...) }

	out, _ := run("root", cli.CodeOK, "", as(blue, "whoami")...)
	u.wantOutput(out, "Subject:          alice", "Impersonated by:  root", "Write access:     tenant blue")
	run("bob", cli.CodeOK, shop, "create", "-f", "-")
	_, errOut := run("root", cli.CodeOK, "", as(blue, "get", "clusters")...)
	u.wantOutput(errOut, "No clusters found in tenant blue.")
	run("root", cli.CodePrecondition, "", as(blue, "delete", "cluster", "shop", "--yes")...)
	out, _ = run("root", cli.CodeFailed, "", as(viewer, "can-i", "patch", "clusters", "shop")...)
	u.wantOutput(out, "no: ", "role viewer")
	out, _ = run("root", cli.CodeOK, "", as(red, "can-i", "patch", "clusters", "shop")...)
	u.wantOutput(out, "yes")
	_, errOut = run("root", cli.CodeFailed, "", as([]string{"--as=sentinel", "--as-role=system"}, "get", "clusters")...)
	u.wantOutput(errOut, "could then report status")
	_, errOut = run("bob", cli.CodeFailed, "", as(blue, "get", "clusters")...)
	u.wantOutput(errOut, `only the role operator may impersonate, and "bob" does not have it`)

	run("root", cli.CodeOK, "", as(red, "patch", "cluster", "shop", "--spec", `{"version": "1.35"}`)...)
	out, _ = run("bob", cli.CodeOK, "", "changes", "--actor=alice")
	u.wantOutput(out, "alice   alice (impersonated by root) changed spec.version 1.34 → 1.35 of shop")
	out, _ = run("bob", cli.CodeOK, "", "changes", "--actor=alice", "-o", "yaml")
	u.wantOutput(out, "actor: alice", "impersonated_by: root")
	out, _ = run("bob", cli.CodeOK, "", "history", "cluster", "shop")
	u.wantOutput(out, "alice (impersonated by root)")
}
