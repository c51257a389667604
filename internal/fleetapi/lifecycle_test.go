package fleetapi_test

import (
	"encoding/json"
	"net/http"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestCreate(t *testing.T) {
	f := newFixture(t)
	a := f.do("POST", "clusters", `{"kind":"Cluster","name":"c-one","labels":{"region":"us-east"},"metadata":{"displayName":"One \"1\""},"spec":{"b": 1.50, "a":"ü"}}`).want(http.StatusCreated)
	got := read[v1.Resource](a)
	href := v1.BasePath + "/clusters/" + got.ID
	if a.header.Get("Location") != href || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("headers: %v", a.header)
	}
	if time.Since(got.CreatedTime).Abs() > time.Minute {
		t.Errorf("created at %v", got.CreatedTime)
	}
	want := v1.Resource{
		ID: got.ID, Kind: v1.KindCluster, Name: "c-one", Href: href,
		Labels:      map[string]string{"region": "us-east"},
		Metadata:    v1.Metadata{Name: "c-one", DisplayName: `One "1"`, Labels: map[string]string{"region": "us-east"}},
		Spec:        json.RawMessage(`{"b":1.50,"a":"ü"}`),
		Generation:  1,
		CreatedTime: got.CreatedTime, UpdatedTime: got.CreatedTime,
		CreatedBy: "anonymous", UpdatedBy: "anonymous",
		Status: v1.Status{
			Phase: v1.PhasePending, LastUpdatedTime: got.CreatedTime, LastTransitionTime: got.CreatedTime,
			Conditions: []v1.Condition{
				{
					Type: v1.ConditionReconciled, Status: v1.ConditionFalse, Reason: "ReconciledMissingAdapters", Message: "waiting for validation, dns", ObservedGeneration: 1,
					CreatedTime: got.CreatedTime, LastUpdatedTime: got.CreatedTime, LastTransitionTime: got.CreatedTime,
				},
				{
					Type: v1.ConditionLastKnownReconciled, Status: v1.ConditionFalse, Reason: "ReconciledMissingAdapters",
					CreatedTime: got.CreatedTime, LastUpdatedTime: got.CreatedTime, LastTransitionTime: got.CreatedTime,
				},
			},
		},
	}
	wantEqual(t, "created", want, got)
	wantEqual(t, "read", want, f.get("clusters/"+got.ID))
	wantEqual(t, "listed", []v1.Resource{want}, f.list("clusters").Items)
}

func TestCreateChild(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	np := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	owner := &v1.Reference{ID: c.ID, Kind: v1.KindCluster, Href: c.Href}
	wantEqual(t, "ownerResource", owner, np.OwnerResource)
	wantEqual(t, "owner_references", owner, np.OwnerReferences)
	wantEqual(t, "href", c.Href+"/nodepools/"+np.ID, np.Href)
	wantEqual(t, "by href", np, f.get(np.Href))
	wantEqual(t, "flat", np, f.get("nodepools/"+np.ID))
	wantEqual(t, "listed flat", []string{"np-one"}, f.names("nodepools"))
	wantEqual(t, "listed nested", []string{"np-one"}, f.names("clusters/"+c.ID+"/nodepools"))

	other := f.create("clusters", "c-two", nil)
	wantEqual(t, "listed under another", []string{}, f.names("clusters/"+other.ID+"/nodepools"))
	f.do("GET", "clusters/"+other.ID+"/nodepools/"+np.ID, nil).problem(404, "not_found", "in Cluster")
	f.do("PATCH", "clusters/"+other.ID+"/nodepools/"+np.ID, `{"spec":{"a":1}}`).problem(404, "not_found", "in Cluster")
	f.do("DELETE", "clusters/"+other.ID+"/nodepools/"+np.ID, nil).problem(404, "not_found", "in Cluster")
	f.create("clusters/"+other.ID+"/nodepools", "np-one", nil) // a name is taken only under one parent
	f.do("POST", "clusters/"+c.ID+"/nodepools", `{"name":"np-one","spec":{}}`).problem(409, "name_taken", "np-one")
}

