package fleetapi_test

import (
	"net/http"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestDryRun verifies that a dry run has the answer of the request, its refusals included, and leaves
// nothing behind.
func TestDryRun(t *testing.T) {
	t.Parallel()
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles}).as("red")
	c := f.create("clusters", "c-one", map[string]string{"a": "1"})
	pool := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	before, events, tag := f.list("clusters?limit=10"), len(f.changes("").Items), f.tag("clusters/"+c.ID)

	created := read[v1.Resource](f.do("POST", "clusters?dry_run=true&strict=true", `{"name":"c-two","spec":{"v":1}}`).want(http.StatusCreated))
	if created.Name != "c-two" || created.Status.Phase != v1.PhasePending || created.CreatedBy != "rosa" {
		t.Errorf("created: %+v", created)
	}
	f.do("GET", "clusters/"+created.ID, nil).want(http.StatusNotFound)
	read[v1.Resource](f.do("POST", "clusters/"+c.ID+"/nodepools?dry_run=true", `{"name":"np-two","spec":{}}`).want(http.StatusCreated))
	patched := read[v1.Resource](f.do("PATCH", "clusters/"+c.ID+"?dry_run=true", `{"spec":{"v":2},"labels":{"b":"2"},"annotations":{"n":"1"}}`).want(http.StatusOK))
	if patched.Generation != 2 || patched.Labels["b"] != "2" || patched.Annotations["n"] != "1" || string(patched.Spec) != `{"v":2}` {
		t.Errorf("patched: %+v", patched)
	}
	deleted := read[v1.Resource](f.do("DELETE", "clusters/"+c.ID+"?dry_run=1", nil).want(http.StatusAccepted))
	if deleted.Status.Phase != v1.PhaseDeleting || deleted.DeletedTime == nil {
		t.Errorf("deleted: %+v", deleted)
	}
	f.do("DELETE", "clusters/"+c.ID+"/nodepools/"+pool.ID+"?dry_run=true", nil).want(http.StatusAccepted)

	f.do("POST", "clusters?dry_run=true", `{"name":"c-one","spec":{}}`).problem(http.StatusConflict, "name_taken", "c-one")
	f.do("POST", "clusters?dry_run=true", `{"name":"C","spec":{}}`).problem(http.StatusBadRequest, "invalid_fields", "name")
	f.do("POST", "clusters?dry_run=perhaps", `{"name":"c-two","spec":{}}`).problem(http.StatusBadRequest, "invalid_query", "dry_run")
	f.do("DELETE", "clusters/"+c.ID+"?dry_run=perhaps", nil).problem(http.StatusBadRequest, "invalid_query", "dry_run")
	f.doWith(http.Header{"If-Match": {`"0"`}}, "PATCH", "clusters/"+c.ID+"?dry_run=true", `{"spec":{"v":3}}`).want(http.StatusPreconditionFailed)
	f.as("viewer").do("DELETE", "clusters/"+c.ID+"?dry_run=true", nil).problem(http.StatusForbidden, "forbidden", "")

	after := f.list("clusters?limit=10")
	wantEqual(t, "clusters", before.Items, after.Items)
	wantEqual(t, "change events", events, len(f.changes("").Items))
	wantEqual(t, "tag", tag, f.tag("clusters/"+c.ID))
	f.do("PATCH", "clusters/"+c.ID+"?dry_run=false", `{"spec":{"v":2}}`).want(http.StatusOK)
	if f.get("clusters/"+c.ID).Generation != 2 {
		t.Error("dry_run=false changes nothing")
	}
}

// TestDryRunIsRefusedWhereItIsNone checks that no request makes a change of which only the result was asked for: neither
// one without dry runs nor one whose query loses a part.
func TestDryRunIsRefusedWhereItIsNone(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	c, gone := f.create("clusters", "c-one", nil), f.create("clusters", "c-gone", nil)
	f.delete("clusters/" + gone.ID)
	before, events := f.list("clusters?limit=10"), len(f.changes("").Items)

	for _, r := range []struct {
		method, path string
		body         any
	}{
		{"POST", "clusters/" + gone.ID + "/force-delete", `{"reason":"test"}`},
		{"PUT", "clusters/" + c.ID + "/statuses", reportOf("dns", 1)},
		{"POST", "clusters/" + c.ID + "/statuses", reportOf("dns", 1)},
		{"POST", "clusters/" + c.ID + "/sync/pause", nil},
		{"POST", "clusters/sync/pause", v1.BulkSyncControl{IDs: []string{c.ID}}},
		{"PUT", v1.SchemasPath + "/Cluster", `{"type":"object"}`},
		{"DELETE", v1.SchemasPath + "/Cluster", nil},
		{"POST", v1.ChangesPath + "/c-one", done("cordon", "node-1", time.Now())},
	} {
		f.do(r.method, r.path+"?dry_run=true", r.body).problem(http.StatusBadRequest, "invalid_query", "dry_run is not supported by this request")
	}
	f.load("clusters/bulk?dry_run=true", line("c-two")).problem(http.StatusBadRequest, "invalid_query", "dry_run is not supported")
	for _, query := range []string{"?dry_run=true;", "?a=%zz&dry_run=true", "?dry_run=%zz"} {
		f.do("DELETE", "clusters/"+c.ID+query, nil).problem(http.StatusBadRequest, "invalid_query", "the query is malformed")
		f.do("POST", "clusters"+query, `{"name":"c-two","spec":{}}`).problem(http.StatusBadRequest, "invalid_query", "the query is malformed")
	}

	wantEqual(t, "clusters", before.Items, f.list("clusters?limit=10").Items)
	wantEqual(t, "reports", 0, len(read[v1.AdapterStatusList](f.do("GET", "clusters/"+c.ID+"/statuses", nil).want(http.StatusOK)).Items))
	wantEqual(t, "change events", events, len(f.changes("").Items))
	if state := read[v1.ClusterSync](f.do("GET", "clusters/"+c.ID+"/sync", nil).want(http.StatusOK)).State; state == v1.SyncPaused {
		t.Error("the sync is paused")
	}
}
