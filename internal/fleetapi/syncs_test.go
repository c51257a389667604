package fleetapi_test

import (
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Columns of a sync in each state.
const (
	rowPending    = `synced = null, sync_attempts = 0, due_at = now()`
	rowRunning    = `synced = null, claim_token = 7, claimed_by = 'worker-1', due_at = now() + interval '1 minute'`
	rowBackingOff = `synced = null, sync_attempts = 3, sync_error = 'quota', error_class = 'quota', sync_last_attempt = now(), due_at = now() + interval '4 minutes'`
	rowStuck      = `synced = null, sync_attempts = 8, sync_error = 'no such version', error_class = 'invalid', due_at = now() + interval '15 minutes'`
	rowPaused     = `synced = null, paused_at = now()`
	rowSynced     = `synced = now(), unsynced_since = null, synced_generation = generation, shoot_name = cluster_id::text, shoot_status = 'ready'`
)

// setSync sets the row of a cluster's sync as a worker could.
func setSync(t *testing.T, conn *pgx.Conn, id, columns string) {
	t.Helper()
	tag, err := conn.Exec(t.Context(), "update tenant.cluster_sync set "+columns+" where cluster_id = $1", id)
	if err != nil || tag.RowsAffected() != 1 {
		t.Fatalf("%s: %d rows, %v", columns, tag.RowsAffected(), err)
	}
}

// rowOf returns the row as text, without columns that are not compared.
func rowOf(t *testing.T, conn *pgx.Conn, id string) string {
	t.Helper()
	var row string
	if err := conn.QueryRow(t.Context(), "select s::text from tenant.cluster_sync s where cluster_id = $1", id).Scan(&row); err != nil {
		t.Fatal(err)
	}
	return row
}

func (f *fixture) sync(id string) v1.ClusterSync {
	f.Helper()
	return read[v1.ClusterSync](f.do("GET", "clusters/"+id+"/sync", nil).want(200))
}

func TestStatesOfASync(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	const past, future = `due_at = now() - interval '1 hour'`, `due_at = now() + interval '1 hour'`
	cases := map[string]struct {
		reason string
		row    string
		want   v1.SyncState
	}{
		"Pending":             {"it waits for a worker", rowPending, v1.SyncPending},
		"PendingNotYet":       {"it is not for its failures that it waits", "synced = null, " + future, v1.SyncPending},
		"Running":             {"a worker is at it", rowRunning, v1.SyncRunning},
		"RunningAgain":        {"a worker is at it, however often it failed", rowRunning + ", sync_attempts = 9", v1.SyncRunning},
		"Lost":                {"a claim that has run out is none", `synced = null, claim_token = 7, claimed_by = 'worker-1', ` + past, v1.SyncPending},
		"LostAfterFailures":   {"a claim that has run out is none", `synced = null, claim_token = 7, sync_attempts = 2, ` + past, v1.SyncPending},
		"BackingOff":          {"it failed and waits", rowBackingOff, v1.SyncBackingOff},
		"BackedOff":           {"it failed and has waited", "synced = null, sync_attempts = 7, " + past, v1.SyncPending},
		"Stuck":               {"it failed too often", rowStuck, v1.SyncStuck},
		"StuckAndDue":         {"that it is due does not mean that it works", "synced = null, sync_attempts = 20, " + past, v1.SyncStuck},
		"NotStuckYet":         {"once less than too often", "synced = null, sync_attempts = 7, " + future, v1.SyncBackingOff},
		"Paused":              {"somebody said so", rowPaused, v1.SyncPaused},
		"PausedWhileRunning":  {"somebody said so", rowRunning + ", paused_at = now()", v1.SyncPaused},
		"PausedWhileStuck":    {"somebody said so", rowStuck + ", paused_at = now()", v1.SyncPaused},
		"PausedThoughSynced":  {"somebody said so", rowSynced + ", paused_at = now()", v1.SyncPaused},
		"Synced":              {"there is nothing to do", rowSynced, v1.SyncSynced},
		"SyncedAfterFailures": {"they are over", rowSynced + ", sync_attempts = 9, claim_token = 7, " + future, v1.SyncSynced},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := f.under(t)
			id := f.create("clusters", strings.ToLower("c-"+name), nil).ID
			setSync(t, conn, id, tc.row)
			got := f.sync(id)
			if got.State != tc.want {
				t.Errorf("%s: %s, want %s", tc.reason, got.State, tc.want)
			}
			if still := got.State == v1.SyncSynced || got.State == v1.SyncPaused; (got.NextAttempt == nil) != still {
				t.Errorf("the next try of what is %s is at %v", got.State, got.NextAttempt)
			}
			if (got.ClaimedBy != "") != (got.State == v1.SyncRunning) {
				t.Errorf("%q is at what is %s", got.ClaimedBy, got.State)
			}
			for _, state := range v1.SyncStates() {
				page := read[v1.ClusterSyncList](f.do("GET", "clusters/sync?limit=500&state="+string(state), nil).want(200))
				listed := slices.ContainsFunc(page.Items, func(s v1.ClusterSync) bool { return s.ClusterID == id })
				if listed != (state == tc.want) {
					t.Errorf("%s: listed among the %s: %t", tc.reason, state, listed)
				}
			}
		})
	}
}

