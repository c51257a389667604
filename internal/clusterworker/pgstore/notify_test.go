package pgstore_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
)

// An ear receives notifications.
type ear struct {
	*bed
	conn *pgx.Conn
}

func (b *bed) listen() *ear {
	b.Helper()
	conn := connect(b.T, b.url)
	if _, err := conn.Exec(b.Context(), "listen "+pgstore.Channel+"; listen probe"); err != nil {
		b.Fatal(err)
	}
	return &ear{b, conn}
}

// unthrottle lets the next notification through at once.
func (b *bed) unthrottle() {
	b.Helper()
	b.exec(`select setval('tenant.cluster_sync_notified', 0)`)
}

// heard returns the number of notifications since its last call: those that were
// committed before the probe arrive before it.
func (e *ear) heard() int {
	e.Helper()
	e.exec(`notify probe`)
	for n := 0; ; n++ {
		ctx, cancel := context.WithTimeout(e.Context(), 30*time.Second)
		got, err := e.conn.WaitForNotification(ctx)
		cancel()
		if err != nil {
			e.Fatal(err)
		}
		if got.Channel == "probe" {
			return n
		}
	}
}

func TestWhatIsNotifiedOf(t *testing.T) {
	b := newBed(t)
	e := b.listen()
	var id string
	var c clusterworker.Claim
	fence := b.lead("me").Fence
	steps := []struct {
		reason string
		do     func()
		want   int
	}{
		{"a cluster is new", func() { id = b.cluster("one") }, 1},
		{"the worker claims", func() { c = b.claimOne() }, 0},
		{"the worker names", func() {
			_, _, _ = b.store.StoreNames(t.Context(), []clusterworker.ProposedName{{ClusterID: id, Token: c.Token, ShootName: "s"}})
		}, 0},
		{"the worker gives back", func() { _ = b.store.ReleaseClaims(t.Context(), []clusterworker.Claim{c}) }, 1},
		{"the worker fails", func() { b.complete(failed(b.claimOne(), "no", true, 0)) }, 0},
		{"the worker succeeds", func() { b.complete(done(b.claimOne())) }, 0},
		{"the observer writes", func() {
			_, _ = b.store.Observations.SaveStatus(t.Context(), fence, []clusterworker.StatusChange{{ClusterID: id, WasStatus: "pending", Status: "ready"}})
			b.recordUnchanged(fence, 0, id)
			_ = b.store.RecordReports(t.Context(), []clusterworker.Reported{{ClusterID: id, Version: b.row(id).ReportVersion}})
		}, 0},
		{"the observer finds that the Shoot has drifted", func() { _, _ = b.store.Observations.RequeueSynced(t.Context(), fence, []string{id}) }, 1},
		{"an edit", func() { b.edit(id) }, 1},
		{"a status report", func() { b.exec(`update tenant.resources set phase = 'Ready'`) }, 0},
		{"a pool", func() { b.pool(id, "pool") }, 1},
		{"a retry", func() { b.exec(`select tenant.retry_cluster_sync($1)`, id) }, 1},
		{"a pause", func() { b.exec(`select tenant.pause_cluster_sync($1)`, id) }, 0},
		{"a pause with an end", func() { b.exec(`select tenant.pause_cluster_sync($1, 'alice', 'why', now() + '1 hour')`, id) }, 1},
		{"the end of a pause", func() { b.exec(`select tenant.resume_cluster_sync($1)`, id) }, 1},
		{"a thousand at once", func() { b.exec(insertMany, 1000) }, 1},
		{"the edit of a thousand", func() { b.exec(`update tenant.resources set generation = generation + 1`) }, 1},
		{"the retry of a thousand", func() { b.exec(`select tenant.retry_cluster_sync(cluster_id) from tenant.cluster_sync`) }, 1},
		{"several statements of one transaction", func() {
			b.exec(`begin`)
			b.edit(id)
			b.exec(`savepoint s`)
			b.edit(id)
			b.exec(`rollback to s`)
			b.edit(id)
			b.exec(`commit`)
		}, 1},
		{"what is left when the first statement is taken back", func() {
			b.exec(`begin`)
			b.exec(`savepoint s`)
			b.edit(id)
			b.exec(`rollback to s`)
			b.edit(id)
			b.exec(`commit`)
		}, 1},
		{"a transaction that checks its constraints early", func() {
			b.exec(`begin`)
			b.edit(id)
			b.exec(`set constraints all immediate`)
			b.edit(id)
			b.exec(`commit`)
		}, 1},
		{"a cluster after a load that added none", func() {
			b.exec(`begin`)
			b.exec(insertMany, 0)
			b.exec(insertMany+` on conflict do nothing`, 1000)
			b.cluster("two")
			b.exec(`commit`)
		}, 1},
		{"a rollback", func() {
			b.exec(`begin`)
			b.edit(id)
			b.exec(`rollback`)
		}, 0},
		{"the transaction after those", func() { b.edit(id) }, 1},
		{"the last goes", func() { b.exec(`delete from tenant.resources`) }, 0},
	}
	e.heard()
	for _, step := range steps {
		b.unthrottle()
		step.do()
		if got := e.heard(); got != step.want {
			t.Errorf("%s: %d notifications, want %d", step.reason, got, step.want)
		}
	}
}

func TestNotificationsComeWithTheCommit(t *testing.T) {
	b := newBed(t)
	e := b.listen()
	writer := connect(t, b.url)
	tx, err := writer.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), insertMany, 10); err != nil {
		t.Fatal(err)
	}
	if got := e.heard(); got != 0 {
		t.Errorf("%d notifications before the commit", got)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := e.heard(); got != 1 {
		t.Errorf("%d notifications after the commit", got)
	}
}

// TestNotificationsAreThrottled: most changes of many writers send no notification.
func TestNotificationsAreThrottled(t *testing.T) {
	b := newBed(t)
	e := b.listen()
	ids := b.clusters(8)
	e.heard()
	const each = 200
	begin := time.Now()
	var wg sync.WaitGroup
	for _, id := range ids {
		conn := connect(t, b.url)
		wg.Go(func() {
			for range each {
				if _, err := conn.Exec(t.Context(), `update tenant.resources set generation = generation + 1 where id = $1`, id); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	took := time.Since(begin)
	// A writer relies on a notification of the last 50 ms once that is committed. On a
	// busy machine, or with slow commits, several are sent meanwhile.
	most := max(each*len(ids)/4, len(ids)*(int(took/(50*time.Millisecond))+1))
	got := e.heard()
	if got < 1 || got > most {
		t.Errorf("%d notifications of %d changes in %s, want 1 to %d", got, each*len(ids), took, most)
	}
	// A clock that was set back does not suppress it.
	b.exec(`select setval('tenant.cluster_sync_notified', (extract(epoch from now() + interval '1 day') * 1000000)::bigint)`)
	b.edit(ids[0])
	if got := e.heard(); got != 1 {
		t.Errorf("%d notifications after the clock was set back", got)
	}
}
