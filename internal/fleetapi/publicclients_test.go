package fleetapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// The tests in this file send requests of public HyperFleet API clients, and require that API's
// answers.

// TestPublicSearch checks that all search columns of public clients are supported.
func TestPublicSearch(t *testing.T) {
	f := newFixtureWith(t, options{cfg: defaults(), tokens: tokens})
	f, b := f.as("token-a"), f.as("token-b")
	create := func(f *fixture, name, spec string) v1.Resource {
		return read[v1.Resource](f.do("POST", "clusters", `{"kind":"Cluster","name":"`+name+`","spec":`+spec+`}`).want(201))
	}
	east := create(f, "c-east", `{"region":"us-east1","network":{"size":3},"autopilot":true}`)
	create(f, "c-west", `{"region":"us-west1","network":{"size":12},"autopilot":false}`)
	create(f, "c-odd", `{"network":{"size":"many"}}`)
	create(f, "c-huge", `{"region":null,"network":{"size":1e999999}}`)
	create(f, "c-nul", `{"region":"\u0000"}`)
	create(b, "c-other", `{"region":"us-east1","network":{"size":3}}`)
	pool := read[v1.Resource](f.do("POST", "clusters/"+east.ID+"/nodepools", `{"kind":"NodePool","name":"np-one","spec":{"replicas":2}}`).want(201))

	for query, want := range map[string][]string{
		"spec.region='us-east1'":                                 {"c-east"},
		"spec.region in ('us-east1','us-west1')":                 {"c-east", "c-west"},
		"spec.region in ['us-east1', 'nowhere']":                 {"c-east"},
		"spec.region like 'us-%'":                                {"c-east", "c-west"},
		"spec.region != 'us-east1'":                              {"c-huge", "c-nul", "c-odd", "c-west"},
		"spec.region is null":                                    {"c-huge", "c-nul", "c-odd"},
		"spec.network.size > 2":                                  {"c-east", "c-west"},
		"spec.network.size > 2.5 and spec.network.size < 4":      {"c-east"},
		"spec.network.size between 10 and 20":                    {"c-west"},
		"spec.network.size = 3 or spec.region = 'us-west1'":      {"c-east", "c-west"},
		"spec.network.size = 'many'":                             {"c-odd"},
		"spec.autopilot = true":                                  {"c-east"},
		"not spec.autopilot = true":                              {"c-huge", "c-nul", "c-odd", "c-west"},
		"spec.no.such.path = 'x'":                                {},
		"spec.region = ''' or 1=1 --'":                           {},
		"updated_by = 'ann'":                                     {"c-east", "c-huge", "c-nul", "c-odd", "c-west"},
		"updated_by = 'eve'":                                     {},
		"kind = 'Cluster' and name = 'c-east'":                   {"c-east"},
		"owner_id is null and name like 'c-_dd'":                 {"c-odd"},
		"id = 'not-a-uuid'":                                      {},
		"id > 'a' or id in ('x', '" + east.ID + "')":             {"c-east"},
		"id != 'cls-123' and name = 'c-east'":                    {"c-east"},
		"id like '" + east.ID[:30] + "%' and name = 'c-east'":    {"c-east"},
		"id = '" + strings.ToUpper(east.ID) + "'":                {"c-east"},
		"name in ('c-east','c-other') and spec.network.size=3.0": {"c-east"},
	} {
		wantEqual(t, query, want, f.names(pathOf("clusters", "search", query, "order", "name")))
	}
	wantEqual(t, "by owner", []string{pool.Name}, f.names(pathOf("nodepools", "search", "owner_id='"+east.ID+"'")))
	wantEqual(t, "by another", []string{}, f.names(pathOf("nodepools", "search", "owner_id = 'cls-1'")))
	wantEqual(t, "other tenant", []string{"c-other"}, b.names(pathOf("clusters", "search", "spec.region='us-east1'")))
	wantEqual(t, "all tenants", []string{"c-east", "c-other"}, f.as("token-s").names(pathOf("clusters", "search", "spec.region='us-east1'", "order", "name")))

	for query, says := range map[string]string{
		"spec = '{}'":       `unknown column "spec"`,
		"spec.a/b = 'x'":    "not a path in the spec",
		"spec..a = 'x'":     "not a path in the spec",
		"spec.region = red": "a quoted string, a number, true or false",
		strings.Repeat("spec.a = 1 or ", 8) + "spec.a = 2": "at most 8 spec columns",
	} {
		f.do("GET", pathOf("clusters", "search", query), nil).problem(400, "invalid_query", says)
	}
}

