package cli

import (
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestWhoAmI holds that people learn who they are, and whose resources they look for
// when they find none.
func TestWhoAmI(t *testing.T) {
	t.Parallel()
	blue := &v1.Identity{Subject: "bert", Tenant: "blue", Roles: []string{}, ReadScope: v1.ScopeTenant, WriteScope: v1.ScopeTenant}
	viewer := &v1.Identity{Subject: "vera", Roles: []string{"viewer"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeNone}
	cases := map[string]struct {
		reason         string
		identity       *v1.Identity
		args           []string
		code           int
		stdout, stderr string
	}{
		"User": {
			"a tenant's user", blue,
			[]string{"whoami"},
			CodeOK,
			"Context:         none\nServer:          http://127.0.0.1:8080\nSubject:         bert\nTenant:          blue\nRoles:           none\n" +
				"Read access:     tenant blue\nWrite access:    tenant blue\nStatus reports:  no\nToken:           none\n", "",
		},
		"Viewer": {
			"one who sees all tenants", viewer,
			[]string{"whoami"},
			CodeOK,
			"Context:         none\nServer:          http://127.0.0.1:8080\nSubject:         vera\nTenant:          none\nRoles:           viewer\n" +
				"Read access:     all tenants\nWrite access:    nothing\nStatus reports:  no\nToken:           none\n", "",
		},
		"JSON": {
			"programs read it", viewer,
			[]string{"whoami", "-o", "json"},
			CodeOK,
			"{\n  \"subject\": \"vera\",\n  \"roles\": [\n    \"viewer\"\n  ],\n  \"read_scope\": \"all\",\n  \"write_scope\": \"none\",\n  \"can_report_status\": false,\n  \"server\": \"http://127.0.0.1:8080\",\n  \"token\": \"none\"\n}\n", "",
		},
		"NoneOfMine":   {"the tenant is named", blue, []string{"get", "clusters"}, CodeOK, "", "No clusters found in tenant blue.\n"},
		"NoneAtAll":    {"all were looked at", viewer, []string{"get", "nodepools"}, CodeOK, "", "No nodepools found in any tenant.\n"},
		"NoneOfAnyone": {"a server that does not say", nil, []string{"get", "clusters"}, CodeOK, "", "No clusters found.\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := run{args: tc.args}.runCLI(t, &fakeAPI{identity: tc.identity})
			if got.code != tc.code || got.stdout != tc.stdout || got.stderr != tc.stderr {
				t.Errorf("%s: exit code %d, stdout %q, stderr %q", tc.reason, got.code, got.stdout, got.stderr)
			}
		})
	}
	got := run{args: []string{"whoami"}}.runCLI(t, &fakeAPI{})
	if got.code != CodeFailed {
		t.Errorf("a server that does not say: exit code %d, %q", got.code, got.stderr)
	}
}
