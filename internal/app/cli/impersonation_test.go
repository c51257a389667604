package cli

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestAs covers the flags of impersonation: what is sent, what is printed, and that no command with them runs with the rights of its caller.
func TestAs(t *testing.T) {
	t.Parallel()
	alice := &v1.Identity{Subject: "alice", ImpersonatedBy: "root", Tenant: "blue", Roles: []string{}, ReadScope: v1.ScopeTenant, WriteScope: v1.ScopeTenant}
	root := &v1.Identity{Subject: "root", Roles: []string{"operator"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeAll}
	const as = " --as alice --as-tenant blue"
	cases := map[string]struct {
		reason   string
		identity *v1.Identity
		args     string
		code     int
		says     string
		requests []string // sent
	}{
		"WhoAmI":      {"both persons", alice, "whoami" + as, CodeOK, "Subject:          alice\nImpersonated by:  root\nTenant:           blue\n", []string{"GET whoami"}},
		"JSON":        {"both persons", alice, "whoami -o json" + as, CodeOK, "\"subject\": \"alice\",\n  \"impersonated_by\": \"root\",", []string{"GET whoami"}},
		"CanI":        {"the answer is that for alice", alice, "can-i get nodepools" + as, CodeOK, "yes\n", []string{"GET whoami", "GET can-i"}},
		"FlagBefore":  {"as kubectl permits", alice, "--as=alice --as-tenant=blue delete cluster c1 --yes", CodeOK, "deletion requested", nil},
		"Older":       {"a server that ignores the headers", root, "delete cluster c1 --yes" + as, CodeFailed, "nothing was sent with your own rights", []string{"GET whoami"}},
		"Oldest":      {"a server without whoami", nil, "delete cluster c1 --yes" + as, CodeFailed, "does not support impersonation", []string{"GET whoami"}},
		"OlderWhoAmI": {"it is not told as that of alice", root, "whoami" + as, CodeFailed, "does not support impersonation", []string{"GET whoami"}},
		"Empty":       {"a variable of a script is empty", root, "delete cluster c1 --yes --as=", CodeUsage, "needs a user to impersonate", nil},
		"TenantAlone": {"the user is missing", root, "delete cluster c1 --yes --as-tenant=blue", CodeUsage, "--as-tenant needs a user", nil},
		"RoleAlone":   {"the user is missing", root, "delete cluster c1 --yes --as-role=viewer", CodeUsage, "--as-role needs a user", nil},
		"NoRights":    {"the server cannot know them", root, "delete cluster c1 --yes --as=alice", CodeUsage, "add --as-tenant or --as-role", nil},
		"Group":       {"the fleet API has none", root, "get clusters --as-group=dev" + as, CodeUsage, "unknown flag: --as-group", nil},
		"Login":       {"it would be another's", root, "login --token-stdin" + as, CodeUsage, "a login is for you", nil},
		"Logout":      {"it would be another's", root, "logout" + as, CodeUsage, "a login is yours", nil},
		"Audit":       {"it is read from the database", root, "audit get" + as, CodeUsage, "login of the database", nil},
		"Doctor":      {"host clusters know groups alone only of a user", root, "doctor --as-group=dev", CodeUsage, "--as-group needs a user", nil},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFleet()
			f.identity = tc.identity
			f.before = func(r *http.Request) (int, any) {
				if r.Header.Get(v1.ImpersonateUserHeader) != "alice" || r.Header.Get(v1.ImpersonateTenantHeader) != "blue" {
					t.Errorf("%s: %s %s has the headers %v", tc.reason, r.Method, r.URL, r.Header)
				}
				return 0, nil
			}
			got := run{args: strings.Fields(tc.args)}.runCLI(t, f)
			if got.code != tc.code || !strings.Contains(got.stdout+got.stderr, tc.says) {
				t.Errorf("%s: exit code %d, want %d\n%s", tc.reason, got.code, tc.code, got.outputText())
			}
			if tc.requests != nil && !slices.Equal(tc.requests, f.requests) || tc.code == CodeUsage && len(f.requests) > 0 {
				t.Errorf("%s: sent %q", tc.reason, f.requests)
			}
		})
	}
}
