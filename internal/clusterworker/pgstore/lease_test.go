package pgstore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// timedOut returns the result of a claim whose call timed out.
func timedOut(c clusterworker.Claim) clusterworker.Result {
	r := failed(c, "Gardener did not respond in time", true, 0)
	r.Class = clusterworker.ClassTimeout
	return r
}

// TestRowsThatTimedOutLeaveRoom covers that such rows are claimed only within their
// limit, however long they have been due.
func TestRowsThatTimedOutLeaveRoom(t *testing.T) {
	b := newBed(t)
	b.clusters(6)
	for _, c := range b.claim(6) {
		b.complete(timedOut(c))
	}
	fresh := b.cluster("fresh")
	claims, err := b.store.ClaimRows(t.Context(), "test", clusterworker.ClaimLimits{Slots: 4, TimedOut: 2}, lease)
	if err != nil {
		t.Fatal(err)
	}
	slow, others := 0, []string{}
	for _, c := range claims {
		if c.LastClass == clusterworker.ClassTimeout {
			slow++
		} else {
			others = append(others, c.ClusterID)
		}
	}
	if diff := cmp.Diff([]string{fresh}, others); slow != 2 || diff != "" {
		t.Errorf("%d rows that timed out, and %s", slow, diff)
	}
	if claims := b.claim(10); len(claims) != 4 {
		t.Errorf("%d rows are left to claim, want 4", len(claims))
	}
}

