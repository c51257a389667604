package fleetapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestPagesOfSyncs checks for any rows and page sizes that the pages form the whole list, in order.
func TestPagesOfSyncs(t *testing.T) {
	f := newFixture(t)
	conn := f.connect()
	var ids []string
	for i := range 12 {
		ids = append(ids, f.create("clusters", fmt.Sprintf("c-%02d", i), nil).ID)
	}
	rows := map[v1.SyncState]string{
		v1.SyncPending: rowPending, v1.SyncRunning: rowRunning, v1.SyncBackingOff: rowBackingOff,
		v1.SyncStuck: rowStuck, v1.SyncPaused: rowPaused, v1.SyncSynced: rowSynced,
	}
	rapid.Check(t, func(rt *rapid.T) {
		states := make([]v1.SyncState, len(ids))
		since := make([]int, len(ids))
		for i, id := range ids {
			states[i] = rapid.SampledFrom(v1.SyncStates()).Draw(rt, "state")
			since[i] = rapid.IntRange(0, 3).Draw(rt, "since")
			row := rows[states[i]]
			if states[i] != v1.SyncSynced {
				row += fmt.Sprintf(", unsynced_since = timestamptz '2026-03-01T12:00:00Z' + interval '%d seconds'", since[i])
			} else {
				since[i] = 9
			}
			setSync(t, conn, id, "paused_at = null, claim_token = null, sync_attempts = 0")
			setSync(t, conn, id, row)
		}
		wanted := rapid.SliceOfNDistinct(rapid.SampledFrom(v1.SyncStates()), 1, 6, rapid.ID).Draw(rt, "wanted")
		var want []int
		for i := range ids {
			if slices.Contains(wanted, states[i]) {
				want = append(want, i)
			}
		}
		slices.SortStableFunc(want, func(a, b int) int { return since[a] - since[b] })
		names, query := []string{}, make([]string, len(wanted))
		for _, i := range want {
			names = append(names, fmt.Sprintf("c-%02d", i))
		}
		for i, s := range wanted {
			query[i] = string(s)
		}
		got := []string{}
		for after, pages := "", 0; (pages == 0 || after != "") && pages < 20; pages++ { // bounded, even if pages repeat
			size := rapid.IntRange(1, 5).Draw(rt, "size")
			page, next := f.syncNames(fmt.Sprintf("state=%s&limit=%d%s", strings.Join(query, ","), size, afterParam(after)))
			if next != "" && len(page) != size {
				rt.Fatalf("a page of %d of %d goes on", len(page), size)
			}
			got, after = append(got, page...), next
		}
		if diff := cmp.Diff(names, got); diff != "" {
			rt.Fatalf("%v (-want +got):\n%s", query, diff)
		}
	})
}

// TestAClusterShowsItsSync checks that a cluster shows the status of its Shoot in every answer. A
// change of it gives another body and tag and appears among the changes, and a client with the old
// body cannot change the cluster.
func TestAClusterShowsItsSync(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	np := f.create(path+"/nodepools", "np-one", nil)
	conn := f.connect()
	tag := f.do("GET", path, nil).want(200).header.Get("Etag")
	listed := f.do("GET", "clusters", nil).want(200).header.Get("Etag")
	cursor := f.list("clusters?limit=1").Cursor
	w := f.watch(watchQuery("clusters", "", cursor), nil)
	w.want("bookmark")

	setSync(t, conn, c.ID, "shoot_status = 'error', shoot_status_message = 'no quota', sync_error = 'it failed'")
	a := f.doWith(http.Header{"If-None-Match": {tag}}, "GET", path, nil).want(200)
	if a.header.Get("Etag") == tag {
		t.Errorf("another body has the tag of the old one, %s", tag)
	}
	got := read[v1.Resource](a)
	if s := got.Status; s.ShootStatus != v1.ShootError || s.ShootStatusMessage != "no quota" || s.SyncError != "it failed" {
		t.Errorf("got %+v", s)
	}
	f.doWith(http.Header{"If-None-Match": {a.header.Get("Etag")}}, "GET", path, nil).want(304)
	f.doWith(http.Header{"If-None-Match": {listed}}, "GET", "clusters", nil).want(200)
	for _, page := range []string{"clusters", "clusters?limit=5", "clusters?order=name", "clusters?ids=" + c.ID} {
		wantEqual(t, page, []v1.Resource{got}, f.list(page).Items)
	}
	wantEqual(t, "what changed", []v1.Resource{got}, f.since("clusters", cursor).Items)
	w.want("changed c-one")
	f.doWith(http.Header{"If-Match": {tag}}, "PATCH", path, `{"labels":{"a":"1"}}`).problem(412, "precondition_failed", "")
	patched := f.doWith(http.Header{"If-Match": {a.header.Get("Etag")}}, "PATCH", path, `{"labels":{"a":"1"}}`).want(200)
	wantEqual(t, "the tag of what was patched", f.do("GET", path, nil).header.Get("Etag"), patched.header.Get("Etag"))
	wantEqual(t, "the status of what was patched", v1.ShootError, read[v1.Resource](patched).Status.ShootStatus)

	// A poll of the Shoot that finds nothing new is not a change.
	cursor = f.list("clusters?limit=1").Cursor
	setSync(t, conn, c.ID, "shoot_status_updated = now(), sync_attempts = 3")
	wantEqual(t, "nothing changed", told{[]string{}, []string{}}, f.told("clusters", cursor))
	if s := f.get("nodepools/" + np.ID).Status; s.ShootStatus != "" {
		t.Errorf("a node pool has a Shoot: %+v", s)
	}
}
