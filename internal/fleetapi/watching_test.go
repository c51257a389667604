package fleetapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/httpserver"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestWatch follows a collection from a list on, disconnects, and resumes with its last cursor.
func TestWatch(t *testing.T) {
	f := newFixture(t)
	f.create("clusters", "c-before", nil)
	w := f.watch(watchQuery("clusters", "", f.list("clusters?limit=10").Cursor), nil)
	w.want("bookmark")
	wantEqual(t, "headers", []string{"no-store", "no", "nosniff"}, []string{
		w.resp.Header.Get("Cache-Control"), w.resp.Header.Get("X-Accel-Buffering"), w.resp.Header.Get("X-Content-Type-Options"),
	})

	c := f.create("clusters", "c-one", map[string]string{"zone": "x"})
	e := w.next()
	var got v1.Resource
	if err := json.Unmarshal(e.Data, &got); err != nil || e.Type != v1.WatchChanged {
		t.Fatalf("%s %s: %v", e.Type, e.Data, err)
	}
	wantEqual(t, "the resource", c, got)
	f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	f.do("PATCH", "clusters/"+c.ID, `{"spec":{"a":"b\nc"}}`).want(200)
	cursor := w.want("changed c-one")
	w.cancel()

	f.create("clusters", "c-two", nil)
	again := f.watch(watchQuery("clusters", "", "AAAA"), http.Header{"Last-Event-Id": {cursor}})
	again.want("changed c-two", "bookmark")
	f.do("DELETE", "clusters/"+c.ID, nil).want(202)
	again.want("changed c-one")
	f.do("POST", "clusters/"+c.ID+"/force-delete", v1.ForceDeleteRequest{Reason: "test"}).want(204)
	again.want("removed " + c.ID)
}

func TestWatchSelects(t *testing.T) {
	f := newFixture(t)
	w := f.watch(watchQuery("clusters", "zone=x", ""), nil)
	w.want("bookmark")
	a := f.create("clusters", "c-a", map[string]string{"zone": "x"})
	w.want("changed c-a") // read later, it would no longer match
	b := f.create("clusters", "c-b", map[string]string{"zone": "y"})
	f.do("PATCH", "clusters/"+b.ID, `{"spec":{"n":1}}`).want(200)
	f.do("PATCH", "clusters/"+a.ID, `{"labels":{"zone":"y"}}`).want(200)
	f.do("PATCH", "clusters/"+a.ID, `{"spec":{"n":1}}`).want(200)
	f.do("PATCH", "clusters/"+b.ID, `{"labels":{"zone":"x"}}`).want(200)
	w.want("removed "+a.ID, "changed c-b")
}

// TestWatchOfTenants checks that watchers receive only rows of their tenant, from memory and from
// the database.
func TestWatchOfTenants(t *testing.T) {
	red, blue, system := newTenants(t)
	begin := system.list("clusters?limit=1").Cursor
	var live []*watching
	for _, f := range []*fixture{red, blue, system} {
		live = append(live, f.watch(watchQuery("clusters", "", begin), nil))
	}
	for _, w := range live {
		w.want("bookmark")
	}
	r := red.create("clusters", "c-red", nil)
	red.do("PATCH", "clusters/"+r.ID, `{"labels":{"a":"b"}}`).want(200)
	b := blue.create("clusters", "c-blue", nil)
	red.do("DELETE", "clusters/"+r.ID, nil).want(202)
	red.do("POST", "clusters/"+r.ID+"/force-delete", v1.ForceDeleteRequest{Reason: "test"}).want(204)
	last := red.create("clusters", "c-last", nil)
	blue.do("DELETE", "clusters/"+b.ID, nil).want(202)
	blue.do("POST", "clusters/"+b.ID+"/force-delete", v1.ForceDeleteRequest{Reason: "test"}).want(204)
	blue.create("clusters", "c-last-blue", nil)

	wantOnly(live[0], []string{r.ID, last.ID}, "c-last")
	wantOnly(live[1], []string{b.ID}, "c-last-blue")
	wantOnly(live[2], nil, "c-last-blue")
	wantOnly(red.watch(watchQuery("clusters", "", begin), nil), []string{r.ID, last.ID}, "c-last")
	wantOnly(blue.watch(watchQuery("clusters", "", begin), nil), []string{b.ID}, "c-last-blue")
}

