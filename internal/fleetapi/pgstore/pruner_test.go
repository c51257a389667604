package pgstore_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// prune deletes the changes older than an hour.
func (d *database) prune(t *testing.T) {
	t.Helper()
	p := pgstore.NewPruner(pgtest.Open(t, d.url), time.Hour, slog.New(slog.NewTextHandler(t.Output(), nil)))
	if err := pgstore.Round(p, t.Context(), time.Now()); err != nil {
		t.Fatal(err)
	}
}

func (d *database) state(t *testing.T, kind string) watch.FeedState {
	t.Helper()
	s, err := d.ReadFeedState(t.Context(), kind)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (d *database) kept(t *testing.T) (n int) {
	t.Helper()
	if err := d.conn.QueryRow(t.Context(), "select count(*) from tenant.resource_changes").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

func TestOldChangesArePruned(t *testing.T) {
	d := newDatabase(t)
	beginning, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cluster, workload := newRecord("a", v1.KindCluster, "one"), newRecord("a", v1.KindWorkload, "one")
	insert(t, d.Store, cluster, workload)
	d.prune(t)
	if d.kept(t) != 2 {
		t.Error("young changes were pruned")
	}
	clusters := d.state(t, v1.KindCluster)
	d.exec(t, "update tenant.resource_changes set changed_at = now() - interval '2 hours'")
	touch(t, d.Store, workload)
	d.prune(t)
	if n := d.kept(t); n != 1 {
		t.Errorf("%d changes are kept, want the young one", n)
	}

	for reason, tc := range map[string]struct {
		kind    string
		after   watch.Cursor
		expired bool
	}{
		"the cluster came behind it":             {v1.KindCluster, beginning, true},
		"the workload came behind it":            {v1.KindWorkload, beginning, true},
		"something came behind it":               {"", beginning, true},
		"no node pool ever came":                 {v1.KindNodePool, beginning, false},
		"no cluster changed behind its page":     {v1.KindCluster, clusters.CursorBeforePending(), false},
		"a change of the workload is still kept": {v1.KindWorkload, func() watch.Cursor { s := d.state(t, v1.KindWorkload); return s.CursorBeforePending() }(), false},
	} {
		_, _, err := d.VisitChanges(t.Context(), all(), fleetapi.ChangeQuery{Kind: tc.kind, After: tc.after, Limit: 10}, func(*fleetapi.Change) error { return nil })
		if errors.Is(err, fleetapi.ErrCursorExpired) != tc.expired || err != nil && !tc.expired {
			t.Errorf("%v: %s", err, reason)
		}
	}
	if after := d.state(t, v1.KindCluster); after.Newest != clusters.Newest {
		t.Errorf("the newest change was %v and is %v once it is pruned", clusters.Newest, after.Newest)
	}
}

// TestWhatIsNotSettledIsNotPruned checks that changes after a running transaction stay, however
// old they are. A reader that waits for it has not seen them.
func TestWhatIsNotSettledIsNotPruned(t *testing.T) {
	d := newDatabase(t)
	early, late := newRecord("a", v1.KindCluster, "early"), newRecord("a", v1.KindCluster, "late")
	insert(t, d.Store, early, late)
	f := d.follower(t, v1.KindCluster, all())
	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), "update tenant.clusters set phase = 'Ready' where id = $1", early.ID); err != nil {
		t.Fatal(err)
	}
	touch(t, d.Store, late)
	d.exec(t, "update tenant.resource_changes set changed_at = now() - interval '2 hours'")
	d.prune(t)
	f.want(t, d.Store, "an earlier change may come yet")
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, d.Store, "both are settled", "+"+early.ID, "+"+late.ID)
}

