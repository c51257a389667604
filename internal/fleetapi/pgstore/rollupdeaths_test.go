package pgstore_test

import (
	"math"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestACounterMayDieAtAnyWrite checks that a step of counting dies at each of its writes in turn, and that the counts are
// exact afterwards.
func TestACounterMayDieAtAnyWrite(t *testing.T) {
	for name, syncs := range map[string]bool{"Changes": false, "Syncs": true} {
		t.Run(name, func(t *testing.T) {
			d := newDatabase(t)
			if err := pgstore.LetCountersDie(t.Context(), d.conn); err != nil {
				t.Fatal(err)
			}
			r := newRoller(pgtest.Open(t, d.url), "region")
			d.countAll(t, r)
			record := newRecord("a", v1.KindCluster, "one")
			insert(t, d.Store, record)
			if syncs {
				d.countAll(t, r)
				d.exec(t, "update tenant.cluster_sync set sync_error = 'no quota', sync_attempts = 1 where cluster_id = '"+record.ID+"'")
			}
			deaths := 0
			for died := true; died; deaths++ {
				var err error
				if died, err = r.CountDying(t.Context(), syncs, math.MaxInt, deaths); err != nil {
					t.Fatal(err)
				}
			}
			if deaths--; deaths < 4 {
				t.Errorf("it died at %d writes, want some more", deaths)
			}
			d.countAll(t, r)
			d.wantExactCounts(t)
		})
	}
}

// TestLabelKeysAreSavedInTheEnd checks that a counter whose commit fails saves its label keys later, with a commit that
// waits for the disk.
func TestLabelKeysAreSavedInTheEnd(t *testing.T) {
	d := newDatabase(t)
	pool := pgtest.Open(t, d.url)
	d.countAll(t, newRoller(pool, "region"))
	d.exec(t, `create function tenant.fail_commit() returns trigger language plpgsql as $$
		begin raise exception 'synchronous_commit is %', current_setting('synchronous_commit'); end $$`)
	d.exec(t, `create constraint trigger fail after update on tenant.rollup deferrable initially deferred
		for each row execute function tenant.fail_commit()`)
	r := newRoller(pool, "env")
	if _, err := pgstore.CountOnce(r, t.Context()); err == nil || !strings.Contains(err.Error(), "synchronous_commit is on") {
		t.Errorf("got %v", err)
	}
	d.exec(t, `drop trigger fail on tenant.rollup`)
	d.countAll(t, r)
	if diff := cmp.Diff([]string{"env"}, d.texts(t, "select unnest(label_keys) from tenant.rollup")); diff != "" {
		t.Errorf("the keys (-want +got):\n%s", diff)
	}
}
