package fleetapi_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

//nolint:gosec // made up for these tests
const tokensOfRoles = `
tokens:
- {token: red, subject: rosa, tenant: red}
- {token: blue, subject: bert, tenant: blue}
- {token: viewer, subject: vera, roles: [viewer]}
- {token: operator, subject: otto, roles: [operator]}
- {token: system, subject: sentinel, roles: [system]}
- {token: red-viewer, subject: rita, tenant: red, roles: [viewer]}
- {token: red-operator, subject: rolf, tenant: red, roles: [operator]}
`

// TestRoutesByRole checks the answer to each role on each route, with a cluster of the tenant red.
// A route that is missing in the table fails the test.
func TestRoutesByRole(t *testing.T) {
	const (
		ok        = 200
		created   = 201
		accepted  = 202
		gone      = 204
		forbidden = 403
		absent    = 404
	)
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	red := f.as("red")
	roles := []string{"red", "blue", "viewer", "operator", "system", "red-viewer", "red-operator"}
	reads := []int{ok, absent, ok, ok, ok, ok, ok}
	lists := []int{ok, ok, ok, ok, ok, ok, ok}
	changes := func(status int) []int { return []int{status, absent, forbidden, status, forbidden, forbidden, status} }
	const spec, reason = `{"spec":{"a":1}}`, `{"reason":"test"}`
	event := done("cordon", "node-1", time.Now().Add(-time.Minute))
	cases := []struct {
		method, path string // {c} is a cluster, {p} a node pool, new for each role
		body         any
		want         []int
		deleting     bool // they are being deleted
	}{
		{method: "GET", path: "whoami", want: lists},
		{method: "GET", path: "can-i?verb=get&resource=clusters", want: lists},
		{method: "GET", path: "clusters", want: lists},
		{method: "GET", path: "clusters?ids={c}", want: lists},
		{method: "GET", path: "clusters/{c}", want: reads},
		{method: "GET", path: "clusters/{c}/statuses", want: reads},
		{method: "GET", path: "clusters/{c}/sync", want: reads},
		{method: "GET", path: "clusters/sync", want: lists},
		{method: "GET", path: "clusters/{c}/revisions", want: reads},
		{method: "GET", path: "nodepools/{p}/revisions", want: reads},
		{method: "GET", path: v1.ChangeBucketsPath, want: lists},
		{method: "GET", path: "clusters/{c}/nodepools", want: reads},
		{method: "GET", path: "clusters/{c}/nodepools/{p}", want: reads},
		{method: "GET", path: "clusters/{c}/nodepools/{p}/statuses", want: reads},
		{method: "GET", path: "nodepools", want: lists},
		{method: "GET", path: "nodepools/{p}", want: reads},
		{method: "GET", path: "nodepools/{p}/statuses", want: reads},
		{method: "GET", path: "manifests", want: lists},
		{method: "GET", path: "workloads", want: lists},
		{method: "GET", path: v1.ChangesPath, want: lists},

		// Schemas apply to all tenants.
		{method: "GET", path: "schemas", want: lists},
		{method: "PUT", path: "schemas/workloads", body: `{"type":"object"}`, want: []int{forbidden, forbidden, forbidden, ok, forbidden, forbidden, ok}},

		// A new resource belongs to its creator's tenant.
		{method: "POST", path: "clusters", body: `{"name":"c-new","spec":{}}`, want: []int{created, created, forbidden, forbidden, forbidden, forbidden, 409}},
		{method: "POST", path: "manifests", body: `{"name":"m-new","spec":{}}`, want: []int{created, created, forbidden, forbidden, forbidden, forbidden, 409}},
		{method: "POST", path: "workloads", body: `{"name":"w-new","spec":{}}`, want: []int{created, created, forbidden, forbidden, forbidden, forbidden, 409}},
		{method: "POST", path: "clusters/{c}/nodepools", body: `{"name":"np-new","spec":{}}`, want: changes(created)},
		{method: "PATCH", path: "clusters/{c}", body: spec, want: changes(ok)},
		{method: "PATCH", path: "nodepools/{p}", body: spec, want: changes(ok)},
		{method: "PATCH", path: "clusters/{c}/nodepools/{p}", body: spec, want: changes(ok)},
		{method: "DELETE", path: "clusters/{c}", want: changes(accepted)},
		{method: "DELETE", path: "nodepools/{p}", want: changes(accepted)},
		{method: "DELETE", path: "clusters/{c}/nodepools/{p}", want: changes(accepted)},
		{method: "POST", path: "clusters/{c}/force-delete", body: reason, want: changes(gone), deleting: true},
		{method: "POST", path: "nodepools/{p}/force-delete", body: reason, want: changes(gone), deleting: true},
		{method: "POST", path: "clusters/{c}/nodepools/{p}/force-delete", body: reason, want: changes(gone), deleting: true},

		// People and components that drive the fleet control the sync.
		{method: "POST", path: "clusters/{c}/sync/retry", want: []int{ok, absent, forbidden, ok, ok, forbidden, ok}},
		{method: "POST", path: "clusters/{c}/sync/pause", want: []int{ok, absent, forbidden, ok, ok, forbidden, ok}},
		{method: "POST", path: "clusters/{c}/sync/resume", want: []int{ok, absent, forbidden, ok, ok, forbidden, ok}},
		{method: "POST", path: "clusters/sync/retry", body: `{"ids":["{c}"]}`, want: []int{ok, ok, forbidden, ok, ok, forbidden, ok}},
		{method: "POST", path: "clusters/sync/pause", body: `{"ids":["{c}"]}`, want: []int{ok, ok, forbidden, ok, ok, forbidden, ok}},
		{method: "POST", path: "clusters/sync/resume", body: `{"ids":["{c}"]}`, want: []int{ok, ok, forbidden, ok, ok, forbidden, ok}},

		// Only adapters report.
		{method: "PUT", path: "clusters/{c}/statuses", body: reportOf("dns", 1), want: []int{403, 403, 403, 403, created, 403, 403}},
		{method: "POST", path: "clusters/{c}/statuses", body: reportOf("dns", 1), want: []int{403, 403, 403, 403, created, 403, 403}},
		{method: "PUT", path: "nodepools/{p}/statuses", body: reportOf("dns", 1), want: []int{403, 403, 403, 403, created, 403, 403}},

		// Principals who may change a cluster may send its change events.
		{method: "POST", path: v1.ChangesPath + "/{c}", body: event, want: []int{accepted, accepted, forbidden, accepted, accepted, forbidden, accepted}},

		// No such event has deliveries. People who may change clusters may send events again.
		{method: "GET", path: v1.ChangesPath + "/x/deliveries", want: lists},
		{method: "POST", path: v1.ChangesPath + "/x/resend", want: []int{absent, absent, forbidden, absent, forbidden, forbidden, absent}},
	}
	for i, tc := range cases {
		t.Run(tc.method+" "+tc.path, func(t *testing.T) {
			for n, role := range roles {
				red := red.under(t)
				c := red.create("clusters", fmt.Sprintf("c-%d-%d", i, n), nil).ID
				p := red.create("clusters/"+c+"/nodepools", "np-one", nil).ID
				if tc.deleting {
					red.delete("clusters/" + c)
				}
				path := strings.NewReplacer("{c}", c, "{p}", p).Replace(tc.path)
				if a := f.under(t).as(role).do(tc.method, path, tc.body); a.status != tc.want[n] {
					t.Errorf("%s: got %d, want %d: %s", role, a.status, tc.want[n], a.body)
				}
			}
		})
	}
	// A load belongs to one tenant, too.
	for role, want := range map[string]int{"red": ok, "blue": ok, "viewer": forbidden, "operator": forbidden, "system": forbidden, "red-viewer": forbidden, "red-operator": ok} {
		if a := f.as(role).load("clusters/bulk", line("l-"+role)); a.status != want {
			t.Errorf("%s loads clusters: got %d, want %d: %s", role, a.status, want, a.body)
		}
	}
}

