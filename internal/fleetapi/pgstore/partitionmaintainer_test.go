package pgstore_test

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

const day = 24 * time.Hour

// newKeeper returns a keeper with separate metrics.
func (d *timelineDatabase) newKeeper(t *testing.T, retention time.Duration) (*pgstore.PartitionMaintainer, *prometheus.Registry) {
	t.Helper()
	reg := prometheus.NewRegistry()
	k, err := pgstore.NewPartitionMaintainer(pgtest.Open(t, d.url), retention, slog.New(slog.DiscardHandler), reg)
	if err != nil {
		t.Fatal(err)
	}
	return k, reg
}

// keep runs one round, and returns the number of overdue weeks.
func (d *timelineDatabase) keep(t *testing.T, retention time.Duration) (overdue int) {
	t.Helper()
	k, reg := d.newKeeper(t, retention)
	before := time.Now().Add(-time.Second) // the metric has the precision of a float
	if err := k.MaintainTimelineOnce(t.Context()); err != nil {
		t.Fatal(err)
	}
	if kept := gauge(t, reg, "fleetloop_timeline_last_maintenance_timestamp_seconds"); time.Unix(int64(kept), 0).Before(before.Truncate(time.Second)) {
		t.Errorf("it says that it worked at %v", kept)
	}
	return int(gauge(t, reg, "fleetloop_timeline_expired_partitions"))
}

