package pgstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// TestCreationIsRecorded verifies that the creation of a Shoot is recorded once with its change event, and that the row
// stays claimed and is otherwise unchanged.
func TestCreationIsRecorded(t *testing.T) {
	b := newBed(t)
	b.store = pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker), clusterworker.EventSink{Name: "one"}, clusterworker.EventSink{Name: "two"})
	id := b.cluster("first")
	b.exec(`update tenant.resources set generation = generation + 1, deleted_time = now() where id = $1`, id)
	claim := b.claimOne()
	if !claim.Deleting || claim.ReportedShootUID != "" {
		t.Fatalf("claimed %+v", claim)
	}
	created := claim
	created.ShootUID, created.ReportedShootUID = "uid", "uid"
	change := clusterworker.Change{At: time.Now().UTC().Truncate(time.Microsecond), Action: clusterworker.ShootCreated, ClusterID: id, Cluster: "first", Tenant: "a", Generation: 2}
	record := func(c clusterworker.Claim) bool {
		t.Helper()
		stands, err := b.store.RecordCreation(t.Context(), c, change)
		if err != nil {
			t.Fatal(err)
		}
		return stands
	}
	lost := created
	lost.Token++
	before := b.row(id)
	if record(lost) {
		t.Error("recorded for a lost claim")
	}
	if diff := cmp.Diff(before, b.row(id)); diff != "" {
		t.Errorf("after a lost claim:\n%s", diff)
	}
	want(b, 0, `select count(*) from tenant.cluster_change_events`)

	for range 2 { // the second time as after a lost answer
		if !record(created) {
			t.Error("the claim stands, and was not found")
		}
	}
	after := before
	after.ShootUID = "uid" // the generation that Gardener has is not known
	if diff := cmp.Diff(after, b.row(id)); diff != "" {
		t.Errorf("the row (-want +got):\n%s", diff)
	}
	want(b, []string{"one a", "two a"}, `select array_agg(sink || ' ' || tenant order by sink) from tenant.cluster_change_events where event_id <> ''`)

	want(b, "uid", `select reported_shoot_uid from tenant.cluster_sync`)

	b.complete(done(claim)) // the claim is still valid
	want(b, "deleting", `select shoot_status from tenant.cluster_sync`)
	if record(created) {
		t.Error("recorded for a completed claim")
	}
}

// TestChangesAreKept covers that a change is stored for each sink by the write that
// makes it, and only if that takes place, and how it is claimed.
func TestChangesAreKept(t *testing.T) {
	b := newBed(t)
	sinks := []string{"one", "two"}
	b.store = pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker), clusterworker.EventSink{Name: "one"}, clusterworker.EventSink{Name: "two"})
	b.cluster("first")
	c := b.claimOne()
	change := func(action clusterworker.Action) *clusterworker.Change {
		return &clusterworker.Change{At: time.Now().UTC().Truncate(time.Microsecond), Action: action, ClusterID: c.ClusterID, Cluster: "first", Generation: 1, Message: "a\x00b\xffc" + strings.Repeat("m", 10_000)}
	}
	fence := b.lead("one").Fence
	save := func(was v1.ShootStatus, action clusterworker.Action, want int) {
		t.Helper()
		saved, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: c.ClusterID, WasStatus: was, Status: v1.ShootReady, Change: change(action)}})
		if err != nil || len(saved) != want {
			t.Fatalf("saved %v, %v; want %d", saved, err, want)
		}
	}
	save(v1.ShootStatus(""), clusterworker.ShootReady, 0) // the claim that creates the Shoot is not completed
	lost, kept := done(c), done(c)
	lost.Token++
	lost.Change, kept.Change = change(clusterworker.ShootFailed), change(clusterworker.ShootCreated)
	if ids, err := b.store.WriteResults(t.Context(), []clusterworker.Result{lost}); err != nil || len(ids) != 1 {
		t.Fatalf("a claim that was lost: %v, %v", ids, err)
	}
	b.complete(kept)
	save(v1.ShootError, clusterworker.ShootFailed, 0)
	save(v1.ShootPending, clusterworker.ShootReady, 1)

	claim := func() (got []string, seqs []int64) {
		t.Helper()
		var pending []clusterworker.PendingEvent
		for _, sink := range sinks {
			claimed, err := b.store.Outbox.LeaseDueChanges(t.Context(), sink, 10, lease)
			if err != nil {
				t.Fatal(err)
			}
			pending = append(pending, claimed...)
		}
		for _, p := range pending {
			if len(p.Change.Message) > 5000 || !strings.HasPrefix(p.Change.Message, "ab\uFFFDc") || p.Change.ClusterID != c.ClusterID || p.Change.At.IsZero() {
				t.Errorf("kept is %+v", p.Change)
			}
			got, seqs = append(got, p.Sink+" "+string(p.Change.Action)), append(seqs, p.Seq)
		}
		return got, seqs
	}
	got, seqs := claim()
	if diff := cmp.Diff([]string{"one shoot-created", "two shoot-created"}, got); diff != "" {
		t.Fatalf("first (-want +got)\n%s", diff)
	}
	if got, _ := claim(); len(got) > 0 {
		t.Errorf("%v is claimed while what comes before it is being sent", got)
	}
	b.finish(seqs[0])
	if err := b.store.Outbox.RecordFailuresAndRescheduleChanges(t.Context(), []clusterworker.DeliveryResult{{Seq: seqs[1]}}); err != nil {
		t.Fatal(err)
	}
	got, _ = claim()
	if diff := cmp.Diff([]string{"two shoot-created", "one shoot-ready"}, got, cmp.Transformer("sorted", func(s []string) map[string]int {
		m := map[string]int{}
		for _, v := range s {
			m[v]++
		}
		return m
	})); diff != "" {
		t.Errorf("then (-want +got)\n%s", diff)
	}
	expire := func(want, most int, why string) {
		t.Helper()
		if n, err := b.store.Outbox.DeleteExpiredChanges(t.Context(), time.Hour, most); err != nil || n != want {
			t.Errorf("%s: %d have expired, %v; want %d", why, n, err, want)
		}
	}
	expire(0, 10, "after no time")
	b.exec(`update tenant.cluster_change_events set created_at = created_at - interval '2 hours'`)
	expire(1, 10, "two are being sent")
	b.exec(`update tenant.cluster_change_events set due_at = now()`)
	expire(1, 1, "so many at most")
	expire(1, 10, "the rest")
}

