package fleetapi_test

import (
	"net/http"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// TestAnnotations creates, replaces and removes annotations, which are no new generation and no change
// event.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	want := func(what string, got v1.Resource, annotations map[string]string) {
		t.Helper()
		wantEqual(t, what, annotations, got.Annotations)
		read := f.get("clusters/" + got.ID)
		wantEqual(t, what+", read again", annotations, read.Annotations)
		wantEqual(t, what+", in a list", annotations, f.list("clusters?ids=" + got.ID).Items[0].Annotations)
		if read.Generation != 1 || read.Labels["a"] != "1" {
			t.Errorf("%s: %+v", what, read)
		}
	}
	text := "{\"x\": 1}\n\"ü\""
	c := read[v1.Resource](f.do("POST", "clusters", v1.CreateRequest{
		Name: "c-one", Labels: map[string]string{"a": "1"}, Annotations: map[string]string{"fleetloop.io/Note": text}, Spec: []byte(`{}`),
	}).want(http.StatusCreated))
	want("created", c, map[string]string{"fleetloop.io/Note": text})
	tag := f.tag("clusters/" + c.ID)
	patch := func(body string) v1.Resource {
		t.Helper()
		return read[v1.Resource](f.do("PATCH", "clusters/"+c.ID, body).want(http.StatusOK))
	}
	events := len(f.changes("").Items)
	want("the same", patch(`{"annotations":{"fleetloop.io/Note":"{\"x\": 1}\n\"ü\""}}`), map[string]string{"fleetloop.io/Note": text})
	if f.tag("clusters/"+c.ID) != tag {
		t.Error("a patch that changes nothing changes the ETag")
	}
	want("replaced", patch(`{"annotations":{"other":""}}`), map[string]string{"other": ""})
	if f.tag("clusters/"+c.ID) == tag {
		t.Error("new annotations leave the ETag unchanged")
	}
	want("labels alone", patch(`{"labels":{"a":"1","b":"2"}}`), map[string]string{"other": ""})
	want("removed", patch(`{"annotations":{}}`), nil)
	wantEqual(t, "change events", events+1, len(f.changes("").Items)) // of the labels

	f.do("PATCH", "clusters/"+c.ID, `{"annotations":{"a b":"1"}}`).problem(http.StatusBadRequest, "invalid_fields", "annotations")
	f.do("PATCH", "clusters/"+c.ID, `{"annotations":{"a":"\u0000"}}`).problem(http.StatusBadRequest, "invalid_fields", "annotations.a")
	long := map[string]string{"a": strings.Repeat("x", 256<<10)}
	f.do("POST", "clusters", v1.CreateRequest{Name: "c-two", Annotations: long, Spec: []byte(`{}`)}).problem(http.StatusBadRequest, "invalid_fields", "annotations")
}
