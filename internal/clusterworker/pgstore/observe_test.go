package pgstore_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// lead begins or extends a term.
func (b *bed) lead(owner string) clusterworker.Term {
	b.Helper()
	term, err := b.store.Observations.AcquireOrExtendTerm(b.Context(), owner, lease)
	if err != nil {
		b.Fatal(err)
	}
	return term
}

// endTerm lets the time of a term pass.
func (b *bed) endTerm() {
	b.Helper()
	b.exec(`update tenant.cluster_worker_leader set until = now()`)
}

func TestOneObservesAtATime(t *testing.T) {
	b := newBed(t)
	begin := time.Now()
	first := b.lead("one")
	if !first.Held || first.Until.Before(begin.Add(lease)) || first.Until.After(time.Now().Add(lease)) {
		t.Fatalf("the first term: %+v", first)
	}
	if again := b.lead("one"); !again.Held || again.Fence != first.Fence {
		t.Errorf("goes on with %+v, want fence %d", again, first.Fence)
	}
	if other := b.lead("two"); other.Held {
		t.Errorf("two have a term: %+v", other)
	}
	b.endTerm()
	second := b.lead("two")
	if !second.Held || second.Fence <= first.Fence {
		t.Errorf("the next term: %+v, after %d", second, first.Fence)
	}
	if back := b.lead("one"); back.Held {
		t.Errorf("two have a term: %+v", back)
	}
	// A term that is over cannot be extended, even if no other worker had one since.
	b.endTerm()
	third := b.lead("two")
	if !third.Held || third.Fence <= second.Fence {
		t.Errorf("the third term: %+v, after %d", third, second.Fence)
	}
	if err := b.store.Observations.ReleaseTerm(t.Context(), second.Fence); err != nil {
		t.Fatal(err)
	}
	if other := b.lead("one"); other.Held {
		t.Error("an old fence ended the term")
	}
	if err := b.store.Observations.ReleaseTerm(t.Context(), third.Fence); err != nil {
		t.Fatal(err)
	}
	if next := b.lead("one"); !next.Held || next.Fence <= third.Fence {
		t.Errorf("after the end: %+v", next)
	}
}

func TestAnObserverWhoseTermIsOverWritesNothing(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.complete(done(b.claimOne()))
	fence := b.lead("one").Fence
	before := b.row(id)
	calls := map[string]func(fence int64) error{
		"SaveStatus": func(fence int64) error {
			_, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: id, WasStatus: v1.ShootPending, Status: v1.ShootReady}})
			return err
		},
		"Touch": func(fence int64) error {
			_, err := b.store.Observations.RecordUnchanged(t.Context(), fence, []clusterworker.UnchangedStatus{{ClusterID: id}})
			return err
		},
		"Requeue": func(fence int64) error {
			_, err := b.store.Observations.RequeueSynced(t.Context(), fence, []string{id})
			return err
		},
	}
	wantFenced := func(when string, fence int64) {
		t.Helper()
		for name, call := range calls {
			if err := call(fence); !errors.Is(err, clusterworker.ErrFenced) {
				t.Errorf("%s %s: %v", name, when, err)
			}
		}
		if diff := cmp.Diff(before, b.row(id)); diff != "" {
			t.Errorf("%s the row was changed (-before +after):\n%s", when, diff)
		}
	}
	wantFenced("before its term", fence+1)
	b.endTerm()
	wantFenced("when its time is over", fence)
	b.lead("two")
	wantFenced("when another has one", fence)
}

