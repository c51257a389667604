package clusterworkerapp_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

// TestSinksThatCannotWork verifies that invalid sinks do not stop the sync, and that a check
// reports them.
func TestSinksThatCannotWork(t *testing.T) {
	t.Parallel()
	const no = "postgres://nobody@127.0.0.1:1/none"
	env := map[string]string{"DATABASE_URL": no, "CHANGE_EVENTS_ENABLED": "true"}
	for _, args := range [][]string{{"config", "check"}, {"preflight"}} {
		if err := start(t, env, args...).WaitUntilEnded(t); err == nil || !strings.Contains(err.Error(), "CHANGE_EVENTS_ENDPOINT") {
			t.Errorf("%v ends with %v", args, err)
		}
	}
	if err := start(t, map[string]string{"DATABASE_URL": no}, "config", "check").WaitUntilEnded(t); err != nil {
		t.Errorf("without sinks nothing is wrong: %v", err)
	}
	c := start(t, env)
	processtest.EventuallyStatus(t, c.WaitForURLInLog(t, "metrics and health")+"/healthz", http.StatusOK)
	if n := strings.Count(c.Stderr.String(), "no sink configured for change events"); n != 1 {
		t.Errorf("the log says %d times that there is no sink", n)
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
}

// TestTellsASink holds that a sink hears what a worker does, and all of it before
// the worker ends.
func TestTellsASink(t *testing.T) {
	t.Parallel()
	got := make(chan changeevent.Payload, 100)
	place := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p, err := changeevent.Decode(body)
		if err != nil || r.URL.Path != "/in/first" || r.Header.Get("Authorization") != "Bearer canary" {
			t.Errorf("at %s came %v: %s", r.URL.Path, err, body)
		}
		got <- p
	}))
	t.Cleanup(place.Close)
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "first", `{}`)
	c := start(t, map[string]string{
		"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": place.URL + "/in",
		"CHANGE_EVENTS_AUTH_TOKEN": "canary", "CHANGE_EVENTS_AUTH_SCHEME": "Bearer",
	})
	wantRow(t, conn, id, "shoot_status = 'ready'")
	health := c.WaitForURLInLog(t, "metrics and health")
	processtest.Eventually(t, func() error {
		body := processtest.EventuallyStatus(t, health+"/metrics", http.StatusOK)
		if !strings.Contains(body, `nvsentinel_change_events_total{action="shoot-ready",status="success"} 1`) {
			return errors.New("/metrics has not counted that the Shoot is ready")
		}
		return nil
	})
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	close(got)
	var actions []string
	for p := range got {
		actions = append(actions, p.Action)
		var delivery string
		if err := conn.QueryRow(t.Context(), `select concat_ws(' ', tenant, sink, sink_type, state, attempts, error) from tenant.cluster_change_deliveries
			where event_id = $1 and date_trunc('milliseconds', happened_at) = $2::text::timestamptz`, p.ID, p.Timestamp).Scan(&delivery); err != nil || delivery != "t default nvsentinel delivered 1 " {
			t.Errorf("the delivery of %s is recorded as %q, %v", p.Action, delivery, err)
		}
		if p.Cluster != "first" || p.Source != "fleetloop/cluster-worker" || p.Details["tenant"] != "t" || p.Details["cluster_id"] != id {
			t.Errorf("the sink was told %+v", p)
		}
	}
	if diff := cmp.Diff([]string{"shoot-created", "shoot-ready"}, actions); diff != "" {
		t.Errorf("the sink was told: -want +got\n%s", diff)
	}
	if strings.Contains(c.Stderr.String(), "canary") {
		t.Error("the token is in the log")
	}
}

// TestKeepsWhatASinkDidNotTake verifies that the next worker sends the changes of the last one in
// order, if the sink was unavailable until that one ended.
func TestKeepsWhatASinkDidNotTake(t *testing.T) {
	t.Parallel()
	var up atomic.Bool
	refused, taken := make(chan changeevent.Payload, 1000), make(chan changeevent.Payload, 1000)
	place := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p, err := changeevent.Decode(body)
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		if !up.Load() {
			refused <- p
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		taken <- p
	}))
	t.Cleanup(place.Close)
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "first", `{}`)
	env := map[string]string{
		"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": place.URL,
		"CHANGE_EVENTS_SHUTDOWN_TIMEOUT": "10ms",
	}
	c := start(t, env)
	wantRow(t, conn, id, "shoot_status = 'ready'")
	first := <-refused
	// The client tries once and gives it back, so that no other cluster waits for it.
	processtest.Eventually(t, func() error { return wantOldest(t, conn, "failures > 0") })
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	up.Store(true)
	start(t, env)
	created, ready := <-taken, <-taken
	if created.Action != changeevent.ActionShootCreated || created.ID != first.ID || ready.Action != changeevent.ActionShootReady {
		t.Errorf("the sink was told of %s %s and %s, want %s %s and shoot-ready", created.Action, created.ID, ready.Action, first.Action, first.ID)
	}
}

// wantOldest says that a condition does not hold for the oldest change that is kept.
func wantOldest(t *testing.T, conn *pgx.Conn, condition string) error {
	t.Helper()
	var holds bool
	var row string
	err := conn.QueryRow(t.Context(), "select "+condition+", c::text from tenant.cluster_change_events c order by seq limit 1").Scan(&holds, &row)
	if err == nil && !holds {
		err = fmt.Errorf("%s does not hold for %s", condition, row)
	}
	return err
}

// TestKeepsWhatASinkCouldNotTake verifies that changes made while the settings of a sink are
// invalid are sent after a fix.
func TestKeepsWhatASinkCouldNotTake(t *testing.T) {
	t.Parallel()
	taken := make(chan string, 1000)
	place := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		p, err := changeevent.Decode(body)
		if err != nil {
			t.Errorf("%v: %s", err, body)
		}
		taken <- p.Action
	}))
	t.Cleanup(place.Close)
	url := pgtest.NewMigratedDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "first", `{}`)
	env := map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CHANGE_EVENTS_ENABLED": "true"}
	c := start(t, env)
	wantRow(t, conn, id, "shoot_status = 'ready'")
	if err := wantOldest(t, conn, "failures = 0"); err != nil {
		t.Errorf("nothing is kept for the sink: %v", err)
	}
	c.Cancel()
	if err := c.WaitUntilEnded(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	env["CHANGE_EVENTS_ENDPOINT"] = place.URL
	start(t, env)
	if diff := cmp.Diff([]string{"shoot-created", "shoot-ready"}, []string{<-taken, <-taken}); diff != "" {
		t.Errorf("the mended sink was told: -want +got\n%s", diff)
	}
}
