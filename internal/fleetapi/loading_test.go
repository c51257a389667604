package fleetapi_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// load sends lines to a collection's bulk path.
func (f *fixture) load(path string, lines ...string) *answer {
	f.Helper()
	return f.bulk(path, strings.NewReader(strings.Join(lines, "\n")))
}

func (f *fixture) bulk(path string, lines io.Reader) *answer {
	f.Helper()
	r, err := http.NewRequestWithContext(f.Context(), http.MethodPost, f.url+v1.BasePath+"/"+path, lines)
	if err != nil {
		f.Fatal(err)
	}
	r.Header.Set("Content-Type", v1.ContentTypeNDJSON)
	if f.token != "" {
		r.Header.Set("Authorization", "Bearer "+f.token)
	}
	return f.send(r, nil)
}

func line(name string) string { return `{"name":"` + name + `","spec":{}}` }

// clusters returns the lines of n clusters, starting with c-0.
func clusters(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(line(fmt.Sprintf("c-%d", i)) + "\n")
	}
	return b.String()
}

func (f *fixture) total(collection string) int64 {
	f.Helper()
	return *f.list(collection + "?size=1").Total
}

func TestLoad(t *testing.T) {
	f := newFixture(t)
	a := f.load("clusters/bulk",
		`{"name":"one","labels":{"team":"a"},"spec":{"b":1.00, "a":"x"},"metadata":{"displayName":"The one"}}`,
		"", " \r",
		line("two")+"\r",
		`{"kind":"Cluster","metadata":{"name":"three","labels":{"team":"b"}},"spec":{}}`)
	wantEqual(t, "result", v1.LoadResult{Created: 3}, read[v1.LoadResult](a.want(http.StatusOK)))

	made := f.create("clusters", "made", map[string]string{"team": "a"})
	loaded := f.list("clusters?search=name='one'").Items[0]
	if string(loaded.Spec) != `{"b":1.00,"a":"x"}` || loaded.Metadata.DisplayName != "The one" {
		t.Errorf("loaded %s, %+v", loaded.Spec, loaded.Metadata)
	}
	if id := uuid.MustParse(loaded.ID); id.Version() != 7 {
		t.Errorf("id %s, want the order of creation in it", id)
	}
	// Except for its given fields and its times, a loaded resource equals a posted one.
	loaded.ID, loaded.Href, loaded.Name, loaded.Spec = made.ID, made.Href, made.Name, made.Spec
	loaded.Metadata = made.Metadata
	at := func(r *v1.Resource) {
		r.CreatedTime, r.UpdatedTime, r.Status.LastUpdatedTime, r.Status.LastTransitionTime = time.Time{}, time.Time{}, time.Time{}, time.Time{}
		for i := range r.Status.Conditions {
			c := &r.Status.Conditions[i]
			c.CreatedTime, c.LastUpdatedTime, c.LastTransitionTime = time.Time{}, time.Time{}, time.Time{}
		}
	}
	at(&loaded)
	at(&made)
	wantEqual(t, "a loaded cluster", made, loaded)
	wantEqual(t, "found by label", []string{"three"}, f.names("clusters?labels=team%3Db"))
}

func TestLoadNothing(t *testing.T) {
	f := newFixture(t)
	wantEqual(t, "result", v1.LoadResult{}, read[v1.LoadResult](f.load("clusters/bulk").want(http.StatusOK)))
}

// TestLoadManyBatches checks that a load may be larger than a batch.
func TestLoadManyBatches(t *testing.T) {
	f := newFixture(t)
	const n = 4321
	a := f.load("clusters/bulk", clusters(n))
	wantEqual(t, "result", v1.LoadResult{Created: n}, read[v1.LoadResult](a.want(http.StatusOK)))
	if got := f.total("clusters"); got != n {
		t.Errorf("%d clusters, want %d", got, n)
	}
	// Large lines fill a batch by size.
	big := `","spec":{"x":"` + strings.Repeat("x", 900_000) + `"}}` + "\n"
	var lines bytes.Buffer
	for i := range 12 {
		fmt.Fprintf(&lines, `{"name":"big-%d%s`, i, big)
	}
	wantEqual(t, "result", v1.LoadResult{Created: 12}, read[v1.LoadResult](f.bulk("clusters/bulk", &lines).want(http.StatusOK)))
}

func TestLoadChildren(t *testing.T) {
	f := newFixture(t)
	parent := f.create("clusters", "parent", nil)
	path := "clusters/" + parent.ID + "/nodepools"
	f.load(path+"/bulk", line("pool-1"), line("pool-2")).want(http.StatusOK)
	for _, r := range f.list(path).Items {
		if r.OwnerResource == nil || r.OwnerResource.ID != parent.ID {
			t.Errorf("%s belongs to %+v", r.Name, r.OwnerResource)
		}
	}
	if got := f.total("nodepools"); got != 2 {
		t.Errorf("%d node pools", got)
	}

	f.load("nodepools/bulk", line("pool-3")).problem(http.StatusUnprocessableEntity, "parent_required", "must be created under its Cluster")
	f.load("clusters/"+uuid.NewString()+"/nodepools/bulk", line("pool-3")).problem(http.StatusNotFound, "not_found", "no Cluster")
	f.load("clusters/nonsense/nodepools/bulk", line("pool-3")).problem(http.StatusNotFound, "not_found", `no Cluster "nonsense"`)
	f.do("DELETE", "clusters/"+parent.ID, nil).want(http.StatusAccepted)
	f.load(path+"/bulk", line("pool-3")).problem(http.StatusConflict, "being_deleted", "nothing can be created in it")
}

