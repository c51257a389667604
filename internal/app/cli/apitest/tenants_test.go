package apitest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestTokensOverOldData verifies that authorised users find resources created without
// authentication. Other users see the tenant that was searched.
func TestTokensOverOldData(t *testing.T) {
	t.Parallel()
	database := pgtest.NewMigratedDatabaseURL(t)
	user{t, newAPIOn(t, database)}.wantRun(cli.CodeOK, fleet[1:], "create", "-f", "-")

	dir := t.TempDir()
	tokens := filepath.Join(dir, "tokens.yaml")
	list := "tokens:\n"
	for subject, rest := range map[string]string{
		"alice": "tenant: payments", "dave": "tenant: default", "vera": "roles: [viewer]", "otto": "roles: [operator]",
	} {
		list += "- {token: token-of-" + subject + ", subject: " + subject + ", " + rest + "}\n"
		if err := os.WriteFile(filepath.Join(dir, subject), []byte("token-of-"+subject), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(tokens, []byte(list), 0o600); err != nil {
		t.Fatal(err)
	}
	u := user{t, newAPIWith(t, database, auth.Config{Mode: auth.ModeBearer, TokenFile: tokens})}
	as := func(subject string, code int, args ...string) (stdout, stderr string) {
		t.Helper()
		return u.wantRun(code, "", append([]string{"--token-file", filepath.Join(dir, subject)}, args...)...)
	}
	out, _ := as("alice", cli.CodeOK, "whoami")
	u.wantOutput(out, "Tenant:          payments", "Read access:     tenant payments")
	_, errOut := as("alice", cli.CodeOK, "get", "clusters")
	u.wantOutput(errOut, "No clusters found in tenant payments.")
	for _, subject := range []string{"dave", "vera", "otto"} {
		out, _ = as(subject, cli.CodeOK, "get", "clusters")
		u.wantOutput(out, "eu-1")
	}
	_, errOut = as("vera", cli.CodeFailed, "label", "cluster", "eu-1", "tier=silver")
	u.wantOutput(errOut, "role viewer")
	as("otto", cli.CodeOK, "label", "cluster", "eu-1", "tier=silver")
	out, _ = as("dave", cli.CodeOK, "get", "clusters", "-l", "tier=silver")
	u.wantOutput(out, "eu-1")
}
