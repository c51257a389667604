package auth_test

import (
	"errors"
	"log/slog"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-jose/go-jose/v4"
	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

//nolint:gosec // made up for these tests
const tokensOfImpersonation = `
tokens:
- {token: root, subject: root, roles: [operator]}
- {token: red-root, subject: rolf, tenant: red, roles: [operator]}
- {token: robot-root, subject: rob, roles: [operator, system]}
- {token: user, subject: rosa, tenant: red}
- {token: viewer, subject: vera, roles: [viewer]}
- {token: system, subject: sentinel, roles: [system]}
`

// TestImpersonation holds the rule: who may impersonate, whom, and that a request never falls back to the caller's rights.
func TestImpersonation(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, tokensOfImpersonation)
	a, err := newTokens(t, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	const user, tenant, role = "Impersonate-User", "Impersonate-Tenant", "Impersonate-Role"
	alice := func(by string, roles ...auth.Role) auth.Principal {
		return auth.Principal{Subject: "alice", Tenant: "blue", Roles: roles, ImpersonatedBy: by}
	}
	cases := map[string]struct {
		reason string
		token  string
		header http.Header
		want   auth.Principal
		says   string // in the refusal
	}{
		"Tenant":          {"a user of a tenant", "root", http.Header{user: {"alice"}, tenant: {"blue"}}, alice("root"), ""},
		"Viewer":          {"a role", "root", http.Header{user: {"alice"}, role: {"viewer"}}, auth.Principal{Subject: "alice", Roles: []auth.Role{auth.Viewer}, ImpersonatedBy: "root"}, ""},
		"Roles":           {"several roles, each counts once", "robot-root", http.Header{user: {"alice"}, tenant: {"blue"}, role: {"system", "operator", "system"}}, alice("rob", auth.System, auth.Operator), ""},
		"OwnTenant":       {"an operator of a tenant", "red-root", http.Header{user: {"alice"}, tenant: {"blue"}, role: {"operator"}}, alice("rolf", auth.Operator), ""},
		"Oneself":         {"the roles of the token do not count", "root", http.Header{user: {"root"}, tenant: {"blue"}}, auth.Principal{Subject: "root", Tenant: "blue", ImpersonatedBy: "root"}, ""},
		"ByUser":          {"a tenant's user stays in it", "user", http.Header{user: {"alice"}, tenant: {"blue"}}, auth.Principal{}, "only the role operator"},
		"ByUserInTenant":  {"and names nobody of it", "user", http.Header{user: {"alice"}, tenant: {"red"}}, auth.Principal{}, "only the role operator"},
		"ByViewer":        {"a viewer changes nothing", "viewer", http.Header{user: {"alice"}, role: {"viewer"}}, auth.Principal{}, "only the role operator"},
		"BySystem":        {"components act as themselves", "system", http.Header{user: {"alice"}, role: {"system"}}, auth.Principal{}, "only the role operator"},
		"System":          {"an operator does not report status", "root", http.Header{user: {"sentinel"}, role: {"system"}}, auth.Principal{}, "report status"},
		"SystemOfTenant":  {"nor for a tenant", "root", http.Header{user: {"robot"}, tenant: {"red"}, role: {"operator", "system"}}, auth.Principal{}, "report status"},
		"AllTenants":      {"an operator with a tenant sends no events of others", "red-root", http.Header{user: {"alice"}, role: {"operator"}}, auth.Principal{}, "send change events for any tenant"},
		"NoRights":        {"it would be the caller of nothing", "root", http.Header{user: {"alice"}}, auth.Principal{}, "needs a tenant or a role"},
		"NoUser":          {"the rights of a tenant without a name", "root", http.Header{tenant: {"blue"}}, auth.Principal{}, "must name a user"},
		"EmptyUser":       {"a template without a value", "root", http.Header{user: {""}, tenant: {"blue"}}, auth.Principal{}, "must name a user"},
		"NoValue":         {"a header without values", "root", http.Header{user: nil}, auth.Principal{}, "must be given once"},
		"TwoUsers":        {"which one counts is not clear", "root", http.Header{user: {"alice", "bob"}, tenant: {"blue"}}, auth.Principal{}, "must be given once"},
		"TwoTenants":      {"which one counts is not clear", "root", http.Header{user: {"alice"}, tenant: {"blue", "red"}}, auth.Principal{}, "must be given once"},
		"EmptyTenant":     {"it does not mean all", "root", http.Header{user: {"alice"}, tenant: {""}, role: {"viewer"}}, auth.Principal{}, "must name a tenant"},
		"SpaceTenant":     {"names are compared exactly", "root", http.Header{user: {"alice"}, tenant: {"blue "}}, auth.Principal{}, "must name a tenant"},
		"EmptyRole":       {"it is no role", "root", http.Header{user: {"alice"}, tenant: {"blue"}, role: {""}}, auth.Principal{}, "is not a role"},
		"UnknownRole":     {"it is no role", "root", http.Header{user: {"alice"}, tenant: {"blue"}, role: {"admin"}}, auth.Principal{}, "is not a role"},
		"CaseOfRole":      {"it is no role", "root", http.Header{user: {"alice"}, tenant: {"blue"}, role: {"Viewer"}}, auth.Principal{}, "is not a role"},
		"JoinedRoles":     {"as proxies join headers", "root", http.Header{user: {"alice"}, role: {"viewer, operator"}}, auth.Principal{}, "is not a role"},
		"ControlUser":     {"it would forge a line of the log", "root", http.Header{user: {"alice\nroot"}, tenant: {"blue"}}, auth.Principal{}, "must name a user"},
		"LongUser":        {"databases and logs have limits", "root", http.Header{user: {strings.Repeat("a", 254)}, tenant: {"blue"}}, auth.Principal{}, "must name a user"},
		"ForgedUser":      {"it would name another as the person who acted", "root", http.Header{user: {"alice (impersonated by bob)"}, tenant: {"blue"}}, auth.Principal{}, "must name a user"},
		"Group":           {"it is not ignored", "root", http.Header{user: {"alice"}, tenant: {"blue"}, "Impersonate-Group": {"system:masters"}}, auth.Principal{}, "has no groups"},
		"Uid":             {"nor are others of Kubernetes", "root", http.Header{user: {"alice"}, tenant: {"blue"}, "Impersonate-Uid": {"1"}}, auth.Principal{}, "is not known"},
		"Extra":           {"nor are others of Kubernetes", "root", http.Header{"Impersonate-Extra-Scopes": {"x"}}, auth.Principal{}, "is not known"},
		"LowerCase":       {"a header that was set past net/http", "root", http.Header{"impersonate-user": {"alice"}}, auth.Principal{}, "is not known"},
		"Underscore":      {"a proxy may rewrite it", "root", http.Header{"Impersonate_user": {"alice"}}, auth.Principal{}, "is not known"},
		"Bare":            {"it begins like one", "root", http.Header{"Impersonate": {"alice"}}, auth.Principal{}, "is not known"},
		"GroupByUser":     {"everybody else is refused, too", "user", http.Header{"Impersonate-Group": {"x"}}, auth.Principal{}, "only the role operator"},
		"SuffixIsAnother": {"other headers do not matter", "user", http.Header{"X-Impersonate-User": {"alice"}}, auth.Principal{Subject: "rosa", Tenant: "red"}, ""},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.header.Set("Authorization", "Bearer "+tc.token)
			got, err := a.AuthenticateAndImpersonate(t.Context(), tc.header)
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if (err == nil) != (tc.says == "") || err != nil && (!errors.Is(err, auth.ErrImpersonation) || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("%s: got error %v, want %q", tc.reason, err, tc.says)
			}
		})
	}
	// Whoever has no valid token learns nothing of the rule.
	_, err = a.AuthenticateAndImpersonate(t.Context(), http.Header{"Authorization": {"Bearer other"}, user: {"alice"}})
	wantErr(t, err, auth.ErrInvalidToken)
	_, err = a.AuthenticateAndImpersonate(t.Context(), http.Header{user: {"alice"}})
	wantErr(t, err, auth.ErrNoToken)
}

