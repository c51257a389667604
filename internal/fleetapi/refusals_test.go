package fleetapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
)

const nobody = "019a3f5e-7c1d-7b3e-8f00-0123456789ab"

func TestCreateRefuses(t *testing.T) {
	f := newFixture(t)
	f.create("clusters", "taken", nil)
	many := make([]string, 65)
	for i := range many {
		many[i] = fmt.Sprintf(`"k%d":"v"`, i)
	}
	cases := map[string]struct {
		reason string
		path   string
		body   string
		status int
		code   string
		says   string
	}{
		"NoName":         {"a resource has a name", "clusters", `{"spec":{}}`, 400, "invalid_fields", "name must be 3 to 53"},
		"ShortName":      {"names have bounds", "clusters", `{"name":"ab","spec":{}}`, 400, "invalid_fields", "name must be"},
		"LongName":       {"names have bounds", "clusters", `{"name":"` + strings.Repeat("a", 54) + `","spec":{}}`, 400, "invalid_fields", "name must be"},
		"UpperCase":      {"a name is a DNS label", "clusters", `{"name":"C-One","spec":{}}`, 400, "invalid_fields", "name must be"},
		"NoSpec":         {"a resource has a spec", "clusters", `{"name":"c-one"}`, 400, "invalid_fields", "spec must be an object"},
		"NullSpec":       {"null is none", "clusters", `{"name":"c-one","spec":null}`, 400, "invalid_fields", "spec must be an object"},
		"ListSpec":       {"a list is none", "clusters", `{"name":"c-one","spec":[]}`, 400, "invalid_fields", "spec must be an object"},
		"OtherKind":      {"the path says the kind", "clusters", `{"kind":"NodePool","name":"c-one","spec":{}}`, 400, "invalid_fields", "kind must be Cluster"},
		"BadLabelKey":    {"labels are those of Kubernetes", "clusters", `{"name":"c-one","spec":{},"labels":{"a b":"c"}}`, 400, "invalid_fields", `labels has the key "a b"`},
		"BadLabelValue":  {"labels are those of Kubernetes", "clusters", `{"name":"c-one","spec":{},"labels":{"a":"b c"}}`, 400, "invalid_fields", "labels.a "},
		"ManyLabels":     {"labels are bounded", "clusters", `{"name":"c-one","spec":{},"labels":{` + strings.Join(many, ",") + `}}`, 400, "invalid_fields", "labels must be at most 64"},
		"LabelsTwice":    {"which would count?", "clusters", `{"name":"c-one","spec":{},"labels":{},"metadata":{"labels":{}}}`, 400, "invalid_fields", "metadata.labels must not"},
		"OtherName":      {"which would count?", "clusters", `{"name":"c-one","spec":{},"metadata":{"name":"c-two"}}`, 400, "invalid_fields", "metadata.name must equal name"},
		"LongDisplay":    {"it is shown somewhere", "clusters", `{"name":"c-one","spec":{},"metadata":{"displayName":"` + strings.Repeat("ä", 256) + `"}}`, 400, "invalid_fields", "at most 255"},
		"NULDisplay":     {"no database holds it", "clusters", `{"name":"c-one","spec":{},"metadata":{"displayName":"a\u0000"}}`, 400, "invalid_fields", "metadata.displayName"},
		"UnknownField":   {"a slip would be lost", "clusters?strict=true", `{"name":"c-one","spec":{},"colour":"red"}`, 400, "invalid_body", "/colour is not a known field"},
		"Duplicate":      {"which would count?", "clusters", `{"name":"c-one","name":"c-two","spec":{}}`, 400, "invalid_body", "/name occurs twice"},
		"Malformed":      {"not JSON", "clusters", `{"name":`, 400, "invalid_body", "not valid JSON"},
		"Empty":          {"nothing", "clusters", ``, 400, "invalid_body", "empty"},
		"TooDeep":        {"bounded", "clusters", `{"name":"c-one","spec":` + strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64) + `}`, 400, "invalid_body", "nested deeper"},
		"TooLarge":       {"bounded", "clusters", `{"name":"c-one","spec":{"a":"` + strings.Repeat("x", 1<<20) + `"}}`, 413, "body_too_large", "1048576"},
		"Taken":          {"names are unique", "clusters", `{"name":"taken","spec":{}}`, 409, "name_taken", "taken"},
		"FlatChild":      {"a node pool has a cluster", "nodepools", `{"name":"np-one","spec":{}}`, 422, "parent_required", "/clusters/{id}/nodepools"},
		"NoParent":       {"which is there", "clusters/" + nobody + "/nodepools", `{"name":"np-one","spec":{}}`, 404, "not_found", nobody},
		"BadParent":      {"what is no id names nothing", "clusters/cls-1/nodepools", `{"name":"np-one","spec":{}}`, 404, "not_found", "cls-1"},
		"ChildName":      {"a node pool's name is shorter", "clusters/" + nobody + "/nodepools", `{"name":"` + strings.Repeat("a", 16) + `","spec":{}}`, 400, "invalid_fields", "3 to 15"},
		"UnknownElement": {"no such collection", "channels", `{"name":"np-one","spec":{}}`, 404, "not_found", "/openapi.yaml"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f.under(t).do("POST", tc.path, tc.body).problem(tc.status, tc.code, tc.says)
		})
	}
	wantEqual(t, "created nevertheless", []string{"taken"}, f.names("clusters"))
}