// TestASyncHasAllOfItsRow sets every column by hand, to detect columns that are mixed up.
func TestASyncHasAllOfItsRow(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	f.report("clusters/"+c.ID, "validation", 1)
	at := func(s int) time.Time { return time.Date(2026, 3, 1, 12, 0, s, 123_456_000, time.UTC) }
	when := func(s int) *time.Time { t := at(s); return &t }
	conn := f.connect()
	if _, err := conn.Exec(t.Context(), `update tenant.cluster_sync set synced = null, sync_error = 'it failed', sync_attempts = 3, sync_last_attempt = $2,
		shoot_status = 'error', shoot_status_message = 'no quota', shoot_status_updated = $3, error_class = 'quota', generation = 11, synced_generation = 10,
		cluster_generation = 9, due_at = $4, claim_token = 5, claimed_by = 'worker-1', unsynced_since = $5, shoot_name = 'c-one-abc', shoot_uid = 'u', shoot_generation = 8
		where cluster_id = $1`, c.ID, at(1), at(2), at(3), at(4)); err != nil {
		t.Fatal(err)
	}
	want := v1.ClusterSync{
		ClusterID: c.ID, Name: "c-one", State: v1.SyncPending, UnsyncedSince: when(4),
		Attempts: 3, LastAttempt: when(1), Error: "it failed", ErrorClass: "quota", NextAttempt: when(3),
		Generation: 11, SyncedGeneration: 10,
		ShootName: "c-one-abc", ShootStatus: v1.ShootError, ShootStatusMessage: "no quota", ShootStatusUpdated: when(2),
	}
	wantEqual(t, "sync", want, f.sync(c.ID))

	f.do("DELETE", "clusters/"+c.ID, nil).want(202)
	setSync(t, conn, c.ID, "synced = '2026-03-01T12:00:05.123456Z', unsynced_since = null, paused_at = '2026-03-01T12:00:06.123456Z'")
	got := f.sync(c.ID)
	if !got.Deleting || got.Synced == nil || !got.Synced.Equal(at(5)) || got.PausedAt == nil || !got.PausedAt.Equal(at(6)) {
		t.Errorf("got %+v", got)
	}
}