// pathOf returns a path with a query.
func pathOf(path string, pairs ...string) string {
	v := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		v.Add(pair[0], pair[1])
	}
	return path + "?" + v.Encode()
}

//nolint:gosec // they open nothing but the fixtures of these tests
const tokens = `tokens:
  - {token: token-a, subject: ann, tenant: a}
  - {token: token-b, subject: bob, tenant: b}
  - {token: token-s, subject: sentinel, roles: [system]}
  - {token: token-o, subject: on-call, roles: [operator]}
`

// TestPublicOrders checks lists ordered by several columns, by page number and by token.
func TestPublicOrders(t *testing.T) {
	o := options{cfg: defaults()}
	f := newFixtureWith(t, o)
	for i, name := range []string{"c-b", "c-d", "c-a", "c-c", "c-e"} {
		r := f.create("clusters", name+"x", nil)
		if i%2 == 1 {
			f.do("PATCH", "clusters/"+r.ID, `{"spec":{"n":1}}`).want(200)
		}
		if i > 2 {
			f.delete("clusters/" + r.ID)
		}
	}
	for order, want := range map[string]string{
		"kind asc,name desc":                "e d c b a",
		"generation desc, name asc":         "c d e a b",
		"generation,name desc":              "b a e d c",
		"deleted_time,name":                 "c e a b d",
		"deleted_time desc,name asc":        "a b d e c",
		"created_by,owner_id,name":          "a b c d e",
		"kind":                              "b d a c e",
		"kind,created_by,deleted_by,name":   "c e a b d",
		"updated_by desc,created_time desc": "e c a d b",
		"href desc":                         "e c a d b",
		"owner_id":                          "b d a c e",
		"created_time,id,name":              "b d a c e",
		" name  ASC , id desc,":             "a b c d e",
		"status.phase,name":                 "c e a b d",
		"status.last_transition_time desc":  "e c a d b",
	} {
		letters := func(names []string) string {
			for i := range names {
				names[i] = names[i][2:3]
			}
			return strings.Join(names, " ")
		}
		wantEqual(t, order, want, letters(f.names(pathOf("clusters", "order", order))))
		var walked, continued []string
		for n := 1; n <= 3; n++ {
			walked = append(walked, f.names(pathOf("clusters", "order", order, "size", "2", "page", fmt.Sprint(n)))...)
		}
		wantEqual(t, order+" by page", want, letters(walked))
		for token, more := "", true; more; more = token != "" {
			q := pathOf("clusters", "order", order, "limit", "2")
			if token != "" {
				q += "&continue=" + token
			}
			page := f.list(q)
			continued, token = append(continued, namesOf(page)...), page.Continue
		}
		wantEqual(t, order+" by token", want, letters(continued))
	}
	wantEqual(t, "given twice", "c-ex c-dx c-cx c-bx c-ax", strings.Join(f.names("clusters?order=kind&order=name+desc"), " "))
	wantEqual(t, "empty", 5, len(f.list("clusters?order=").Items))
	first := f.list(pathOf("clusters", "order", "name", "limit", "2"))
	f.do("GET", pathOf("clusters", "order", "name desc", "continue", first.Continue), nil).problem(400, "invalid_query", "belongs to another query")
	f.do("GET", pathOf("clusters", "order", "name", "continue", first.Continue[:20]), nil).problem(400, "invalid_query", "")
	for _, order := range []string{"nonexistent_field asc", "name ascending", "name; DROP TABLE clusters", "pg_sleep(10)", "name asc extra", "status.last_updated_time", "labels.a"} {
		f.do("GET", pathOf("clusters", "order", order), nil).problem(400, "invalid_query", "order")
	}
}

