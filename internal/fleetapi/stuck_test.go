package fleetapi_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func TestDecideStuckCause(t *testing.T) {
	required := []string{"validation", "dns"}
	when := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	report := func(adapter string, generation int64, conditions ...v1.AdapterCondition) v1.AdapterStatus {
		return v1.AdapterStatus{Adapter: adapter, ObservedGeneration: generation, Conditions: conditions}
	}
	is := func(kind string, status v1.ConditionStatus, reason, message string) v1.AdapterCondition {
		return v1.AdapterCondition{ReportCondition: v1.ReportCondition{Type: kind, Status: status, Reason: reason, Message: message}}
	}
	later := when.Add(2 * time.Hour)
	available := is(v1.ConditionAvailable, v1.ConditionTrue, "", "")
	failed := is(v1.ConditionAvailable, v1.ConditionFalse, "NoZone", "no zone")
	waiting := func(s v1.ClusterSync) *v1.ClusterSync { return &s }
	synced := &v1.ClusterSync{State: v1.SyncSynced, Synced: &when}
	cases := map[string]struct {
		reason string
		row    fleetapi.StuckRow
		want   v1.StuckCause
	}{
		"Paused": {
			"a pause comes before what failed before it",
			fleetapi.StuckRow{Phase: v1.PhaseProvisioning, Sync: waiting(v1.ClusterSync{State: v1.SyncPaused, PausedAt: &when, Pause: &v1.SyncPause{Since: when}, Error: "quota"})},
			v1.StuckCause{Type: v1.StuckOnPause, Message: "paused since 2026-03-01T12:00:00Z"},
		},
		"PausedByAPerson": {
			"a pause names who, why and until when",
			fleetapi.StuckRow{Phase: v1.PhaseReady, Sync: waiting(v1.ClusterSync{
				State: v1.SyncPaused, PausedAt: &when, Pause: &v1.SyncPause{Since: when, Until: &later, By: "ann", Reason: "network change"},
			})},
			v1.StuckCause{Type: v1.StuckOnPause, Message: "paused by ann (network change) since 2026-03-01T12:00:00Z until 2026-03-01T14:00:00Z"},
		},
		"PausedAndSynced": {
			"a pause of a synced cluster holds up nothing",
			fleetapi.StuckRow{Phase: v1.PhasePending, Sync: &v1.ClusterSync{State: v1.SyncPaused, PausedAt: &when, Pause: &v1.SyncPause{Since: when}, Synced: &when}},
			v1.StuckCause{Type: v1.StuckOnNoReport, Adapter: "validation", Message: "none of the required adapters has reported: validation, dns"},
		},
		"Code": {
			"the code is in the error",
			fleetapi.StuckRow{Phase: v1.PhaseFailed, Sync: waiting(v1.ClusterSync{Error: "no: ERR_INFRA_QUOTA_EXCEEDED", ErrorClass: "quota"})},
			v1.StuckCause{Type: v1.StuckOnGardener, Code: "ERR_INFRA_QUOTA_EXCEEDED", Message: "no: ERR_INFRA_QUOTA_EXCEEDED"},
		},
		"Class": {
			"without a code, the class",
			fleetapi.StuckRow{Phase: v1.PhaseFailed, Sync: waiting(v1.ClusterSync{Error: "no such version", ErrorClass: "invalid"})},
			v1.StuckCause{Type: v1.StuckOnGardener, Code: "invalid", Message: "no such version"},
		},
		"Shoot": {
			"Gardener failed after the sync",
			fleetapi.StuckRow{Phase: v1.PhaseFailed, Sync: &v1.ClusterSync{Synced: &when, ShootStatus: v1.ShootError, ShootStatusMessage: "ERR_INFRA_DEPENDENCIES: x"}},
			v1.StuckCause{Type: v1.StuckOnGardener, Code: "ERR_INFRA_DEPENDENCIES", Message: "ERR_INFRA_DEPENDENCIES: x"},
		},
		"ReportedFailure": {
			"a failure comes before a missing report",
			fleetapi.StuckRow{Phase: v1.PhaseProvisioning, Generation: 2, Sync: synced, Reports: []v1.AdapterStatus{report("dns", 2, failed)}},
			v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Reason: "NoZone", Message: "no zone"},
		},
		"OldFailure": {
			"a failure of an old generation says nothing",
			fleetapi.StuckRow{Phase: v1.PhaseProvisioning, Generation: 3, Reports: []v1.AdapterStatus{report("validation", 3, available), report("dns", 2, failed)}},
			v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Message: "it has not reported generation 3; its last report is of generation 2"},
		},
		"Missing": {
			"the other has reported",
			fleetapi.StuckRow{Phase: v1.PhaseProvisioning, Generation: 1, Reports: []v1.AdapterStatus{report("dns", 1, available)}},
			v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "validation", Message: "it has not reported yet"},
		},
		"Unknown": {
			"neither True nor False",
			fleetapi.StuckRow{Phase: v1.PhaseProvisioning, Generation: 1, Reports: []v1.AdapterStatus{report("dns", 1), report("validation", 1, available)}},
			v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Message: "it has not reported Available as True"},
		},
		"Deleting": {
			"what is being deleted need not be available",
			fleetapi.StuckRow{Phase: v1.PhaseDeleting, Deleting: true, Generation: 1, Reports: []v1.AdapterStatus{
				report("validation", 1, failed, is(v1.ConditionFinalized, v1.ConditionTrue, "", "")), report("dns", 1, failed, is(v1.ConditionFinalized, v1.ConditionFalse, "Records", "2 records left")),
			}},
			v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: "dns", Reason: "Records", Message: "2 records left"},
		},
		"Children": {
			"all adapters are done",
			fleetapi.StuckRow{Phase: v1.PhaseDeleting, Deleting: true, Generation: 1, Reports: []v1.AdapterStatus{
				report("validation", 1, is(v1.ConditionFinalized, v1.ConditionTrue, "", "")), report("dns", 1, is(v1.ConditionFinalized, v1.ConditionTrue, "", "")),
			}},
			v1.StuckCause{Type: v1.StuckOnChildren, Message: "waiting for the deletion of its node pools"},
		},
		"Gardener": {
			"it does not answer",
			fleetapi.StuckRow{Phase: v1.PhaseReady, Sync: waiting(v1.ClusterSync{State: v1.SyncPending, Waiting: &v1.SyncWait{Reason: "refused"}})},
			v1.StuckCause{Type: v1.StuckOnGardener, Message: "Gardener does not answer: refused"},
		},
		"NoWorker": {
			"nothing failed",
			fleetapi.StuckRow{Phase: v1.PhaseReady, Sync: waiting(v1.ClusterSync{State: v1.SyncPending})},
			v1.StuckCause{Type: v1.StuckOnGardener, Message: "it waits for a cluster-worker"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, fleetapi.DecideStuckCause(&tc.row, required)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}

func (f *fixture) stuck(query string) v1.StuckList {
	f.Helper()
	return read[v1.StuckList](f.do("GET", "stuck?"+query, nil).want(200))
}

func TestStuckShowsTheCause(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: summaryTokens})
	ann, bob, sys := f.as("ann"), f.as("bob"), f.as("sys")
	one, two := ann.create("clusters", "c-one", nil), ann.create("clusters", "c-two", nil)
	np := ann.create("clusters/"+one.ID+"/nodepools", "np-one", nil)
	bob.create("clusters", "c-other", nil)
	for _, id := range []string{one.ID, two.ID} {
		sys.report("clusters/"+id, "validation", 1)
		sys.report("clusters/"+id, "dns", 1)
	}
	conn := f.connect()
	setSync(t, conn, one.ID, rowSynced)
	setSync(t, conn, two.ID, rowStuck+", unsynced_since = '2026-03-01T12:00:00Z'")
	if list := ann.stuck(""); len(list.Items) != 1 { // only the sync waits for longer than 5 minutes
		t.Errorf("got %+v", list.Items)
	}
	list := ann.stuck("older_than=0s")
	got := list.Items
	if len(got) != 2 || list.Continue != "" {
		t.Fatalf("got %+v", list)
	}
	next := got[0].NextAttempt
	want := []v1.StuckResource{
		{
			Kind: v1.KindCluster, ID: two.ID, Name: "c-two", Phase: v1.PhaseReady, Since: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Generation: 1, ObservedGeneration: 1,
			Cause: v1.StuckCause{Type: v1.StuckOnGardener, Code: "invalid", Message: "no such version"}, Attempts: 8, NextAttempt: next,
		},
		{
			Kind: v1.KindNodePool, ID: np.ID, Name: "np-one", ClusterID: one.ID, ClusterName: "c-one", Phase: v1.PhasePending, Since: np.Status.LastTransitionTime, Generation: 1,
			Cause: v1.StuckCause{Type: v1.StuckOnNoReport, Adapter: "validation", Message: "none of the required adapters has reported: validation"},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" || next == nil {
		t.Errorf("(-want +got):\n%s", diff)
	}
	wantEqual(t, "node pools", []v1.StuckResource{want[1]}, ann.stuck("older_than=0s&kind=nodepools").Items)
	wantEqual(t, "by cause", []v1.StuckResource{want[0]}, ann.stuck("older_than=0s&cause=gardener,paused").Items)
	const pause = rowStuck + ", unsynced_since = '2026-03-01T12:00:00Z', paused_at = '2026-03-01T13:00:00Z', paused_by = 'ann', pause_reason = 'network', paused_until = now() + interval "
	setSync(t, conn, two.ID, pause+"'1 hour'")
	if c := ann.stuck("older_than=0s").Items[0].Cause; c.Type != v1.StuckOnPause || !strings.HasPrefix(c.Message, "paused by ann (network) since 2026-03-01T13:00:00Z until ") {
		t.Errorf("while it is paused: %+v", c)
	}
	setSync(t, conn, two.ID, pause+"'-1 second'")
	wantEqual(t, "after the end of the pause", want[0].Cause, ann.stuck("older_than=0s").Items[0].Cause)
	if n := len(f.as("vera").stuck("older_than=0s").Items); n != 3 {
		t.Errorf("all tenants have %d, want 3", n)
	}
	for query, says := range map[string]string{
		"kind=manifests": "must be clusters or nodepools", "cause=x": "unknown value", "older_than=x": "must be a duration", "older_than=-5m": "must be a duration",
		"limit=0": "at least 1", "continue=x": "not a token",
	} {
		ann.do("GET", "stuck?"+query, nil).problem(400, "invalid_query", says)
	}
}

