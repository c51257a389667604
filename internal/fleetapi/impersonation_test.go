package fleetapi_test

import (
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// impersonating returns the headers of a request.
func impersonating(user, tenant string, roles ...string) http.Header {
	h := http.Header{v1.ImpersonateUserHeader: {user}}
	if tenant != "" {
		h[v1.ImpersonateTenantHeader] = []string{tenant}
	}
	if len(roles) > 0 {
		h[v1.ImpersonateRoleHeader] = roles
	}
	return h
}

// impersonate returns the same API for requests with these headers.
func (f *fixture) impersonate(h http.Header) *fixture {
	other := *f
	other.header = h
	return &other
}

// TestImpersonationIsRefusedOnEveryRoute sends headers that the caller may not use, or that are not known, to each operation of the
// contract. None may be answered with the caller's own rights.
func TestImpersonationIsRefusedOnEveryRoute(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	c := f.as("red").create("clusters", "c-one", nil)
	before := f.as("operator").get("clusters/" + c.ID)
	sent := 0
	requests := map[string]struct {
		token  string
		header http.Header
	}{
		"User":     {"red", impersonating("bert", "blue")},
		"Viewer":   {"viewer", impersonating("vera", "", "viewer")},
		"System":   {"system", impersonating("otto", "", "operator")},
		"Group":    {"operator", http.Header{"Impersonate-Group": {"system:masters"}}},
		"Unknown":  {"operator", http.Header{"Impersonate-Extra-Role": {"viewer"}}},
		"Escalate": {"operator", impersonating("sentinel", "", "system")},
	}
	doc, err := openapi3.NewLoader().LoadFromData([]byte(v1.OpenAPIYAML()))
	if err != nil {
		t.Fatal(err)
	}
	for path, item := range doc.Paths.Map() {
		base := v1.BasePath
		if len(item.Servers) > 0 {
			base = item.Servers[0].URL
		}
		for method := range item.Operations() {
			concrete := strings.NewReplacer("{id}", c.ID, "{parent}", c.ID, "{cluster}", "c-one", "{kind}", "clusters").Replace(base + path)
			for name, r := range requests {
				if strings.HasPrefix(path, "/openapi") {
					continue
				}
				sent++
				a := f.as(r.token).impersonate(r.header).do(method, concrete, `{}`)
				if a.status != http.StatusForbidden || !strings.Contains(string(a.body), "impersonation refused") {
					t.Errorf("%s: %s %s: got %d %s", name, method, concrete, a.status, a.body)
				}
			}
		}
	}
	if sent < 150 {
		t.Errorf("%d requests", sent)
	}
	// Streams and loads have other bodies and headers.
	for _, path := range []string{"clusters?watch=true", "clusters?search=name%3D%27c-one%27", "clusters?limit=1", v1.ChangesPath, v1.SummaryPath} {
		for name, r := range requests {
			h := maps.Clone(r.header)
			h["Accept"] = []string{"text/event-stream"}
			if a := f.as(r.token).impersonate(h).do("GET", path, nil); a.status != http.StatusForbidden {
				t.Errorf("%s: %s: got %d %s", name, path, a.status, a.body)
			}
		}
	}
	wantEqual(t, "the cluster", before, f.as("operator").get("clusters/"+c.ID))
	if !strings.Contains(f.logs.String(), "impersonation refused") {
		t.Error("refusals are not in the log")
	}
}

// TestImpersonatedRights covers that a request has the rights of the one that it names.
func TestImpersonatedRights(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	c := f.as("red").create("clusters", "c-one", nil)
	root := f.as("operator")
	blue, red, viewer := root.impersonate(impersonating("alice", "blue")), root.impersonate(impersonating("alice", "red")), root.impersonate(impersonating("alice", "", "viewer"))

	wantEqual(t, "identity", v1.Identity{
		Subject: "alice", ImpersonatedBy: "otto", Tenant: "blue", Roles: []string{}, ReadScope: v1.ScopeTenant, WriteScope: v1.ScopeTenant,
	}, read[v1.Identity](blue.do("GET", "whoami", nil).want(200)))
	wantEqual(t, "viewer", v1.Identity{
		Subject: "alice", ImpersonatedBy: "otto", Roles: []string{"viewer"}, ReadScope: v1.ScopeAll, WriteScope: v1.ScopeNone,
	}, read[v1.Identity](viewer.do("GET", "whoami", nil).want(200)))
	for _, path := range []string{"clusters/" + c.ID, "clusters/" + c.ID + "/sync", "clusters/" + c.ID + "/revisions", "clusters/" + c.ID + "/statuses", "clusters/" + c.ID + "/nodepools"} {
		blue.do("GET", path, nil).problem(404, "not_found", "")
		red.do("GET", path, nil).want(200)
	}
	blue.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).problem(404, "not_found", "")
	viewer.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":1}}`).problem(403, "forbidden", "role viewer")
	red.do("PUT", "schemas/workloads", `{"type":"object"}`).problem(403, "forbidden", "need the role operator")
	red.do("PUT", "clusters/"+c.ID+"/statuses", reportOf("dns", 1)).problem(403, "forbidden", "")
	canI := func(f *fixture, query string) bool {
		return read[v1.Permission](f.do("GET", "can-i?"+query, nil).want(200)).Allowed
	}
	wantEqual(t, "can-i", []bool{false, true, false, true}, []bool{
		canI(blue, "verb=get&resource=clusters&name=c-one"), canI(red, "verb=get&resource=clusters&name=c-one"),
		canI(viewer, "verb=create&resource=clusters"), canI(blue, "verb=create&resource=clusters"),
	})
	for path, n := range map[string]int{"clusters": 1, "clusters?limit=5": 1, "clusters?search=name%3D%27c-one%27": 1, "clusters?ids=" + c.ID: 1} {
		wantEqual(t, "blue "+path, 0, len(blue.list(path).Items))
		wantEqual(t, "red "+path, n, len(red.list(path).Items))
	}
	wantEqual(t, "timeline of blue", 0, len(blue.changes("").Items))
	wantEqual(t, "timeline of red", 1, len(red.changes("").Items))
	if !strings.Contains(f.logs.String(), `"msg":"request impersonates","subject":"alice","impersonated_by":"otto"`) {
		t.Error("reads are not in the log")
	}

	w := f.as("operator").watch(watchQuery("clusters", "", ""), impersonating("alice", "blue"))
	w.want("bookmark")
	events := f.as("operator").streamChanges("", impersonating("alice", "blue"))
	if e := events.next(); e.Type != v1.WatchBookmark {
		t.Fatalf("got %s", e.Type)
	}
	f.as("red").create("clusters", "c-red", nil)
	f.as("blue").create("clusters", "c-blue", nil)
	w.want("changed c-blue")
	events.wantChanges("cluster-created clusters/c-blue")
}