func TestCreateWithMetadata(t *testing.T) {
	f := newFixture(t)
	got := read[v1.Resource](f.do("POST", "clusters", `{"metadata":{"name":"c-one","labels":{"a":"1"}},"spec":{}}`).want(201))
	if got.Name != "c-one" || got.Labels["a"] != "1" {
		t.Errorf("got %+v", got)
	}
}

func TestFieldErrors(t *testing.T) {
	f := newFixture(t)
	p := f.do("POST", "clusters", `{"name":"X","labels":{"a":"?"},"spec":7}`).problem(400, "invalid_fields", "")
	var got []string
	for _, e := range p.Errors {
		got = append(got, e.Field+" "+e.Constraint)
	}
	wantEqual(t, "fields", []string{"name pattern", "labels.a pattern", "spec format"}, got)
	if p.Title != "Bad Request" || p.Instance != v1.BasePath+"/clusters" || p.Type != "about:blank" {
		t.Errorf("problem %+v", p)
	}
}

func TestPatchRefuses(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", map[string]string{"a": "1"}).ID
	for body, says := range map[string]string{
		`{"spec":null}`:                "spec must be an object",
		`{"spec":"x"}`:                 "spec must be an object",
		`{"labels":null}`:              "{} removes all labels",
		`{"labels":[]}`:                "labels must be an object",
		`{"labels":{"a":1}}`:           "labels must be an object",
		`{"labels":{"a":"b c"}}`:       "labels.a ",
		`{"name":"other"}`:             "/name is not a known field",
		`{"status":{}}`:                "/status is not a known field",
		`{"spec":{},"spec":{}}`:        "/spec occurs twice",
		`{"labels":{"a":"1","a":"2"}}`: "/labels/a occurs twice",
	} {
		if p := read[v1.Problem](f.do("PATCH", path, body).want(400)); !strings.Contains(p.Detail, says) {
			t.Errorf("%s: %s, want %q", body, p.Detail, says)
		}
	}
	f.do("PATCH", "clusters/"+nobody, `{"spec":{}}`).problem(404, "not_found", nobody)
	f.do("PATCH", "clusters/x", `{"spec":{}}`).problem(404, "not_found", `"x"`)
	if got := f.get(path); got.Generation != 1 || got.Labels["a"] != "1" {
		t.Errorf("a refused patch left a trace: %+v", got)
	}
}

