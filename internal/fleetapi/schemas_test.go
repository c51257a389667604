package fleetapi_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

const versionSchema = `{"$schema":"https://json-schema.org/draft/2020-12/schema","type":"object","properties":{
	"version":{"type":"string","pattern":"^1\\.3[0-9]$"},"network":{"type":"object","properties":{"size":{"type":"integer","maximum":9}}}}}`

// TestSchemas checks that a registered schema applies to new and changed specs, and that the answer
// names existing violations.
func TestSchemas(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokens})
	a, operator := f.as("token-a"), f.as("token-o")
	create := func(name, spec string) *answer {
		return a.do("POST", "clusters", `{"name":"`+name+`","spec":`+spec+`}`)
	}
	bad := read[v1.Resource](create("c-bad", `{"version":"9.99"}`).want(201))
	good := read[v1.Resource](create("c-good", `{"version":"1.34"}`).want(201))
	wantEqual(t, "none", 0, len(read[v1.SpecSchemaList](a.do("GET", "schemas", nil).want(200)).Items))
	a.do("GET", "schemas/clusters", nil).problem(404, "not_found", "no schema is registered for clusters")

	a.do("PUT", "schemas/clusters", versionSchema).problem(403, "forbidden", "the role operator")
	a.do("DELETE", "schemas/clusters", nil).problem(403, "forbidden", "the role operator")
	f.as("token-s").do("PUT", "schemas/clusters", versionSchema).problem(403, "forbidden", "the role operator")
	operator.do("PUT", "schemas/colours", versionSchema).problem(404, "not_found", "colours")
	operator.do("PUT", "schemas/clusters", `{"type":"colour"}`).problem(400, "invalid_body", "not a valid JSON Schema")
	operator.do("PUT", "schemas/clusters", `{"$ref":"https://example.com/schema.json"}`).problem(400, "invalid_body", "refers to another document")
	create("c-still", `{"version":7}`).want(201)

	set := read[v1.SpecSchema](operator.do("PUT", "schemas/clusters", versionSchema).want(200))
	if set.Existing == nil || set.Existing.Checked != 3 || set.Existing.Invalid != 2 || len(set.Existing.Examples) != 2 {
		t.Fatalf("existing: %+v", set.Existing)
	}
	first := set.Existing.Examples[0]
	if first.ID != bad.ID || first.Tenant != "a" || first.Errors[0].Pointer != "/spec/version" || set.UpdatedBy != "on-call" {
		t.Errorf("first: %+v", first)
	}
	stored := read[v1.SpecSchema](a.do("GET", "schemas/Cluster", nil).want(200))
	if !strings.Contains(string(stored.Schema), `"maximum":9`) || stored.Existing != nil {
		t.Errorf("stored: %+v", stored)
	}

	p := create("c-new", `{"version":"9.99","network":{"size":10}}`).problem(400, "invalid_fields", "spec.version does not meet the schema")
	var got []string
	for _, e := range p.Errors {
		got = append(got, e.Field+" "+e.Pointer+" "+e.Constraint)
	}
	wantEqual(t, "violations", 2, len(got))
	for _, want := range []string{"spec.version /spec/version pattern", "spec.network.size /spec/network/size max"} {
		if !strings.Contains(strings.Join(got, "; "), want) {
			t.Errorf("violations %v lack %q", got, want)
		}
	}
	a.do("PATCH", "clusters/"+good.ID, `{"spec":{"version":"9.99"}}`).problem(400, "invalid_fields", "spec.version")
	wantEqual(t, "generation of what was refused", int64(1), a.get("clusters/"+good.ID).Generation)
	a.do("PATCH", "clusters/"+good.ID, `{"spec":{"version":"1.35"}}`).want(200)
	a.do("PATCH", "clusters/"+bad.ID, `{"labels":{"a":"1"}}`).want(200) // without a change of its spec
	lines := `{"name":"c-one","spec":{"version":"1.30"}}` + "\n" + `{"name":"c-two","spec":{"version":"0"}}`
	load := func() *answer {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.BasePath+"/clusters/bulk", strings.NewReader(lines))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", v1.ContentTypeNDJSON)
		r.Header.Set("Authorization", "Bearer token-a")
		return a.send(r, []byte(lines))
	}
	load().problem(400, "invalid_fields", "line 2: spec.version")
	a.do("POST", "manifests", `{"name":"m-one","spec":{"version":"9.99"}}`).want(201) // another kind

	// Another process sees the change.
	other := newFixtureWith(t, options{cfg: defaults(), tokens: tokens, database: f.database})
	other.as("token-o").do("PUT", "schemas/clusters", `{"required":["version"]}`).want(200)
	create("c-odd", `{"version":"9.99"}`).want(201)
	create("c-none", `{}`).problem(400, "invalid_fields", "spec does not meet the schema")
	other.as("token-o").do("DELETE", "schemas/clusters", nil).want(204)
	create("c-none", `{}`).want(201)
	load().want(200)
	operator.do("DELETE", "schemas/clusters", nil).problem(404, "not_found", "no schema is registered")
}

// TestSchemaWarningsAreBounded checks that all resources are counted, and only some are named.
func TestSchemaWarningsAreBounded(t *testing.T) {
	f := newFixture(t)
	var lines strings.Builder
	for i := range 1100 {
		fmt.Fprintf(&lines, `{"name":"m-%04d","spec":{"n":%d}}`+"\n", i, i)
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.BasePath+"/manifests/bulk", strings.NewReader(lines.String()))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", v1.ContentTypeNDJSON)
	f.send(r, []byte(lines.String())).want(200)
	f.delete("manifests/" + f.list("manifests?limit=1").Items[0].ID)
	got := read[v1.SpecSchema](f.do("PUT", "schemas/manifests", `{"properties":{"n":{"maximum":99}}}`).want(200)).Existing
	if got.Checked != 1099 || got.Invalid != 1000 || len(got.Examples) != 20 || got.Examples[0].Name != "m-0100" {
		t.Errorf("checked %d, invalid %d, named %d", got.Checked, got.Invalid, len(got.Examples))
	}
}
