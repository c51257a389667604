package pgstore_test

import (
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// TestResults covers the state of a row that was claimed at its first generation, by
// result.
func TestResults(t *testing.T) {
	const minute = time.Minute
	ok := func(c clusterworker.Claim) clusterworker.Result {
		r := done(c)
		r.Applied = shoot.Applied{UID: "u", Generation: 7}
		return r
	}
	fail := func(spend bool) func(clusterworker.Claim) clusterworker.Result {
		return func(c clusterworker.Claim) clusterworker.Result { return failed(c, "no", spend, minute) }
	}
	cases := map[string]struct {
		reason string
		before string // the row before the claim
		delete bool   // the cluster is being deleted
		edit   bool   // during the call
		result func(clusterworker.Claim) clusterworker.Result
		want   clusterworker.Row
		due    time.Duration
		report bool // a report is due
	}{
		"Applied": {
			reason: "the Shoot was asked for", result: ok, report: true,
			want: clusterworker.Row{Synced: true, Generation: 1, SyncedGeneration: 1, ClusterGeneration: 1, ShootUID: "u", ShootGeneration: 7, Status: v1.ShootPending},
		},
		"AppliedAndEdited": {
			reason: "what came meanwhile is still to be done", edit: true, result: ok, report: true,
			want: clusterworker.Row{Generation: 2, SyncedGeneration: 1, ClusterGeneration: 1, ShootUID: "u", ShootGeneration: 7, Status: v1.ShootPending},
		},
		"AppliedAgain": {
			reason: "nothing is new, and the status is the observer's",
			before: `synced_generation = 1, cluster_generation = 1, shoot_status = 'ready', ready_once = true, shoot_uid = 'u', shoot_generation = 7`, result: ok,
			want: clusterworker.Row{Synced: true, Generation: 1, SyncedGeneration: 1, ClusterGeneration: 1, ShootUID: "u", ShootGeneration: 7, Status: v1.ShootReady, ReadyOnce: true},
		},
		"Recovered": {
			reason: "the error is over, and the attempts are forgotten", report: true,
			before: `synced_generation = 1, cluster_generation = 1, sync_error = 'no', error_class = 'invalid_spec', sync_attempts = 3`, result: ok,
			want: clusterworker.Row{Synced: true, Generation: 1, SyncedGeneration: 1, ClusterGeneration: 1, ShootUID: "u", ShootGeneration: 7, Status: v1.ShootPending},
		},
		"BroughtBack": {
			reason: "a Shoot that was gone is asked for again", report: true, before: `shoot_status = 'deleted'`, result: ok,
			want: clusterworker.Row{Synced: true, Generation: 1, SyncedGeneration: 1, ClusterGeneration: 1, ShootUID: "u", ShootGeneration: 7, Status: v1.ShootPending},
		},
		"Failed": {
			reason: "it waits, and the API hears of it", result: fail(true), due: minute, report: true,
			want: clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 1},
		},
		"FailedAgain": {
			reason: "the API has heard of it", before: `sync_error = 'no', error_class = 'invalid_spec', sync_attempts = 4, cluster_generation = 1`, result: fail(true), due: minute,
			want: clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 5},
		},
		"FailedOtherwise": {
			reason: "another error is news", before: `sync_error = 'other', error_class = 'invalid_spec', sync_attempts = 4, cluster_generation = 1`, result: fail(true), due: minute, report: true,
			want: clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 5},
		},
		"FailedForNothing": {
			reason: "an outage is not held against the row", result: fail(false), due: minute, report: true,
			want: clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec},
		},
		"FailedAndEdited": {
			reason: "the failure was another generation's, and the new one is due at once", edit: true, result: fail(true), report: true,
			want: clusterworker.Row{Generation: 2, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec},
		},
		"FailedVeryOften": {
			reason: "there is no number of attempts that stops it", before: `sync_attempts = 2147483647`, result: fail(true), due: minute, report: true,
			want: clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 1000001},
		},
		"FailedKeepsTheShoot": {
			reason: "what is known of the Shoot stays", before: `shoot_uid = 'u', shoot_generation = 6, shoot_status = 'ready', synced_generation = 1, cluster_generation = 1`,
			result: fail(true), due: minute, report: true,
			want: clusterworker.Row{Generation: 1, SyncedGeneration: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 1, ShootUID: "u", ShootGeneration: 6, Status: v1.ShootReady},
		},
		"Deleting": {
			reason: "the deletion was taken; that it is done the observer sees", delete: true, report: true,
			before: `shoot_uid = 'u', shoot_generation = 6, shoot_status = 'ready'`, result: done,
			want: clusterworker.Row{Synced: true, Generation: 2, SyncedGeneration: 2, ClusterGeneration: 1, Deleting: true, DeletionSent: true, ShootUID: "u", ShootGeneration: 6, Status: v1.ShootReady},
		},
		"DeletingUnseen": {
			reason: "a Shoot that nobody had observed yet", delete: true, report: true, result: done,
			want: clusterworker.Row{Synced: true, Generation: 2, SyncedGeneration: 2, ClusterGeneration: 1, Deleting: true, DeletionSent: true, Status: v1.ShootDeleting},
		},
		"DeletionRefused": {
			reason: "it was not taken", delete: true, report: true, due: minute, result: fail(true),
			want: clusterworker.Row{Generation: 2, ClusterGeneration: 1, Deleting: true, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 1},
		},
		"Absent": {
			reason: "there is no Shoot: that is what a deletion comes to", delete: true, report: true, before: `shoot_status = 'deleting', shoot_status_message = 'at it'`,
			result: func(c clusterworker.Claim) clusterworker.Result {
				r := done(c)
				r.Absent = true
				return r
			},
			want: clusterworker.Row{Synced: true, Generation: 2, SyncedGeneration: 2, ClusterGeneration: 1, Deleting: true, DeletionSent: true, Status: v1.ShootDeleted},
		},
		"AbsentStill": {
			reason: "the API has heard of it", delete: true, before: `shoot_status = 'deleted', deletion_sent = true, synced_generation = 2, cluster_generation = 1`,
			result: func(c clusterworker.Claim) clusterworker.Result {
				r := done(c)
				r.Absent = true
				return r
			},
			want: clusterworker.Row{Synced: true, Generation: 2, SyncedGeneration: 2, ClusterGeneration: 1, Deleting: true, DeletionSent: true, Status: v1.ShootDeleted},
		},
		"PutOffTooFar": {
			reason: "no wait is so long that the row is forgotten", due: 24 * time.Hour, report: true,
			result: func(c clusterworker.Claim) clusterworker.Result { return failed(c, "no", true, 1<<62) },
			want:   clusterworker.Row{Generation: 1, ClusterGeneration: 1, SyncError: "no", ErrorClass: clusterworker.ClassBadSpec, Attempts: 1},
		},
	}
	b := newBed(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.of(t)
			id := b.cluster(name)
			if strings.Contains(tc.before, "attempts") {
				tc.before += ", due_at = now()" // or the attempts would delay it
			}
			if tc.before != "" {
				b.exec("update tenant.cluster_sync set "+tc.before+" where cluster_id = $1", id)
			}
			if tc.delete {
				b.exec("update tenant.clusters set deleted_time = now() where id = $1", id)
			}
			if tc.before != "" && strings.Contains(tc.before, "attempts") {
				b.exec("update tenant.cluster_sync set "+tc.before+" where cluster_id = $1", id) // the deletion was an edit
			}
			c := b.claimOne()
			if tc.edit {
				b.edit(id)
			}
			b.complete(tc.result(c))
			got := b.row(id)
			tc.want.ClusterID, tc.want.Tenant, tc.want.Name = id, "a", name
			if tc.report {
				tc.want.ReportVersion = 1
			}
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(clusterworker.Row{}, "StatusUpdated", "StatusMessage")); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			want(b, fmt.Sprintf("%t t t %t", got.Synced, tc.report), `select concat_ws(' ', case when synced <= now() and synced > now() - interval '1 minute' then 'true' else 'false' end,
				claim_token is null and claimed_by is null, abs(extract(epoch from due_at - now() - make_interval(secs => $2))) < 30,
				case when report_due_at <= now() then 'true' else 'false' end) from tenant.cluster_sync where cluster_id = $1`, id, tc.due.Seconds())
			want(b, got.Synced, `select unsynced_since is null from tenant.cluster_sync where cluster_id = $1`, id)
			if (got.Status == v1.ShootDeleted) != (got.StatusUpdated != nil) {
				t.Errorf("the status %q was updated at %v", got.Status, got.StatusUpdated)
			}
			b.exec(`delete from tenant.resources where id = $1`, id)
		})
	}
}

