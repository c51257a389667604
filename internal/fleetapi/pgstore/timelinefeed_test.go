package pgstore_test

import (
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

func (d *timelineDatabase) horizon(t *testing.T) watch.Cursor {
	t.Helper()
	at, err := d.ReadLatestCursor(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return at
}

// follow returns the nodes of the events after a cursor, and the next cursor.
func (d *timelineDatabase) follow(t *testing.T, scope timeline.Scope, at watch.Cursor, limit int) ([]string, watch.Cursor) {
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

func TestTimelineFollow(t *testing.T) {
	d := newTimelineDatabase(t)
	begin := d.horizon(t)
	got, at := d.follow(t, allEvents(), begin, 10)
	wantEqual(t, "nothing yet", []string{}, got)
	d.append(t, newEvent("a", time.Minute), newEvent("b", time.Hour))
	d.append(t, newEvent("c", 40*24*time.Hour))
	got, at = d.follow(t, allEvents(), at, 2)
	wantEqual(t, "in the order in which they came", []string{"a", "b", "c"}, got)
	got, _ = d.follow(t, allEvents(), at, 2)
	wantEqual(t, "nothing twice", []string{}, got)

	theirs := newEvent("theirs", 0)
	theirs.Tenant = "blue"
	d.append(t, theirs)
	got, at = d.follow(t, redEvents(), at, 10)
	wantEqual(t, "of others", []string{}, got)
	wantEqual(t, "it is past what it may not see", d.horizon(t), at)
}

// TestTimelineTellsWhatIsSettled checks that an event which began earlier and committed later is
// delivered later, and not missed.
func TestTimelineTellsWhatIsSettled(t *testing.T) {
	d := newTimelineDatabase(t)
	begin := d.horizon(t)
	d.append(t, newEvent("first", 0))
	slow, err := d.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := pgstore.InsertTimelineEvents(t.Context(), slow, []timeline.Event{newEvent("slow", 0)}); err != nil {
		t.Fatal(err)
	}
	d.append(t, newEvent("quick", 0))
	got, at := d.follow(t, allEvents(), begin, 10)
	wantEqual(t, "while one is under way", []string{"first"}, got)
	wantEqual(t, "the list shows it", []string{"quick", "first"}, d.list(t, allEvents()))
	if err := slow.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got, _ = d.follow(t, allEvents(), at, 10)
	wantEqual(t, "then", []string{"slow", "quick"}, got)
}

// TestTimelineLosesAndDoublesNothing follows while many senders commit transactions of different length,
// and resumes from the cursor repeatedly.
func TestTimelineLosesAndDoublesNothing(t *testing.T) {
	d := newTimelineDatabase(t)
	const tellers, each = 4, 150
	var left atomic.Int32
	left.Store(tellers)
	var g errgroup.Group
	for teller := range tellers {
		store := pgstore.NewTimelineStore(pgtest.Open(t, d.url))
		g.Go(func() error {
			defer left.Add(-1)
			for i := range each {
				batch := []timeline.Event{newEvent(fmt.Sprintf("%d-%d", teller, i), time.Duration(i)*time.Hour)}
				if i%7 == 0 {
					for j := range 50 {
						batch = append(batch, newEvent(fmt.Sprintf("%d-%d-%d", teller, i, j), 0))
					}
				}
				if _, err := store.AppendEvents(t.Context(), allEvents(), batch); err != nil {
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
		got, at = d.follow(t, allEvents(), parsed, 17)
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

// TestTimelineOfARestoredDatabase checks that transaction numbers start again, and that old events are not
// repeated when the numbers reach theirs.
func TestTimelineOfARestoredDatabase(t *testing.T) {
	d := newTimelineDatabase(t)
	before := d.horizon(t)
	d.append(t, newEvent("before", time.Minute))
	_, old := d.follow(t, allEvents(), before, 10)
	// As a dump of a server that was ahead: the events have numbers in the future.
	d.exec(t, "update timeline.change_event set xact = pg_snapshot_xmax(pg_current_snapshot())::text::bigint::text::xid8")
	d.exec(t, "update timeline.change_event set xact = (xact::text::bigint + 20)::text::xid8")
	d.exec(t, "update timeline.feed set history = 'of another'")

	if _, _, err := d.VisitEventsAfter(t.Context(), allEvents(), old, 10, func(*timeline.Row) error { return nil }); !errors.Is(err, timeline.ErrCursorExpired) {
		t.Fatalf("an old cursor: %v", err)
	}
	at := d.horizon(t)
	if at.Epoch == before.Epoch {
		t.Fatal("the epoch is the same")
	}
	d.append(t, newEvent("after", 0))
	for i := range 40 { // until the numbers reach the previous ones
		d.append(t, newEvent(fmt.Sprint(i), 0))
	}
	got, _ := d.follow(t, allEvents(), at, 100)
	wantEqual(t, "how many were told", 41, len(got))
	wantEqual(t, "the first", "after", got[0])
	wantEqual(t, "the list has all", 42, len(d.list(t, allEvents())))
}

func TestTimelineCursorsOfTheFuture(t *testing.T) {
	d := newTimelineDatabase(t)
	at := d.horizon(t)
	at.Xact += 1_000_000
	if _, _, err := d.VisitEventsAfter(t.Context(), allEvents(), at, 10, func(*timeline.Row) error { return nil }); !errors.Is(err, timeline.ErrCursorExpired) {
		t.Errorf("got %v", err)
	}
}

func TestTimelineVisitorEndsIt(t *testing.T) {
	d := newTimelineDatabase(t)
	begin := d.horizon(t)
	d.append(t, newEvent("a", 0), newEvent("b", 0))
	enough := errors.New("enough")
	visit := func(*timeline.Row) error { return enough }
	if _, _, err := d.VisitEventsAfter(t.Context(), allEvents(), begin, 10, visit); !errors.Is(err, enough) {
		t.Errorf("changes: %v", err)
	}
	if _, err := d.List(t.Context(), allEvents(), timeline.Query{Limit: 10}, visit); !errors.Is(err, enough) {
		t.Errorf("list: %v", err)
	}
}
