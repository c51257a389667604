package apitest

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// TestSyncs looks after a fleet of which some does not come to Gardener.
func TestSyncs(t *testing.T) {
	t.Parallel()
	database := pgtest.NewMigratedDatabaseURL(t)
	conn, err := pgx.Connect(t.Context(), database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	u := user{t, newAPIOn(t, database)}
	_, errOut := u.wantRun(cli.CodeOK, "", "clusters", "sync")
	u.wantOutput(errOut, "No clusters found in any tenant.")

	// A worker brings one there, fails with another again and again, and is at the third.
	u.wantRun(cli.CodeOK, "kind: Cluster\nname: ap-1\nspec: {}\n---\n"+fleet[1:], "create", "-f", "-")
	for name, columns := range map[string]string{
		"eu-1": "synced = now(), unsynced_since = null, synced_generation = generation, shoot_name = 'eu-1-abc', shoot_status = 'ready'",
		"us-1": "sync_attempts = 9, sync_error = 'no such version', error_class = 'invalid', sync_last_attempt = now(), due_at = now() + interval '10 minutes'",
		"ap-1": "claim_token = 1, claimed_by = 'worker-1', due_at = now() + interval '10 minutes'",
	} {
		tag, err := conn.Exec(t.Context(), "update tenant.cluster_sync set "+columns+" where cluster_id = (select id from tenant.clusters where name = $1)", name)
		if err != nil || tag.RowsAffected() != 1 {
			t.Fatalf("%s: %d rows, %v", name, tag.RowsAffected(), err)
		}
	}
	out, errOut := u.wantRun(cli.CodeOK, "", "clusters", "sync")
	u.wantOutput(out, "us-1", "stuck", "no such version", "ap-1", "running")
	u.wantOutput(errOut, "2 of 3 clusters are not synced: 1 running, 1 stuck.")
	if strings.Contains(out, "eu-1") {
		t.Errorf("what is synced is among what is not:\n%s", out)
	}
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "sync", "eu-1", "--no-headers")
	u.wantOutput(out, "eu-1   synced   -", "eu-1-abc   ready")
	out, _ = u.wantRun(cli.CodeOK, "", "describe", "cluster", "us-1")
	u.wantOutput(out, "Gardener:", "State:        stuck", "invalid: no such version")

	_, errOut = u.wantRun(cli.CodePrecondition, "", "clusters", "retry", "ap-1")
	u.wantOutput(errOut, `409 Conflict: worker "worker-1" is syncing Cluster`, "next:  run 'fleetloop clusters sync'")
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "retry", "--all-stuck")
	u.wantOutput(out, "cluster/us-1 retried\n")
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "sync", "--state", "pending", "-o", "name")
	u.wantOutput(out, "cluster/us-1\n")
	_, errOut = u.wantRun(cli.CodeOK, "", "clusters", "retry", "--all-stuck")
	u.wantOutput(errOut, "No clusters are stuck.")

	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "pause", "-l", "region=us")
	u.wantOutput(out, "cluster/us-1 paused\n")
	_, errOut = u.wantRun(cli.CodePrecondition, "", "clusters", "retry", "us-1")
	u.wantOutput(errOut, "is paused; resume it", "next:  run 'fleetloop clusters resume'")
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "resume", "us-1", "-o", "yaml")
	u.wantOutput(out, "state: pending\n", "sync_error: no such version\n")
	u.wantRun(cli.CodePrecondition, "", "clusters", "resume", "nope")

	// A worker gets no answer from Gardener: what waits for a worker says for what.
	if _, err := conn.Exec(t.Context(), `insert into tenant.cluster_worker_outages (worker, since, reason, until)
		values ('worker-1', '2026-03-01T12:00:00Z', 'it does not answer: connection refused', now() + interval '1 hour')`); err != nil {
		t.Fatal(err)
	}
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "sync", "us-1", "-o", "wide")
	u.wantOutput(out, "waiting for gardener since 2026-03-01T12:00:00Z: it does not answer: connection refused")
	out, _ = u.wantRun(cli.CodeOK, "", "describe", "cluster", "us-1")
	u.wantOutput(out, "Waiting:      for gardener since 2026-03-01T12:00:00Z", "connection refused")
	out, _ = u.wantRun(cli.CodeOK, "", "clusters", "sync", "eu-1")
	if strings.Contains(out, "waits for") {
		t.Errorf("what is synced waits for nothing:\n%s", out)
	}
}

// TestTop shows the counts and what is stuck of a real server.
func TestTop(t *testing.T) {
	t.Parallel()
	database := pgtest.NewMigratedDatabaseURL(t)
	u := user{t, newAPIOn(t, database)}
	u.wantRun(cli.CodeOK, fleet, "create", "-f", "-")
	_, errOut := u.wantRun(cli.CodeFailed, "", "top")
	u.wantOutput(errOut, "still counting", "retry in")

	ctx, cancel := context.WithCancel(t.Context())
	var counting sync.WaitGroup
	counter := pgstore.NewRollupCounter(pgtest.Open(t, database), nil, slog.New(slog.DiscardHandler))
	t.Cleanup(func() { cancel(); counting.Wait() })
	counting.Go(func() {
		if err := counter.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	ticker := time.NewTicker(50 * time.Millisecond)
	t.Cleanup(ticker.Stop)
	for deadline := time.Now().Add(30 * time.Second); ; <-ticker.C {
		code, out, _ := u.runCLI("", "top", "--older-than", "1ms", "--once", "--limit", "1")
		if code == cli.CodeOK && strings.Contains(out, "nodepools   2 ") {
			u.wantOutput(out, "none_reported", "More resources are stuck")
			return
		}
		if time.Now().After(deadline) {
			t.Fatal(out)
		}
	}
}