// TestAnOddErrorIsWritten: no error text blocks the other results of its write.
func TestAnOddErrorIsWritten(t *testing.T) {
	cases := map[string]struct{ reason, text string }{
		"Empty":   {"an error that says nothing", ""},
		"NUL":     {"a byte that PostgreSQL has no place for", "a\x00b"},
		"NoUTF8":  {"bytes that are no text", "a\xff\xfe"},
		"Endless": {"a whole page of HTML", strings.Repeat("x", 1<<20)},
		"Cut":     {"a sign that would be cut in two", strings.Repeat("x", 4095) + "ä" + strings.Repeat("€", 5000)},
		"Quotes":  {"what looks like an array", `{"a","b\\"},NULL`},
	}
	b := newBed(t)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := b.of(t)
			odd, plain := b.cluster("odd"), b.cluster("plain")
			var results []clusterworker.Result
			for _, c := range b.claim(10) {
				if c.ClusterID == plain {
					results = append(results, done(c))
					continue
				}
				results = append(results, failed(c, tc.text, true, lease))
			}
			b.complete(results...)
			r := b.row(odd)
			if r.Synced || r.Attempts != 1 || len(r.SyncError) > 4<<10 || !utf8.ValidString(r.SyncError) || tc.text != "" && r.SyncError == "" {
				t.Errorf("synced is %v, %d attempts, an error of %d bytes: %s", r.Synced, r.Attempts, len(r.SyncError), tc.reason)
			}
			if !b.row(plain).Synced {
				t.Error("the other was not written")
			}
			b.exec(`delete from tenant.resources`)
		})
	}
}