// TestASyncThatWaitsForGardener checks that pending syncs report an outage of Gardener, and that
// synced or paused ones do not.
func TestASyncThatWaitsForGardener(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	note := func(until string) {
		t.Helper()
		if _, err := conn.Exec(t.Context(), `insert into tenant.cluster_worker_outages (worker, since, reason, until)
			values ('worker-1', '2026-03-01T12:00:00Z', 'connection refused', now() + $1::interval)
			on conflict (worker) do update set until = excluded.until`, until); err != nil {
			t.Fatal(err)
		}
	}
	want := &v1.SyncWait{For: v1.WaitingForGardener, Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Reason: "connection refused", ReportedBy: "worker-1"}
	rows := map[string]*v1.SyncWait{rowPending: want, rowStuck: want, rowBackingOff: want, rowRunning: nil, rowPaused: nil, rowSynced: nil}
	n := 0
	for row, want := range rows {
		n++
		c := f.create("clusters", fmt.Sprintf("c-%d", n), nil)
		setSync(t, conn, c.ID, row)
		note("1 minute")
		wantEqual(t, row, want, f.sync(c.ID).Waiting)
		note("-1 second")
		wantEqual(t, row+", when the note is over", (*v1.SyncWait)(nil), f.sync(c.ID).Waiting)
	}
}

func TestASyncThatIsNotThere(t *testing.T) {
	red, blue, system := newTenants(t)
	id := red.create("clusters", "c-one", nil).ID
	pool := red.create("clusters/"+id+"/nodepools", "np-one", nil).ID
	conn := red.connect()
	before := rowOf(t, conn, id)
	for _, path := range []string{id, "019a0000-0000-7000-8000-000000000001", "nonsense", pool} {
		who := blue
		if path != id {
			who = system
		}
		who.do("GET", "clusters/"+path+"/sync", nil).problem(404, "not_found", "no Cluster")
		for _, action := range []string{"retry", "pause", "resume"} {
			who.do("POST", "clusters/"+path+"/sync/"+action, nil).problem(404, "not_found", "no Cluster")
		}
	}
	wantEqual(t, "row after what another tenant tried", before, rowOf(t, conn, id))
	if page := read[v1.ClusterSyncList](blue.do("GET", "clusters/sync", nil).want(200)); len(page.Items) != 0 {
		t.Errorf("another tenant sees %+v", page.Items)
	}
	red.as("").do("GET", "clusters/sync", nil).problem(401, "unauthenticated", "")
	red.as("").do("POST", "clusters/"+id+"/sync/pause", nil).problem(401, "unauthenticated", "")
	red.do("POST", "clusters/"+id+"/sync", nil).problem(405, "method_not_allowed", "GET, HEAD")
	red.do("GET", "clusters/"+id+"/sync/retry", nil).problem(405, "method_not_allowed", "POST")
	red.do("GET", "nodepools/"+pool+"/sync", nil).problem(404, "not_found", "no such path")
	red.do("DELETE", "clusters/sync", nil).problem(404, "not_found", "no Cluster")
	wantEqual(t, "name", "c-one", red.sync(id).Name)
	wantEqual(t, "name that the system sees", "c-one", system.sync(id).Name)
}

