package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestStartsWithoutAnything starts everything in the wrong order: each process
// waits for what it needs, says why it is not ready, lives, and goes to work
// when its turn comes.
func TestStartsWithoutAnything(t *testing.T) {
	t.Parallel()
	database := pgtest.NewEmptyDatabaseURL(t)
	where, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	databaseWay := newProxy(t, where.Host)
	databaseWay.SetRefuseConnections(true)
	where.Host = databaseWay.Addr()
	f := startFleet(t, mergeEnv(oneAdapter(), map[string]string{"DATABASE_URL": where.String()}))
	apiWay, brokerWay := newProxy(t, strings.TrimPrefix(f.url, "http://")), newProxy(t, rabbit(t).Addr())
	apiWay.SetRefuseConnections(true)
	brokerWay.SetRefuseConnections(true)
	s := newSentinel(t, "http://"+apiWay.Addr(), "resource_type: clusters\npoll_interval: 100ms\nhyperfleet_api: {endpoint: API, timeout: 2s}\n",
		rabbitEnv(brokerWay.Addr(), exchangeOf(t)))

	// Nothing is there.
	f.wantUnready(t, "[-]database failed: ", "[-]schema failed: ", "[+]fleet API ok")
	wantUnavailable(t, f.url)
	s.wantUnready(t, "[-]broker failed: ", "[-]sentinel failed: ", "list clusters")
	wantMetric(t, s, "hyperfleet_sentinel_api_errors_total", 3)

	// The API is, its database is not.
	apiWay.SetRefuseConnections(false)
	s.wantUnready(t, "[-]sentinel failed: ", "503")

	// The database is, the broker is not.
	databaseWay.SetRefuseConnections(false)
	f.wantReady(t)
	l := &loop{fleet: f, sentinel: s}
	c := l.create(t, "cluster-1", "")
	eventually(t, patience, func() error {
		if _, body := get(t, "http://"+s.addr(t, "health")+"/readyz"); strings.Contains(body, "list clusters") || !strings.Contains(body, "[-]broker failed: ") {
			return fmt.Errorf("want the broker to be the only reason: %s", body)
		}
		return nil
	})
	wantMetric(t, s, "hyperfleet_sentinel_broker_errors_total", 1)
	s.wantLine(t, "event not published, retrying in the next poll", map[string]any{"resource_id": c.ID})

	// All is.
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	brokerWay.SetRefuseConnections(false)
	s.wantReady(t)
	q.wantEvents(t, c.ID, 1, patience)
	wantVerbose(t, f.process, "running", "database", "schema", "fleet API")
	wantVerbose(t, s, "running", "broker", "sentinel")
}

// wantVerbose checks that /readyz?verbose names each dependency.
func wantVerbose(t *testing.T, p *process, names ...string) {
	t.Helper()
	_, body := get(t, "http://"+p.addr(t, "health")+"/readyz?verbose")
	want := ""
	for _, name := range names {
		want += "[+]" + name + " ok\n"
	}
	if want += "readyz check passed\n"; body != want {
		t.Errorf("%s: /readyz?verbose says\n%swant\n%s", p.name, body, want)
	}
}

// wantUnavailable checks how the API answers while its database is away.
func wantUnavailable(t *testing.T, apiURL string) {
	t.Helper()
	eventually(t, patience, func() error {
		code, body := get(t, apiURL+v1.BasePath+"/clusters")
		var p v1.Problem
		if err := json.Unmarshal([]byte(body), &p); err != nil || code != http.StatusServiceUnavailable || p.Status != code || p.Code != "unavailable" {
			return fmt.Errorf("%d %s, want the problem %d unavailable", code, body, http.StatusServiceUnavailable)
		}
		return nil
	})
}

// A load reads and writes without pause and takes down how it is answered.
type load struct {
	mu       sync.Mutex
	answers  map[int]int // by status; 0 is no answer
	odd      []error     // what is neither a success nor the announced refusal
	acked    map[string]int64
	recently int // successes since the last reset
}

// run is the work of one client until ctx ends.
func (l *load) run(ctx context.Context, api *fleetclient.Client, ids []string) {
	for ctx.Err() == nil {
		id := ids[rand.IntN(len(ids))]
		r, err := api.Clusters().Patch(ctx, id, v1.PatchRequest{Spec: json.RawMessage(fmt.Sprintf(`{"n":%d}`, rand.Int64()))})
		if err == nil {
			l.note(id, r.Generation, nil)
			_, err = api.Clusters().Get(ctx, id)
		}
		if ctx.Err() == nil {
			l.note(id, 0, err)
		}
		_ = poll(ctx, 5*time.Millisecond, func() error { return errors.New("a pause") })
	}
}

func (l *load) note(id string, generation int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	status := statusOf(err)
	l.answers[status]++
	l.acked[id] = max(l.acked[id], generation)
	e, problem := errors.AsType[*fleetclient.Error](err)
	switch {
	case err == nil:
		l.recently++
	case !problem || e.Problem.Code != "unavailable" || e.RetryAfter() == 0:
		l.odd = append(l.odd, err)
	}
}

// wantAnswers waits for n more successes.
func (l *load) wantAnswers(t *testing.T, n int) {
	t.Helper()
	l.mu.Lock()
	l.recently = 0
	l.mu.Unlock()
	eventually(t, patience, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		if l.recently < n {
			return fmt.Errorf("%d requests answered since, want %d; so far %v", l.recently, n, l.answers)
		}
		return nil
	})
}