// TestPublicFields checks that a list and a resource show the selected fields and the id.
func TestPublicFields(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", map[string]string{"a": "1"})
	bare := f.create("clusters", "c-two", nil)
	f.report("clusters/"+c.ID, "dns", 1)
	shown := func(path string) map[string]any {
		t.Helper()
		return read[map[string]any](f.do("GET", path, nil).want(200))
	}
	first := func(path string) map[string]any {
		t.Helper()
		items, _ := shown(path)["items"].([]any)
		if len(items) == 0 {
			t.Fatalf("%s is empty", path)
		}
		item, _ := items[0].(map[string]any)
		return item
	}
	wantEqual(t, "list", map[string]any{"id": c.ID, "name": "c-one", "labels": map[string]any{"a": "1"}}, first("clusters?order=name&fields=name,labels"))
	wantEqual(t, "spaces", map[string]any{"id": c.ID, "name": "c-one"}, first("clusters?order=name&fields=+name+,"))
	wantEqual(t, "twice", map[string]any{"id": c.ID, "name": "c-one", "generation": 1.0}, first("clusters?order=name&fields=name&fields=generation"))
	wantEqual(t, "absent", map[string]any{"id": bare.ID, "deleted_time": nil, "labels": nil}, first("clusters?order=name+desc&fields=deleted_time,labels"))
	wantEqual(t, "one", map[string]any{"id": c.ID, "kind": "Cluster", "spec": map[string]any{}}, shown("clusters/"+c.ID+"?fields=kind,spec"))
	status, _ := first("clusters?order=name&fields=status.conditions.type,status.conditions.status")["status"].(map[string]any)
	wantEqual(t, "conditions", []any{
		map[string]any{"type": "Reconciled", "status": "False"}, map[string]any{"type": "LastKnownReconciled", "status": "False"}, map[string]any{"type": "DnsSuccessful", "status": "True"},
	}, status["conditions"])
	whole, _ := first("clusters?order=name&fields=status.conditions.type,status.*")["status"].(map[string]any)
	if len(whole) != 5 {
		t.Errorf("status.* shows %v", whole)
	}
	wantEqual(t, "empty list", []any{}, shown("manifests?fields=name")["items"])
	if page := shown("clusters?fields=name&limit=1"); page["continue"] == nil || page["cursor"] == nil {
		t.Errorf("a page by token: %v", page)
	}
	for _, fields := range []string{"colour", "name,status.colour", "spec.region", "status.conditions.colour.x"} {
		f.do("GET", "clusters?fields="+fields, nil).problem(400, "invalid_query", "fields names")
		f.do("GET", "clusters/"+c.ID+"?fields="+fields, nil).problem(400, "invalid_query", "fields names")
	}
	etag := f.do("GET", "clusters?fields=name", nil).header.Get("Etag")
	if other := f.do("GET", "clusters?fields=labels", nil).header.Get("Etag"); etag == other {
		t.Error("two pages with other fields have the same tag")
	}
}

// raw sends a request without a content type.
func (f *fixture) raw(method, path, body string, header http.Header) *answer {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+v1.BasePath+"/"+path, strings.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	maps.Copy(r.Header, header)
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	a := &answer{T: f.T, status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		f.Fatal(err)
	}
	return a
}