func TestSteeringASync(t *testing.T) {
	cases := map[string]struct {
		reason string
		row    string
		action string
		want   v1.SyncState
		// refused is the code of a refusal, which must not change the row; the same holds for
		// untouched.
		refused   string
		untouched bool
	}{
		"RetryBackingOff": {reason: "it is due", row: rowBackingOff, action: "retry", want: v1.SyncPending},
		"RetryStuck":      {reason: "it is due, and not stuck for now", row: rowStuck, action: "retry", want: v1.SyncPending},
		"RetryPending":    {reason: "it was due already", row: rowPending, action: "retry", want: v1.SyncPending},
		"RetryLost":       {reason: "nobody is at it any more", row: `synced = null, claim_token = 7, due_at = now() - interval '1 second'`, action: "retry", want: v1.SyncPending},
		"RetryRunning":    {reason: "what is being tried is not disturbed", row: rowRunning + ", sync_attempts = 3", action: "retry", refused: "sync_running"},
		"RetryPaused":     {reason: "a pause ends when somebody says so", row: rowStuck + ", paused_at = now()", action: "retry", refused: "sync_paused"},
		"RetrySynced":     {reason: "there is nothing to try", row: rowSynced, action: "retry", want: v1.SyncSynced, untouched: true},
		"PauseStuck":      {reason: "nobody tries it any more", row: rowStuck, action: "pause", want: v1.SyncPaused},
		"PauseRunning":    {reason: "it is the last try", row: rowRunning, action: "pause", want: v1.SyncPaused},
		"PausePaused":     {reason: "since the first time", row: rowPaused, action: "pause", want: v1.SyncPaused, untouched: true},
		"PauseSynced":     {reason: "what comes will wait", row: rowSynced, action: "pause", want: v1.SyncPaused},
		"ResumeStuck":     {reason: "as it was before the pause", row: rowStuck + ", paused_at = now()", action: "resume", want: v1.SyncStuck},
		"ResumeSynced":    {reason: "as it was before the pause", row: rowSynced + ", paused_at = now()", action: "resume", want: v1.SyncSynced},
		"ResumeRunning":   {reason: "it was not paused", row: rowRunning, action: "resume", want: v1.SyncRunning, untouched: true},
	}
	red, _, system := newTenants(t)
	conn := red.connect()
	for name, tc := range cases {
		for by, who := range map[string]*fixture{"owner": red, "system": system} {
			t.Run(name+"/"+by, func(t *testing.T) {
				f := who.under(t)
				id := red.create("clusters", strings.ToLower("c-"+name+"-"+by), nil).ID
				setSync(t, conn, id, tc.row)
				before := rowOf(t, conn, id)
				answer := f.do("POST", "clusters/"+id+"/sync/"+tc.action, nil)
				if tc.refused != "" {
					answer.problem(409, tc.refused, id)
				} else {
					first := read[v1.ClusterSync](answer.want(200))
					wantEqual(t, tc.reason, tc.want, first.State)
					wantEqual(t, "what is read afterwards", first, f.sync(id))
					again := read[v1.ClusterSync](f.do("POST", "clusters/"+id+"/sync/"+tc.action, nil).want(200))
					wantEqual(t, "state after the same again", tc.want, again.State)
					wantEqual(t, "pause after the same again", first.PausedAt, again.PausedAt)
				}
				if after := rowOf(t, conn, id); (tc.refused != "" || tc.untouched) && after != before {
					t.Errorf("%s: the row changed:\n%s", tc.reason, cmp.Diff(before, after))
				}
			})
		}
	}
	if !strings.Contains(red.logs.String(), `"msg":"sync changed by request","action":"retry"`) || !strings.Contains(red.logs.String(), `"subject":"rosa"`) {
		t.Error("the log does not say who did it")
	}
}

// TestARetryMakesItDue checks the columns that a worker reads.
func TestARetryMakesItDue(t *testing.T) {
	f := newFixture(t)
	id := f.create("clusters", "c-one", nil).ID
	conn := f.connect()
	setSync(t, conn, id, rowStuck)
	got := read[v1.ClusterSync](f.do("POST", "clusters/"+id+"/sync/retry", nil).want(200))
	wantEqual(t, "attempts", 0, got.Attempts)
	wantEqual(t, "error, which is the last that is known", "no such version", got.Error)
	var due bool
	if err := conn.QueryRow(t.Context(), "select synced is null and paused_at is null and due_at <= now() from tenant.cluster_sync where cluster_id = $1", id).Scan(&due); err != nil || !due {
		t.Errorf("due: %t, %v", due, err)
	}
}

// syncNames returns the names of a page and its continuation.
func (f *fixture) syncNames(query string) (names []string, next string) {
	f.Helper()
	page := read[v1.ClusterSyncList](f.do("GET", "clusters/sync?"+query, nil).want(200))
	names = []string{}
	for _, s := range page.Items {
		names = append(names, s.Name)
	}
	return names, page.Continue
}

