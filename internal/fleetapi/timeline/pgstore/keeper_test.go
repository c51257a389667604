package pgstore_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

const day = 24 * time.Hour

func (d *database) keep(t *testing.T, retention time.Duration) {
	t.Helper()
	if err := pgstore.NewKeeper(pgtest.Open(t, d.url), retention, slog.New(slog.DiscardHandler)).Round(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// partitions are the weeks that there are partitions of.
func (d *database) partitions(t *testing.T) []string {
	t.Helper()
	return d.texts(t, `select right(c.relname, 10) from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'timeline.change_event'::regclass and c.relname <> 'change_event_default' order by 1`)
}

// week is how the partition of a moment is called.
func week(at time.Time) string {
	at = at.UTC()
	return at.AddDate(0, 0, -(int(at.Weekday())+6)%7).Format("2006_01_02")
}

func TestKeeperMakesRoom(t *testing.T) {
	d := newDatabase(t)
	now := time.Now()
	d.append(t, event("late", 30*day), event("early", -20*day), event("now", 0))
	wantEqual(t, "before", []string{"late", "early"}, d.texts(t, "select node from timeline.change_event_default order by at"))
	d.keep(t, 90*day)
	want := []string{week(now.Add(-30 * day))}
	for n := range 5 {
		want = append(want, week(now.AddDate(0, 0, 7*n)))
	}
	slices.Sort(want)
	wantEqual(t, "partitions", want, d.partitions(t))
	wantEqual(t, "nothing is left over", 0, len(d.texts(t, "select node from timeline.change_event_default")))
	wantEqual(t, "nothing is lost", []string{"early", "now", "late"}, d.list(t, all()))
	d.keep(t, 90*day)
	wantEqual(t, "partitions, the second time", want, d.partitions(t))

	again := event("late", 30*day)
	wantEqual(t, "it is known still", []timeline.Outcome{timeline.Known}, d.append(t, again))
}

func TestKeeperLetsGo(t *testing.T) {
	d := newDatabase(t)
	d.append(t, event("old", 60*day), event("young", 20*day))
	d.keep(t, 90*day)
	d.append(t, event("told late", 45*day)) // there is no partition for it
	d.keep(t, 30*day)
	wantEqual(t, "events", []string{"young"}, d.list(t, all()))
	wantEqual(t, "keys", 1, len(d.texts(t, "select key::text from timeline.change_key")))
	if slices.Contains(d.partitions(t), week(time.Now().Add(-60*day))) {
		t.Errorf("the old partition is there: %v", d.partitions(t))
	}
}

// TestKeepersAtOnce: one works, the others have nothing to do, and who appends
// meanwhile is not refused.
func TestKeepersAtOnce(t *testing.T) {
	d := newDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for range cap(done) {
		k := pgstore.NewKeeper(pgtest.Open(t, d.url), 90*day, slog.New(slog.DiscardHandler))
		go func() {
			for ctx.Err() == nil {
				if err := k.Round(ctx); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := range 30 {
		d.append(t, event(time.Duration(i).String(), time.Duration(i)*day*3))
	}
	cancel()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wantEqual(t, "events", 30, len(d.list(t, all())))
}

func TestRunEnds(t *testing.T) {
	d := newDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	k := pgstore.NewKeeper(pgtest.Open(t, d.url), 0, slog.New(slog.DiscardHandler))
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	for len(d.partitions(t)) < 5 && ctx.Err() == nil { // until it has worked
		if t.Context().Err() != nil {
			t.Fatal("it does not work")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