func gauge(t *testing.T, reg *prometheus.Registry, name string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// partitions returns the weeks that have partitions.
func (d *timelineDatabase) partitions(t *testing.T) []string {
	t.Helper()
	return d.texts(t, `select right(c.relname, 10) from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'timeline.change_event'::regclass and c.relname <> 'change_event_default' order by 1`)
}

// week returns the partition name of a time.
func week(at time.Time) string {
	at = at.UTC()
	return at.AddDate(0, 0, -(int(at.Weekday())+6)%7).Format("2006_01_02")
}

func TestKeeperMakesRoom(t *testing.T) {
	d := newTimelineDatabase(t)
	now := time.Now()
	d.append(t, newEvent("late", 30*day), newEvent("early", -20*day), newEvent("now", 0))
	wantEqual(t, "before", []string{"late", "early"}, d.texts(t, "select node from timeline.change_event_default order by at"))
	d.keep(t, 90*day)
	want := []string{week(now.Add(-30 * day))}
	for n := range 5 {
		want = append(want, week(now.AddDate(0, 0, 7*n)))
	}
	slices.Sort(want)
	wantEqual(t, "partitions", want, d.partitions(t))
	wantEqual(t, "nothing is left over", 0, len(d.texts(t, "select node from timeline.change_event_default")))
	wantEqual(t, "nothing is lost", []string{"early", "now", "late"}, d.list(t, allEvents()))
	d.keep(t, 90*day)
	wantEqual(t, "partitions, the second time", want, d.partitions(t))

	again := newEvent("late", 30*day)
	wantEqual(t, "it is known still", []timeline.Outcome{timeline.Known}, d.append(t, again))
}

func TestKeeperLetsGo(t *testing.T) {
	d := newTimelineDatabase(t)
	old, young := newEvent("old", 60*day), newEvent("young", 20*day)
	old.Fields, young.Fields = []string{"spec", "spec.old"}, []string{"spec", "spec.young"}
	d.append(t, old, young)
	d.keep(t, 90*day)
	d.append(t, newEvent("told late", 45*day)) // there is no partition for it
	d.keep(t, 30*day)
	wantEqual(t, "events", []string{"young"}, d.list(t, allEvents()))
	wantEqual(t, "fields", []string{"spec", "spec.young"}, d.texts(t, "select field from timeline.changed_field order by field"))
	wantEqual(t, "keys", 1, len(d.texts(t, "select key::text from timeline.change_key")))
	if slices.Contains(d.partitions(t), week(time.Now().Add(-60*day))) {
		t.Errorf("the old partition is there: %v", d.partitions(t))
	}
}

// TestKeepersAtOnce checks that one keeper works, the others have nothing to do, and appends are
// not refused meanwhile.
func TestKeepersAtOnce(t *testing.T) {
	d := newTimelineDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 4)
	for range cap(done) {
		k, _ := d.newKeeper(t, 90*day)
		go func() {
			for ctx.Err() == nil {
				if err := k.MaintainTimelineOnce(ctx); err != nil && ctx.Err() == nil {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for i := range 30 {
		d.append(t, newEvent(time.Duration(i).String(), time.Duration(i)*day*3))
	}
	cancel()
	for range cap(done) {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	wantEqual(t, "events", 30, len(d.list(t, allEvents())))
}

// TestKeeperAndReaders checks that a reader waits while partitions are created or dropped. It locks
// the table and then the default partition.
func TestKeeperAndReaders(t *testing.T) {
	d := newTimelineDatabase(t)
	d.append(t, newEvent("old", 60*day))
	d.keep(t, 90*day)
	last := "timeline.change_event_" + week(time.Now().AddDate(0, 0, 28))
	d.exec(t, "drop table "+last)
	d.exec(t, "alter function timeline.maintain_partitions(interval) set lock_timeout = '1min'") // for slow machines
	other := connectTo(t, d.url)
	if _, err := other.Exec(t.Context(), "begin; create table "+last+" ()"); err != nil { // the keeper waits for this transaction
		t.Fatal(err)
	}
	kept, read := make(chan error, 1), make(chan error, 1)
	k, _ := d.newKeeper(t, 30*day)
	go func() { kept <- k.MaintainTimelineOnce(t.Context()) }()
	d.awaitLocks(t, 1)
	go func() {
		_, err := d.List(t.Context(), allEvents(), timeline.Query{Limit: 1}, func(*timeline.Row) error { return nil })
		read <- err
	}()
	d.awaitLocks(t, 2)
	if _, err := other.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "the reader's error", nil, <-read)
	wantEqual(t, "the keeper's error", nil, <-kept)
}

// TestKeeperAndABackup checks that a reader of hours delays only the removal of old weeks.
func TestKeeperAndABackup(t *testing.T) {
	d := newTimelineDatabase(t)
	d.append(t, newEvent("old", 60*day))
	d.keep(t, 90*day)
	weeks := len(d.partitions(t))
	d.exec(t, "drop table timeline.change_event_"+week(time.Now().AddDate(0, 0, 28))) // a week that must be created
	d.exec(t, "alter function timeline.maintain_partitions(interval) set lock_timeout = '100ms'")
	backup := connectTo(t, d.url)
	if _, err := backup.Exec(t.Context(), "begin; lock table only timeline.change_event in access share mode"); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "weeks that are overdue while it reads", 1, d.keep(t, 30*day))
	wantEqual(t, "weeks while it reads", weeks, len(d.partitions(t)))
	if _, err := backup.Exec(t.Context(), "rollback"); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "weeks that are overdue when it is done", 0, d.keep(t, 30*day))
	wantEqual(t, "weeks when it is done", weeks-1, len(d.partitions(t)))
}

// TestKeeperThatFails checks that a failed round does not report success.
func TestKeeperThatFails(t *testing.T) {
	d := newTimelineDatabase(t)
	k, reg := d.newKeeper(t, 30*day)
	d.exec(t, "drop function timeline.maintain_partitions(interval)")
	if err := k.MaintainTimelineOnce(t.Context()); err == nil {
		t.Error("no error without the function that does it")
	}
	if kept := gauge(t, reg, "fleetloop_timeline_last_maintenance_timestamp_seconds"); kept != 0 {
		t.Errorf("it says that it worked at %v", kept)
	}
}

// awaitLocks waits until n other transactions wait for a lock.
func (d *timelineDatabase) awaitLocks(t *testing.T, n int) {
	t.Helper()
	for len(d.texts(t, "select pid::text from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'")) < n {
		if t.Context().Err() != nil {
			t.Fatal("nobody waits")
		}
	}
}

// TestWeeksAreThoseOfUTC checks that weeks do not depend on the time zone of the session.
func TestWeeksAreThoseOfUTC(t *testing.T) {
	d := newTimelineDatabase(t)
	for i, zone := range []string{"Asia/Kolkata", "America/Sao_Paulo", "Pacific/Apia"} {
		d.exec(t, "set timezone = '"+zone+"'; set datestyle = 'SQL, DMY'")
		d.exec(t, fmt.Sprintf("select timeline.ensure_week('2031-10-13'::date + %d)", 7*i))
	}
	d.exec(t, "set timezone = 'UTC'; set datestyle = 'ISO'")
	wantEqual(t, "bounds", []string{
		"FOR VALUES FROM ('2031-10-13 00:00:00+00') TO ('2031-10-20 00:00:00+00')",
		"FOR VALUES FROM ('2031-10-20 00:00:00+00') TO ('2031-10-27 00:00:00+00')",
		"FOR VALUES FROM ('2031-10-27 00:00:00+00') TO ('2031-11-03 00:00:00+00')",
	}, d.texts(t, `select pg_get_expr(c.relpartbound, c.oid) from pg_inherits i join pg_class c on c.oid = i.inhrelid
		where i.inhparent = 'timeline.change_event'::regclass and c.relname ~ '_2031_' order by c.relname`))
}

func TestKeeperEnds(t *testing.T) {
	d := newTimelineDatabase(t)
	ctx, cancel := context.WithCancel(t.Context())
	k, _ := d.newKeeper(t, 0)
	done := make(chan error, 1)
	go func() { done <- k.Run(ctx) }()
	for len(d.partitions(t)) < 5 && ctx.Err() == nil { // until a round succeeded
		if t.Context().Err() != nil {
			t.Fatal("it does not work")
		}
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