func TestLeasesAreRenewed(t *testing.T) {
	b := newBed(t)
	b.clusters(3)
	claims := b.claimFor(3, time.Minute)
	lost := claims[2]
	lost.Token--
	renewed, err := b.store.RenewLeases(t.Context(), []clusterworker.Claim{claims[0], claims[1], lost}, lease)
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(renewed)
	want := []string{claims[0].ClusterID, claims[1].ClusterID}
	slices.Sort(want)
	if diff := cmp.Diff(want, renewed); diff != "" {
		t.Errorf("renewed (-want +got):\n%s", diff)
	}
	for i, longer := range []bool{true, true, false} {
		got := ask[bool](b, `select due_at > now() + interval '5 minutes' from tenant.cluster_sync where cluster_id = $1`, claims[i].ClusterID)
		if got != longer {
			t.Errorf("the lease of claim %d is renewed: %t, want %t", i, got, longer)
		}
	}
	// An edit does not wait for the renewal, and the renewal does not wait for the
	// edit.
	tx, err := connect(t, b.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `update tenant.resources set generation = generation + 1 where id = $1`, claims[0].ClusterID); err != nil {
		t.Fatal(err)
	}
	if renewed, err = b.store.RenewLeases(t.Context(), claims[:2], lease); err != nil || len(renewed) != 1 || renewed[0] != claims[1].ClusterID {
		t.Errorf("beside an edit %v is renewed, %v", renewed, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func TestNextLease(t *testing.T) {
	b := newBed(t)
	next := func(owner string, least, most time.Duration) {
		t.Helper()
		in, ok, err := b.store.FindNextLeaseEndOfOthers(t.Context(), owner)
		if err != nil || ok != (most > 0) || in < least || in > most {
			t.Errorf("for %s the next lease ends in %s (%t, %v), want %s to %s", owner, in, ok, err, least, most)
		}
	}
	next("me", 0, 0)
	b.clusters(3)
	claims := b.claimFor(2, lease)
	b.claimFor(1, lease/2)
	next("test", 0, 0) // they are its own
	next("me", lease/4, lease/2)
	b.complete(failed(claims[0], "no", true, time.Second)) // a delay is no lease
	next("me", lease/4, lease/2)
	b.exec(`select tenant.pause_cluster_sync($1, 'alice', 'why', now() + interval '1 minute')`, claims[0].ClusterID)
	next("me", 50*time.Second, time.Minute) // the end of a pause counts, too
	next("test", 50*time.Second, time.Minute)
}

// TestAPauseEndsByItself covers that a claim ends the pauses whose time is over, and only those. The
// end is a change event at the time of the pause.
func TestAPauseEndsByItself(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(3)
	b.exec(`select tenant.pause_cluster_sync($1, 'alice', 'maintenance', now() + interval '1 hour')`, ids[0])
	b.exec(`select tenant.pause_cluster_sync($1, 'alice', 'maintenance')`, ids[1])
	b.exec(`select tenant.pause_cluster_sync($1, 'alice', 'maintenance', now() + interval '1 hour')`, ids[2])
	b.wantNothingDue("all are paused")
	b.exec(`update tenant.cluster_sync set paused_until = date_trunc('second', now()) - interval '1 minute' where cluster_id = $1`, ids[0])
	if got := b.claimOne(); got.ClusterID != ids[0] {
		t.Errorf("cluster %s is due, want %s", got.ClusterID, ids[0])
	}
	want(b, int64(2), `select count(*) from tenant.cluster_sync where paused_at is not null`)
	want(b, true, `select paused_until is null and paused_by is null and pause_reason is null from tenant.cluster_sync where cluster_id = $1`, ids[0])
	want(b, "sync-resumed a cluster-0 clusters/cluster-0 alice maintenance t",
		`select concat_ws(' ', e.action, e.tenant, e.cluster, e.subject, e.payload->'details'->>'paused_by', e.payload->'details'->>'pause_reason',
			e.at = date_trunc('second', e.at) and (e.payload->>'timestamp')::timestamptz = e.at and e.at < now() - interval '50 seconds')
		from timeline.change_event e`)
	b.wantNothingDue("the others are paused")
	want(b, int64(1), `select count(*) from timeline.change_event`)
}

// TestAttemptsSetByHand covers that they move the next try according to the backoff,
// and do not affect a claimed row.
func TestAttemptsSetByHand(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	wait := func(want time.Duration) {
		t.Helper()
		got := ask[time.Duration](b, `select due_at - sync_last_attempt from tenant.cluster_sync where cluster_id = $1`, id)
		if got != want {
			t.Errorf("the next try is %s after the last, want %s", got, want)
		}
	}
	for _, step := range []struct {
		attempts int
		want     time.Duration
	}{{1, time.Minute}, {3, 4 * time.Minute}, {5, 15 * time.Minute}, {40, 15 * time.Minute}} {
		b.exec(`update tenant.cluster_sync set sync_attempts = $2, sync_last_attempt = now() where cluster_id = $1`, id, step.attempts)
		wait(step.want)
		b.wantNothingDue("it waits for its next try")
	}
	b.exec(`update tenant.cluster_sync set sync_last_attempt = now() - interval '1 hour' where cluster_id = $1`, id)
	wait(15 * time.Minute)
	c := b.claimOne()
	b.exec(`update tenant.cluster_sync set sync_attempts = 2 where cluster_id = $1`, id)
	wait(lease)
	b.complete(failed(c, "no", true, 7*time.Minute))
	b.wantNothingDue("the failure waits as the worker said")
	b.exec(`update tenant.cluster_sync set sync_attempts = 0 where cluster_id = $1`, id)
	b.claimOne()
}

// TestMissingRows covers that clusters without a row get one that is due, with a
// generation that is newer for Gardener than any sent before.
func TestMissingRows(t *testing.T) {
	b := newBed(t)
	e := b.listen()
	b.cluster("kept")
	b.claimOne()
	b.exec(`alter table tenant.clusters disable trigger user`)
	lost := []string{b.cluster("loaded"), b.cluster("restored")}
	b.exec(`delete from tenant.cluster_sync where cluster_id = any($1::uuid[])`, lost)
	b.exec(`alter table tenant.clusters enable trigger user`)
	b.unthrottle()
	e.heard()
	var made []string
	for _, want := range []int{1, 1, 0} {
		ids, err := b.store.Observations.AddMissingRows(t.Context(), 1)
		if err != nil || len(ids) != want {
			t.Fatalf("made %v, %v, want %d", ids, err, want)
		}
		made = append(made, ids...)
	}
	slices.Sort(lost)
	slices.Sort(made)
	if diff := cmp.Diff(lost, made); diff != "" {
		t.Errorf("made rows of (-want +got):\n%s", diff)
	}
	if e.heard() == 0 {
		t.Error("no worker is told")
	}
	claims := b.claim(10)
	if len(claims) != 2 || claims[0].Generation < 1_000_000_000 {
		t.Errorf("claimed %+v", claims)
	}
}

func TestOutagesAreNoted(t *testing.T) {
	b := newBed(t)
	note := func(owner string, o clusterworker.Outage, ttl time.Duration) {
		t.Helper()
		if err := b.store.RecordOrClearOutage(t.Context(), owner, o, ttl); err != nil {
			t.Fatal(err)
		}
	}
	note("one", clusterworker.Outage{Since: time.Now().Add(-time.Hour), Reason: "refused\x00"}, time.Minute)
	note("one", clusterworker.Outage{Since: time.Now().Add(-2 * time.Hour), Reason: "timed out"}, time.Minute)
	note("two", clusterworker.Outage{Since: time.Now(), Reason: "no such host"}, -time.Second)
	want(b, "timed out", `select string_agg(reason, ',') from tenant.cluster_worker_outages
		where until > now() and since between now() - interval '121 minutes' and now() - interval '119 minutes'`)
	note("one", clusterworker.Outage{}, time.Minute)
	want(b, 0, `select count(*)::int from tenant.cluster_worker_outages`) // expired records are removed as well

	api := openAs(t, b.url, postgres.RoleFleetAPI)
	for sql, code := range map[string]string{
		`select from tenant.cluster_worker_outages`:  "",
		`delete from tenant.cluster_worker_outages`:  noRight,
		`select tenant.add_missing_cluster_syncs(1)`: noRight,
		`select from tenant.cluster_sync_notifier`:   noRight,
	} {
		err := api.RunBatch(t.Context(), postgres.Scope{Tenant: "a"}, func(batch *pgx.Batch) { batch.Queue(sql) })
		if postgres.SQLState(err) != code {
			t.Errorf("%s: %v, want code %q", sql, err, code)
		}
	}
}

// TestARollbackSwallowsNoNotification covers that a transaction which is rolled back
// with its notification does not suppress that of another one.
func TestARollbackSwallowsNoNotification(t *testing.T) {
	b := newBed(t)
	e := b.listen()
	ids := b.clusters(2)
	e.heard()
	b.unthrottle()
	first, err := connect(t, b.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	edit := `update tenant.resources set generation = generation + 1 where id = $1`
	if _, err := first.Exec(t.Context(), edit, ids[0]); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Exec(t.Context(), `set constraints all immediate`); err != nil { // as at a failing commit
		t.Fatal(err)
	}
	// The first counts as the last notification, whatever the time is.
	b.exec(`select setval('tenant.cluster_sync_notified', (extract(epoch from clock_timestamp()) * 1000000)::bigint)`)
	b.edit(ids[1])
	if err := first.Rollback(t.Context()); err != nil && !errors.Is(err, pgx.ErrTxClosed) {
		t.Fatal(err)
	}
	if got := e.heard(); got != 1 {
		t.Errorf("%d notifications of the second transaction, want 1", got)
	}
}