// wantOnly reads until the event about a name, and accepts no ids other than these and that of the
// name. Nil accepts all.
func wantOnly(w *watching, ids []string, until string) {
	w.Helper()
	for {
		e := w.next()
		var about struct{ ID, Name string }
		if err := json.Unmarshal(e.Data, &about); err != nil {
			w.Fatalf("%s %q: %v", e.Type, e.Data, err)
		}
		if about.Name == until {
			return
		}
		if e.Type != v1.WatchBookmark && ids != nil && !slices.Contains(ids, about.ID) {
			w.Errorf("was told of %s %s", e.Type, e.Data)
		}
	}
}

func TestWatchRefuses(t *testing.T) {
	o := options{cfg: defaults()}
	o.cfg.MaxWatches = 1
	f := newFixtureWith(t, o)
	f.do("GET", "clusters?watch=true&changed_since=x", nil).problem(400, "invalid_query", "changed_since is not a cursor")
	f.do("GET", "clusters?watch=true&limit=2", nil).problem(400, "invalid_query", "limit cannot be combined with watch")
	resp, done := f.open("clusters?watch=true", http.Header{"Last-Event-Id": {"x"}})
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if err != nil || resp.StatusCode != http.StatusBadRequest || !strings.Contains(string(body), "the header Last-Event-ID is not a cursor") {
		t.Errorf("with an odd last id: %d %s (%v)", resp.StatusCode, body, err)
	}
	done()
	other := watch.Cursor{Position: watch.Position{Xact: 5}}
	f.do("GET", watchQuery("clusters", "", other.String()), nil).problem(410, "cursor_expired", "list everything again")

	f.watch(watchQuery("clusters", "", ""), nil).want("bookmark")
	a := f.do("GET", "clusters?watch=true", nil)
	a.problem(503, "unavailable", "the maximum number of watches")
	wantEqual(t, "Retry-After", "10", a.header.Get("Retry-After"))
}

// TestWatchHead checks that a request for the headers alone is answered at once.
func TestWatchHead(t *testing.T) {
	f := newFixture(t)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodHead, f.url+v1.BasePath+"/"+watchQuery("clusters", "", ""), http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	wantEqual(t, "type", "text/event-stream", resp.Header.Get("Content-Type"))
	f.eventually(func() bool {
		return f.value("fleetloop_api_requests_total") == 1 && f.value("fleetloop_api_watchers") == 0
	})
}

// A lossyFeed expires cursors on request.
type lossyFeed struct {
	fleetapi.Store

	lost chan struct{}
}

func (s lossyFeed) VisitChanges(ctx context.Context, scope fleetapi.Scope, q fleetapi.ChangeQuery, visit func(*fleetapi.Change) error) (watch.Cursor, bool, error) {
	select {
	case <-s.lost:
		return watch.Cursor{}, false, fleetapi.ErrCursorExpired
	default:
		return s.Store.VisitChanges(ctx, scope, q, visit)
	}
}

// TestWatchThatLosesItsPlace checks that the watch ends with an event that gives the reason.
func TestWatchThatLosesItsPlace(t *testing.T) {
	o, lost := options{cfg: defaults()}, make(chan struct{})
	o.store = func(s fleetapi.Store) fleetapi.Store { return lossyFeed{s, lost} }
	f := newFixtureWith(t, o)
	w := f.watch(watchQuery("clusters", "", ""), nil)
	w.want("bookmark")
	close(lost)
	f.create("clusters", "c-missed", nil)
	for e := w.next(); ; e = w.next() {
		if e.Type == v1.WatchBookmark {
			continue
		}
		var p v1.Problem
		if err := json.Unmarshal(e.Data, &p); err != nil || e.Type != v1.WatchError || p.Status != 410 || p.Code != "cursor_expired" {
			t.Errorf("got %s %s: %v", e.Type, e.Data, err)
		}
		break
	}
	if e, open := <-w.events; open || w.end != nil {
		t.Errorf("behind the error came %v, %v", e, w.end)
	}
}

