package fleetapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
	"github.com/fleetloop/fleetloop/internal/processtest"
)

const standbyMaxLag = time.Second

// A replicatedFixture is an API on a primary and a streaming standby.
type replicatedFixture struct {
	*fixture

	servers *pgtest.ReplicatedServer
}

func newReplicatedFixture(t *testing.T) *replicatedFixture {
	t.Helper()
	servers := pgtest.NewReplicatedServer(t)
	f := &replicatedFixture{servers: servers, fixture: newFixtureWith(t, options{
		cfg: defaults(), database: servers.Primary.DatabaseURL(), standby: servers.Standby.DatabaseURL(),
	})}
	f.awaitUsable(t, 1)
	return f
}

// TestReadsFromStandby uses one pair of servers for all its parts, because starting them takes seconds.
func TestReadsFromStandby(t *testing.T) {
	t.Parallel()
	f := newReplicatedFixture(t)
	for _, part := range []struct {
		name string
		run  func(*testing.T, *replicatedFixture)
	}{
		{"Idle", testStandbyOnIdlePrimary},
		{"Routes", testStandbyAnswersReads},
		{"Cursor", testCursorOfStandbyLosesNothing},
		{"ETag", testETagOfStandby},
		{"Token", testReadYourWrites},
		{"Lag", testLaggingStandby},
		{"Killed", testKilledStandby},
		{"Promoted", testPromotedStandby}, // the last, because it ends the replication
	} {
		t.Run(part.name, func(t *testing.T) { part.run(t, &replicatedFixture{f.under(t), f.servers}) })
	}
}

// testStandbyOnIdlePrimary verifies that a standby remains usable for longer than the maximum lag after the last write.
func testStandbyOnIdlePrimary(t *testing.T, f *replicatedFixture) {
	on := f.countReads(t, "primary")
	for end := time.Now().Add(2 * standbyMaxLag); time.Now().Before(end); {
		f.list("clusters")
	}
	wantEqual(t, "reads on the primary", on, f.countReads(t, "primary"))
}

func testStandbyAnswersReads(t *testing.T, f *replicatedFixture) {
	f.createWithToken("clusters", "routed")
	id := f.idOf("routed")
	counter := pgstore.NewRollupCounter(pgtest.Open(t, f.database), nil, discard())
	ctx, cancel := context.WithCancel(t.Context())
	counted := make(chan error, 1)
	go func() { counted <- counter.Run(ctx) }()
	processtest.Eventually(t, func() error {
		if a := f.do("GET", v1.SummaryPath, nil); a.status != http.StatusOK {
			return fmt.Errorf("no summary: %s", a.body)
		}
		return nil
	})
	cancel()
	if err := <-counted; err != nil {
		t.Error(err)
	}
	token := f.createWithToken("clusters", "counted")
	paths := []string{
		"clusters", "clusters?limit=5", "clusters?ids=" + id, "clusters/" + id, "clusters/" + id + "/statuses", "clusters/" + id + "/revisions", "clusters/" + id + "/nodepools",
		"clusters/" + id + "/sync", "clusters/sync", "schemas", v1.SummaryPath, v1.StuckPath, v1.ChangesPath, v1.ChangesPath + "?limit=1", v1.ChangeBucketsPath + "?since=1h",
	}
	on := f.countReads(t, "primary")
	for _, path := range paths {
		f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK)
	}
	wantEqual(t, "reads on the primary", on, f.countReads(t, "primary"))
}

// testCursorOfStandbyLosesNothing lists on the standby while a transaction is running that began before the newest
// change. The changes after the cursor of the list must have what that transaction changes.
func testCursorOfStandbyLosesNothing(t *testing.T, f *replicatedFixture) {
	f.createWithToken("clusters", "slow")
	running := f.begin("update tenant.resources set display_name = 'changed' where name = 'slow'")
	token := f.createWithToken("clusters", "quick")
	page := f.listOnStandby(t, "clusters?limit=100", token)
	if !slices.Contains(namesOf(page), "quick") {
		t.Fatalf("the standby lists %v", namesOf(page))
	}
	f.commit(running)
	changes := read[v1.Changes](f.do("GET", "clusters?changed_since="+page.Cursor, nil).want(http.StatusOK))
	if !slices.ContainsFunc(changes.Items, func(r v1.Resource) bool { return r.Name == "slow" }) {
		t.Errorf("the changes after the list lack the one that was running: %v", changes.Items)
	}
	w := f.watch("clusters?watch=true&changed_since="+page.Cursor, nil)
	if e := w.next(); !strings.Contains(string(e.Data), "slow") {
		t.Errorf("the watch after the list begins with %s %s", e.Type, e.Data)
	}
}

