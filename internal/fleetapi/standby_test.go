package fleetapi_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
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

const standbyMaxLag = 2 * time.Second

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
	f.awaitUsable(1)
	return f
}

// TestReadsFromStandby uses one pair of servers for all its parts, because starting them takes seconds.
func TestReadsFromStandby(t *testing.T) {
	f := newReplicatedFixture(t)
	for _, part := range []struct {
		name string
		run  func(*replicatedFixture)
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
		t.Run(part.name, func(t *testing.T) { part.run(&replicatedFixture{f.under(t), f.servers}) })
	}
}

// testStandbyOnIdlePrimary verifies that a standby remains usable for longer than the maximum lag after the last write.
func testStandbyOnIdlePrimary(f *replicatedFixture) {
	on := f.countReads("primary")
	for end := time.Now().Add(2 * standbyMaxLag); time.Now().Before(end); {
		f.list("clusters")
	}
	wantEqual(f.T, "reads on the primary", on, f.countReads("primary"))
}

func testStandbyAnswersReads(f *replicatedFixture) {
	id := f.create("clusters", "routed", nil).ID
	counter := pgstore.NewRollupCounter(pgtest.Open(f.T, f.database), nil, discard())
	ctx, cancel := context.WithCancel(f.Context())
	counted := make(chan error, 1)
	go func() { counted <- counter.Run(ctx) }()
	processtest.Eventually(f.T, func() error {
		if a := f.do("GET", v1.SummaryPath, nil); a.status != http.StatusOK {
			return fmt.Errorf("no summary: %s", a.body)
		}
		return nil
	})
	cancel()
	if err := <-counted; err != nil {
		f.Error(err)
	}
	token := f.createCluster("counted")
	f.awaitReplayed(token)
	paths := []string{
		"clusters", "clusters?limit=5", "clusters/" + id, "clusters/" + id + "/statuses", "clusters/" + id + "/revisions", "clusters/" + id + "/nodepools",
		"clusters/" + id + "/sync", "clusters/sync", "schemas", v1.SummaryPath, v1.StuckPath, v1.ChangesPath, v1.ChangesPath + "?limit=1", v1.ChangeBucketsPath + "?since=1h",
	}
	onPrimary, onStandby := f.countReads("primary"), f.countReads("standby")
	for _, path := range paths {
		f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK)
	}
	wantEqual(f.T, "reads on the primary", onPrimary, f.countReads("primary"))
	wantEqual(f.T, "reads on the standby", onStandby+float64(len(paths)), f.countReads("standby"))
	f.do("GET", "clusters?ids="+id, nil).want(http.StatusOK)
	wantEqual(f.T, "reads on the standby after a lookup", onStandby+float64(len(paths)), f.countReads("standby"))
}

// testCursorOfStandbyLosesNothing lists on the standby while a transaction is running that began before the newest
// change. The changes after the cursor of the list must have what that transaction changes.
func testCursorOfStandbyLosesNothing(f *replicatedFixture) {
	f.createCluster("slow")
	running := f.begin("update tenant.resources set display_name = 'changed' where name = 'slow'")
	token := f.createCluster("quick")
	page := f.listOnStandby("clusters?limit=100", token)
	if !slices.Contains(namesOf(page), "quick") {
		f.Fatalf("the standby lists %v", namesOf(page))
	}
	f.commit(running)
	changes := read[v1.Changes](f.do("GET", "clusters?changed_since="+page.Cursor, nil).want(http.StatusOK))
	if !slices.ContainsFunc(changes.Items, func(r v1.Resource) bool { return r.Name == "slow" }) {
		f.Errorf("the changes after the list lack the one that was running: %v", changes.Items)
	}
	w := f.watch("clusters?watch=true&changed_since="+page.Cursor, nil)
	if e := w.next(); !strings.Contains(string(e.Data), "slow") {
		f.Errorf("the watch after the list begins with %s %s", e.Type, e.Data)
	}
}

// testETagOfStandby has one of two running transactions commit between two lists: neither the newest change nor the oldest
// running transaction changes.
func testETagOfStandby(f *replicatedFixture) {
	f.createCluster("etag-1")
	f.createCluster("etag-2")
	first := f.begin("update tenant.resources set display_name = 'first' where name = 'etag-1'")
	second := f.begin("update tenant.resources set display_name = 'second' where name = 'etag-2'")
	token := f.createCluster("etag-3")
	f.awaitReplayed(token)
	const path = "clusters?limit=100"
	before := f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK)
	again := http.Header{"If-None-Match": {before.header.Get("Etag")}, v1.ReadAfterHeader: {token}}
	f.doWith(again, "GET", path, nil).want(http.StatusNotModified)
	f.commit(second)
	again.Set(v1.ReadAfterHeader, f.tokenOfRefusedWrite())
	f.awaitReplayed(again.Get(v1.ReadAfterHeader))
	after := f.doWith(again, "GET", path, nil).want(http.StatusOK)
	if !strings.Contains(string(after.body), `"second"`) {
		f.Errorf("the list lacks the committed change: %s", after.body)
	}
	f.commit(first)
}