func TestPatch(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", map[string]string{"a": "1"})
	path := "clusters/" + c.ID
	patch := func(body string) v1.Resource {
		t.Helper()
		return read[v1.Resource](f.do("PATCH", path, body).want(http.StatusOK))
	}

	spec := patch(`{"spec":{"nodes":3}}`)
	if spec.Generation != 2 || string(spec.Spec) != `{"nodes":3}` || !spec.UpdatedTime.After(c.UpdatedTime) {
		t.Errorf("after a new spec: %+v", spec)
	}
	wantEqual(t, "labels after a new spec", c.Labels, spec.Labels)

	wantEqual(t, "the same spec again", spec, patch(`{"spec":{ "nodes": 3 }}`))
	wantEqual(t, "the same spec, written otherwise", spec, patch(`{"spec":{"nodes":30e-1}}`))
	wantEqual(t, "nothing", spec, patch(`{}`))
	wantEqual(t, "the same labels", spec, patch(`{"labels":{"a":"1"}}`))

	labels := patch(`{"labels":{"b":"2"}}`)
	if labels.Generation != 2 || !labels.UpdatedTime.After(spec.UpdatedTime) {
		t.Errorf("labels alone are no new generation: %+v", labels)
	}
	wantEqual(t, "labels are replaced", map[string]string{"b": "2"}, labels.Labels)
	if none := patch(`{"labels":{}}`); none.Labels != nil || none.Metadata.Labels != nil {
		t.Errorf("labels are left: %v", none.Labels)
	}
	if both := patch(`{"labels":{"c":"3"},"spec":{"nodes":4}}`); both.Generation != 3 || both.Labels["c"] != "3" {
		t.Errorf("both: %+v", both)
	}
}