func TestLoadExisting(t *testing.T) {
	f := newFixture(t)
	there := f.create("clusters", "c-2500", map[string]string{"old": "yes"})

	p := f.load("clusters/bulk", clusters(3000)).problem(http.StatusConflict, "name_taken",
		`line 2501: a Cluster named "c-2500" already exists; created before the error: 2000`)
	wantEqual(t, "done before", &v1.LoadResult{Created: 2000}, p.Loaded)
	if got := f.total("clusters"); got != 2001 {
		t.Errorf("%d clusters, want the batches before and what was there", got)
	}
	a := f.load("clusters/bulk?if_exists=skip&strict=true", clusters(3000))
	wantEqual(t, "result", v1.LoadResult{Created: 999, Skipped: 2001}, read[v1.LoadResult](a.want(http.StatusOK)))
	a = f.load("clusters/bulk?if_exists=skip", clusters(3000))
	wantEqual(t, "again", v1.LoadResult{Skipped: 3000}, read[v1.LoadResult](a.want(http.StatusOK)))
	if got := f.get("clusters/" + there.ID); got.Labels["old"] != "yes" || got.Generation != 1 {
		t.Errorf("what was there is %+v now", got)
	}

	f.load("clusters/bulk", line("twice"), line("other"), line("twice")).problem(http.StatusConflict, "name_taken", `line 3: a Cluster named "twice"`)
	if got := f.names("clusters?search=name='other'"); len(got) > 0 {
		t.Error("a batch that was refused left something")
	}
	a = f.load("clusters/bulk?if_exists=skip", line("twice"), line("other"), line("twice"))
	wantEqual(t, "the same name twice", v1.LoadResult{Created: 2, Skipped: 1}, read[v1.LoadResult](a.want(http.StatusOK)))
}

func TestLoadRefusals(t *testing.T) {
	cfg := defaults()
	cfg.MaxBodyBytes = 2048
	f := newFixtureWith(t, options{cfg: cfg})
	long := `{"name":"` + strings.Repeat("x", 3000) + `"}`
	cases := map[string]struct {
		reason string
		path   string
		lines  []string
		status int
		code   string
		says   string
	}{
		"NotJSON":       {"the place is the line's", "clusters/bulk", []string{line("a-1"), "{"}, 400, "invalid_body", "line 2: the line is not valid JSON"},
		"TwoInALine":    {"one line is one cluster", "clusters/bulk", []string{line("a-1") + line("a-2")}, 400, "invalid_body", "line 1: the line is not valid JSON"},
		"Array":         {"a JSON document is no NDJSON", "clusters/bulk", []string{"[" + line("a-1") + "]"}, 400, "invalid_body", "line 1: the line must not be a list"},
		"UnknownField":  {"a typing error must not be lost", "clusters/bulk", []string{`{"name":"a-1","specs":{}}`}, 400, "invalid_body", "line 1: field /specs is not a known field"},
		"Fields":        {"the rules are those of POST", "clusters/bulk", []string{"", line("a-1"), `{"name":"A","labels":{"a b":"c"}}`}, 400, "invalid_fields", "line 3: name must be"},
		"OtherKind":     {"and so is the kind", "clusters/bulk", []string{`{"kind":"NodePool","name":"a-1","spec":{}}`}, 400, "invalid_fields", "line 1: kind must be Cluster"},
		"TooLarge":      {"a line is bounded as a body is", "clusters/bulk", []string{line("a-1"), long, line("a-2")}, 413, "body_too_large", "line 2: the line is larger than 2048 bytes"},
		"TooLargeLast":  {"also without its end", "clusters/bulk", []string{long}, 413, "body_too_large", "line 1: the line is larger"},
		"Existing":      {"a typing error must not overwrite or refuse", "clusters/bulk?if_exists=overwrite", nil, 400, "invalid_query", "must be fail or skip"},
		"ExistingTwice": {"which one counts is not clear", "clusters/bulk?if_exists=skip&if_exists=fail", nil, 400, "invalid_query", "is given 2 times; give it once"},
		"Strict":        {"as everywhere", "clusters/bulk?labels=a&strict=true", nil, 400, "invalid_query", "use one of if_exists, strict"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := f.under(t).load(tc.path, tc.lines...).problem(tc.status, tc.code, tc.says)
			if tc.code == "invalid_fields" && len(p.Errors) == 0 {
				t.Errorf("%s: no field is named", tc.reason)
			}
		})
	}
	if got := f.total("clusters"); got != 0 {
		t.Errorf("%d clusters, want none: the batch of a wrong line is not created", got)
	}
	f.do("POST", "clusters/bulk", line("a-1")).problem(http.StatusUnsupportedMediaType, "unsupported_media_type", "send application/x-ndjson")
	f.do("GET", "clusters/bulk", nil).problem(http.StatusNotFound, "not_found", `no Cluster "bulk"`)
}