// TestATermOutlastsWhatIsWritten: a term does not end during a write under it.
func TestATermOutlastsWhatIsWritten(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	b.complete(done(b.claimOne()))
	fence := b.lead("one").Fence
	b.exec(gate)
	var saved []string
	next := make(chan clusterworker.Term, 1)
	b.through(func() {
		var err error
		if saved, err = b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: id, WasStatus: v1.ShootPending, Status: v1.ShootReady}}); err != nil {
			t.Error(err)
		}
	}, func() {
		// It is about to write. Its time is over, and another worker requests the term.
		go func() {
			if _, err := connect(t, b.url).Exec(t.Context(), `update tenant.cluster_worker_leader set fence = fence + 1, holder = 'two'`); err != nil {
				t.Error(err)
			}
			next <- clusterworker.Term{}
		}()
		b.await("the other waits", func() bool {
			return ask[bool](b, `select exists (select from pg_locks where locktype in ('transactionid', 'tuple') and not granted)`)
		})
	})
	<-next
	if !slices.Equal(saved, []string{id}) {
		t.Errorf("saved %v", saved)
	}
}

func TestWhatIsObservedIsKept(t *testing.T) {
	b := newBed(t)
	id, other := b.cluster("one"), b.cluster("other")
	for _, c := range b.claim(10) {
		b.complete(done(c))
	}
	fence := b.lead("me").Fence
	save := func(c clusterworker.StatusChange) bool {
		t.Helper()
		c.ClusterID = id
		saved, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{c, {ClusterID: uuid.NewString(), Status: v1.ShootReady}})
		if err != nil {
			t.Fatal(err)
		}
		if len(saved) > 0 && saved[0] != id {
			t.Errorf("saved %v", saved)
		}
		return len(saved) == 1
	}
	was := b.row(id)
	if save(clusterworker.StatusChange{WasStatus: v1.ShootError, Status: v1.ShootReady}) {
		t.Error("saved although the row has another status by now")
	}
	if save(clusterworker.StatusChange{WasStatus: v1.ShootPending, WasDeleting: true, Status: v1.ShootReady}) {
		t.Error("saved although the wish is another one")
	}
	if !save(clusterworker.StatusChange{WasStatus: v1.ShootPending, Status: v1.ShootReady, Message: "all \x00well", ShootUID: "new"}) {
		t.Error("not saved")
	}
	got := b.row(id)
	if got.Status != v1.ShootReady || got.StatusMessage != "all well" || got.ShootUID != "new" || !got.ReadyOnce || got.StatusUpdated == nil || got.ReportVersion != was.ReportVersion+1 {
		t.Errorf("the row is %+v", got)
	}
	if !got.Synced || got.Generation != was.Generation {
		t.Error("an observation made it unsynced")
	}
	if !save(clusterworker.StatusChange{WasStatus: v1.ShootReady, Status: v1.ShootError}) {
		t.Error("not saved")
	}
	if got := b.row(id); got.StatusMessage != "" || got.ShootUID != "new" || !got.ReadyOnce {
		t.Errorf("the row is %+v", got)
	}
	if got := b.row(other); got.Status != v1.ShootPending || got.ReadyOnce {
		t.Errorf("the other row is %+v", got)
	}
	// An observation without a change updates the time.
	touched := *b.row(id).StatusUpdated
	b.recordUnchanged(fence, 0, id)
	if got := b.row(id); !got.StatusUpdated.After(touched) || got.Status != v1.ShootError {
		t.Errorf("looked at %s, before at %s", got.StatusUpdated, touched)
	}
}

func TestRequeueing(t *testing.T) {
	b := newBed(t)
	synced, unsynced := b.cluster("synced"), b.cluster("unsynced")
	for _, c := range b.claim(10) {
		if c.ClusterID == synced {
			b.complete(done(c))
			continue
		}
		b.complete(failed(c, "no", true, lease))
	}
	before := b.row(unsynced)
	got, err := b.store.Observations.RequeueSynced(t.Context(), b.lead("me").Fence, []string{synced, unsynced, uuid.NewString()})
	if err != nil || !slices.Equal(got, []string{synced}) {
		t.Errorf("requeued %v, %v", got, err)
	}
	if diff := cmp.Diff(before, b.row(unsynced)); diff != "" {
		t.Errorf("what waits was changed (-before +after):\n%s", diff)
	}
	if c := b.claimOne(); c.ClusterID != synced || c.Generation != 1 {
		t.Errorf("claimed %+v", c)
	}
}