// TestImpersonationWithoutAuthentication covers that records never have an unknown person as the one who acted.
func TestImpersonationWithoutAuthentication(t *testing.T) {
	a, err := auth.New(auth.Config{Mode: auth.ModeNone, Names: map[string]string{"t": "alice"}}, auth.Deps{ListenAddr: "127.0.0.1:8000"})
	if err != nil {
		t.Fatal(err)
	}
	for _, authorization := range []string{"", "Bearer t"} {
		p, err := a.AuthenticateAndImpersonate(t.Context(), http.Header{"Authorization": {authorization}, "Impersonate-User": {"bob"}, "Impersonate-Tenant": {"blue"}})
		wantErr(t, err, auth.ErrImpersonation)
		if p.Subject != "" || p.Unrestricted {
			t.Errorf("got %+v", p)
		}
	}
	if _, err := a.AuthenticateAndImpersonate(t.Context(), http.Header{}); err != nil {
		t.Error(err)
	}
}

// TestActor covers that a recorded actor has both persons, and that no subject reads like one.
func TestActor(t *testing.T) {
	p := auth.Principal{Subject: "alice", ImpersonatedBy: "root (ops)"}
	if got := p.Actor(); got != "alice (impersonated by root (ops))" {
		t.Errorf("got %q", got)
	}
	for actor, want := range map[string][2]string{
		p.Actor():                      {"alice", "root (ops)"},
		"alice":                        {"alice", ""},
		"alice (ops)":                  {"alice (ops)", ""},
		"alice (impersonated by root":  {"alice (impersonated by root", ""},
		"a (b) (impersonated by root)": {"a (b)", "root"},
	} {
		if subject, by := auth.SplitActor(actor); subject != want[0] || by != want[1] {
			t.Errorf("%q: got %q and %q", actor, subject, by)
		}
	}
	path := filepath.Join(t.TempDir(), "tokens.yaml")
	write(t, path, "tokens: [{token: t, subject: 'alice (Impersonated by root)', tenant: red}]\n")
	if _, err := newTokens(t, path, slog.New(slog.DiscardHandler)); err == nil || !strings.Contains(err.Error(), "impersonated by") {
		t.Errorf("a token whose subject reads like an impersonation: %v", err)
	}
}

// TestImpersonationEndsWithToken covers that a watch of an impersonated principal does not outlive the caller's token.
func TestImpersonationEndsWithToken(t *testing.T) {
	p := newProvider(t)
	key := rsaKey(t)
	p.publish("k1", &key.PublicKey)
	cfg := p.config()
	cfg.OperatorRole = "admin"
	token := sign(t, jose.RS256, key, "k1", p.claims(map[string]any{"sub": "root", "roles": "admin"}))
	got, err := newIssuers(t, cfg).AuthenticateAndImpersonate(t.Context(), http.Header{
		"Authorization": {"Bearer " + token}, "Impersonate-User": {"bob"}, "Impersonate-Tenant": {"blue"},
	})
	if err != nil {
		t.Fatal(err)
	}
	wantPrincipal(t, auth.Principal{Subject: "bob", Tenant: "blue", ImpersonatedBy: "root"}, got)
}
