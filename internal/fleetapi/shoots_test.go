package fleetapi_test

import (
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestStatusOfAnOutdatedShoot holds that a cluster is not ready, and has not failed, because of its Shoot before the last
// change, if the worker reports through the database.
func TestStatusOfAnOutdatedShoot(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters.Clusters = nil
	f := newFixtureWith(t, o)
	conn := f.connect()
	if _, err := conn.Exec(t.Context(), "select tenant.register_cluster_worker()"); err != nil {
		t.Fatal(err)
	}
	id := f.create("clusters", "c-one", nil).ID
	setSync(t, conn, id, rowSynced+`, cluster_generation = 1, shoot_status_updated = now(), status_generation_at = now()`)
	for _, step := range []struct {
		reason, columns string
		want            v1.Phase
	}{
		{"it is ready", "shoot_generation = 7, status_generation = 7", v1.PhaseReady},
		{"it was ready before the change", "shoot_generation = 8", v1.PhaseProvisioning},
		{"it is ready with the change", "status_generation = 8", v1.PhaseReady},
		{"another client changed it further", "status_generation = 9", v1.PhaseReady},
		{"it failed", "shoot_status = 'error'", v1.PhaseFailed},
		{"it failed before the change", "shoot_generation = 10", v1.PhaseProvisioning},
		{"a worker of the release before observed it", "shoot_status_updated = now()", v1.PhaseFailed},
	} {
		setSync(t, conn, id, step.columns+", report_version = report_version + 1")
		if err := f.api.UpdateClusterStatuses(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := f.get("clusters/" + id).Status.Phase; got != step.want {
			t.Errorf("phase %s, want %s: %s", got, step.want, step.reason)
		}
	}
}