func TestLoadIsForOwners(t *testing.T) {
	red, blue, system := newTenants(t)
	red.as("").load("clusters/bulk", line("one")).problem(http.StatusUnauthorized, "unauthenticated", "no bearer token")
	system.load("clusters/bulk", line("one")).problem(http.StatusForbidden, "forbidden", "cannot change resources")
	red.load("clusters/bulk", line("one")).want(http.StatusOK)
	blue.load("clusters/bulk", line("one")).want(http.StatusOK) // names are per tenant
	r := red.list("clusters").Items
	if len(r) != 1 || r[0].CreatedBy != "rosa" || blue.total("clusters") != 1 {
		t.Errorf("red sees %+v", r)
	}
	blue.load("clusters/"+r[0].ID+"/nodepools/bulk", line("pool")).problem(http.StatusNotFound, "not_found", "no Cluster")
}

// TestLoadWhileTheDatabaseGoesAway checks that the answer has the number of resources created
// before.
func TestLoadWhileTheDatabaseGoesAway(t *testing.T) {
	var away atomic.Bool
	updates := 0
	f := newFixtureWith(t, options{cfg: defaults(), store: func(s fleetapi.Store) fleetapi.Store {
		return interrupted{s, func() error {
			if updates++; updates == 2 && away.Load() {
				return fmt.Errorf("%w: gone", fleetapi.ErrUnavailable)
			}
			return nil
		}}
	}})
	away.Store(true)
	a := f.load("clusters/bulk", clusters(4500))
	a.problem(http.StatusServiceUnavailable, "unavailable", "the fleet API cannot reach its database; created before the error: 2000")
	if a.header.Get("Retry-After") == "" || f.total("clusters") != 2000 {
		t.Errorf("%d clusters, header %v", f.total("clusters"), a.header)
	}
}

// interrupted is a store whose updates may fail.
type interrupted struct {
	fleetapi.Store

	fail func() error
}

func (s interrupted) RunInTx(ctx context.Context, scope fleetapi.Scope, change func(context.Context, fleetapi.Tx) error) error {
	if err := s.fail(); err != nil {
		return err
	}
	return s.Store.RunInTx(ctx, scope, change)
}

// newServed returns an API behind the product's server, whose timeouts must not end a load.
func newServed(t *testing.T, timeout time.Duration) (url string) {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	api, err := fleetapi.New(defaults(), fleetapi.Deps{
		Store: pgstore.New(pgtest.New(t)), Log: log, Metrics: prometheus.NewRegistry(), ListenAddr: "127.0.0.1:0",
	})
	if err != nil {
		t.Fatal(err)
	}
	server, err := httpserver.NewListeningServer(t.Context(), httpserver.Config{
		Addr: "127.0.0.1:0", BodyTimeout: timeout, WriteTimeout: timeout, ShutdownTimeout: time.Second,
	}, api.Handler(), log)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return "http://" + server.Addr()
}

// TestLoadOutlivesTheServersBounds checks that a load outlives the server's timeouts, which are for
// requests of bounded size.
func TestLoadOutlivesTheServersBounds(t *testing.T) {
	url := newServed(t, 300*time.Millisecond)
	src, dst := io.Pipe()
	go func() {
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for i := range 8 { // longer than the server's timeouts
			_, _ = io.WriteString(dst, line(fmt.Sprintf("slow-%d", i))+"\n")
			<-tick.C
		}
		_ = dst.Close()
	}()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+v1.BasePath+"/clusters/bulk", src)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", v1.ContentTypeNDJSON)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK || !strings.Contains(string(b), `"created":8`) {
		t.Errorf("answered %d: %s, %v", resp.StatusCode, b, err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// TestLoadOfAClientThatGoesAway checks that committed batches stay, and that the rest is not
// created.
func TestLoadOfAClientThatGoesAway(t *testing.T) {
	url := newServed(t, time.Minute)
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	body := clusters(2500)
	_, _ = fmt.Fprintf(conn, "POST %s/clusters/bulk HTTP/1.1\r\nHost: localhost\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n%s", v1.BasePath, v1.ContentTypeNDJSON, len(body)+1, body)
	_ = conn.Close()
	f := &fixture{T: t, url: url, contract: newContract(t)}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for f.total("clusters") < 2000 {
		<-tick.C
	}
	http.DefaultClient.CloseIdleConnections()
	if got := f.total("clusters"); got != 2000 {
		t.Errorf("%d clusters, want the one whole batch", got)
	}
	http.DefaultClient.CloseIdleConnections()
}