func TestWhichRowsAreRead(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(5)
	b.exec(`update tenant.cluster_sync set shoot_status = 'deleted', shoot_name = 'gone' where cluster_id = $1`, ids[1])
	for i, ago := range map[int]string{0: "1 min", 2: "3 min", 3: "2 min"} {
		b.exec(`update tenant.cluster_sync set shoot_name = cluster_id::text, shoot_status = 'ready', shoot_status_updated = now() - $2::text::interval where cluster_id = $1`, ids[i], ago)
	}
	read := func(rows []clusterworker.Row, err error) []string {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.Name)
		}
		return got
	}
	for what, tc := range map[string]struct{ want, got []string }{
		"the first page":  {[]string{"cluster-0", "cluster-2"}, read(b.store.Observations.ListRows(t.Context(), "", 2))},
		"the second page": {[]string{"cluster-3", "cluster-4"}, read(b.store.Observations.ListRows(t.Context(), ids[2], 2))},
		"behind the end":  {nil, read(b.store.Observations.ListRows(t.Context(), ids[4], 2))},
		"some":            {[]string{"cluster-1", "cluster-3"}, read(b.store.Observations.ListRowsOfClusters(t.Context(), []string{ids[3], ids[1], uuid.NewString()}))},
		"none":            {nil, read(b.store.Observations.ListRowsOfClusters(t.Context(), nil))},
		"the stalest":     {[]string{"cluster-2", "cluster-3"}, read(b.store.Observations.ListStalestRows(t.Context(), 2))},
	} {
		if diff := cmp.Diff(tc.want, tc.got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	// A row that was never observed comes first.
	b.exec(`update tenant.cluster_sync set shoot_status_updated = null where cluster_id = $1`, ids[0])
	if got := read(b.store.Observations.ListStalestRows(t.Context(), 1)); !slices.Equal(got, []string{"cluster-0"}) {
		t.Errorf("the stalest is %v", got)
	}
}

func TestInstallation(t *testing.T) {
	b := newBed(t)
	id, err := b.store.GetInstallationID(t.Context())
	if err != nil || uuid.Validate(id) != nil {
		t.Fatal(id, err)
	}
	if again, err := b.store.GetInstallationID(t.Context()); err != nil || again != id {
		t.Errorf("first %s, then %s: %v", id, again, err)
	}
}

func TestReports(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(3)
	due := func() []string {
		t.Helper()
		rows, err := b.store.ListDueReports(t.Context(), 10)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, r := range rows {
			got = append(got, r.ClusterID)
		}
		slices.Sort(got)
		return got
	}
	if got := due(); len(got) != 0 {
		t.Errorf("there is nothing to report yet, but of %v", got)
	}
	for _, c := range b.claim(10) {
		if c.ClusterID == ids[2] {
			b.complete(failed(c, "no", true, 0))
			continue
		}
		b.complete(done(c))
	}
	if diff := cmp.Diff(ids, due()); diff != "" {
		t.Errorf("due (-want +got):\n%s", diff)
	}
	rows, err := b.store.ListDueReports(t.Context(), 2)
	if err != nil || len(rows) != 2 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	reported := make([]clusterworker.Reported, 0, len(ids))
	for _, id := range ids {
		reported = append(reported, clusterworker.Reported{ClusterID: id, Version: b.row(id).ReportVersion, Next: lease})
	}
	// Meanwhile one has a further change to report.
	b.complete(done(b.claimOne()))
	if err := b.store.RecordReports(t.Context(), append(reported, clusterworker.Reported{ClusterID: uuid.NewString()})); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(ids[2:], due()); diff != "" {
		t.Errorf("due after the reports (-want +got):\n%s", diff)
	}
	if err := b.store.RecordReports(t.Context(), []clusterworker.Reported{{ClusterID: ids[0], Version: b.row(ids[0]).ReportVersion, Next: -1}}); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{ids[0], ids[2]}, due()); diff != "" {
		t.Errorf("due again (-want +got):\n%s", diff)
	}
}

