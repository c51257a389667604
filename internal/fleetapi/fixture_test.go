package fleetapi_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/getkin/kin-openapi/routers"
	"github.com/getkin/kin-openapi/routers/legacy"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// A fixture is an API with a separate database.
type fixture struct {
	*testing.T

	url      string
	api      *fleetapi.API
	database string // its URL, for the owner
	contract *contract
	metrics  *prometheus.Registry
	logs     *bytes.Buffer
	logging  *sync.Mutex  // held while logs is written
	token    string       // sent with each request unless ""
	header   http.Header  // sent with each request
	client   *http.Client // of watches; nil means the default client
}

// options configure a fixture.
type options struct {
	cfg    fleetapi.Config
	tokens string // content of the token file; "" means no authentication
	store  func(fleetapi.Store) fleetapi.Store
	tracer trace.Tracer
	// database is another fixture's database, or "" for a separate one.
	database string
	// standby is the URL of its standby, "" for none.
	standby string
}

func defaults() fleetapi.Config {
	return fleetapi.Config{
		Auth: auth.Config{Mode: auth.ModeNone},
		RequiredAdapters: fleetapi.RequiredAdapters{
			Clusters:  []string{"validation", "dns"},
			NodePools: []string{"validation"},
		},
	}
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	return newFixtureWith(t, options{cfg: defaults()})
}

func newFixtureWith(t *testing.T, o options) *fixture {
	t.Helper()
	f := &fixture{T: t, contract: newContract(t), metrics: prometheus.NewRegistry(), logs: new(bytes.Buffer), logging: new(sync.Mutex)}
	if o.tokens != "" {
		path := filepath.Join(t.TempDir(), "tokens.yaml")
		if err := os.WriteFile(path, []byte(o.tokens), 0o600); err != nil {
			t.Fatal(err)
		}
		o.cfg.Auth = auth.Config{Mode: auth.ModeBearer, TokenFile: path}
	}
	if f.database = o.database; f.database == "" {
		f.database = pgtest.NewMigratedDatabaseURL(t)
	}
	pool := pgtest.Open(t, f.database)
	var store fleetapi.Store = pgstore.New(pool)
	if o.store != nil {
		store = o.store(store)
	}
	server := httptest.NewUnstartedServer(nil)
	log := slog.New(slog.NewJSONHandler(writerFunc(func(b []byte) (int, error) {
		f.logging.Lock()
		defer f.logging.Unlock()
		return f.logs.Write(b)
	}), &slog.HandlerOptions{Level: slog.LevelDebug}))
	standby, err := postgres.NewStandby(postgres.StandbyConfig{URL: settings.Secret(o.standby), MaxLag: standbyMaxLag}, pgtest.Config(""), pool, log, f.metrics)
	if err != nil {
		t.Fatal(err)
	}
	api, err := fleetapi.New(o.cfg, fleetapi.Deps{
		Store: store, Timeline: pgstore.NewTimelineStore(pool), Standby: standby, Log: log, Metrics: f.metrics, ListenAddr: server.Listener.Addr().String(), Tracer: o.tracer,
	})
	if err != nil {
		t.Fatal(err)
	}
	server.Config.Handler = api.Handler()
	server.Start()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- api.RunWatchHubs(ctx) }()
	go func() { ended <- standby.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := errors.Join(<-ended, <-ended); err != nil {
			t.Errorf("run watches and standby: %v", err)
		}
		server.Close()
	})
	f.url, f.api = server.URL, api
	return f
}

type writerFunc func([]byte) (int, error)

func (w writerFunc) Write(b []byte) (int, error) { return w(b) }

// as returns the same API with another token.
func (f *fixture) as(token string) *fixture {
	other := *f
	other.token = token
	return &other
}

// under returns the same API for a subtest.
func (f *fixture) under(t *testing.T) *fixture {
	t.Helper()
	other := *f
	other.T = t
	return &other
}

// An answer is a response of the API, checked against the contract.
type answer struct {
	*testing.T

	status int
	header http.Header
	body   []byte
}

// do sends a request. A path without a leading slash is relative to the base path. A body that is
// not a string is sent as JSON.
func (f *fixture) do(method, path string, content any) *answer {
	f.Helper()
	return f.doWith(nil, method, path, content)
}

// doWith is like do, with additional headers.
func (f *fixture) doWith(header http.Header, method, path string, content any) *answer {
	f.Helper()
	if !strings.HasPrefix(path, "/") {
		path = v1.BasePath + "/" + path
	}
	var body []byte
	switch c := content.(type) {
	case nil:
	case string:
		body = []byte(c)
	default:
		var err error
		if body, err = json.Marshal(c); err != nil {
			f.Fatal(err)
		}
	}
	r, err := http.NewRequestWithContext(f.Context(), method, f.url+path, bytes.NewReader(body))
	if err != nil {
		f.Fatal(err)
	}
	maps.Copy(r.Header, header)
	if content != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	return f.send(r, body)
}

func (f *fixture) send(r *http.Request, body []byte) *answer {
	f.Helper()
	maps.Copy(r.Header, f.header)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		f.Fatal(err)
	}
	a := &answer{T: f.T, status: resp.StatusCode, header: resp.Header}
	if a.body, err = io.ReadAll(resp.Body); err != nil {
		f.Fatal(err)
	}
	if err := resp.Body.Close(); err != nil {
		f.Error(err)
	}
	if err := f.contract.check(f.Context(), r, body, a); err != nil {
		f.Errorf("%s %s answered %d against the contract: %v\n%s", r.Method, r.URL, a.status, err, a.body)
	}
	return a
}

// want checks the status.
func (a *answer) want(status int) *answer {
	a.Helper()
	if a.status != status {
		a.Fatalf("got status %d, want %d: %s", a.status, status, a.body)
	}
	return a
}