// TestPostgresRestart restarts the database under load: the API refuses with
// 503 and the time to come again, and nothing else, and recovers; no write
// that it confirmed is lost; the sentinel goes on.
func TestPostgresRestart(t *testing.T) {
	t.Parallel()
	cfg := pgserver.Config{Dir: serverDir(t), Throwaway: true, Settings: map[string]string{"synchronous_commit": "on"}}
	server := newPostgres(t, cfg)
	cfg.Port = server.LoopbackPort()
	f := newFleet(t, mergeEnv(oneAdapter(), map[string]string{"DATABASE_URL": server.DatabaseURL()}))
	q := openQueue(t, binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)})
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 100ms\nhyperfleet_api: {endpoint: API}\nmessage_data: {generation: .generation}\n",
		rabbitEnv(rabbit(t).Addr(), exchangeOf(t)))
	var ids []string
	for i := range 8 {
		ids = append(ids, f.create(t, fmt.Sprintf("cluster-%d", i), "").ID)
	}
	s.wantReady(t)

	ctx, cancel := context.WithCancel(t.Context())
	l := &load{answers: map[int]int{}, acked: map[string]int64{}}
	var clients sync.WaitGroup
	for range 4 {
		clients.Go(func() { l.run(ctx, f.api, ids) })
	}
	l.wantAnswers(t, 50)
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	wantUnavailable(t, f.url)
	f.wantUnready(t, "[-]database failed: ")
	s.wantUnready(t, "[-]sentinel failed: ", "503")
	newPostgres(t, cfg)
	l.wantAnswers(t, 50)
	f.wantReady(t)
	s.wantReady(t)
	cancel()
	clients.Wait()

	for _, err := range l.odd {
		t.Errorf("an answer is neither a success nor 503 unavailable with Retry-After: %v", err)
	}
	if l.answers[http.StatusServiceUnavailable] == 0 {
		t.Errorf("no request was refused, the load had %v", l.answers)
	}
	for _, id := range ids {
		r := f.get(t, id)
		if r.Generation < l.acked[id] {
			t.Errorf("cluster %s is at generation %d, the API had confirmed %d", id, r.Generation, l.acked[id])
		}
		wantGeneration(t, q, id, r.Generation)
	}
	f.wantRunning(t)
	s.wantRunning(t)
}

// serverDir is a folder that the server's own user can enter.
func serverDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "fleetloop-e2e-pg-") //nolint:usetesting // TempDir's is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o711); err != nil {
		t.Fatal(err)
	}
	return dir
}

func newPostgres(t *testing.T, cfg pgserver.Config) *pgserver.Server {
	t.Helper()
	server, err := pgserver.Start(t.Context(), cfg, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// wantGeneration waits for an event about a generation, which message_data
// puts under the key generation.
func wantGeneration(t *testing.T, q *queue, id string, generation int64) {
	t.Helper()
	want := fmt.Sprint(generation)
	eventually(t, patience, func() error {
		for _, e := range q.of(id) {
			if e.str("generation") == want {
				return nil
			}
		}
		return fmt.Errorf("no event about generation %s of %s", want, id)
	})
}

// TestRabbitMQRestart kills RabbitMQ while events are on their way: the
// sentinel says so and waits, what it counted as published is in the queue,
// and what is new meanwhile follows. It does not run beside tests that need
// the server.
func TestRabbitMQRestart(t *testing.T) { //nolint:paralleltest // see above
	f := newFleet(t, oneAdapter())
	b := binding{url: rabbit(t).URL(), exchange: exchangeOf(t), queue: exchangeOf(t)}
	declareQueue(t, b)
	// RabbitMQ writes what was declared some seconds later, and the test may kill it before.
	if _, err := rabbit(t).RunRabbitMQCtl(t.Context(), "eval", "mnesia:sync_log()."); err != nil {
		t.Fatal(err)
	}
	s := newSentinel(t, f.url, "resource_type: clusters\npoll_interval: 50ms\nmax_age_not_ready: 1h\nhyperfleet_api: {endpoint: API}\nmessage_data: {generation: .generation}\n",
		rabbitEnv(rabbit(t).Addr(), exchangeOf(t)))
	s.wantReady(t)
	var ids []string
	for i := range 8 {
		ids = append(ids, f.create(t, fmt.Sprintf("cluster-%d", i), "").ID)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	l := &load{answers: map[int]int{}, acked: map[string]int64{}}
	var clients sync.WaitGroup
	clients.Go(func() { l.run(ctx, f.api, ids) })
	wantMetric(t, s, "hyperfleet_sentinel_events_published_total", 50)
	if err := rabbit(t).Kill(); err != nil {
		t.Fatal(err)
	}
	s.wantUnready(t, "[-]broker failed: ", "not connected")
	l.wantAnswers(t, 20)
	if err := rabbit(t).Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.wantReady(t)
	cancel()
	clients.Wait()

	q := openQueue(t, b)
	for _, id := range ids {
		wantGeneration(t, q, id, f.get(t, id).Generation)
	}
	published := s.log.find("event published")
	eventually(t, patience, func() error {
		delivered := map[string]bool{}
		for _, e := range q.all() {
			delivered[e.ID] = true
		}
		for _, line := range published {
			if id, _ := line["event_id"].(string); !delivered[id] {
				return fmt.Errorf("event %s counts as published and is not in the queue", id)
			}
		}
		return nil
	})
}
