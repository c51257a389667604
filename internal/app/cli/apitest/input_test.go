package apitest

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/fleetloop/fleetloop/internal/app/cli"
)

// TestWrongInput verifies that errors about invalid input list the valid values.
func TestWrongInput(t *testing.T) {
	t.Parallel()
	u := user{t, newAPI(t)}
	u.wantRun(cli.CodeOK, fleet, "create", "-f", "-")
	out, _ := u.wantRun(cli.CodeOK, "", "get", "cluster", "eu-1", "-o", "json")
	var eu struct{ ID string }
	if err := json.Unmarshal([]byte(out), &eu); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		args []string
		code int
		says []string
	}{
		"ChangesOfNoCluster":     {[]string{"changes", "--cluster", "nope"}, cli.CodePrecondition, []string{`there is no cluster "nope" and no change of a cluster with that name`, "fleetloop get clusters"}},
		"ChangesOfNoClusterJSON": {[]string{"changes", "--cluster", "nope", "-o", "json"}, cli.CodePrecondition, []string{`no cluster "nope"`}},
		"ChangesByID":            {[]string{"changes", "--cluster", eu.ID}, cli.CodePrecondition, []string{"is the id of cluster \"eu-1\"", "fleetloop changes --cluster eu-1"}},
		"NoChanges":              {[]string{"changes", "--cluster", "eu-1", "--actor", "nobody"}, cli.CodeOK, []string{"No changes found."}},
		"Phase":                  {[]string{"wait", "cluster", "eu-1", "--for=phase=Redy"}, cli.CodeUsage, []string{`"Redy"`, "did you mean Ready?", "Pending, Provisioning, Ready, Failed, Deleting"}},
		"Condition":              {[]string{"wait", "cluster", "eu-1", "--for=condition=Reconciled=Maybe"}, cli.CodeUsage, []string{`"Maybe"`, "True, False, Unknown"}},
		"Kind":                   {[]string{"get", "clutsers"}, cli.CodeUsage, []string{`"clutsers"`, "did you mean clusters?", "clusters, nodepools, manifests, workloads"}},
		"KindOfName":             {[]string{"describe", "nodepol/eu-1/workers"}, cli.CodeUsage, []string{"did you mean nodepool?"}},
		"Format":                 {[]string{"get", "clusters", "-o", "jsn"}, cli.CodeUsage, []string{"did you mean json?", "table, wide, json, yaml, name"}},
		"State":                  {[]string{"clusters", "sync", "--state", "stuk"}, cli.CodeUsage, []string{"did you mean stuck?", "backing_off"}},
	} {
		out, errOut := u.wantRun(c.code, "", c.args...)
		for _, want := range c.says {
			if !strings.Contains(errOut, want) {
				t.Errorf("%s: no %q in\n%s%s", name, want, out, errOut)
			}
		}
	}
}

// TestTokens: a token that is missing is asked for, and one that was refused is
// named as refused.
func TestTokens(t *testing.T) {
	t.Parallel()
	u := user{t, newTokenAPI(t)}
	_, errOut := u.wantRun(cli.CodeFailed, "", "get", "clusters")
	u.wantOutput(errOut, "no bearer token", "run 'fleetloop login', or set a token with --token-file")
	wrong := writeFile(t, "wrong", "wrong")
	for _, command := range [][]string{{"get", "clusters"}, {"changes"}, {"changes", "-f"}, {"watch", "clusters"}, {"load", "clusters", "-f", "-"}} {
		_, errOut = u.wantRun(cli.CodeFailed, "{}\n", append(command, "--token-file", wrong)...)
		u.wantOutput(errOut, "the server rejected the token", "fleetloop config show --origins")
		if strings.Contains(errOut, "give a token") {
			t.Errorf("%v: a token was given:\n%s", command, errOut)
		}
	}
}