// TestWatchCountsWhenItBegins checks that an hour of watching does not count as a request of an
// hour.
func TestWatchCountsWhenItBegins(t *testing.T) {
	f := newFixture(t)
	w := f.watch(watchQuery("clusters", "", ""), nil)
	w.want("bookmark")
	for _, watchers := range []float64{1, 0} {
		f.eventually(func() bool { return f.value("fleetloop_api_watchers") == watchers })
		wantEqual(t, "durations", 1.0, f.value("fleetloop_api_request_duration_seconds"))
		wantEqual(t, "requests", 1.0, f.value("fleetloop_api_requests_total"))
		w.cancel()
	}
}

// TestWatchOutlivesWriteTimeout checks that a server's write timeout does not end a watch, and that
// a stopped watch ends properly.
func TestWatchOutlivesWriteTimeout(t *testing.T) {
	t.Parallel()
	const bound = time.Second // a busy machine must begin an answer within it
	for _, protocol := range []string{"HTTP/1.1", "HTTP/2.0"} {
		t.Run(protocol, func(t *testing.T) {
			t.Parallel()
			f := newFixture(t)
			server := httptest.NewUnstartedServer(f.api.Handler())
			server.EnableHTTP2 = protocol == "HTTP/2.0"
			server.Config.WriteTimeout = bound
			server.StartTLS()
			t.Cleanup(server.Close)
			other := *f
			other.url, other.client = server.URL, server.Client()
			w := other.watch(watchQuery("clusters", "", ""), nil)
			wantEqual(t, "protocol", protocol, w.resp.Proto)
			w.want("bookmark")
			for i := range f.ticks(2*bound, 3) {
				f.create("clusters", fmt.Sprint("c-", i), nil)
				w.want(fmt.Sprint("changed c-", i))
			}
			f.api.StopWatches()
			w.want("bookmark")
			if e, open := <-w.events; open || w.end != nil {
				t.Errorf("it ended with %v, %v", e, w.end)
			}
			f.do("GET", watchQuery("clusters", "", ""), nil).problem(503, "unavailable", "is shutting down")
		})
	}
}

// TestServerStopsInSpiteOfWatches stops a server with many watches. One of them is blocked in a
// batch that its client does not read.
func TestServerStopsInSpiteOfWatches(t *testing.T) {
	const watches = 50
	f := newFixture(t)
	ctx, stop := context.WithCancel(t.Context())
	var log processtest.Buffer
	cfg := httpserver.Config{Addr: "127.0.0.1:0", ShutdownTimeout: time.Minute}
	server, err := httpserver.NewListeningServer(ctx, cfg, f.api.Handler(), slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	server.OnShutdown(f.api.StopWatches)
	done := make(chan error, 1)
	go func() { done <- server.Run(ctx) }()

	other := *f
	other.url = "http://" + server.Addr()
	var all []*watching
	for range watches {
		all = append(all, other.watch(watchQuery("nodepools", "", ""), nil))
	}
	for _, w := range all {
		w.want("bookmark")
	}
	begin := f.list("clusters?limit=1").Cursor
	const changes = 20
	for i := range changes { // more than the buffers of a connection
		f.do("POST", "clusters", v1.CreateRequest{Name: fmt.Sprint("c-", i), Spec: []byte(`{"a":"` + strings.Repeat("x", 900_000) + `"}`)}).want(201)
	}
	stuck, err := (&net.Dialer{}).DialContext(ctx, "tcp", server.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = stuck.Close() }()
	if tcp, ok := stuck.(*net.TCPConn); ok { // otherwise it grows up to the maximum of the machine
		if err := tcp.SetReadBuffer(64 << 10); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := fmt.Fprintf(stuck, "GET %s/%s HTTP/1.1\r\nHost: localhost\r\n\r\n", v1.BasePath, watchQuery("clusters", "", begin)); err != nil {
		t.Fatal(err)
	}
	f.eventually(func() bool { return f.value("fleetloop_api_watchers") == watches+1 })
	taken := f.changesSent()
	for range f.ticks(500*time.Millisecond, 100) { // until it blocks
		before := taken
		if taken = f.changesSent(); taken == before && taken > 0 {
			break
		}
	}
	if taken >= changes {
		t.Fatal("the client took everything")
	}

	stop()
	if err := <-done; err != nil {
		t.Errorf("stop: %v", err)
	}
	if strings.Contains(log.String(), "cut off") {
		t.Errorf("the server cut watches off instead of ending them:\n%s", log.String())
	}
	for _, w := range all {
		w.want("bookmark")
	}
}
