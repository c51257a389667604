package pgstore_test

import (
	"testing"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// TestOddRowsAreClaimedLikeOthers: a row with any content is claimed and completed, and
// so are the others.
func TestOddRowsAreClaimedLikeOthers(t *testing.T) {
	cases := map[string]struct {
		reason string
		sql    string // $1 is the cluster, $2 a pool
	}{
		"EndlessWait":   {"a time that no clock shows", `update tenant.cluster_sync set unsynced_since = '-infinity', shoot_status_updated = 'infinity', sync_last_attempt = '-infinity' where cluster_id = $1`},
		"ByHand":        {"somebody has it synced again by hand", `update tenant.cluster_sync set synced = null, unsynced_since = null where cluster_id = $1`},
		"ManyAttempts":  {"the highest number that fits", `update tenant.cluster_sync set sync_attempts = 2147483647, due_at = now() where cluster_id = $1`},
		"NoObject":      {"a spec that is no object", `update tenant.resources set spec = '[null]' where id = $1`},
		"OddText":       {"a spec with what jsonb would not take", `update tenant.resources set spec = '{"a": "\u0000", "a": 1e999}' where id in ($1, $2)`},
		"DeepPool":      {"a pool nested more deeply than most parsers go", `update tenant.resources set spec = (repeat('[', 5000) || repeat(']', 5000))::json where id = $2`},
		"LongSpec":      {"a spec of a megabyte", `update tenant.resources set spec = json_build_object('a', repeat('x', 1 << 20)) where id = $1`},
		"OddName":       {"a pool's name with the signs of arrays", `update tenant.resources set name = '{","\}' where id = $2`},
		"OrphanedClaim": {"a claim without a claimant", `update tenant.cluster_sync set claim_token = 1, claimed_by = null where cluster_id = $1`},
	}
	b := newBed(t)
	n := 0
	for name, tc := range cases {
		id := b.cluster(name)
		pool := b.pool(id, "pool")
		b.exec("with ids as (select $1::uuid, $2::uuid) "+tc.sql, id, pool)
		n++
	}
	b.cluster("plain")
	claims := b.claim(100)
	if len(claims) != n+1 {
		t.Fatalf("%d rows were claimed, want %d", len(claims), n+1)
	}
	results := make([]clusterworker.Result, len(claims))
	for i, c := range claims {
		results[i] = failed(c, "odd", true, 0)
		if want := 1; len(c.Pools) != want && c.Name != "plain" {
			t.Errorf("%s (%s) has %d pools, want %d", c.Name, cases[c.Name].reason, len(c.Pools), want)
		}
	}
	b.complete(results...)
	for _, c := range b.claim(100) {
		if c.Attempts < 1 {
			t.Errorf("%s (%s) has %d attempts", c.Name, cases[c.Name].reason, c.Attempts)
		}
		b.complete(done(c))
	}
	if rows, err := b.store.Observations.ListRows(t.Context(), "", 100); err != nil || len(rows) != n+1 {
		t.Errorf("%d rows, %v", len(rows), err)
	}
	if _, err := b.store.CountClusters(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestAClaimReadsNoMoreThanItNeeds: for any statistics of the planner, a claim reads no
// more rows than it needs.
func TestAClaimReadsNoMoreThanItNeeds(t *testing.T) {
	const n = 3000
	cases := map[string]struct {
		reason string
		before func(b *bed)
	}{
		"NeverAnalyzed": {"the planner knows nothing", func(b *bed) { b.exec(insertMany, n) }},
		"Analyzed":      {"all are due, and it is known", func(b *bed) { b.exec(insertMany, n); b.exec("analyze") }},
		"AllSynced": {"none was due when it was analyzed", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set synced = now()")
			b.exec("vacuum analyze")
			b.exec("update tenant.cluster_sync set synced = null")
		}},
		"FewWereDue": {"few were due when it was analyzed", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set synced = now() where cluster_id not in (select cluster_id from tenant.cluster_sync limit 100)")
			b.exec("vacuum analyze")
			b.exec("update tenant.cluster_sync set synced = null")
		}},
		"Paused": {"most of what is due is paused", func(b *bed) {
			b.exec(insertMany, n)
			b.exec("update tenant.cluster_sync set paused_at = now() where cluster_id not in (select cluster_id from tenant.cluster_sync limit 100)")
		}},
		"TimedOut": {"most of what is due timed out", func(b *bed) {
			b.exec(insertMany, n)
			b.exec(timeOutMost)
		}},
		"TimedOutAndAnalyzed": {"most of what is due timed out, and it is known", func(b *bed) {
			b.exec(insertMany, n)
			b.exec(timeOutMost)
			b.exec("vacuum analyze")
		}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			tc.before(b)
			const slots = 10
			got := b.countReadRows(func() {
				if claims := b.claim(slots); len(claims) != slots {
					t.Fatalf("claimed %d", len(claims))
				}
			})
			if got > 10*slots {
				t.Errorf("read %d rows for %d: %s", got, slots, tc.reason)
			}
		})
	}
}

// timeOutMost makes the rows that have waited longest such that timed out.
const timeOutMost = `update tenant.cluster_sync set error_class = 'timeout', due_at = now() - interval '1 minute'
	where cluster_id not in (select cluster_id from tenant.cluster_sync limit 100)`

// countReadRows returns how many rows of the table a call reads. The store cannot be used afterwards.
func (b *bed) countReadRows(call func()) int64 {
	b.Helper()
	b.exec("alter table tenant.cluster_sync set (autovacuum_enabled = off)")
	read := func() int64 {
		b.exec("select pg_stat_force_next_flush()")
		return ask[int64](b, `select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables where relname = 'cluster_sync'`)
	}
	before := read()
	call()
	// The server publishes the statistics of a connection when it is idle or ends.
	b.store = nil
	b.exec(`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()`)
	b.await("the connection has told what it read", func() bool { return read() > before })
	return read() - before
}

// TestTheNextLeaseIsFoundAtOnce: rows that wait after failures are not read to find the next lease, for any statistics of
// the planner.
func TestTheNextLeaseIsFoundAtOnce(t *testing.T) {
	for name, after := range map[string]string{"NeverAnalyzed": "select", "Analyzed": "vacuum analyze"} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t)
			b.exec(insertMany, 3000)
			b.claim(1)
			b.exec("update tenant.cluster_sync set due_at = now() + interval '1 minute', sync_attempts = 1 where claim_token is null")
			b.exec(after)
			got := b.countReadRows(func() {
				_, found, err := b.store.FindNextLeaseEndOfOthers(t.Context(), "another")
				if err != nil || !found {
					t.Fatalf("found a lease: %t, %v", found, err)
				}
			})
			if got >= 10 {
				t.Errorf("read %d rows, want less than 10", got)
			}
		})
	}
}