// TestOnlyABeginningIsPruned checks that a young change keeps those after it, so that the log has
// one beginning.
func TestOnlyABeginningIsPruned(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	insert(t, d.Store, newRecord("a", v1.KindCluster, "two"))
	insert(t, d.Store, newRecord("a", v1.KindCluster, "three"))
	d.exec(t, "update tenant.resource_changes set changed_at = now() - interval '2 hours' where seq <> (select seq from tenant.resource_changes order by xact, seq offset 1 limit 1)")
	d.prune(t)
	if n := d.kept(t); n != 2 {
		t.Errorf("%d changes are kept, want the young one and the one behind it", n)
	}
}

// TestPrunersShareTheWork uses many batches, and several concurrent pruners.
func TestPrunersShareTheWork(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	d.exec(t, `insert into tenant.resource_changes (seq, changed_at, kind, id, tenant, labels_changed)
		select 1000000 + n, now() - interval '2 hours', 'Cluster', gen_random_uuid(), 'a', false from generate_series(1, 12000) n`)
	d.exec(t, "update tenant.resource_changes set changed_at = now() - interval '2 hours'")
	other := connectTo(t, d.url)
	tx, err := other.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "select from tenant.change_feed for update"); err != nil {
		t.Fatal(err)
	}
	d.prune(t)
	if n := d.kept(t); n != 12001 {
		t.Errorf("%d changes are kept while another process prunes, want all", n)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	d.prune(t)
	if n := d.kept(t); n != 0 {
		t.Errorf("%d changes are kept", n)
	}
}

// TestWhatHoldsUpTheFeedIsLogged checks that a long transaction is logged once.
func TestWhatHoldsUpTheFeedIsLogged(t *testing.T) {
	d := newDatabase(t)
	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var xact string
	if err := slow.QueryRow(t.Context(), "select pg_current_xact_id()::text").Scan(&xact); err != nil {
		t.Fatal(err)
	}
	var log bytes.Buffer
	p := pgstore.NewPruner(pgtest.Open(t, d.url), 0, slog.New(slog.NewTextHandler(&log, nil)))
	now := time.Now()
	round := func(after time.Duration) {
		t.Helper()
		insert(t, d.Store, newRecord("a", v1.KindCluster, "c"+strconv.Itoa(int(after)))) // transactions come and go
		if err := pgstore.Round(p, t.Context(), now.Add(after)); err != nil {
			t.Fatal(err)
		}
	}
	round(0)
	round(59 * time.Second)
	if log.Len() > 0 {
		t.Errorf("logged too soon: %s", &log)
	}
	round(time.Minute)
	round(2 * time.Minute)
	if n := strings.Count(log.String(), "changes are delayed"); n != 1 || !strings.Contains(log.String(), "transaction="+xact) {
		t.Errorf("told %d times of transaction %s: %s", n, xact, &log)
	}
	if err := slow.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	round(10 * time.Minute)
	round(20 * time.Minute)
	if n := strings.Count(log.String(), "changes are delayed"); n != 1 {
		t.Errorf("told %d times: %s", n, &log)
	}
}

// TestAPrunerGoesOn checks that a pruner survives an unavailable database, and ends with its
// context.
func TestAPrunerGoesOn(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	d.exec(t, "alter function tenant.prune_changes rename to away")
	told := make(chan string, 10)
	p := pgstore.NewPruner(pgtest.Open(t, d.url), time.Millisecond, slog.New(messages{slog.DiscardHandler, told}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.Run(ctx) }()
	if got := <-told; got != "pruning old changes failed, retrying" {
		t.Errorf("logged %q", got)
	}
	d.exec(t, "alter function tenant.away rename to prune_changes")
	if got := <-told; got != "pruning old changes works again" {
		t.Errorf("logged %q", got)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := d.kept(t); n != 0 {
		t.Errorf("%d changes are kept", n)
	}
}

// messages is a log handler that forwards messages.
type messages struct {
	slog.Handler
	said chan string
}

func (messages) Enabled(context.Context, slog.Level) bool { return true }

func (m messages) Handle(_ context.Context, r slog.Record) error {
	m.said <- r.Message
	return nil
}
