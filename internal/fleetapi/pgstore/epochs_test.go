package pgstore_test

import (
	"errors"
	"testing"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func TestCursorsExpire(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	now, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason  string
		after   watch.Cursor
		expired bool
	}{
		"Now":           {reason: "it was just given away", after: now},
		"Beginning":     {reason: "nothing was pruned yet", after: watch.Cursor{Epoch: now.Epoch}},
		"OtherEpoch":    {reason: "it is of another database", after: watch.Cursor{Epoch: uuid.New(), Position: now.Position}, expired: true},
		"NoEpoch":       {reason: "it is of no database", expired: true},
		"FromTheFuture": {reason: "no transaction has come so far", after: watch.Cursor{Epoch: now.Epoch, Position: watch.Position{Xact: now.Xact + 1<<40}}, expired: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, _, err := d.VisitChanges(t.Context(), all(), fleetapi.ChangeQuery{After: tc.after, Limit: 1}, func(*fleetapi.Change) error { return nil })
			if errors.Is(err, fleetapi.ErrCursorExpired) != tc.expired || err != nil && !tc.expired {
				t.Errorf("%v: %s", err, tc.reason)
			}
		})
	}
}

// TestCursorsOfAStandbyMayBeAhead verifies that a cursor is accepted whose transaction ends on the primary only after the
// standby has shown it.
func TestCursorsOfAStandbyMayBeAhead(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	now, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ahead := watch.Cursor{Epoch: now.Epoch, Position: watch.Position{Xact: now.Xact + 20}}
	read := make(chan error, 1)
	go func() {
		_, _, err := d.VisitChanges(t.Context(), all(), fleetapi.ChangeQuery{After: ahead, Limit: 1}, func(*fleetapi.Change) error { return nil })
		read <- err
	}()
	for range 30 {
		touch(t, d.Store, r)
	}
	if err := <-read; err != nil {
		t.Errorf("a cursor that was ahead for a moment: %v", err)
	}
}

// TestARestoredDatabaseIsAnotherFeed checks that a restored database begins a new epoch
// automatically.
func TestARestoredDatabaseIsAnotherFeed(t *testing.T) {
	d := newDatabase(t)
	r, late := newRecord("a", v1.KindCluster, "one"), newRecord("a", v1.KindCluster, "late")
	insert(t, d.Store, late)
	insert(t, d.Store, r)
	d.exec(t, "delete from tenant.resource_changes where id = $1", late.ID)
	before := d.follower(t, v1.KindCluster, all())
	was, err := d.ReadFeedState(t.Context(), v1.KindCluster)
	if err != nil {
		t.Fatal(err)
	}
	// As restored from a dump: the log of another server.
	d.exec(t, "update tenant.change_feed set history = 'other'")
	d.exec(t, "update tenant.resource_changes set xact = '123456789012345'")
	touch(t, d.Store, r)
	var done bool
	if err := d.conn.QueryRow(t.Context(), "select tenant.renew_change_feed(1)").Scan(&done); err != nil || done || d.kept(t) != 1 {
		t.Errorf("the old log goes bit by bit: %t, %d left, %v", done, d.kept(t), err)
	}
	// A writer from before the new epoch that commits in it.
	slow, err := connectTo(t, d.url).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := slow.Exec(t.Context(), "update tenant.clusters set phase = 'Ready' where id = $1", late.ID); err != nil {
		t.Fatal(err)
	}

	if _, err := before.read(t.Context(), d.Store); !errors.Is(err, fleetapi.ErrCursorExpired) {
		t.Errorf("a cursor from before: %v", err)
	}
	is, err := d.ReadFeedState(t.Context(), v1.KindCluster)
	if err != nil || is.Epoch == was.Epoch || is.Newest.Xact > 1<<40 {
		t.Errorf("state %+v after %+v, %v", is, was, err)
	}
	f := d.follower(t, v1.KindCluster, all())
	if f.at.Epoch != is.Epoch {
		t.Errorf("there are the epochs %s and %s", f.at.Epoch, is.Epoch)
	}
	touch(t, d.Store, r)
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.want(t, d.Store, "the feed goes on", "+"+late.ID, "+"+r.ID)
}

// TestADumpPutBackIsAnotherFeed checks the same for tables restored from a dump into the same
// database.
func TestADumpPutBackIsAnotherFeed(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	was := d.state(t, v1.KindCluster)
	d.exec(t, "create table dump as select * from tenant.change_feed")
	touch(t, d.Store, r)
	undone := d.follower(t, v1.KindCluster, all())
	d.exec(t, `alter table tenant.change_feed rename to before`)
	d.exec(t, `create table tenant.change_feed (like tenant.before including all)`)
	d.exec(t, `drop table tenant.before`)
	d.exec(t, `insert into tenant.change_feed select * from dump`)

	if _, err := undone.read(t.Context(), d.Store); !errors.Is(err, fleetapi.ErrCursorExpired) {
		t.Errorf("a cursor from before: %v", err)
	}
	if is := d.state(t, v1.KindCluster); is.Epoch == was.Epoch {
		t.Errorf("state %+v after %+v", is, was)
	}
	f := d.follower(t, v1.KindCluster, all())
	touch(t, d.Store, r)
	f.want(t, d.Store, "the feed goes on", "+"+r.ID)
}

// TestRevisionsOfAnotherHistoryDoNotComeAgain checks that revisions of an abandoned history are not
// reused, because a revision is the tag of a resource.
func TestRevisionsOfAnotherHistoryDoNotComeAgain(t *testing.T) {
	d := newDatabase(t)
	r := newRecord("a", v1.KindCluster, "one")
	insert(t, d.Store, r)
	touch(t, d.Store, r)
	undone := mustGet(t, d.Store, r.Key).Revision
	d.exec(t, "select setval('tenant.resource_revision', $1, false)", undone)
	d.exec(t, "update tenant.change_feed set history = 'other'")
	d.state(t, v1.KindCluster)
	touch(t, d.Store, r)
	if again := mustGet(t, d.Store, r.Key).Revision; again <= undone+1_000_000 {
		t.Errorf("revision %d after %d, which may stand for something else", again, undone)
	}
}

// TestARecordedRestoreIsAnotherFeed checks that both feeds begin a new epoch after an operator has
// recorded a restore that PostgreSQL does not notice.
func TestARecordedRestoreIsAnotherFeed(t *testing.T) {
	d := newDatabase(t)
	insert(t, d.Store, newRecord("a", v1.KindCluster, "one"))
	changes, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	timeline := pgstore.NewTimelineStore(pgtest.Open(t, d.url))
	events, err := timeline.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // each restore counts
		d.exec(t, "insert into tenant.restores default values")
		now, err := d.ReadLatestCursor(t.Context())
		if err != nil || now.Epoch == changes.Epoch {
			t.Errorf("the epoch of the changes is %s after %s, %v", now.Epoch, changes.Epoch, err)
		}
		is, err := timeline.ReadLatestCursor(t.Context())
		if err != nil || is.Epoch == events.Epoch {
			t.Errorf("the epoch of the timeline is %s after %s, %v", is.Epoch, events.Epoch, err)
		}
		changes, events = now, is
	}
}