// TestSpecNumbersAreExact uses numbers that are equal as doubles.
func TestSpecNumbersAreExact(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"n":9007199254740992}}`).want(200)
	got := read[v1.Resource](f.do("PATCH", "clusters/"+c.ID, `{"spec":{"n":9007199254740993}}`).want(200))
	if got.Generation != 3 || string(got.Spec) != `{"n":9007199254740993}` {
		t.Errorf("got %s at generation %d", got.Spec, got.Generation)
	}
}

func TestStatusOverALife(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	want := func(reason string, phase v1.Phase, observed int64) v1.Status {
		t.Helper()
		s := f.get(path).Status
		if s.Phase != phase || s.ObservedGeneration != observed {
			t.Errorf("%s: %s at %d, want %s at %d", reason, s.Phase, s.ObservedGeneration, phase, observed)
		}
		return s
	}
	want("nobody has looked", v1.PhasePending, 0)

	f.report(path, "validation", 1)
	half := want("one of two", v1.PhaseProvisioning, 0)
	if !half.LastUpdatedTime.Equal(c.CreatedTime) {
		t.Errorf("the silent adapter does not show: %v", half.LastUpdatedTime)
	}
	f.report(path, "dns", 1, "-Available")
	want("preconditions are not met", v1.PhaseProvisioning, 1)
	f.report(path, "dns", 1)
	ready := want("both", v1.PhaseReady, 1)

	again := f.report(path, "validation", 1)
	s := want("both again", v1.PhaseReady, 1)
	if !s.LastTransitionTime.Equal(ready.LastTransitionTime) || !s.LastUpdatedTime.After(ready.LastUpdatedTime) || s.LastUpdatedTime.After(again.LastReportTime) {
		t.Errorf("another report took %+v to %+v", ready, s)
	}

	f.do("PATCH", path, `{"spec":{"nodes":3}}`).want(200)
	changed := want("a new spec", v1.PhaseProvisioning, 1)
	if !changed.LastTransitionTime.After(ready.LastTransitionTime) {
		t.Error("the phase changed, the time of the transition did not")
	}
	f.report(path, "dns", 2)
	want("one of two at the new generation", v1.PhaseProvisioning, 1)
	f.report(path, "validation", 2, "-Health")
	want("unhealthy", v1.PhaseFailed, 2)
	f.report(path, "validation", 2)
	want("both at the new generation", v1.PhaseReady, 2)
}

func TestReportsBySelf(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	path := "clusters/" + c.ID
	r := reportOf("dns", 1)
	observed := time.Now().Add(-seconds(20)).UTC().Truncate(time.Microsecond)
	r.ObservedTime, r.Data, r.Metadata = &observed, json.RawMessage(`{"records": [1.0]}`), json.RawMessage(`null`)
	first := read[v1.AdapterStatus](f.do("POST", path+"/statuses", r).want(http.StatusCreated))
	if !first.LastReportTime.Equal(observed) || string(first.Data) != `{"records":[1.0]}` || first.Metadata != nil {
		t.Errorf("kept %+v", first)
	}
	stranger := f.report(path, "billing", 1)
	page := read[v1.AdapterStatusList](f.do("GET", path+"/statuses", nil).want(200))
	wantEqual(t, "reports", v1.AdapterStatusList{Items: []v1.AdapterStatus{stranger, first}, Page: 1, Size: 2, Total: 2}, page)
	page = read[v1.AdapterStatusList](f.do("GET", path+"/statuses?page=2&size=1", nil).want(200))
	wantEqual(t, "second page", v1.AdapterStatusList{Items: []v1.AdapterStatus{first}, Page: 2, Size: 1, Total: 2}, page)
	page = read[v1.AdapterStatusList](f.do("GET", path+"/statuses?page=9", nil).want(200))
	wantEqual(t, "no such page", v1.AdapterStatusList{Items: []v1.AdapterStatus{}, Page: 9, Total: 2}, page)
	if s := f.get(path).Status; s.Phase != v1.PhaseProvisioning || !s.LastUpdatedTime.Equal(c.CreatedTime) {
		t.Errorf("a stranger counts: %+v", s)
	}

	discarded := map[string]func(*v1.Report){
		"a generation that is not there yet":        func(r *v1.Report) { r.ObservedGeneration = 2 },
		"observed before the last":                  func(r *v1.Report) { r.ObservedTime = new(observed.Add(-time.Second)) },
		"not knowing after having known":            func(r *v1.Report) { r.Conditions[0].Status = v1.ConditionUnknown },
		"observed before, in another adapter's eye": func(r *v1.Report) { r.Adapter = "billing" },
	}
	before := f.get(path)
	for reason, change := range discarded {
		r := reportOf("dns", 1)
		r.ObservedTime = new(observed)
		change(&r)
		if a := f.do("PUT", path+"/statuses", r).want(http.StatusNoContent); len(a.body) != 0 {
			t.Errorf("%s: %s", reason, a.body)
		}
	}
	wantEqual(t, "after discarded reports", before, f.get(path))

	f.do("PATCH", path, `{"spec":{"nodes":3}}`).want(200)
	f.report(path, "dns", 2)
	f.do("PUT", path+"/statuses", reportOf("dns", 1)).want(http.StatusNoContent) // an older generation
}

func TestTooManyAdapters(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	for i := range 64 {
		f.report(path, "x-"+string(rune('a'+i/26))+string(rune('a'+i%26)), 1)
	}
	f.do("PUT", path+"/statuses", reportOf("one-more", 1)).problem(409, "too_many_adapters", "reports from 64 adapters")
	f.report(path, "x-aa", 1)
	f.report(path, "dns", 1) // required
}

func TestKindWithoutAdapters(t *testing.T) {
	f := newFixture(t)
	m := f.create("manifests", "m-one", nil)
	if m.Status.Phase != v1.PhaseReady || m.Status.ObservedGeneration != 1 || len(m.Status.Conditions) != 0 || m.Status.Conditions == nil {
		t.Errorf("status %+v", m.Status)
	}
	got := read[v1.Resource](f.do("DELETE", "manifests/"+m.ID, nil).want(http.StatusAccepted))
	if got.Status.Phase != v1.PhaseDeleting || got.DeletedTime == nil || got.Generation != 2 {
		t.Errorf("deleted: %+v", got)
	}
	f.do("GET", "manifests/"+m.ID, nil).problem(404, "not_found", m.ID)
	f.create("workloads", "w-one", nil)
}