// TestImpersonationIsRecorded covers that each record of a change has the actor, and the person who acted.
func TestImpersonationIsRecorded(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	red := f.as("red-operator").impersonate(impersonating("alice", "red"))
	const both = "alice (impersonated by rolf)"
	c := red.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	wantEqual(t, "created by", []string{both, both}, []string{c.CreatedBy, c.UpdatedBy})
	red.load("clusters/bulk", line("c-two")).want(200)
	wantEqual(t, "loaded by", both, red.list("clusters?search=name%3D%27c-two%27").Items[0].CreatedBy)
	red.do("PATCH", path, `{"spec":{"version":"1.35"}}`).want(200)
	wantEqual(t, "revision by", both, red.revisions(path + "/revisions").Items[0].Actor)
	red.do("POST", path+"/sync/pause", `{"reason":"test"}`).want(200)
	wantEqual(t, "paused by", both, red.sync(c.ID).Pause.By)
	red.do("POST", path+"/sync/resume", nil).want(200)
	red.tell("c-one", done("cordon", "node-1", time.Now().Add(-time.Minute)))
	wantEqual(t, "deleted by", both, red.delete(path).DeletedBy)
	red.do("POST", path+"/force-delete", `{"reason":"test"}`).want(204)
	for _, message := range []string{"bulk load finished", "sync changed by request", "resource force-deleted"} {
		_, rest, _ := strings.Cut(f.logs.String(), `"msg":"`+message+`"`)
		if line, _, _ := strings.Cut(rest, "\n"); !strings.Contains(line, `"subject":"`+both+`"`) {
			t.Errorf("the log of %q does not have both: %s", message, line)
		}
	}

	addDeliveries(t, f.as("red"))
	red.do("POST", v1.ChangesPath+"/shoot-1/resend", v1.ChangeResend{Reason: "test"}).want(202)

	events := f.as("operator").changes("").Items
	actions := map[string]bool{}
	for i := range events {
		e := &events[i]
		actions[e.Action] = true
		if e.Action == "cordon" {
			wantEqual(t, "sent by", both, e.RecordedBy)
			continue
		}
		if e.Actor != "alice" || e.Details["actor"] != "alice" || e.Details[changeevent.DetailImpersonatedBy] != "rolf" || !strings.Contains(e.Summary, both) {
			t.Errorf("%s: actor %q, details %v, summary %q", e.Action, e.Actor, e.Details, e.Summary)
		}
	}
	wantEqual(t, "actions", map[string]bool{
		"cluster-created": true, "cluster-changed": true, "cluster-deleted": true, "sync-paused": true, "sync-resumed": true, "cordon": true, "change-resent": true,
	}, actions)
	wantEqual(t, "events of the actor", len(events)-1, len(f.as("operator").changes("?actor=alice").Items))

	f.as("red-operator").impersonate(impersonating("alice", "red", "operator")).do("PUT", "schemas/workloads", `{"type":"object"}`).want(200)
	wantEqual(t, "schema by", both, read[v1.SpecSchema](f.as("red").do("GET", "schemas/workloads", nil).want(200)).UpdatedBy)
}

// TestImpersonationNeedsAuthentication covers an API that does not know who acts.
func TestImpersonationNeedsAuthentication(t *testing.T) {
	f := newFixture(t).impersonate(impersonating("alice", "blue"))
	f.do("GET", "whoami", nil).problem(403, "forbidden", "needs authentication")
	f.do("POST", "clusters", `{"name":"c-one","spec":{}}`).problem(403, "forbidden", "needs authentication")
}

// TestImpersonationOfOpenWatches covers that a watch keeps the rights of the one whom it names, and ends with those of the caller.
func TestImpersonationOfOpenWatches(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles})
	recheck := func(token string, h http.Header) error {
		h = maps.Clone(h)
		h.Set("Authorization", "Bearer "+token)
		return f.api.RecheckAccess(t.Context(), h, fleetapi.Scope{Tenant: "blue"})
	}
	if err := recheck("operator", impersonating("alice", "blue")); err != nil {
		t.Errorf("nothing has changed: %v", err)
	}
	if err := recheck("operator", impersonating("alice", "red")); err == nil {
		t.Error("another tenant: allowed")
	}
	if err := recheck("blue", impersonating("alice", "blue")); err == nil {
		t.Error("a caller who is no operator any more: allowed")
	}
}