// TestPublicBodies checks that unknown members of a body are ignored where the public API ignores
// them.
func TestPublicBodies(t *testing.T) {
	f := newFixture(t)
	body := `{"id":"019466a0-8f8e-7abc-9def-0123456789ab","href":"/api/hyperfleet/v1/clusters/x","kind":"Cluster","name":"c-one","spec":{},"generation":7,"tenancy":{},"status":{"conditions":[]}}`
	got := read[v1.Resource](f.do("POST", "clusters", body).want(201))
	if got.ID == "019466a0-8f8e-7abc-9def-0123456789ab" || got.Href != v1.BasePath+"/clusters/"+got.ID || got.Generation != 1 {
		t.Errorf("the client chose: %+v", got)
	}
	f.do("POST", "clusters?strict=true", `{"name":"c-two","spec":{},"colour":"red"}`).problem(400, "invalid_body", "/colour is not a known field")
	f.do("POST", "clusters/"+got.ID+"/nodepools", `{"kind":"NodePool","name":"np-one","spec":{},"owner_references":{"id":"x"}}`).want(201)
	report := reportOf("dns", 1)
	var with map[string]any
	text, err := json.Marshal(report)
	if err == nil {
		err = json.Unmarshal(text, &with)
	}
	if err != nil {
		t.Fatal(err)
	}
	with["colour"] = "red"
	f.do("PUT", "clusters/"+got.ID+"/statuses", with).want(201)
	f.do("PATCH", "clusters/"+got.ID, `{"spec":{},"colour":"red"}`).problem(400, "invalid_body", "/colour is not a known field")
	f.do("DELETE", "clusters/"+got.ID, nil).want(202)
	f.do("POST", "clusters/"+got.ID+"/force-delete", `{"reason":"it is gone","colour":"red"}`).want(204)
}

// TestPublicPaths checks that one trailing slash has no effect, and that a body without a type is
// JSON. A page of another site must not be able to use that.
func TestPublicPaths(t *testing.T) {
	f := newFixture(t)
	got := read[v1.Resource](f.raw("POST", "clusters/", `{"kind":"Cluster","name":"c-one","spec":{}}`, nil).want(201))
	f.do("GET", "clusters/", nil).want(200)
	f.do("GET", "clusters/"+got.ID+"/", nil).want(200)
	f.do("GET", "clusters/?size=1", nil).want(200)
	f.raw("PATCH", "clusters/"+got.ID+"/", `{"labels":{"a":"1"}}`, nil).want(200)
	report, err := json.Marshal(reportOf("dns", 1))
	if err != nil {
		t.Fatal(err)
	}
	f.raw("PUT", "clusters/"+got.ID+"/statuses/", string(report), nil).want(201)
	f.do("DELETE", "clusters/"+got.ID+"/", nil).want(202)

	withTokens := newFixtureWith(t, options{cfg: defaults(), tokens: tokensOfRoles}).as("red")
	for _, header := range []http.Header{{"Origin": {"https://elsewhere.example"}}, {"Sec-Fetch-Site": {"cross-site"}}} {
		f.raw("POST", "clusters", `{"name":"c-two","spec":{}}`, header).problem(403, "forbidden", "a page of another web site")
		withTokens.raw("POST", "clusters", `{"name":"c-two","spec":{}}`, header).problem(415, "unsupported_media_type", "send application/json")
	}
	f.raw("POST", "clusters", `{"name":"c-two","spec":{}}`, http.Header{"Content-Type": {"text/plain"}}).problem(415, "unsupported_media_type", "text/plain")
}

// TestPublicNamesOfDeleted checks that a name is free once the deletion of its resource was
// requested.
func TestPublicNamesOfDeleted(t *testing.T) {
	f := newFixture(t)
	first := f.create("clusters", "c-one", nil)
	f.do("POST", "clusters", `{"name":"c-one","spec":{}}`).problem(409, "name_taken", "c-one")
	pool := f.create("clusters/"+first.ID+"/nodepools", "np-one", nil)
	f.do("DELETE", "nodepools/"+pool.ID, nil).want(202)
	f.create("clusters/"+first.ID+"/nodepools", "np-one", nil)

	f.delete("clusters/" + first.ID)
	second := f.create("clusters", "c-one", nil)
	if second.ID == first.ID {
		t.Error("it is the same one")
	}
	f.do("POST", "clusters", `{"name":"c-one","spec":{}}`).problem(409, "name_taken", "c-one")
	f.delete("clusters/" + second.ID)
	f.create("clusters", "c-one", nil)
	wantEqual(t, "all are listed", []string{"c-one", "c-one", "c-one"}, f.names("clusters"))
	wantEqual(t, "one is live", []string{"c-one"}, f.names(pathOf("clusters", "search", "name='c-one' and deleted_time is null")))
	f.do("POST", "clusters/"+first.ID+"/force-delete", `{"reason":"test"}`).want(204)
}

