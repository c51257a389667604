package fleetapi_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

func (f *fixture) delete(path string) v1.Resource {
	f.Helper()
	return read[v1.Resource](f.do("DELETE", path, nil).want(http.StatusAccepted))
}

// finalize reports, for each adapter, that the resource is gone. The deletion was the second
// generation.
func (f *fixture) finalize(path string, adapters ...string) {
	f.Helper()
	for _, a := range adapters {
		f.report(path, a, 2, v1.ConditionFinalized, "-Available")
	}
}

func (f *fixture) wantGone(path string) {
	f.Helper()
	f.do("GET", path, nil).want(http.StatusNotFound)
}

func TestDeletionWaitsForAdapters(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	f.report(path, "dns", 1)
	f.report(path, "validation", 1)

	deleted := f.delete(path)
	if deleted.Generation != 2 || deleted.DeletedTime == nil || deleted.DeletedBy != "anonymous" || deleted.Status.Phase != v1.PhaseDeleting {
		t.Errorf("deleted: %+v", deleted)
	}
	wantEqual(t, "deleted again", deleted, f.delete(path))
	wantEqual(t, "still listed", []v1.Resource{deleted}, f.list("clusters").Items)
	f.do("PATCH", path, `{"spec":{"a":1}}`).problem(409, "being_deleted", c.ID)
	f.do("POST", path+"/nodepools", `{"name":"np-one","spec":{}}`).problem(409, "being_deleted", "nothing can be created in it")

	f.do("PUT", path+"/statuses", reportOf("dns", 1, v1.ConditionFinalized)).want(201) // finalized before the deletion was requested
	f.finalize(path, "validation")
	f.report(path, "dns", 2, "-Available")
	if s := f.get(path).Status; s.Phase != v1.PhaseDeleting || s.ObservedGeneration != 2 {
		t.Errorf("one is not finalized: %+v", s)
	}
	f.finalize(path, "dns")
	f.wantGone(path)
	f.create("clusters", "c-one", nil) // the name is free again
}

func TestDeletionCascades(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	first := "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	second := "nodepools/" + f.create(path+"/nodepools", "np-two", nil).ID
	already := f.delete(first)

	f.delete(path)
	wantEqual(t, "what was being deleted already", already, f.get(first))
	if np := f.get(second); np.Generation != 2 || np.Status.Phase != v1.PhaseDeleting {
		t.Errorf("the child lives on: %+v", np)
	}

	f.finalize(path, "dns", "validation")
	reconciled := f.get(path).Status.Conditions[0]
	if reconciled.Type != v1.ConditionReconciled || reconciled.Reason != "ReconciledWaitingForChildren" {
		t.Errorf("the cluster waits for something else: %+v", reconciled)
	}
	f.finalize(first, "validation")
	f.wantGone(first)
	f.get(path)
	f.finalize(second, "validation")
	f.wantGone(second)
	f.wantGone(path) // at once, without another report
}

func TestDeletionOfParentLast(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	child := "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	f.delete(path)
	f.finalize(child, "validation")
	f.wantGone(child)
	f.get(path)
	f.finalize(path, "dns", "validation")
	f.wantGone(path)
}

func TestChildrenWithoutAdaptersGoAtOnce(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.RequiredAdapters.NodePools = nil
	f := newFixtureWith(t, o)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	child := "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	lone := "nodepools/" + f.create(path+"/nodepools", "np-two", nil).ID
	f.delete(lone)
	f.wantGone(lone)
	f.delete(path)
	f.wantGone(child)
	f.finalize(path, "dns", "validation")
	f.wantGone(path)
}

func TestDeletionRestricted(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.NodePoolsOnClusterDelete = fleetapi.Restrict
	f := newFixtureWith(t, o)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	child := "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	f.do("DELETE", path, nil).problem(409, "has_children", "1 nodepools")
	if c := f.get(path); c.DeletedTime != nil || c.Generation != 1 {
		t.Errorf("a refused deletion left a trace: %+v", c)
	}
	f.delete(child)
	f.finalize(child, "validation")
	f.delete(path)
}

