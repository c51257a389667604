package fleetapi_test

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestPauses checks the author, the reason and the end of pauses, and their change events.
func TestPauses(t *testing.T) {
	red, _, system := newTenants(t)
	conn := red.connect()
	c := red.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID + "/sync/"
	until := time.Now().Add(2 * time.Hour).Truncate(time.Second).UTC()
	pause := func(f *fixture, body any) *v1.SyncPause {
		t.Helper()
		got := read[v1.ClusterSync](f.do("POST", path+"pause", body).want(200))
		if got.State != v1.SyncPaused || got.Pause == nil {
			t.Fatalf("the sync is %+v", got)
		}
		wantEqual(t, "what is read afterwards", got.Pause, red.sync(c.ID).Pause)
		return got.Pause
	}
	first := pause(red, v1.SyncControl{Reason: " maintenance ", Until: &until})
	wantEqual(t, "a pause", &v1.SyncPause{By: "rosa", Reason: "maintenance", Since: first.Since, Until: &until}, first)
	wantEqual(t, "the same again", first, pause(red, v1.SyncControl{Reason: "maintenance", Until: &until}))
	wantEqual(t, "another reason", &v1.SyncPause{By: "rosa", Reason: "more", Since: first.Since, Until: &until}, pause(red, v1.SyncControl{Reason: "more", Until: &until}))
	wantEqual(t, "without an end", &v1.SyncPause{By: "rosa", Since: first.Since}, pause(red, nil))
	wantEqual(t, "without a body", &v1.SyncPause{By: "rosa", Since: first.Since}, pause(system, nil))
	resumed := read[v1.ClusterSync](red.do("POST", path+"resume", v1.SyncControl{Reason: "done"}).want(200))
	if resumed.Pause != nil || resumed.PausedAt != nil {
		t.Errorf("after the pause: %+v", resumed)
	}
	red.do("POST", path+"resume", nil).want(200) // changes nothing

	var told []string
	for _, e := range red.changes("?action=sync-paused,sync-resumed").Items {
		told = append(told, strings.Join([]string{e.Action, e.Actor, e.Cluster, e.Subject, e.Reason}, "|"))
	}
	wantEqual(t, "change events", []string{
		"sync-resumed|rosa|c-one|clusters/c-one|done", "sync-paused|rosa|c-one|clusters/c-one|",
		"sync-paused|rosa|c-one|clusters/c-one|more", "sync-paused|rosa|c-one|clusters/c-one|maintenance",
	}, told)
	wantEqual(t, "summary", "rosa paused the sync of cluster c-one until "+until.Format(time.RFC3339)+" - maintenance",
		red.changes("?text=maintenance").Items[0].Summary)

	// A pause whose time is over has ended, also before a worker notices.
	pause(red, v1.SyncControl{Reason: "short", Until: &until})
	setSync(t, conn, c.ID, "paused_until = now() - interval '1 second'")
	got := red.sync(c.ID)
	if got.State != v1.SyncPending || got.Pause != nil || got.PausedAt != nil || got.NextAttempt == nil {
		t.Errorf("after the end: %+v", got)
	}
	for query, want := range map[string]int{"state=paused": 0, "state=pending": 1, "state=pending,running,backing_off,stuck": 1} {
		names, _ := red.syncNames(query)
		wantEqual(t, query, want, len(names))
	}
	wantEqual(t, "events before a worker notices", 0, len(red.changes("?text=ended").Items))
	pause(red, v1.SyncControl{Reason: "again"})
	ended := red.changes("?text=ended").Items
	if len(ended) != 1 || ended[0].Action != "sync-resumed" || ended[0].Details["paused_by"] != "rosa" || ended[0].Tenant != "red" {
		t.Errorf("the end of the pause is %+v", ended)
	}

	past, long := time.Now().Add(-time.Minute), strings.Repeat("x", 1025)
	for action, body := range map[string]v1.SyncControl{"pause": {Until: &past}, "resume": {Until: &until}, "retry": {Reason: long}} {
		p := red.do("POST", path+action, body).problem(400, "invalid_fields", "")
		if len(p.Errors) != 1 {
			t.Errorf("%s: %+v", action, p.Errors)
		}
	}
	red.do("POST", path+"pause", "{").problem(400, "invalid_body", "")
}

// TestBulkControl checks that each cluster is changed on its own, and that failures are listed.
func TestBulkControl(t *testing.T) {
	red, blue, _ := newTenants(t)
	conn := red.connect()
	one, two := red.create("clusters", "c-one", nil).ID, red.create("clusters", "c-two", nil).ID
	other := blue.create("clusters", "c-other", nil).ID
	setSync(t, conn, two, rowRunning)
	codes := func(r v1.BulkSyncResult) map[string]string {
		m := map[string]string{}
		for _, f := range r.Failed {
			m[f.ID] = f.Code
		}
		return m
	}
	control := func(action string, body v1.BulkSyncControl) v1.BulkSyncResult {
		t.Helper()
		return read[v1.BulkSyncResult](red.do("POST", "clusters/sync/"+action, body).want(200))
	}
	ids := []string{one, two, one, other, "nonsense"}
	got := control("retry", v1.BulkSyncControl{IDs: ids})
	wantEqual(t, "retried", 1, got.Changed)
	wantEqual(t, "not retried", map[string]string{two: "sync_running", other: "not_found", "nonsense": "not_found"}, codes(got))
	until := time.Now().Add(time.Hour).Truncate(time.Second).UTC()
	got = control("pause", v1.BulkSyncControl{IDs: ids, SyncControl: v1.SyncControl{Reason: "storm", Until: &until}})
	wantEqual(t, "paused", 2, got.Changed)
	wantEqual(t, "not paused", map[string]string{other: "not_found", "nonsense": "not_found"}, codes(got))
	for _, id := range []string{one, two} {
		wantEqual(t, "reason", "storm", red.sync(id).Pause.Reason)
	}
	wantEqual(t, "another tenant's", (*v1.SyncPause)(nil), blue.sync(other).Pause)
	got = control("pause", v1.BulkSyncControl{IDs: []string{one}, SyncControl: v1.SyncControl{Reason: "storm", Until: &until}})
	wantEqual(t, "the same again", v1.BulkSyncResult{Failed: []v1.BulkSyncFailure{}}, got)
	wantEqual(t, "resumed", 2, control("resume", v1.BulkSyncControl{IDs: []string{one, two}}).Changed)

	red.do("POST", "clusters/sync/pause", v1.BulkSyncControl{}).problem(400, "invalid_fields", "")
	red.do("POST", "clusters/sync/pause", v1.BulkSyncControl{IDs: make([]string, 501)}).problem(400, "invalid_fields", "")
	red.do("GET", "clusters/sync/pause", nil).problem(405, "method_not_allowed", "POST")
	red.as("").do("POST", "clusters/sync/pause", v1.BulkSyncControl{IDs: ids}).problem(401, "unauthenticated", "")
}