// finish records that changes were delivered.
func (b *bed) finish(seqs ...int64) {
	b.Helper()
	var results []clusterworker.DeliveryResult
	for _, seq := range seqs {
		results = append(results, clusterworker.DeliveryResult{Seq: seq, State: v1.DeliveryDelivered, Attempts: 1})
	}
	if err := b.store.Outbox.DeleteChangesAndRecordDeliveries(b.Context(), results); err != nil {
		b.Fatal(err)
	}
}

// A recordedDelivery is a row of the deliveries that are over.
type recordedDelivery struct {
	Sink, Type, State string
	Attempts          int
	Tried             bool // it has both times
	Error             string
	Status            int
}

// deliveries returns the recorded deliveries of an event.
func (b *bed) deliveries(eventID string) []recordedDelivery {
	b.Helper()
	rows, err := b.owner.Query(b.Context(), `select sink, sink_type, state, attempts, first_attempt_at <= last_attempt_at and last_attempt_at <= finished_at is true,
		error, http_status from tenant.cluster_change_deliveries where event_id = $1 and tenant = 'a' order by sink`, eventID)
	if err != nil {
		b.Fatal(err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowToStructByPos[recordedDelivery])
	if err != nil {
		b.Fatal(err)
	}
	return list
}

// TestDeliveriesAreRecorded covers that the end of a delivery is recorded by the statement that removes
// the change, with all its attempts, and only once.
func TestDeliveriesAreRecorded(t *testing.T) {
	b := newBed(t)
	var sinks []clusterworker.EventSink
	for _, name := range []string{"down", "expired", "full", "rejects", "skips"} {
		sinks = append(sinks, clusterworker.EventSink{Name: name, Type: "slack"})
	}
	b.store = pgstore.New(openAs(t, b.url, postgres.RoleClusterWorker), sinks...)
	b.cluster("first")
	c := b.claimOne()
	change := clusterworker.Change{
		At: time.Now(), Action: clusterworker.ShootCreated, ClusterID: c.ClusterID, Cluster: "first", Tenant: "a", Shoot: "first", Generation: 1,
	}
	r := done(c)
	r.Change = &change
	b.complete(r)

	seqs := map[string]int64{}
	for _, sink := range sinks {
		pending, err := b.store.Outbox.LeaseDueChanges(t.Context(), sink.Name, 10, lease)
		if err != nil || len(pending) != 1 {
			t.Fatalf("claimed %v, %v", pending, err)
		}
		if got, want := pending[0].Change.ToChangeEvent().ID, change.ToChangeEvent().ID; got != want || pending[0].Change.ID != want {
			t.Errorf("the claimed change has the event id %q and the stored id %q, want %q", got, pending[0].Change.ID, want)
		}
		seqs[sink.Name] = pending[0].Seq
	}
	putOff := func(results ...clusterworker.DeliveryResult) {
		t.Helper()
		if err := b.store.Outbox.RecordFailuresAndRescheduleChanges(t.Context(), results); err != nil {
			t.Fatal(err)
		}
	}
	putOff(
		clusterworker.DeliveryResult{Seq: seqs["down"], Attempts: 1, Class: changeevent.ClassServerError, Status: 503},
		clusterworker.DeliveryResult{Seq: seqs["expired"], Attempts: 1, Class: changeevent.ClassTimeout},
		clusterworker.DeliveryResult{Seq: seqs["full"], Class: changeevent.ClassQueueFull},
	)
	putOff(clusterworker.DeliveryResult{Seq: seqs["down"], Attempts: 1, Class: changeevent.ClassConnection})
	results := []clusterworker.DeliveryResult{
		{Seq: seqs["down"], State: v1.DeliveryDelivered, Attempts: 1},
		{Seq: seqs["full"], State: v1.DeliveryExpired},
		{Seq: seqs["rejects"], State: v1.DeliveryRejected, Attempts: 1, Class: changeevent.ClassClientError, Status: 400},
		{Seq: seqs["skips"], State: v1.DeliverySkipped},
	}
	for range 2 { // the answer of the first write may be lost
		if err := b.store.Outbox.DeleteChangesAndRecordDeliveries(t.Context(), results); err != nil {
			t.Fatal(err)
		}
	}
	b.exec(`update tenant.cluster_change_events set created_at = created_at - interval '2 hours', due_at = now()`)
	if n, err := b.store.Outbox.DeleteExpiredChanges(t.Context(), time.Hour, 10); err != nil || n != 1 {
		t.Fatalf("%d have expired, %v; want 1", n, err)
	}
	want := []recordedDelivery{
		{"down", "slack", "delivered", 3, true, "", 0},
		{"expired", "slack", "expired", 1, true, "timeout", 0},
		{"full", "slack", "expired", 0, false, "queue_full", 0},
		{"rejects", "slack", "rejected", 1, true, "client_error", 400},
		{"skips", "slack", "skipped", 0, false, "", 0},
	}
	if diff := cmp.Diff(want, b.deliveries(change.ToChangeEvent().ID)); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}

// TestRepeatedChanges covers that changes with the same event id, such as a deletion that two saw, do not
// stop the statements that remove them, and add up.
func TestRepeatedChanges(t *testing.T) {
	b := newBed(t)
	repeat := func() {
		b.exec(`insert into tenant.cluster_change_events (sink, cluster_id, tenant, event_id, change, attempts, created_at)
			select 'one', gen_random_uuid(), 'a', 'x', '{"at":"2026-01-02T03:04:05Z"}', n, now() - interval '2 hours' from generate_series(1, 2) n`)
	}
	repeat()
	var seqs []int64
	if err := b.owner.QueryRow(t.Context(), "select array_agg(seq) from tenant.cluster_change_events").Scan(&seqs); err != nil {
		t.Fatal(err)
	}
	b.finish(seqs...)
	if diff := cmp.Diff([]recordedDelivery{{"one", "", "delivered", 3, false, "", 0}}, b.deliveries("x"), ignoreTried); diff != "" {
		t.Errorf("finished (-want +got)\n%s", diff)
	}
	repeat()
	if n, err := b.store.Outbox.DeleteExpiredChanges(t.Context(), time.Hour, 10); err != nil || n != 2 {
		t.Fatalf("%d have expired, %v; want 2", n, err)
	}
	if diff := cmp.Diff([]recordedDelivery{{"one", "", "expired", 5, false, "", 0}}, b.deliveries("x"), ignoreTried); diff != "" {
		t.Errorf("expired (-want +got)\n%s", diff)
	}
}

var ignoreTried = cmpopts.IgnoreFields(recordedDelivery{}, "Tried")

// TestRowsOfOlderWorkers covers that changes that an older worker stored are removed without a record: they
// have no event ID.
func TestRowsOfOlderWorkers(t *testing.T) {
	b := newBed(t)
	b.changes("one", 2, 1)
	b.finish(1)
	b.exec(`update tenant.cluster_change_events set created_at = created_at - interval '2 hours'`)
	if n, err := b.store.Outbox.DeleteExpiredChanges(t.Context(), time.Hour, 10); err != nil || n != 1 {
		t.Fatalf("%d have expired, %v; want 1", n, err)
	}
	var left, recorded int
	if err := b.owner.QueryRow(t.Context(), `select (select count(*) from tenant.cluster_change_events),
		(select count(*) from tenant.cluster_change_deliveries)`).Scan(&left, &recorded); err != nil || left != 0 || recorded != 0 {
		t.Errorf("%d are left and %d are recorded, %v; want none", left, recorded, err)
	}
}

// changes stores the given number of changes of each cluster for a sink.
func (b *bed) changes(sink string, clusters, each int) {
	b.Helper()
	b.exec(`insert into tenant.cluster_change_events (sink, cluster_id, change)
		select $1, md5(c::text)::uuid, json_build_object('ClusterID', md5(c::text)::uuid) from generate_series(1, $3::int) n, generate_series(1, $2::int) c`, sink, clusters, each)
}

// TestStatusBeforeTheFirstSync verifies that no status is stored while the first claim of a row lasts,
// because its change comes first, and that a paused row whose worker died does not wait for ever.
func TestStatusBeforeTheFirstSync(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.claimOne()
	fence := b.lead("one").Fence
	save := func(when string, want int) {
		t.Helper()
		saved, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: id, Status: v1.ShootReady}})
		if err != nil || len(saved) != want {
			t.Fatalf("%s: saved %v, %v; want %d", when, saved, err, want)
		}
	}
	save("claimed", 0)
	b.exec(`update tenant.cluster_sync set paused_at = now()`)
	save("claimed and paused", 0)
	b.exec(`update tenant.cluster_sync set paused_at = null, due_at = now()`)
	save("the lease is over, and another worker will claim the row", 0)
	b.exec(`update tenant.cluster_sync set paused_at = now()`)
	save("the lease is over, and the row is paused", 1)
}