func TestForceDelete(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	child := "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	const why = `{"reason":"the region is lost"}`
	f.do("POST", path+"/force-delete", why).problem(409, "not_being_deleted", "delete it first")
	f.delete(path)
	f.do("POST", path+"/force-delete", `{"reason":" "}`).problem(400, "invalid_fields", "reason")
	f.do("POST", path+"/force-delete", `{}`).problem(400, "invalid_fields", "reason")
	f.do("POST", path+"/force-delete", why).want(http.StatusNoContent)
	f.wantGone(path)
	f.wantGone(child)
	f.do("POST", path+"/force-delete", why).problem(404, "not_found", "Cluster")

	// The last child removes a parent that waited only for it.
	path = "clusters/" + f.create("clusters", "c-two", nil).ID
	child = "nodepools/" + f.create(path+"/nodepools", "np-one", nil).ID
	f.delete(path)
	f.finalize(path, "dns", "validation")
	f.do("POST", child+"/force-delete", why).want(http.StatusNoContent)
	f.wantGone(path)
}

// TestAdapterIsRequiredNoMore checks that a repeated request removes a resource that waited for the
// adapter.
func TestAdapterIsRequiredNoMore(t *testing.T) {
	var store fleetapi.Store
	o := options{cfg: defaults(), store: func(s fleetapi.Store) fleetapi.Store {
		if store == nil {
			store = s
		}
		return store
	}}
	f := newFixtureWith(t, o)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	f.delete(path)
	f.finalize(path, "dns")
	f.delete(path)
	f.get(path)

	o.cfg.RequiredAdapters.Clusters = []string{"dns"}
	f = newFixtureWith(t, o)
	f.get(path)
	f.delete(path)
	f.wantGone(path)
}

// TestNothingIsLeftBehind runs all steps of the deletion of a fleet concurrently, in any order. The
// last one must remove the cluster.
func TestNothingIsLeftBehind(t *testing.T) {
	f := newFixture(t)
	for round := range 12 {
		path := "clusters/" + f.create("clusters", fmt.Sprintf("c-%d", round), nil).ID
		var children []string
		for i := range 3 {
			children = append(children, "nodepools/"+f.create(path+"/nodepools", fmt.Sprintf("np-%d", i), nil).ID)
		}
		f.delete(children[0])
		f.delete(path)
		var wg sync.WaitGroup
		final := func(path, adapter string) {
			wg.Go(func() {
				f.do("PUT", path+"/statuses", reportOf(adapter, 2, v1.ConditionFinalized))
			})
		}
		for _, c := range children {
			final(c, "validation")
		}
		final(path, "dns")
		final(path, "validation")
		wg.Wait()
		f.wantGone(path)
	}
	wantEqual(t, "left", 0, len(f.list("nodepools").Items))
}

// TestReportsAtTheSameTime checks that every concurrent report counts.
func TestReportsAtTheSameTime(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	var wg sync.WaitGroup
	for _, adapter := range []string{"validation", "dns"} {
		for range 3 {
			wg.Go(func() {
				for range 10 {
					f.do("PUT", path+"/statuses", reportOf(adapter, 1))
				}
			})
		}
	}
	for i := range 5 {
		wg.Go(func() { f.do("PATCH", path, fmt.Sprintf(`{"spec":{"n":%d}}`, i)) })
	}
	wg.Wait()
	if g := f.get(path).Generation; g != 6 {
		t.Errorf("five specs made generation %d", g)
	}
	f.report(path, "dns", 6)
	f.report(path, "validation", 6)
	if s := f.get(path).Status; s.Phase != v1.PhaseReady || s.ObservedGeneration != 6 {
		t.Errorf("in the end: %+v", s)
	}
}