func TestNothingToWrite(t *testing.T) {
	b := newBed(t)
	if lost, err := b.store.WriteResults(t.Context(), nil); err != nil || lost != nil {
		t.Error(lost, err)
	}
	if taken, skipped, err := b.store.StoreNames(t.Context(), nil); err != nil || len(taken)+len(skipped) != 0 {
		t.Error(taken, skipped, err)
	}
	if err := b.store.ReleaseClaims(t.Context(), nil); err != nil {
		t.Error(err)
	}
}

// TestAClusterThatGoesDuringItsCall: the claim of a deleted row counts as lost.
func TestAClusterThatGoesDuringItsCall(t *testing.T) {
	b := newBed(t)
	gone, stays := b.cluster("gone"), b.cluster("stays")
	claims := b.claim(10)
	b.exec(`delete from tenant.resources where id = $1`, gone)
	lost, err := b.store.WriteResults(t.Context(), []clusterworker.Result{done(claims[0]), done(claims[1])})
	if err != nil || len(lost) != 1 || lost[0] != gone || !b.row(stays).Synced {
		t.Errorf("lost %v, %v", lost, err)
	}
}

func TestNames(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(4)
	claims := map[string]clusterworker.Claim{}
	for _, c := range b.claim(10) {
		claims[c.ClusterID] = c
	}
	naming := func(i int, name string) clusterworker.ProposedName {
		return clusterworker.ProposedName{ClusterID: ids[i], Token: claims[ids[i]].Token, ShootName: name}
	}
	type unstored struct{ Taken, Skipped []clusterworker.ProposedName }
	give := func(want unstored, names ...clusterworker.ProposedName) {
		t.Helper()
		taken, skipped, err := b.store.StoreNames(t.Context(), names)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, unstored{taken, skipped}, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("not stored (-want +got):\n%s", diff)
		}
	}
	give(unstored{}, naming(0, "a"), naming(1, "b"))
	give(unstored{}, naming(0, "a")) // as after a lost answer
	give(unstored{Taken: []clusterworker.ProposedName{naming(2, "a")}}, naming(2, "a"), naming(3, "c"))
	give(unstored{Skipped: []clusterworker.ProposedName{naming(0, "other")}}, naming(0, "other")) // a name is stored once
	for i, want := range []string{"a", "b", "", "c"} {
		if got := b.row(ids[i]).ShootName; got != want {
			t.Errorf("row %d is named %q, want %q", i, got, want)
		}
	}
	// Two of a batch propose the same name.
	more := []string{b.cluster("x"), b.cluster("y")}
	var names []clusterworker.ProposedName
	for _, c := range b.claim(10) {
		names = append(names, clusterworker.ProposedName{ClusterID: c.ClusterID, Token: c.Token, ShootName: "same"})
	}
	taken, skipped, err := b.store.StoreNames(t.Context(), names)
	if err != nil || len(taken) != 1 || len(skipped) != 0 || (b.row(more[0]).ShootName == "same") == (b.row(more[1]).ShootName == "same") {
		t.Errorf("taken: %v, %v", taken, err)
	}
}

// TestANameThatIsTakenMeanwhile covers another transaction that takes the name at the
// same moment.
func TestANameThatIsTakenMeanwhile(t *testing.T) {
	b := newBed(t)
	mine, theirs := b.cluster("mine"), b.cluster("theirs")
	var c clusterworker.Claim
	for _, claim := range b.claim(10) {
		if claim.ClusterID == mine {
			c = claim
		}
	}
	other := connect(t, b.url)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update tenant.cluster_sync set shoot_name = 'name' where cluster_id = $1`, theirs); err != nil {
		t.Fatal(err)
	}
	named := make(chan struct{})
	var taken []clusterworker.ProposedName
	go func() {
		defer close(named)
		var err error
		if taken, _, err = b.store.StoreNames(t.Context(), []clusterworker.ProposedName{{ClusterID: mine, Token: c.Token, ShootName: "name"}}); err != nil {
			t.Error(err)
		}
	}()
	b.await("it waits for the other's end", func() bool {
		return ask[bool](b, `select exists (select from pg_locks where not granted)`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-named
	if len(taken) != 1 || b.row(mine).ShootName != "" {
		t.Errorf("taken: %v, named %q", taken, b.row(mine).ShootName)
	}
}
