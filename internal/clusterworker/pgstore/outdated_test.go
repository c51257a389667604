package pgstore_test

import (
	"slices"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// recordUnchanged records observations of the recorded Shoots of rows, and returns the rows that it wrote.
func (b *bed) recordUnchanged(fence, generation int64, ids ...string) (recorded []string) {
	b.Helper()
	var observed []clusterworker.UnchangedStatus
	for _, id := range ids {
		observed = append(observed, clusterworker.UnchangedStatus{ClusterID: id, ShootUID: b.row(id).ShootUID, Generation: generation})
	}
	recorded, err := b.store.Observations.RecordUnchanged(b.Context(), fence, observed)
	if err != nil {
		b.Fatal(err)
	}
	return recorded
}

// wantOutdated compares what the worker and the fleet API read.
func (b *bed) wantOutdated(reason, id string, outdated bool) {
	b.Helper()
	if row := b.row(id); row.IsStatusOutdated() != outdated {
		b.Errorf("the status is outdated: %t, want %t: %s; the row is %+v", !outdated, outdated, reason, row)
	}
	want(b, outdated, `select tenant.shoot_status_outdated(s) from tenant.cluster_sync s where cluster_id = $1`, id)
}

// TestAStatusIsOutdatedUntilTheChangeIsObserved holds that ready and error are about the Shoot as it was observed, also
// after a later change of the Shoot, and that the observation of that change is news.
func TestAStatusIsOutdatedUntilTheChangeIsObserved(t *testing.T) {
	b := newBed(t)
	id := b.cluster("one")
	fence := b.lead("me").Fence
	apply := func(uid string, generation int64) {
		t.Helper()
		result := done(b.claimOne())
		result.Applied.UID, result.Applied.Generation = uid, generation
		b.complete(result)
	}
	save := func(status v1.ShootStatus, generation int64) {
		t.Helper()
		change := clusterworker.StatusChange{ClusterID: id, WasStatus: b.row(id).Status, Status: status, Generation: generation}
		saved, err := b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{change})
		if err != nil || len(saved) != 1 {
			t.Fatalf("saved %v, %v", saved, err)
		}
	}
	apply("u", 7)
	save(v1.ShootReady, 7)
	b.wantOutdated("nothing has changed since", id, false)

	b.edit(id)
	apply("u", 8)
	b.wantOutdated("the status is that of generation 7", id, true)
	before := b.row(id).ReportVersion
	b.recordUnchanged(fence, 7, id)
	b.wantOutdated("the observation was older", id, true)
	if got := b.row(id).ReportVersion; got != before {
		t.Errorf("report version %d after %d without news", got, before)
	}
	b.recordUnchanged(fence, 8, id)
	b.wantOutdated("the Shoot is ready with the change", id, false)
	if got := b.row(id).ReportVersion; got != before+1 {
		t.Errorf("report version %d after %d, want the next", got, before)
	}

	before = b.row(id).ReportVersion
	b.exec(`update tenant.cluster_sync set synced = null, due_at = now()`)
	apply("u", 9) // a repair of a drift
	b.wantOutdated("the repair changed the Shoot", id, true)
	if got := b.row(id).ReportVersion; got != before+1 {
		t.Errorf("report version %d after %d, want the next", got, before)
	}
	save(v1.ShootError, 9)
	b.wantOutdated("it failed with the change", id, false)
	b.edit(id)
	apply("u", 10)
	b.wantOutdated("the error is that of generation 9", id, true)
	save(v1.ShootProgressing, 10)
	b.wantOutdated("it progresses", id, false)
	save(v1.ShootReady, 10)

	b.edit(id)
	apply("new", 1)
	b.wantOutdated("the status is that of a Shoot that was replaced", id, true)
	stale := []clusterworker.UnchangedStatus{{ClusterID: id, ShootUID: "u", Generation: 10}}
	if recorded, err := b.store.Observations.RecordUnchanged(t.Context(), fence, stale); err != nil || len(recorded) != 0 {
		t.Errorf("recorded %v of the Shoot before, %v", recorded, err)
	}
	if recorded := b.recordUnchanged(fence, 1, id); !slices.Equal(recorded, []string{id}) {
		t.Errorf("recorded %v", recorded)
	}
	b.wantOutdated("the new Shoot is ready", id, false)

	// A worker of the release before becomes the leader.
	b.edit(id)
	apply("new", 2)
	b.exec(`update tenant.cluster_sync set shoot_status_updated = now()`)
	b.wantOutdated("which generation it observed is not known", id, false)
}