// problem checks the status, the code and the text of a refusal.
func (a *answer) problem(status int, code, says string) v1.Problem {
	a.Helper()
	p := read[v1.Problem](a.want(status))
	if p.Code != code || p.Status != status || !strings.Contains(p.Detail, says) {
		a.Errorf("got %s: %s, want %s that says %q", p.Code, p.Detail, code, says)
	}
	if p.TraceID == "" || a.header.Get("X-Request-Id") == "" {
		a.Errorf("nothing leads from the answer to the logs: %s", a.body)
	}
	return p
}

func read[T any](a *answer) T {
	a.Helper()
	var v T
	if err := json.Unmarshal(a.body, &v); err != nil {
		a.Fatalf("%v in %s", err, a.body)
	}
	return v
}

// create creates a resource in a collection.
func (f *fixture) create(collection, name string, labels map[string]string) v1.Resource {
	f.Helper()
	return read[v1.Resource](f.do("POST", collection, v1.CreateRequest{Name: name, Labels: labels, Spec: []byte(`{}`)}).want(http.StatusCreated))
}

func (f *fixture) get(path string) v1.Resource {
	f.Helper()
	return read[v1.Resource](f.do("GET", path, nil).want(http.StatusOK))
}

// list reads one page.
func (f *fixture) list(path string) v1.List {
	f.Helper()
	return read[v1.List](f.do("GET", path, nil).want(http.StatusOK))
}

// names returns the names of a page.
func (f *fixture) names(path string) []string {
	f.Helper()
	return namesOf(f.list(path))
}

func namesOf(l v1.List) []string {
	names := []string{}
	for _, r := range l.Items {
		names = append(names, r.Name)
	}
	return names
}

// reportOf returns a valid report; conditions with a minus are False, others True.
func reportOf(adapter string, generation int64, conditions ...string) v1.Report {
	r := v1.Report{Adapter: adapter, ObservedGeneration: generation}
	all := append([]string{v1.ConditionAvailable, v1.ConditionApplied, v1.ConditionHealth}, conditions...)
	for _, c := range all {
		status := v1.ConditionTrue
		if slices.Contains(conditions, "-"+c) {
			status = v1.ConditionFalse
		}
		if !strings.HasPrefix(c, "-") {
			r.Conditions = append(r.Conditions, v1.ReportCondition{Type: c, Status: status, Reason: "Said", Message: "so"})
		}
	}
	return r
}

// report sends a report that must be stored.
func (f *fixture) report(path, adapter string, generation int64, conditions ...string) v1.AdapterStatus {
	f.Helper()
	return read[v1.AdapterStatus](f.do("PUT", path+"/statuses", reportOf(adapter, generation, conditions...)).want(http.StatusCreated))
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// A contract is the OpenAPI document.
type contract struct {
	doc *openapi3.T
	// routers holds one router for each server of the document: for all paths, and for paths with
	// their own.
	routers []routers.Router
}

// loadContract reads the document once: it does not change, and this takes a second with -race.
var loadContract = sync.OnceValues(func() (*contract, error) {
	c := new(contract)
	for _, own := range []bool{false, true} {
		doc, err := openapi3.NewLoader().LoadFromData([]byte(v1.OpenAPIYAML()))
		if err != nil {
			return nil, err
		}
		for path, item := range doc.Paths.Map() {
			switch {
			case own != (len(item.Servers) > 0):
				doc.Paths.Delete(path)
			case own:
				doc.Servers = item.Servers
			}
		}
		router, err := legacy.NewRouter(doc)
		if err != nil {
			return nil, err
		}
		c.doc, c.routers = doc, append(c.routers, router)
	}
	return c, nil
})

func newContract(t *testing.T) *contract {
	t.Helper()
	c, err := loadContract()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// route returns the operation of a request in the document.
func (c *contract) route(r *http.Request) (route *routers.Route, params map[string]string, err error) {
	for _, router := range c.routers {
		if route, params, err = router.FindRoute(r); err == nil {
			break
		}
	}
	return route, params, err
}

// check checks an answer against the contract and, if the request was accepted, also the request.
func (c *contract) check(ctx context.Context, r *http.Request, body []byte, a *answer) error {
	if !strings.HasPrefix(r.URL.Path, "/api/") && a.status == http.StatusOK {
		return nil // the document itself
	}
	local := r.Clone(ctx)
	local.URL.Scheme, local.URL.Host, local.Host = "", "", ""
	local.Body = io.NopCloser(bytes.NewReader(body))
	route, params, err := c.route(local)
	if err != nil {
		var v any
		return errors.Join(json.Unmarshal(a.body, &v), c.doc.Components.Schemas["Problem"].Value.VisitJSON(v))
	}
	input := &openapi3filter.RequestValidationInput{
		Request: local, PathParams: params, Route: route,
		Options: &openapi3filter.Options{AuthenticationFunc: openapi3filter.NoopAuthenticationFunc, IncludeResponseStatus: true},
	}
	input.Options.ExcludeRequestBody = r.Header.Get("Content-Type") == v1.ContentTypeNDJSON // in the contract it is only text
	if a.status < http.StatusBadRequest {
		if r.URL.Query().Has("fields") {
			return nil // the answer has only some members of the contract
		}
		if err := openapi3filter.ValidateRequest(ctx, input); err != nil {
			return err
		}
	}
	output := &openapi3filter.ResponseValidationInput{
		RequestValidationInput: input, Status: a.status, Header: a.header, Options: input.Options,
	}
	output.SetBodyBytes(a.body)
	return openapi3filter.ValidateResponse(ctx, output)
}

func seconds(n int) time.Duration { return time.Duration(n) * time.Second }

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }
