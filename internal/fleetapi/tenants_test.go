package fleetapi_test

import (
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

//nolint:gosec // made up for these tests
const someTokens = `
tokens:
- {token: red-token, subject: rosa, tenant: red}
- {token: blue-token, subject: bert, tenant: blue}
- {token: system-token, subject: sentinel, roles: [system]}
- {token: red-robot, subject: robot, tenant: red, roles: [system]}
`

func newTenants(t *testing.T) (red, blue, system *fixture) {
	t.Helper()
	f := newFixtureWith(t, options{cfg: defaults(), tokens: someTokens})
	return f.as("red-token"), f.as("blue-token"), f.as("system-token")
}

func TestAuthentication(t *testing.T) {
	red, _, _ := newTenants(t)
	a := red.as("").do("GET", "clusters", nil)
	a.problem(401, "unauthenticated", "no bearer token")
	wantEqual(t, "challenge", `Bearer realm="fleet-api"`, a.header.Get("WWW-Authenticate"))
	a = red.as("wrong-token").do("GET", "clusters", nil)
	a.problem(401, "unauthenticated", "not valid")
	wantEqual(t, "challenge", `Bearer realm="fleet-api", error="invalid_token"`, a.header.Get("WWW-Authenticate"))
	if strings.Contains(red.logs.String(), "wrong-token") {
		t.Error("a token is in the log")
	}
	red.as("").do("GET", "/openapi.yaml", nil).want(200)
	wantEqual(t, "author", "rosa", red.create("clusters", "c-one", nil).CreatedBy)
}

// TestNoTenantSeesAnother tries every route to another tenant's rows.
func TestNoTenantSeesAnother(t *testing.T) {
	red, blue, system := newTenants(t)
	c := red.create("clusters", "c-one", map[string]string{"a": "1"})
	path := "clusters/" + c.ID
	np := red.create(path+"/nodepools", "np-one", nil)
	system.report(path, "dns", 1)

	for _, p := range []string{path, path + "/statuses", path + "/nodepools", path + "/nodepools/" + np.ID, "nodepools/" + np.ID} {
		blue.do("GET", p, nil).problem(404, "not_found", "")
	}
	for _, p := range []string{"clusters", "nodepools", "clusters?labels=a%3D1", "clusters?limit=5", "clusters?search=name%3D%27c-one%27", "clusters?search=not%20name%3D%27x%27"} {
		l := blue.list(p)
		if len(l.Items) != 0 || l.Total != nil && *l.Total != 0 {
			t.Errorf("%s shows %d rows of another tenant", p, len(l.Items))
		}
	}
	blue.do("PATCH", path, `{"spec":{"a":1}}`).problem(404, "not_found", "")
	blue.do("DELETE", path, nil).problem(404, "not_found", "")
	blue.do("POST", path+"/force-delete", `{"reason":"mine"}`).problem(404, "not_found", "")
	blue.do("POST", path+"/nodepools", `{"name":"np-two","spec":{}}`).problem(404, "not_found", "")
	blue.create("clusters", "c-one", nil) // names are per tenant, too

	if got := red.get(path); got.Generation != 1 || got.DeletedTime != nil {
		t.Errorf("another tenant changed it: %+v", got)
	}
	wantEqual(t, "red sees", 1, len(red.list("clusters").Items))
	wantEqual(t, "the system sees", 2, len(system.list("clusters").Items))
}

// TestIssuerThatIsDown checks that an unverifiable token is not rejected as invalid.
func TestIssuerThatIsDown(t *testing.T) {
	down := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(down.Close)
	o := options{cfg: defaults()}
	o.cfg.Auth = auth.Config{Mode: auth.ModeBearer, Issuers: []auth.Issuer{{Issuer: down.URL, Audience: "fleet-api"}}}
	f := newFixtureWith(t, o)
	claims := base64.RawURLEncoding.EncodeToString([]byte(`{"iss":"` + down.URL + `"}`))
	a := f.as("e30."+claims+".e30").do("GET", "clusters", nil)
	a.problem(503, "unavailable", "cannot reach the issuer of the token")
	wantEqual(t, "Retry-After", "2", a.header.Get("Retry-After"))
}

// TestTokensOfOneTenantDoNotContinueAnother checks that a page token of one tenant is refused to
// another.
func TestTokensOfOneTenantDoNotContinueAnother(t *testing.T) {
	red, blue, _ := newTenants(t)
	for _, name := range []string{"c-one", "c-two"} {
		red.create("clusters", name, nil)
	}
	token := red.list("clusters?limit=1").Continue
	blue.do("GET", "clusters?limit=1&continue="+token, nil).problem(400, "invalid_query", "another query")
}

func TestSystemOnlyReports(t *testing.T) {
	red, _, system := newTenants(t)
	path := "clusters/" + red.create("clusters", "c-one", nil).ID
	red.do("PUT", path+"/statuses", reportOf("dns", 1)).problem(403, "forbidden", "needs the role system")

	for _, robot := range []*fixture{system, red.as("red-robot")} {
		robot.report(path, "dns", 1)
		robot.get(path)
		robot.do("POST", "clusters", `{"name":"c-two","spec":{}}`).problem(403, "forbidden", "cannot change resources")
		robot.do("POST", path+"/nodepools", `{"name":"np-one","spec":{}}`).problem(403, "forbidden", "")
		robot.do("PATCH", path, `{"spec":{"a":1}}`).problem(403, "forbidden", "")
		robot.do("DELETE", path, nil).problem(403, "forbidden", "")
		robot.do("POST", path+"/force-delete", `{"reason":"x"}`).problem(403, "forbidden", "")
	}
	page := read[v1.AdapterStatusList](red.do("GET", path+"/statuses", nil).want(http.StatusOK))
	wantEqual(t, "reports that the owner sees", int64(1), page.Total)
}