func TestReportRefuses(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	cases := map[string]struct {
		change func(*v1.Report)
		says   string
	}{
		"NoAdapter":  {func(r *v1.Report) { r.Adapter = "" }, "adapter must be"},
		"NoHealth":   {func(r *v1.Report) { r.Conditions = r.Conditions[:2] }, "of type Health"},
		"Twice":      {func(r *v1.Report) { r.Conditions = append(r.Conditions, r.Conditions[0]) }, "more than once"},
		"BadStatus":  {func(r *v1.Report) { r.Conditions[0].Status = "Maybe" }, "True, False or Unknown"},
		"Generation": {func(r *v1.Report) { r.ObservedGeneration = 0 }, "at least 1"},
		"TooOld":     {func(r *v1.Report) { r.ObservedTime = new(time.Now().Add(-31 * time.Minute)) }, "30m0s old"},
		"TooNew":     {func(r *v1.Report) { r.ObservedTime = new(time.Now().Add(6 * time.Minute)) }, "5m0s ahead"},
		"BadData":    {func(r *v1.Report) { r.Data = []byte(`[1]`) }, "data must be an object"},
		"NUL":        {func(r *v1.Report) { r.Conditions[0].Message = "a\x00b" }, "NUL"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := reportOf("dns", 1)
			tc.change(&r)
			f.under(t).do("PUT", path+"/statuses", r).problem(400, "invalid_fields", tc.says)
		})
	}
	f.do("PUT", path+"/statuses", `{"adapter":"dns","observed_generation":"1"}`).problem(400, "invalid_body", "/observed_generation")
	f.do("PUT", path+"/statuses", `{"adapter":"dns","observed_time":"yesterday"}`).problem(400, "invalid_body", "/observed_time")
	f.do("PUT", "clusters/"+nobody+"/statuses", reportOf("dns", 1)).problem(404, "not_found", nobody)
	f.do("GET", "clusters/"+nobody+"/statuses", nil).problem(404, "not_found", nobody)
	f.do("GET", path+"/statuses?page=0", nil).problem(400, "invalid_query", "page must be at least 1")
}

func TestMethodsAndMedia(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	for p, allow := range map[string]string{
		"clusters":             "GET, HEAD, POST",
		path:                   "DELETE, GET, HEAD, PATCH",
		path + "/statuses":     "GET, HEAD, POST, PUT",
		path + "/force-delete": "POST",
		path + "/nodepools":    "GET, HEAD, POST",
		"nodepools/" + nobody:  "DELETE, GET, HEAD, PATCH",
	} {
		a := f.do("OPTIONS", p, nil)
		a.problem(405, "method_not_allowed", allow)
		wantEqual(t, "Allow on "+p, allow, a.header.Get("Allow"))
	}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, f.url+v1.BasePath+"/clusters", strings.NewReader(`name=c`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	f.send(r, nil).problem(415, "unsupported_media_type", "send application/json")

	f.do("GET", "/", nil).problem(404, "not_found", "/openapi.yaml")
	f.do("GET", "clusters/a%2Fb", nil).problem(404, "not_found", "a/b")
	if a := f.do("GET", "/openapi.yaml", nil).want(200); string(a.body) != v1.OpenAPIYAML() || a.header.Get("Content-Type") != "application/yaml" {
		t.Error("the document is not served as it is")
	}
	if a := f.do("GET", "/openapi.json", nil).want(200); string(a.body) != v1.OpenAPIJSON() {
		t.Error("the JSON document is not served as it is")
	}
}

func TestRequestID(t *testing.T) {
	f := newFixture(t)
	for sent, want := range map[string]bool{"abc-123": true, "": false, "a b": false, strings.Repeat("x", 129): false, "ä": false} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+v1.BasePath+"/clusters/x", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Request-Id", sent)
		a := f.send(r, nil)
		got := a.header.Get("X-Request-Id")
		if (got == sent) != want || got == "" {
			t.Errorf("sent %q, got %q", sent, got)
		}
		if p := read[v1.Problem](a); p.TraceID != got {
			t.Errorf("trace %q is not the request's id %q", p.TraceID, got)
		}
		if !strings.Contains(f.logs.String(), `"request_id":"`+got+`"`) {
			t.Errorf("the log does not know %q", got)
		}
	}
}