// TestPagesOfStuck checks for any rows, filters and page sizes that the pages form the whole list,
// in order, each resource once.
func TestPagesOfStuck(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	var ids []string
	for i := range 12 {
		ids = append(ids, f.create("clusters", fmt.Sprintf("c-%02d", i), nil).ID)
	}
	rapid.Check(t, func(rt *rapid.T) {
		type row struct {
			id     string
			at     int
			paused bool
		}
		var want []row
		onlyPaused := rapid.Bool().Draw(rt, "only paused")
		for _, id := range ids {
			ready, unsynced, paused := rapid.Bool().Draw(rt, "ready"), rapid.Bool().Draw(rt, "unsynced"), rapid.Bool().Draw(rt, "paused")
			transition, since := rapid.IntRange(0, 4).Draw(rt, "transition"), rapid.IntRange(0, 4).Draw(rt, "since")
			phase, columns := "Ready", rowSynced
			if !ready {
				phase = "Provisioning"
			}
			const begin = "timestamptz '2026-03-01T12:00:00Z'"
			if unsynced {
				columns = fmt.Sprintf("%s, unsynced_since = %s + interval '%d seconds'", rowPending, begin, since)
			}
			if paused {
				columns += ", paused_at = now()"
			} else {
				columns += ", paused_at = null"
			}
			setSync(t, conn, id, columns)
			if _, err := conn.Exec(t.Context(), fmt.Sprintf("update tenant.resources set phase = $1, last_transition_time = %s + interval '%d seconds' where id = $2", begin, transition), phase, id); err != nil {
				rt.Fatal(err)
			}
			at := -1
			if !ready {
				at = transition
			}
			if unsynced && (at < 0 || since < at) {
				at = since
			}
			if at >= 0 && (!onlyPaused || unsynced && paused) {
				want = append(want, row{id, at, paused})
			}
		}
		slices.SortStableFunc(want, func(a, b row) int { return a.at - b.at }) // the ids are in order
		query := "kind=clusters"
		if onlyPaused {
			query += "&cause=paused"
		}
		names, got := []string{}, []string{}
		for _, w := range want {
			names = append(names, w.id)
		}
		for after, pages := "", 0; pages == 0 || after != ""; pages++ {
			if pages > 100 {
				rt.Fatal("the list does not end")
			}
			limit := rapid.IntRange(1, 5).Draw(rt, "limit")
			page := f.stuck(fmt.Sprintf("%s&limit=%d%s", query, limit, afterParam(after)))
			if len(page.Items) > limit {
				rt.Fatalf("a page of %d has %d", limit, len(page.Items))
			}
			for _, item := range page.Items {
				got = append(got, item.ID)
			}
			after = page.Continue
		}
		if diff := cmp.Diff(names, got); diff != "" {
			rt.Fatalf("(-want +got):\n%s", diff)
		}
	})
}
