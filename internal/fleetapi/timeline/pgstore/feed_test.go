package pgstore_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func (d *database) horizon(t *testing.T) watch.Cursor {
	t.Helper()
	at, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// follow returns the nodes of the events after a cursor, and the next cursor.
func (d *database) follow(t *testing.T, scope timeline.Scope, at watch.Cursor, limit int) ([]string, watch.Cursor) {
	t.Helper()
	nodes := []string{}
	for more := true; more; {
		var err error
		if at, more, err = d.VisitEventsAfter(t.Context(), scope, at, limit, func(r *timeline.Row) error {
			nodes = append(nodes, r.Node)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	return nodes, at
}

func TestFollow(t *testing.T) {
	d := newDatabase(t)
	begin := d.horizon(t)
	got, at := d.follow(t, all(), begin, 10)
	wantEqual(t, "nothing yet", []string{}, got)
	d.append(t, event("a", time.Minute), event("b", time.Hour))
	d.append(t, event("c", 40*24*time.Hour))
	got, at = d.follow(t, all(), at, 2)
	wantEqual(t, "in the order in which they came", []string{"a", "b", "c"}, got)
	got, _ = d.follow(t, all(), at, 2)
	wantEqual(t, "nothing twice", []string{}, got)

	theirs := event("theirs", 0)
	theirs.Tenant = "blue"
	d.append(t, theirs)
	got, at = d.follow(t, red(), at, 10)
	wantEqual(t, "of others", []string{}, got)
	wantEqual(t, "it is past what it may not see", d.horizon(t), at)
}

// TestWhatIsNotSettledIsNotTold checks that an event which began earlier and committed later is
// delivered later, and not missed.
func TestWhatIsNotSettledIsNotTold(t *testing.T) {
	d := newDatabase(t)
	begin := d.horizon(t)
	d.append(t, event("first", 0))
	slow, err := d.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgstore.InsertEventsInTx(t.Context(), slow, []timeline.Event{event("slow", 0)}); err != nil {
		t.Fatal(err)
	}
	d.append(t, event("quick", 0))
	got, at := d.follow(t, all(), begin, 10)
	wantEqual(t, "while one is under way", []string{"first"}, got)
	wantEqual(t, "the list shows it", []string{"quick", "first"}, d.list(t, all()))
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ = d.follow(t, all(), at, 10)
	wantEqual(t, "then", []string{"slow", "quick"}, got)
}

// TestNothingIsLostOrDoubled follows while many senders commit transactions of different length,
// and resumes from the cursor repeatedly.
func TestNothingIsLostOrDoubled(t *testing.T) {
	d := newDatabase(t)
	const tellers, each = 4, 150
	var left atomic.Int32
	left.Store(tellers)
	var g errgroup.Group
	for teller := range tellers {
		store := pgstore.New(pgtest.Open(t, d.url))
		g.Go(func() error {
			defer left.Add(-1)
			for i := range each {
				batch := []timeline.Event{event(fmt.Sprintf("%d-%d", teller, i), time.Duration(i)*time.Hour)}
				if i%7 == 0 {
					for j := range 50 {
						batch = append(batch, event(fmt.Sprintf("%d-%d-%d", teller, i, j), 0))
					}
				}
				if _, err := store.AppendEvents(t.Context(), all(), batch); err != nil {
					return err
				}
			}
			return nil
		})
	}
	at := d.horizon(t)
	at.Position = watch.Position{}
	seen := map[string]int{}
	for last := false; ; {
		parsed, err := watch.ParseCursor(at.String()) // as a client that resumes
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		got, at = d.follow(t, all(), parsed, 17)
		for _, node := range got {
			seen[node]++
		}
		if last {
			break
		}
		last = left.Load() == 0
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	want := map[string]int{}
	for _, node := range d.texts(t, "select node from timeline.change_event") {
		want[node]++
	}
	wantEqual(t, "told", want, seen)
}

// TestRestoredDatabase checks that transaction numbers start again, and that old events are not
// repeated when the numbers reach theirs.
func TestRestoredDatabase(t *testing.T) {
	d := newDatabase(t)
	before := d.horizon(t)
	d.append(t, event("before", time.Minute))
	_, old := d.follow(t, all(), before, 10)
	// As a dump of a server that was ahead: the events have numbers in the future.
	d.exec(t, "update timeline.change_event set xact = pg_snapshot_xmax(pg_current_snapshot())::text::bigint::text::xid8")
	d.exec(t, "update timeline.change_event set xact = (xact::text::bigint + 20)::text::xid8")
	d.exec(t, "update timeline.feed set history = 'of another'")

	if _, _, err := d.VisitEventsAfter(t.Context(), all(), old, 10, func(*timeline.Row) error { return nil }); !errors.Is(err, timeline.ErrCursorExpired) {
		t.Fatalf("an old cursor: %v", err)
	}
	at := d.horizon(t)
	if at.Epoch == before.Epoch {
		t.Fatal("the epoch is the same")
	}
	d.append(t, event("after", 0))
	for i := range 40 { // until the numbers reach the previous ones
		d.append(t, event(fmt.Sprint(i), 0))
	}
	got, _ := d.follow(t, all(), at, 100)
	wantEqual(t, "how many were told", 41, len(got))
	wantEqual(t, "the first", "after", got[0])
	wantEqual(t, "the list has all", 42, len(d.list(t, all())))
}

func TestCursorsOfTheFuture(t *testing.T) {
	d := newDatabase(t)
	at := d.horizon(t)
	at.Xact += 1_000_000
	if _, _, err := d.VisitEventsAfter(t.Context(), all(), at, 10, func(*timeline.Row) error { return nil }); !errors.Is(err, timeline.ErrCursorExpired) {
		t.Errorf("got %v", err)
	}
}

func TestAVisitorsErrorEndsIt(t *testing.T) {
	d := newDatabase(t)
	begin := d.horizon(t)
	d.append(t, event("a", 0), event("b", 0))
	enough := errors.New("enough")
	visit := func(*timeline.Row) error { return enough }
	if _, _, err := d.VisitEventsAfter(t.Context(), all(), begin, 10, visit); !errors.Is(err, enough) {
		t.Errorf("changes: %v", err)
	}
	if _, err := d.List(t.Context(), all(), timeline.Query{Limit: 10}, visit); !errors.Is(err, enough) {
		t.Errorf("list: %v", err)
	}
}
