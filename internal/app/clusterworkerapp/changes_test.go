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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/apptest"
	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

var at = time.Date(2026, time.March, 4, 5, 6, 7, 8_000_000, time.UTC)

// readyChange returns a change as recorded by the status poller.
func readyChange() clusterworker.Change {
	return clusterworker.Change{
		At: at, Action: clusterworker.ShootReady, ClusterID: "c-1", Cluster: "eu-west-01", Tenant: "shop",
		Shoot: "euwest01", Generation: 3, Message: "All is well.",
	}
}

// TestEventOf verifies the change event of a Shoot.
func TestEventOf(t *testing.T) {
	t.Parallel()
	got := clusterworkerapp.EventOf(readyChange())
	want := changeevent.ChangeEvent{
		Action: changeevent.ActionShootReady, Source: "fleetloop/cluster-worker", Cluster: "eu-west-01", Subject: "shoots/euwest01",
		Reason: "All is well.", Outcome: "succeeded", Timestamp: at, Session: "c-1.3", ID: got.ID,
		Details: map[string]string{"cluster_id": "c-1", "tenant": "shop", "generation": "3"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	failed := readyChange()
	failed.Action, failed.Message = clusterworker.ShootFailed, "quota: no room"
	if got := clusterworkerapp.EventOf(failed); got.Outcome != changeevent.OutcomeFailed || got.Reason != "quota: no room" {
		t.Errorf("a failure is told as %+v", got)
	}
	for action, want := range map[clusterworker.Action]string{
		clusterworker.ShootReady:   "Gardener reported cluster eu-west-01 (Shoot euwest01) ready",
		clusterworker.ShootCreated: "Fleetloop asked Gardener to create cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootUpdated: "Fleetloop asked Gardener to update cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootDeleted: "Gardener deleted cluster eu-west-01 (Shoot euwest01)",
		clusterworker.ShootFailed:  "Gardener failed to reconcile cluster eu-west-01 (Shoot euwest01): All is well.",
	} {
		c := readyChange()
		c.Action = action
		e := clusterworkerapp.EventOf(c)
		if got := changeevent.Summarize(e); got != want || e.Source != "fleetloop/cluster-worker" {
			t.Errorf("people read %q by %q, want %q", got, e.Source, want)
		}
	}
}

// TestIDs verifies which changes have the same ID, so that receivers can drop duplicates.
func TestIDs(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		change func(*clusterworker.Change)
		same   bool
	}{
		"Again":        {"what is told again is the same", func(*clusterworker.Change) {}, true},
		"InOtherWords": {"words are no other change", func(c *clusterworker.Change) { c.Message = "Fine." }, true},
		"Elsewhere":    {"a time is the same in all zones", func(c *clusterworker.Change) { c.At = c.At.In(time.FixedZone("", 3600)) }, true},
		"Later":        {"it failed in between", func(c *clusterworker.Change) { c.At = c.At.Add(time.Millisecond) }, false},
		"OtherAction":  {"", func(c *clusterworker.Change) { c.Action = clusterworker.ShootFailed }, false},
		"OtherCluster": {"names are of a tenant, ids are not", func(c *clusterworker.Change) { c.ClusterID = "c-2" }, false},
		"NextSpec":     {"", func(c *clusterworker.Change) { c.Generation++ }, false},
	}
	for name, tc := range cases {
		other := readyChange()
		tc.change(&other)
		if same := clusterworkerapp.EventOf(readyChange()).ID == clusterworkerapp.EventOf(other).ID; same != tc.same {
			t.Errorf("%s: %s: same id is %t, want %t", name, tc.reason, same, tc.same)
		}
	}

	gone := readyChange()
	gone.Action = clusterworker.ShootDeleted
	seen := gone
	seen.At, seen.Generation = seen.At.Add(time.Minute), 4
	if clusterworkerapp.EventOf(gone).ID != clusterworkerapp.EventOf(seen).ID {
		t.Error("a Shoot that both the sync and the poller see go is gone twice")
	}
}

// TestIDsTellApart holds that no two changes share an id that differ in what
// makes them two.
func TestIDsTellApart(t *testing.T) {
	t.Parallel()
	actions := []clusterworker.Action{
		clusterworker.ShootCreated, clusterworker.ShootUpdated, clusterworker.ShootReady, clusterworker.ShootFailed, clusterworker.ShootDeleted,
	}
	type key struct {
		id, shoot  string
		action     clusterworker.Action
		generation int64
		at         int64
	}
	rapid.Check(t, func(t *rapid.T) {
		draw := func(label string) (clusterworker.Change, key) {
			c := readyChange()
			c.ClusterID = rapid.SampledFrom([]string{"c", "c.1", "1"}).Draw(t, label+" cluster")
			c.Action = rapid.SampledFrom(actions).Draw(t, label+" action")
			c.Generation = rapid.Int64Range(1, 12).Draw(t, label+" generation")
			c.At = at.Add(time.Duration(rapid.IntRange(0, 2).Draw(t, label+" time")) * time.Second)
			k := key{c.ClusterID, c.Shoot, c.Action, c.Generation, c.At.UnixNano()}
			if c.Action == clusterworker.ShootDeleted {
				k.generation, k.at = 0, 0
			}
			return c, k
		}
		one, oneKey := draw("one")
		two, twoKey := draw("two")
		if same := clusterworkerapp.EventOf(one).ID == clusterworkerapp.EventOf(two).ID; same != (oneKey == twoKey) {
			t.Fatalf("same id is %t for\n%+v\n%+v", same, one, two)
		}
	})
}

// TestSinksThatCannotWork verifies that invalid sinks do not stop the sync, and that a check
// reports them.
func TestSinksThatCannotWork(t *testing.T) {
	t.Parallel()
	const no = "postgres://nobody@127.0.0.1:1/none"
	env := map[string]string{"DATABASE_URL": no, "CHANGE_EVENTS_ENABLED": "true"}
	for _, args := range [][]string{{"config", "check"}, {"preflight"}} {
		if err := start(t, env, args...).Wait(t); err == nil || !strings.Contains(err.Error(), "CHANGE_EVENTS_ENDPOINT") {
			t.Errorf("%v ends with %v", args, err)
		}
	}
	if err := start(t, map[string]string{"DATABASE_URL": no}, "config", "check").Wait(t); err != nil {
		t.Errorf("without sinks nothing is wrong: %v", err)
	}
	c := start(t, env)
	apptest.EventuallyStatus(t, c.URLFromLog(t, "metrics and health")+"/healthz", http.StatusOK)
	if n := strings.Count(c.Stderr.String(), "no sink configured for change events"); n != 1 {
		t.Errorf("the log says %d times that there is no sink", n)
	}
	c.Cancel()
	if err := c.Wait(t); err != nil {
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
	url := pgtest.NewDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "first", `{}`)
	c := start(t, map[string]string{
		"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CHANGE_EVENTS_ENABLED": "true", "CHANGE_EVENTS_ENDPOINT": place.URL + "/in",
		"CHANGE_EVENTS_AUTH_TOKEN": "canary", "CHANGE_EVENTS_AUTH_SCHEME": "Bearer",
	})
	wantRow(t, conn, id, "shoot_status = 'ready'")
	health := c.URLFromLog(t, "metrics and health")
	apptest.Eventually(t, func() error {
		body := apptest.EventuallyStatus(t, health+"/metrics", http.StatusOK)
		if !strings.Contains(body, `nvsentinel_change_events_total{action="shoot-ready",status="success"} 1`) {
			return errors.New("/metrics has not counted that the Shoot is ready")
		}
		return nil
	})
	c.Cancel()
	if err := c.Wait(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	close(got)
	var actions []string
	for p := range got {
		actions = append(actions, p.Action)
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
	url := pgtest.NewDatabaseURL(t)
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
	apptest.Eventually(t, func() error { return wantOldest(t, conn, "failures > 0") })
	c.Cancel()
	if err := c.Wait(t); err != nil {
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
	url := pgtest.NewDatabaseURL(t)
	conn := connectDB(t, url)
	id := addCluster(t, conn, "first", `{}`)
	env := map[string]string{"DATABASE_URL": url, "GARDENER_MOCK_CREATE_TIME": "1ms", "CHANGE_EVENTS_ENABLED": "true"}
	c := start(t, env)
	wantRow(t, conn, id, "shoot_status = 'ready'")
	if err := wantOldest(t, conn, "failures = 0"); err != nil {
		t.Errorf("nothing is kept for the sink: %v", err)
	}
	c.Cancel()
	if err := c.Wait(t); err != nil {
		t.Errorf("told to stop, it ended with %v", err)
	}
	env["CHANGE_EVENTS_ENDPOINT"] = place.URL
	start(t, env)
	if diff := cmp.Diff([]string{"shoot-created", "shoot-ready"}, []string{<-taken, <-taken}); diff != "" {
		t.Errorf("the mended sink was told: -want +got\n%s", diff)
	}
}