func testReadYourWrites(f *replicatedFixture) {
	f.onStandby("select pg_wal_replay_pause()")
	defer f.onStandby("select pg_wal_replay_resume()")
	f.awaitPaused()
	token := f.createCluster("own")
	if names := f.names("clusters?limit=100"); slices.Contains(names, "own") {
		f.Errorf("without a token, the paused standby lists %v", names)
	}
	a := f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", "clusters?limit=100", nil).want(http.StatusOK)
	latest := f.doWith(http.Header{v1.ReadAfterHeader: {v1.ReadAfterAll}}, "GET", "clusters?limit=100", nil).want(http.StatusOK)
	if names := namesOf(read[v1.List](latest)); !slices.Contains(names, "own") {
		f.Errorf("a read of all writes lists %v", names)
	}
	own := slices.Index(namesOf(read[v1.List](a)), "own")
	if own < 0 {
		f.Fatalf("with the token of its creation, the cluster is not listed: %s", a.body)
	}
	id := read[v1.List](a).Items[own].ID
	f.do("GET", "clusters/"+id, nil).want(http.StatusOK) // not found on the standby, and therefore read on the primary
	for name, malformed := range map[string]string{"Text": "latest", "Short": token[1:], "Long": token + "0", "LowerCase": "0000000a" + token[8:]} {
		a := f.doWith(http.Header{v1.ReadAfterHeader: {malformed}}, "GET", "clusters", nil)
		a.problem(http.StatusBadRequest, "invalid_query", v1.ReadAfterHeader)
		if f.Failed() {
			f.Log(name)
		}
	}
	other := "000000FF" + token[8:] // of another timeline
	f.doWith(http.Header{v1.ReadAfterHeader: {other}}, "GET", "clusters/"+id, nil).want(http.StatusOK)
}

func testLaggingStandby(f *replicatedFixture) {
	f.onStandby("select pg_wal_replay_pause()")
	f.awaitPaused()
	f.createCluster("unreplayed")
	written := time.Now()
	for !slices.Contains(f.names("clusters?limit=100"), "unreplayed") {
		if age := time.Since(written); age > 2*standbyMaxLag {
			f.Fatalf("the write is not visible after %s", age)
		}
	}
	f.awaitUsable(0)
	f.onStandby("select pg_wal_replay_resume()")
	f.awaitUsable(1)
}

func testKilledStandby(f *replicatedFixture) {
	if err := syscall.Kill(f.servers.Standby.PostmasterPID(), syscall.SIGKILL); err != nil {
		f.Fatal(err)
	}
	for end := time.Now().Add(standbyMaxLag); time.Now().Before(end); {
		f.do("GET", "clusters", nil).want(http.StatusOK)
	}
	f.awaitUsable(0)
	_ = f.servers.Standby.Close() // it was killed
	f.servers.StartStoppedStandby()
	f.awaitUsable(1)
	on := f.countReads("standby")
	f.list("clusters")
	wantEqual(f.T, "reads on the returned standby", on+1, f.countReads("standby"))
}

func testPromotedStandby(f *replicatedFixture) {
	id := f.create("clusters", "honest", nil).ID
	f.awaitReplayed(f.createCluster("replayed"))
	f.onStandby("select pg_promote(wait => true, wait_seconds => 60)")
	f.onStandby("update tenant.resources set name = 'foreign' where name = 'honest'")
	for f.usable() != 0 {
		if name := f.get("clusters/" + id).Name; name != "honest" {
			f.Fatalf("a promoted standby answered: %s", name)
		}
		if names := f.names("clusters?limit=100"); slices.Contains(names, "foreign") || !slices.Contains(names, "honest") {
			f.Fatalf("a promoted standby answered: %v", names)
		}
	}
	if names := f.names("clusters?limit=100"); slices.Contains(names, "foreign") {
		f.Errorf("a promoted standby answered: %v", names)
	}
	if n := strings.Count(f.readLogs(), "standby not usable"); n != 3 { // it lagged, was killed and was promoted
		f.Errorf("%d log lines about an unusable standby, want 3:\n%s", n, f.readLogs())
	}
}

// createCluster creates a cluster and returns the token of the write.
func (f *replicatedFixture) createCluster(name string) (token string) {
	f.Helper()
	a := f.do("POST", "clusters", v1.CreateRequest{Name: name, Spec: []byte(`{}`)}).want(http.StatusCreated)
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

// listOnStandby reads a page after a token, and checks that the standby answered.
func (f *replicatedFixture) listOnStandby(path, token string) v1.List {
	f.Helper()
	f.awaitReplayed(token)
	on := f.countReads("standby")
	page := read[v1.List](f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", path, nil).want(http.StatusOK))
	wantEqual(f.T, "reads on the standby", on+1, f.countReads("standby"))
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
func (f *replicatedFixture) awaitPaused() {
	f.Helper()
	for state := ""; state != "paused"; {
		execOn(f.T, f.servers.Standby, "select pg_get_wal_replay_pause_state()", &state)
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

// awaitReplayed waits until the standby answers a read with a token.
func (f *replicatedFixture) awaitReplayed(token string) {
	f.Helper()
	processtest.Eventually(f.T, func() error {
		on := f.countReads("standby")
		f.doWith(http.Header{v1.ReadAfterHeader: {token}}, "GET", "clusters", nil).want(http.StatusOK)
		if f.countReads("standby") == on {
			return errors.New("the primary answered")
		}
		return nil
	})
}

// awaitUsable waits until the standby is used, 1, or not, 0.
func (f *replicatedFixture) awaitUsable(want float64) {
	f.Helper()
	processtest.Eventually(f.T, func() error {
		if got := f.usable(); got != want {
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

func (f *replicatedFixture) usable() float64 {
	f.Helper()
	return f.metric("fleetloop_api_standby_usable", "")
}

func (f *replicatedFixture) countReads(server string) float64 {
	f.Helper()
	return f.metric("fleetloop_api_standby_reads_total", server)
}

// metric returns the value of a metric with a label value, "" for none.
func (f *replicatedFixture) metric(name, label string) float64 {
	f.Helper()
	families, err := f.metrics.Gather()
	if err != nil {
		f.Fatal(err)
	}
	for _, family := range families {
		for _, m := range family.GetMetric() {
			if family.GetName() == name && (label == "" || m.GetLabel()[0].GetValue() == label) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
		}
	}
	f.Fatalf("no metric %s %s", name, label)
	return 0
}