// TestWhoAmI checks the identity that the API returns for each role.
func TestWhoAmI(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	for token, want := range map[string]v1.Identity{
		"red":          {Subject: "rosa", Tenant: "red", Roles: []string{}, ReadScope: v1.ScopeTenant, WriteScope: v1.ScopeTenant},
		"viewer":       {Subject: "vera", Roles: []string{"viewer"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeNone},
		"red-viewer":   {Subject: "rita", Tenant: "red", Roles: []string{"viewer"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeNone},
		"operator":     {Subject: "otto", Roles: []string{"operator"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeAll},
		"red-operator": {Subject: "rolf", Tenant: "red", Roles: []string{"operator"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeAll},
		"system":       {Subject: "sentinel", Roles: []string{"system"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeNone, CanReportStatus: true},
	} {
		wantEqual(t, token, want, read[v1.Identity](f.as(token).do("GET", "whoami", nil).want(200)))
	}
	f.as("").do("GET", "whoami", nil).problem(401, "unauthenticated", "")
	wantEqual(t, "without authentication", v1.Identity{
		Subject: "anonymous", Tenant: "default", Roles: []string{}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeAll, CanReportStatus: true,
	}, read[v1.Identity](newFixture(t).do("GET", "whoami", nil).want(200)))
}

// TestCanI checks that the answer about each verb, role and kind is what the request gets.
func TestCanI(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	red := f.as("red")
	requests := map[string]struct {
		method, path string
		body         any
	}{
		"get clusters {c}":        {"GET", "clusters/{c}", nil},
		"list clusters":           {"GET", "clusters", nil},
		"create clusters":         {"POST", "clusters", `{"name":"c-new-{n}","spec":{}}`},
		"create workloads":        {"POST", "workloads", `{"name":"w-new-{n}","spec":{}}`},
		"patch clusters {c}":      {"PATCH", "clusters/{c}", `{"spec":{"a":1}}`},
		"delete clusters {c}":     {"DELETE", "clusters/{c}", nil},
		"retry clusters {c}":      {"POST", "clusters/{c}/sync/retry", nil},
		"pause clusters {c}":      {"POST", "clusters/{c}/sync/pause", nil},
		"resume clusters {c}":     {"POST", "clusters/{c}/sync/resume", nil},
		"report clusters {c}":     {"POST", "clusters/{c}/statuses", reportOf("dns", 1)},
		"get nodepools {p}":       {"GET", "nodepools/{p}", nil},
		"patch nodepools {p}":     {"PATCH", "nodepools/{p}", `{"spec":{"a":1}}`},
		"delete nodepools np-{n}": {"DELETE", "nodepools/{p}", nil},
		"patch clusters c-{n}":    {"PATCH", "clusters/{c}", `{"spec":{"a":2}}`},
		"report nodepools {p}":    {"PUT", "nodepools/{p}/statuses", reportOf("dns", 1)},
	}
	n := 0
	for question, request := range requests {
		for _, role := range []string{"red", "blue", "viewer", "operator", "system", "red-viewer", "red-operator"} {
			n++
			c := red.create("clusters", fmt.Sprintf("c-%d", n), nil).ID
			p := red.create("clusters/"+c+"/nodepools", fmt.Sprintf("np-%d", n), nil).ID
			fill := strings.NewReplacer("{c}", c, "{p}", p, "{n}", fmt.Sprint(n)).Replace
			words := append(strings.Fields(fill(question)), "")
			answer := read[v1.Permission](f.as(role).do("GET", fmt.Sprintf("can-i?verb=%s&resource=%s&name=%s", words[0], words[1], words[2]), nil).want(200))
			body := request.body
			if text, ok := body.(string); ok {
				body = fill(text)
			}
			got := f.as(role).do(request.method, fill(request.path), body)
			if may := got.status < 400; may != answer.Allowed || may == (answer.Reason != "") {
				t.Errorf("%s, %s: can-i says %+v, the request got %d: %s", role, question, answer, got.status, got.body)
			} else if !may && read[v1.Problem](got).Detail != answer.Reason && words[2] == c {
				t.Errorf("%s, %s: can-i says %q, the request %s", role, question, answer.Reason, got.body)
			}
		}
	}
	for query, field := range map[string]string{
		"verb=fly&resource=clusters": "verb", "verb=get&resource=castles": "resource", "resource=clusters": "verb", "verb=get": "resource",
		"verb=pause&resource=nodepools": "verb", "verb=get&resource=clusters&strict=true&x=1": "x",
	} {
		p := red.do("GET", "can-i?"+query, nil).problem(400, "invalid_query", "")
		wantEqual(t, query, field, p.Errors[0].Field)
	}
	answer := read[v1.Permission](red.do("GET", "can-i?verb=get&resource=clusters&name=it%27s", nil).want(200))
	wantEqual(t, "a name that no cluster has", v1.Permission{Reason: `no Cluster "it's"`}, answer)
	red.as("").do("GET", "can-i?verb=get&resource=clusters", nil).problem(401, "unauthenticated", "")
}