// publicConstraints are the values that clients of the public API know.
var publicConstraints = []string{"required", "min", "max", "min_length", "max_length", "pattern", "enum", "format", "unique"}

// TestPublicConstraints checks that a refusal names a constraint that public clients know.
func TestPublicConstraints(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	f.delete("clusters/" + c.ID)
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	for _, request := range []struct{ method, path, body string }{
		{"POST", "clusters", `{"kind":"NodePool","name":"X","spec":7,"labels":{"a b":"?","c":"?"}}`},
		{"POST", "clusters", `{"name":"c-two","spec":{},"labels":{` + strings.Join(many, ",") + `}}`},
		{"POST", "clusters", `{"name":"c-two","metadata":{"name":"c-three","labels":{}},"labels":{},"spec":{}}`},
		{"PATCH", "clusters/" + c.ID, `{"spec":null,"labels":[]}`},
		{"POST", "clusters/" + c.ID + "/force-delete", `{"reason":""}`},
		{"POST", "clusters/" + c.ID + "/force-delete", `{"reason":"` + strings.Repeat("x", 1025) + `"}`},
		{"PUT", "clusters/" + c.ID + "/statuses", `{"adapter":"","observed_generation":0,"conditions":[{"type":"a b","status":"Maybe"},{"type":"A","status":"True"},{"type":"A","status":"True"}]}`},
		{"GET", "clusters?size=x", ""},
		{"GET", "clusters?size=0", ""},
		{"GET", "clusters?page=1&page=2", ""},
		{"GET", "clusters?strict=true&colour=red", ""},
		{"GET", "clusters?limit=5&page=2", ""},
		{"GET", "clusters?size=1&pageSize=2", ""},
		{"GET", "clusters?ids=", ""},
		{"GET", "clusters?ids=" + strings.Repeat("x,", 200), ""},
		{"GET", "clusters?watch=perhaps", ""},
		{"GET", "clusters?changed_since=x", ""},
		{"GET", "clusters/sync?state=odd", ""},
	} {
		var body any
		if request.body != "" {
			body = request.body
		}
		p := read[v1.Problem](f.do(request.method, request.path, body).want(400))
		for _, e := range p.Errors {
			if !slices.Contains(publicConstraints, e.Constraint) {
				t.Errorf("%s %s: constraint %q of %s is not one that public clients know", request.method, request.path, e.Constraint, e.Field)
			}
		}
		if len(p.Errors) == 0 {
			t.Errorf("%s %s names no field: %s", request.method, request.path, p.Detail)
		}
	}
}

// TestPublicUnknownAvailability checks a first report with Unknown availability. It is stored and
// adds no condition to the resource, whose values are True and False.
func TestPublicUnknownAvailability(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	unknown := reportOf("dns", 1)
	unknown.Conditions[0].Status = v1.ConditionUnknown
	kept := read[v1.AdapterStatus](f.do("PUT", path+"/statuses", unknown).want(201))
	wantEqual(t, "what the adapter said", v1.ConditionUnknown, kept.Conditions[0].Status)
	f.report(path, "validation", 1)
	var types []string
	for _, c := range f.get(path).Status.Conditions {
		types = append(types, c.Type)
		if c.Status != v1.ConditionTrue && c.Status != v1.ConditionFalse {
			t.Errorf("condition %s is %s", c.Type, c.Status)
		}
	}
	wantEqual(t, "conditions", []string{"Reconciled", "LastKnownReconciled", "ValidationSuccessful"}, types)
	f.do("PUT", path+"/statuses", unknown).want(204)
	f.report(path, "dns", 1)
	wantEqual(t, "reconciled", v1.ConditionTrue, f.get(path).Status.Conditions[0].Status)
}
