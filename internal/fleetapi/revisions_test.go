package fleetapi_test

import (
	"fmt"
	"net/http"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func (f *fixture) revisions(path string) v1.RevisionList {
	f.Helper()
	return read[v1.RevisionList](f.do("GET", path, nil).want(http.StatusOK))
}

// textsOf returns the generation, author, spec and labels of revisions.
func textsOf(l v1.RevisionList) []string {
	list := []string{}
	for _, r := range l.Items {
		text := fmt.Sprintf("%d %s %s %v", r.Generation, r.Actor, r.Spec, r.Labels)
		if r.Deleting {
			text += " deleting"
		}
		list = append(list, text)
	}
	return list
}

func TestRevisionsOfAResource(t *testing.T) {
	red, blue, system := newTenants(t)
	c := red.create("clusters", "c-one", map[string]string{"a": "1"})
	path := "clusters/" + c.ID
	revisions := path + "/revisions"
	wantEqual(t, "when it is new", []string{"1 rosa {} map[a:1]"}, textsOf(red.revisions(revisions)))
	wantEqual(t, "time when it is new", c.CreatedTime, red.revisions(revisions).Items[0].CreatedTime)
	red.do("PATCH", path, `{"labels":{"a":"2"}}`).want(200) // no generation
	wantEqual(t, "with other labels", []string{"1 rosa {} map[a:2]"}, textsOf(red.revisions(revisions)))
	second := read[v1.Resource](red.do("PATCH", path, `{"spec":{"v": 2.0}}`).want(200))
	red.do("PATCH", path, `{"spec":{"v": 2.0}}`).want(200) // unchanged
	red.do("PATCH", path, `{"spec":{"v":3},"labels":{}}`).want(200)
	system.report(path, "dns", 3)
	want := []string{`3 rosa {"v":3} map[]`, `2 rosa {"v":2.0} map[a:2]`, `1 rosa {} map[a:2]`}
	all := red.revisions(revisions)
	wantEqual(t, "generations", want, textsOf(all))
	wantEqual(t, "times", []any{second.UpdatedTime, c.CreatedTime}, []any{all.Items[1].CreatedTime, all.Items[2].CreatedTime})
	wantEqual(t, "what the system sees", want, textsOf(system.revisions(revisions)))
	for size := 1; size <= 3; size++ {
		var got []string
		next := ""
		for pages := 0; (pages == 0 || next != "") && pages < 5; pages++ {
			page := red.revisions(fmt.Sprintf("%s?limit=%d%s", revisions, size, afterParam(next)))
			got, next = append(got, textsOf(page)...), page.Continue
		}
		wantEqual(t, fmt.Sprintf("pages of %d", size), want, got)
	}

	blue.do("GET", revisions, nil).problem(404, "not_found", "no Cluster")
	red.as("").do("GET", revisions, nil).problem(401, "unauthenticated", "")
	red.do("GET", revisions+"?limit=101", nil).problem(400, "invalid_query", "at most 100")
	red.do("GET", revisions+"?continue=x", nil).problem(400, "invalid_query", "not a token")
	red.do("GET", revisions+"?strict=true&page=1", nil).problem(400, "invalid_query", "page")
	red.do("POST", revisions, nil).problem(405, "method_not_allowed", "GET")

	pool := red.create(path+"/nodepools", "np-one", nil)
	red.do("PATCH", "nodepools/"+pool.ID, `{"spec":{"n":1}}`).want(200)
	wantEqual(t, "of a node pool", []string{`2 rosa {"n":1} map[]`, "1 rosa {} map[]"}, textsOf(red.revisions("nodepools/"+pool.ID+"/revisions")))
	red.do("GET", "clusters/"+pool.ID+"/revisions", nil).problem(404, "not_found", "")

	red.do("DELETE", path, nil).want(202)
	wantEqual(t, "when it is being deleted", `4 rosa {"v":3} map[] deleting`, textsOf(red.revisions(revisions))[0])
	conn := red.connect()
	count := func() (n int) {
		if err := conn.QueryRow(t.Context(), "select count(*) from tenant.resource_revisions").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	wantEqual(t, "kept", 7, count())
	red.do("POST", path+"/force-delete", `{"reason":"the test is over"}`).want(204)
	wantEqual(t, "kept of what is gone", 0, count())
}

// TestRevisionLimit checks that the oldest generations beyond the limit are removed, and only those
// of the changed resource.
func TestRevisionLimit(t *testing.T) {
	for _, limit := range []int{1, 3} {
		t.Run(fmt.Sprint(limit), func(t *testing.T) {
			url := pgtest.NewMigratedDatabaseURL(t)
			store := pgstore.New(pgtest.Open(t, url), pgstore.WithRevisionLimit(limit))
			f := newFixtureWith(t, options{cfg: defaults(), database: url, store: func(fleetapi.Store) fleetapi.Store { return store }})
			one, other := f.create("clusters", "c-one", nil), f.create("clusters", "c-two", nil)
			f.do("PATCH", "clusters/"+other.ID, `{"spec":{"v":2}}`).want(200)
			before := textsOf(f.revisions("clusters/" + other.ID + "/revisions"))
			for v := 2; v <= 6; v++ {
				f.do("PATCH", "clusters/"+one.ID, fmt.Sprintf(`{"spec":{"v":%d}}`, v)).want(200)
			}
			got := f.revisions("clusters/" + one.ID + "/revisions")
			wantEqual(t, "newest", int64(6), got.Items[0].Generation)
			wantEqual(t, "kept", limit, len(got.Items))
			wantEqual(t, "the other", before, textsOf(f.revisions("clusters/"+other.ID+"/revisions")))
		})
	}
}