// testETagOfStandby has one of two running transactions commit between two lists: neither the newest change nor the oldest
// running transaction changes.
func testETagOfStandby(t *testing.T, f *replicatedFixture) {
	f.createWithToken("clusters", "etag-1")
	f.createWithToken("clusters", "etag-2")
	first := f.begin("update tenant.resources set display_name = 'first' where name = 'etag-1'")
	second := f.begin("update tenant.resources set display_name = 'second' where name = 'etag-2'")
	token := f.createWithToken("clusters", "etag-3")
	const path = "clusters?limit=100"
	before := f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK)
	again := http.Header{"If-None-Match": {before.header.Get("Etag")}, v1.ReadAfterHeader: {token}}
	f.doWith(again, "GET", path, nil).want(http.StatusNotModified)
	f.commit(second)
	again.Set(v1.ReadAfterHeader, f.tokenOfRefusedWrite())
	after := f.doWith(again, "GET", path, nil).want(http.StatusOK)
	if !strings.Contains(string(after.body), `"second"`) {
		t.Errorf("the list lacks the committed change: %s", after.body)
	}
	f.commit(first)
}

func testReadYourWrites(t *testing.T, f *replicatedFixture) {
	f.onStandby("select pg_wal_replay_pause()")
	defer f.onStandby("select pg_wal_replay_resume()")
	f.awaitPaused(t)
	token := f.createWithToken("clusters", "own")
	if names := f.names("clusters?limit=100"); slices.Contains(names, "own") {
		t.Errorf("without a token, the paused standby lists %v", names)
	}
	a := f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", "clusters?limit=100", nil).want(http.StatusOK)
	if names := namesOf(read[v1.List](a)); !slices.Contains(names, "own") {
		t.Errorf("with the token of its creation, the cluster is not listed: %v", names)
	}
	id := read[v1.List](a).Items[slices.Index(namesOf(read[v1.List](a)), "own")].ID
	f.do("GET", "clusters/"+id, nil).want(http.StatusOK) // not found on the standby, and therefore read on the primary
	for name, malformed := range map[string]string{"Text": "latest", "Short": token[1:], "Long": token + "0", "LowerCase": "0000000a" + token[8:]} {
		a := f.doWith(http.Header{v1.ReadAfterHeader: {malformed}}, "GET", "clusters", nil)
		a.problem(http.StatusBadRequest, "invalid_query", v1.ReadAfterHeader)
		if t.Failed() {
			t.Log(name)
		}
	}
	other := "000000FF" + token[8:] // of another timeline
	f.doWith(http.Header{v1.ReadAfterHeader: {other}}, "GET", "clusters/"+id, nil).want(http.StatusOK)
}

func testLaggingStandby(t *testing.T, f *replicatedFixture) {
	f.onStandby("select pg_wal_replay_pause()")
	f.awaitPaused(t)
	f.createWithToken("clusters", "unreplayed")
	written := time.Now()
	for !slices.Contains(f.names("clusters?limit=100"), "unreplayed") {
		if age := time.Since(written); age > 2*standbyMaxLag {
			t.Fatalf("the write is not visible after %s", age)
		}
	}
	f.awaitUsable(t, 0)
	f.onStandby("select pg_wal_replay_resume()")
	f.awaitUsable(t, 1)
}