func TestTally(t *testing.T) {
	b := newBed(t)
	ids := b.clusters(8)
	for i, sql := range []string{
		`due_at = now() - interval '1 hour'`,
		`sync_attempts = 2, due_at = now() - interval '5 min'`,
		`claim_token = 1, due_at = now() + interval '1 min'`,
		`claim_token = 1, due_at = now() - interval '1 min'`, // a lease that is over
		`sync_attempts = 2, due_at = now() + interval '1 min'`,
		`sync_attempts = 8, due_at = now() + interval '1 min'`,
		`paused_at = now()`,
		`synced = now()`,
	} {
		b.exec("update tenant.cluster_sync set "+sql+" where cluster_id = $1", ids[i])
	}
	tx, err := connect(t, b.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	got, err := b.store.CountClusters(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.OldestDue < time.Hour || got.OldestDue > 2*time.Hour || got.OldestTransaction <= 0 {
		t.Errorf("the oldest is due for %s, the oldest transaction open for %s", got.OldestDue, got.OldestTransaction)
	}
	got.OldestDue, got.OldestTransaction, got.DeadRows = 0, 0, 0
	if diff := cmp.Diff(clusterworker.ClusterCounts{Due: 3, Leased: 1, BackingOff: 1, Stuck: 1, Paused: 1, Synced: 1}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestProgressIsReportedSeldom holds that the progress of an operation is stored at once, but after a report it neither changes
// the status of the cluster nor is reported at once. Everything else is, and so is progress while a report is due.
func TestProgressIsReportedSeldom(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	for _, c := range b.claim(10) {
		b.complete(done(c))
	}
	fence := b.lead("me").Fence
	const untilReport = `select case when report_due_at <= now() then 'now' when report_due_at <= now() + interval '5 seconds' then 'soon' else 'later' end
		from tenant.cluster_sync where cluster_id = $1`
	for _, step := range []struct {
		change   clusterworker.StatusChange
		isNews   bool
		reported bool // before the change
		due      string
	}{
		{clusterworker.StatusChange{WasStatus: v1.ShootPending, Status: v1.ShootProgressing, Message: "10 %"}, true, true, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootProgressing, Status: v1.ShootProgressing, Message: "20 %"}, true, false, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootProgressing, Status: v1.ShootProgressing, Message: "30 %"}, false, true, "soon"},
		{clusterworker.StatusChange{WasStatus: v1.ShootProgressing, Status: v1.ShootProgressing, Message: "40 %", ShootUID: "new"}, true, true, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootProgressing, Status: v1.ShootError, Message: "no quota"}, true, true, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootError, Status: v1.ShootError, Message: "no network"}, true, true, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootError, Status: v1.ShootDeleting, Message: "0 %"}, true, true, "now"},
		{clusterworker.StatusChange{WasStatus: v1.ShootDeleting, Status: v1.ShootDeleting, Message: "0 %, no quota"}, true, true, "now"},
	} {
		was := b.row(id)
		if step.reported {
			if err := b.store.RecordReports(t.Context(), []clusterworker.Reported{{ClusterID: id, Version: was.ReportVersion, Next: time.Minute}}); err != nil {
				t.Fatal(err)
			}
		}
		step.change.ClusterID = id
		if _, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{step.change}); err != nil {
			t.Fatal(err)
		}
		got := b.row(id)
		if got.StatusMessage != step.change.Message || (got.ReportVersion > was.ReportVersion) != step.isNews {
			t.Errorf("%q: the row has the message %q and the version %d after %d", step.change.Message, got.StatusMessage, got.ReportVersion, was.ReportVersion)
		}
		want(b, step.due, untilReport, id)
	}
}