func TestListOfSyncs(t *testing.T) {
	red, blue, system := newTenants(t)
	conn := red.connect()
	add := func(f *fixture, name, row string) {
		t.Helper()
		setSync(t, conn, f.create("clusters", name, nil).ID, row)
	}
	since := func(minutes int) string {
		return fmt.Sprintf(", unsynced_since = timestamptz '2026-03-01T12:00:00Z' - interval '%d minutes'", minutes)
	}
	add(red, "synced-1", rowSynced)
	add(red, "new", rowPending+since(1))
	add(red, "stuck-1", rowStuck+since(90))
	add(blue, "stuck-2", rowStuck+since(100))
	add(red, "backing-off", rowBackingOff+since(7))
	add(red, "paused", rowPaused+since(95))
	add(red, "by-hand", "synced = null, unsynced_since = null")
	add(red, "synced-2", rowSynced)
	add(red, "still", rowSynced+", paused_at = now()")
	for query, want := range map[string]string{
		"":                          "stuck-2 paused stuck-1 backing-off new synced-1 by-hand synced-2 still",
		"state=stuck":               "stuck-2 stuck-1",
		"state=stuck,backing_off":   "stuck-2 stuck-1 backing-off",
		"state=backing_off%2Cstuck": "stuck-2 stuck-1 backing-off",
		"state=pending":             "new by-hand",
		"state=paused":              "paused still",
		"state=synced":              "synced-1 synced-2",
		"state=running":             "",
		"state=synced,pending":      "new synced-1 by-hand synced-2",
		"state=synced,stuck,paused": "stuck-2 paused stuck-1 synced-1 synced-2 still",
	} {
		got, next := system.syncNames(query)
		wantEqual(t, "all tenants' "+query, strings.Fields(want), got)
		wantEqual(t, "next of "+query, "", next)
		mine := slices.DeleteFunc(strings.Fields(want), func(name string) bool { return name == "stuck-2" })
		got, _ = red.syncNames(query)
		wantEqual(t, "one tenant's "+query, mine, got)
		for size := 1; size <= 3; size++ {
			var all []string
			for after, pages := "", 0; (pages == 0 || after != "") && pages < 20; pages++ { // bounded, even if pages repeat
				page, next := system.syncNames(fmt.Sprintf("%s&limit=%d%s", query, size, afterParam(after)))
				all, after = append(all, page...), next
			}
			if strings.Join(all, " ") != want {
				t.Errorf("%s in pages of %d: %v, want %s", query, size, all, want)
			}
		}
	}
}

func afterParam(token string) string {
	if token == "" {
		return ""
	}
	return "&continue=" + token
}

func TestRefusedListsOfSyncs(t *testing.T) {
	red, blue, _ := newTenants(t)
	for _, f := range []*fixture{red, blue} {
		f.create("clusters", "c-one", nil)
		f.create("clusters", "c-two", nil)
	}
	_, next := red.syncNames("limit=1")
	if next == "" {
		t.Fatal("there is no other page")
	}
	for query, says := range map[string]string{
		"state=broken":                          `state has the unknown value "broken"; use one of pending`,
		"state=":                                `state has the unknown value ""`,
		"state=stuck,":                          `state has the unknown value ""`,
		"state=stuck&state=paused":              "given 2 times",
		"limit=0":                               "limit must be at least 1",
		"limit=501":                             "limit must be at most 500",
		"continue=":                             "continue is not a token",
		"continue=x":                            "continue is not a token",
		"continue=" + next + "&state=pending":   "continue belongs to another query",
		"strict=true&labels=a":                  "labels is not a known parameter",
		"continue=" + url.QueryEscape(next+"x"): "continue is not a token",
	} {
		red.do("GET", "clusters/sync?"+query, nil).problem(400, "invalid_query", says)
	}
	blue.do("GET", "clusters/sync?limit=1&continue="+next, nil).problem(400, "invalid_query", "another query")
	names, _ := red.syncNames("limit=2&continue=" + next)
	wantEqual(t, "the page behind, of another size", []string{"c-two"}, names)
}