func testKilledStandby(t *testing.T, f *replicatedFixture) {
	if err := syscall.Kill(f.servers.Standby.PostmasterPID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(standbyMaxLag); time.Now().Before(end); {
		f.do("GET", "clusters", nil).want(http.StatusOK)
	}
	f.awaitUsable(t, 0)
	_ = f.servers.Standby.Close() // it was killed
	f.servers.RestartStandby()
	f.awaitUsable(t, 1)
	on := f.countReads(t, "standby")
	f.list("clusters")
	wantEqual(t, "reads on the returned standby", on+1, f.countReads(t, "standby"))
}

func testPromotedStandby(t *testing.T, f *replicatedFixture) {
	f.createWithToken("clusters", "honest")
	f.onStandby("select pg_promote(wait => true, wait_seconds => 60)")
	f.onStandby("update tenant.resources set name = 'foreign' where name = 'honest'")
	for f.usable(t) != 0 {
		if names := f.names("clusters?limit=100"); slices.Contains(names, "foreign") || !slices.Contains(names, "honest") {
			t.Fatalf("a promoted standby answered: %v", names)
		}
	}
	if names := f.names("clusters?limit=100"); slices.Contains(names, "foreign") {
		t.Errorf("a promoted standby answered: %v", names)
	}
	if n := strings.Count(f.readLogs(), "standby not usable"); n != 3 { // it lagged, was killed and was promoted
		t.Errorf("%d log lines about an unusable standby, want 3:\n%s", n, f.readLogs())
	}
}

// createWithToken creates a resource and returns the token of the write.
func (f *replicatedFixture) createWithToken(collection, name string) (token string) {
	f.Helper()
	a := f.do("POST", collection, v1.CreateRequest{Name: name, Spec: []byte(`{}`)}).want(http.StatusCreated)
	if token = a.header.Get(v1.ReadAfterHeader); token == "" {
		f.Fatal("the response to a write has no token")
	}
	return token
}

// tokenOfRefusedWrite returns the token of a write that conflicts.
func (f *replicatedFixture) tokenOfRefusedWrite() string {
	f.Helper()
	return f.do("POST", "clusters", v1.CreateRequest{Name: "slow", Spec: []byte(`{}`)}).want(http.StatusConflict).header.Get(v1.ReadAfterHeader)
}

func (f *replicatedFixture) idOf(name string) string {
	f.Helper()
	return f.list("clusters?search=" + url.QueryEscape("name='"+name+"'")).Items[0].ID
}

// listOnStandby reads a page after a token, and checks that the standby answered.
func (f *replicatedFixture) listOnStandby(t *testing.T, path, token string) v1.List {
	t.Helper()
	on := f.countReads(t, "standby")
	page := read[v1.List](f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK))
	wantEqual(t, "reads on the standby", on+1, f.countReads(t, "standby"))
	return page
}

// begin runs a statement on the primary in a transaction that stays open.
func (f *replicatedFixture) begin(sql string) pgx.Tx {
	f.Helper()
	conn, err := pgx.Connect(f.Context(), f.servers.Primary.DatabaseURL())
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { _ = conn.Close(context.WithoutCancel(f.Context())) })
	tx, err := conn.Begin(f.Context())
	if err == nil {
		_, err = tx.Exec(f.Context(), sql)
	}
	if err != nil {
		f.Fatal(err)
	}
	return tx
}

func (f *replicatedFixture) commit(tx pgx.Tx) {
	f.Helper()
	if err := tx.Commit(f.Context()); err != nil {
		f.Fatal(err)
	}
}

// onStandby runs a statement on the standby.
func (f *replicatedFixture) onStandby(sql string) {
	f.Helper()
	execOn(f.T, f.servers.Standby, sql, nil)
}

// awaitPaused waits until the standby replays nothing more.
func (f *replicatedFixture) awaitPaused(t *testing.T) {
	t.Helper()
	for state := ""; state != "paused"; {
		execOn(t, f.servers.Standby, "select pg_get_wal_replay_pause_state()", &state)
	}
}

// execOn runs a statement, and reads its text unless into is nil.
func execOn(t *testing.T, server *pgserver.Server, sql string, into *string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), server.DatabaseURL())
	if err != nil {
		t.Fatal(err)
	}
	if into == nil {
		_, err = conn.Exec(t.Context(), sql)
	} else {
		err = conn.QueryRow(t.Context(), sql).Scan(into)
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// awaitUsable waits until the standby is used, 1, or not, 0.
func (f *replicatedFixture) awaitUsable(t *testing.T, want float64) {
	t.Helper()
	processtest.Eventually(t, func() error {
		if got := f.usable(t); got != want {
			return fmt.Errorf("usable is %v, want %v:\n%s", got, want, f.readLogs())
		}
		return nil
	})
}

func (f *replicatedFixture) readLogs() string {
	f.logging.Lock()
	defer f.logging.Unlock()
	return f.logs.String()
}

func (f *replicatedFixture) usable(t *testing.T) float64 {
	t.Helper()
	return f.metric(t, "fleetloop_api_standby_usable", "")
}

func (f *replicatedFixture) countReads(t *testing.T, server string) float64 {
	t.Helper()
	return f.metric(t, "fleetloop_api_standby_reads_total", server)
}

// metric returns the value of a metric with a label value, "" for none.
func (f *replicatedFixture) metric(t *testing.T, name, label string) float64 {
	t.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	t.Fatalf("no metric %s %s", name, label)
	return 0
}