// TestTrace checks that the caller's trace continues, and that a refusal names it.
func TestTrace(t *testing.T) {
	spans := tracetest.NewSpanRecorder()
	f := newFixtureWith(t, options{cfg: defaults(), tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")})
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, f.url+v1.BasePath+"/clusters/x", nil)
	if err != nil {
		t.Fatal(err)
	}
	const id = "0af7651916cd43dd8448eb211c80319c"
	r.Header.Set("Traceparent", "00-"+id+"-b7ad6b7169203331-01")
	if p := f.send(r, nil).problem(404, "not_found", "x"); p.TraceID != id {
		t.Errorf("trace %q", p.TraceID)
	}
	ended := spans.Ended()
	if len(ended) != 1 || ended[0].SpanContext().TraceID().String() != id || ended[0].Name() != "GET /api/hyperfleet/v1/clusters/{id}" {
		t.Errorf("spans: %v", ended)
	}
}

// A faulty store fails on request.
type faulty struct {
	fleetapi.Store

	fail func() error
}

func (s *faulty) Get(ctx context.Context, scope fleetapi.Scope, key fleetapi.Key) (fleetapi.Record, error) {
	if err := s.fail(); err != nil {
		return fleetapi.Record{}, err
	}
	return s.Store.Get(ctx, scope, key)
}

func (s *faulty) List(ctx context.Context, scope fleetapi.Scope, q fleetapi.Query, visit func(*fleetapi.Record) error) (fleetapi.Page, error) {
	page, err := s.Store.List(ctx, scope, q, visit)
	return page, errors.Join(err, s.fail())
}

func TestStoreFails(t *testing.T) {
	store := &faulty{}
	f := newFixtureWith(t, options{cfg: defaults(), store: func(s fleetapi.Store) fleetapi.Store {
		store.Store = s
		return store
	}})
	store.fail = func() error { return nil }
	path := "clusters/" + f.create("clusters", "c-one", nil).ID

	store.fail = func() error { return fmt.Errorf("%w: connection refused to 10.0.0.7", fleetapi.ErrUnavailable) }
	a := f.do("GET", path, nil)
	p := a.problem(503, "unavailable", "the fleet API cannot reach its database; retry later")
	if a.header.Get("Retry-After") != "2" || strings.Contains(string(a.body), "10.0.0.7") {
		t.Errorf("got %v %s", a.header, a.body)
	}
	if !strings.Contains(f.logs.String(), "10.0.0.7") || !strings.Contains(f.logs.String(), p.TraceID) {
		t.Error("the log does not say why, or not for which request")
	}
	f.do("GET", "clusters", nil).problem(503, "unavailable", "") // with a half-written page

	store.fail = func() error { return errors.New("relation does not exist") }
	if a := f.do("GET", path, nil); strings.Contains(string(a.body), "relation") {
		t.Errorf("our trouble is told to the client: %s", a.body)
	} else {
		a.problem(500, "internal", "look for the trace id in the log")
	}

	store.fail = func() error { panic("something unheard of") }
	f.do("GET", path, nil).problem(500, "internal", "look for the trace id in the log")
	if !strings.Contains(f.logs.String(), "something unheard of") || !strings.Contains(f.logs.String(), "refusals_test.go") {
		t.Error("the log does not hold the panic and where it came from")
	}
	store.fail = func() error { return nil }
	f.get(path)
}

func TestMetrics(t *testing.T) {
	f := newFixture(t)
	path := "clusters/" + f.create("clusters", "c-one", nil).ID
	f.report(path, "dns", 1)
	f.do("PUT", path+"/statuses", reportOf("dns", 7)).want(204)
	f.do("GET", "nowhere/"+nobody, nil).want(404)
	f.do("BREW", "clusters", nil).want(405)
	want := `
# HELP fleetloop_api_status_reports_total Total number of valid status reports that adapters sent to the fleet API, by resource type and result: stored or, for a report that the API ignored, the reason, such as generation_behind (the adapter has already reported a newer generation). Adapters are the controllers that reconcile clusters and node pools.
# TYPE fleetloop_api_status_reports_total counter
fleetloop_api_status_reports_total{resource_type="clusters",result="generation_ahead"} 1
fleetloop_api_status_reports_total{resource_type="clusters",result="stored"} 1
# HELP fleetloop_api_requests_total Total number of HTTP requests to the fleet API, by path, method and code (the class of the status code, such as 5xx).
# TYPE fleetloop_api_requests_total counter
fleetloop_api_requests_total{code="2xx",method="POST",path="/api/hyperfleet/v1/clusters"} 1
fleetloop_api_requests_total{code="2xx",method="PUT",path="/api/hyperfleet/v1/clusters/{id}/statuses"} 2
fleetloop_api_requests_total{code="4xx",method="other",path="/api/hyperfleet/v1/clusters"} 1
fleetloop_api_requests_total{code="4xx",method="other",path="other"} 1
`
	if err := testutil.GatherAndCompare(f.metrics, strings.NewReader(want), "fleetloop_api_status_reports_total", "fleetloop_api_requests_total"); err != nil {
		t.Error(err)
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct {
		reason string
		change func(*fleetapi.Config, *fleetapi.Deps)
		says   string
	}{
		"NoStore":       {"it would have nothing to serve", func(_ *fleetapi.Config, d *fleetapi.Deps) { d.Store = nil }, "needs a store"},
		"OpenToAll":     {"nobody is asked who he is", func(_ *fleetapi.Config, d *fleetapi.Deps) { d.ListenAddr = "0.0.0.0:80" }, "allows anyone who can reach"},
		"BadAdapter":    {"it becomes part of a condition", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.RequiredAdapters.Clusters = []string{"DNS"} }, `"DNS" is not an adapter name`},
		"AdapterTwice":  {"a slip", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.RequiredAdapters.Workloads = []string{"a", "a"} }, `required adapters of workloads: "a" is listed twice`},
		"SameCondition": {"two would speak in one condition", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.RequiredAdapters.NodePools = []string{"a-b", "a--b"} }, "ABSuccessful"},
		"TooMany":       {"bounded", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.RequiredAdapters.NodePools = numbered(65) }, "at most 64 are allowed"},
		"UnknownPolicy": {"the set is closed", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.NodePoolsOnClusterDelete = "orphan" }, `unknown policy "orphan"`},
		"UnknownMode":   {"the set is closed", func(c *fleetapi.Config, _ *fleetapi.Deps) { c.Auth.Mode = "basic" }, `"basic"`},
		"MetricsTwice":  {"they would be mixed", func(_ *fleetapi.Config, d *fleetapi.Deps) { mustNew(t, defaults(), *d) }, "register metrics"},
		"TokenFileAmiss": {"nobody could get in", func(c *fleetapi.Config, _ *fleetapi.Deps) {
			c.Auth = auth.Config{Mode: auth.ModeBearer, TokenFile: "/nowhere"}
		}, "/nowhere"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			cfg, deps := defaults(), fleetapi.Deps{Store: &faulty{}, Log: discard(), Metrics: prometheus.NewRegistry(), ListenAddr: "127.0.0.1:1"}
			tc.change(&cfg, &deps)
			if _, err := fleetapi.New(cfg, deps); err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v, want an error that says %q", tc.reason, err, tc.says)
			}
		})
	}
}

func numbered(n int) []string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf("a%d", i)
	}
	return names
}

func mustNew(t *testing.T, cfg fleetapi.Config, deps fleetapi.Deps) {
	t.Helper()
	if _, err := fleetapi.New(cfg, deps); err != nil {
		t.Fatal(err)
	}
}
