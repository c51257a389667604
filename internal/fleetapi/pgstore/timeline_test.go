package pgstore_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// A database is a store of change events, and the owner's connection to its database.
type timelineDatabase struct {
	*pgstore.TimelineStore

	url  string
	conn *pgx.Conn
}

func newTimelineDatabase(t *testing.T) *timelineDatabase {
	t.Helper()
	url := pgtest.NewMigratedDatabaseURL(t)
	d := &timelineDatabase{pgstore.NewTimelineStore(pgtest.Open(t, url)), url, connectTo(t, url)}
	d.horizon(t) // the database is a copy, and begins a new feed
	return d
}

func (d *timelineDatabase) exec(t *testing.T, sql string) {
	t.Helper()
	if _, err := d.conn.Exec(t.Context(), sql); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

func (d *timelineDatabase) texts(t *testing.T, sql string) []string {
	t.Helper()
	rows, err := d.conn.Query(t.Context(), sql)
	if err != nil {
		t.Fatal(err)
	}
	got, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func redEvents() timeline.Scope { return timeline.Scope{Tenant: "red"} }

func allEvents() timeline.Scope { return timeline.Scope{All: true} }

// event returns an event of the tenant red with a name and an age.
func newEvent(name string, ago time.Duration) timeline.Event {
	return timeline.Event{
		Key: uuid.NewSHA1(uuid.Nil, []byte(name)), Digest: uuid.NewSHA1(uuid.Nil, []byte("what "+name+" says")),
		At: time.Now().Add(-ago).UTC().Truncate(time.Microsecond), Tenant: "red", RecordedBy: "rosa",
		Facts:   timeline.Facts{Cluster: "eu-1", Node: name, Source: "nvsentinel/fault-quarantine", Actor: "nvsentinel/fault-quarantine", Action: "cordon", Subject: "s/" + name, Session: "of " + name},
		Payload: fmt.Appendf(nil, `{"action":"cordon","node":%q}`, name),
	}
}

func (d *timelineDatabase) append(t *testing.T, events ...timeline.Event) []timeline.Outcome {
	t.Helper()
	return d.appendIn(t, allEvents(), events...)
}

// appendIn appends events within a scope.
func (d *timelineDatabase) appendIn(t *testing.T, scope timeline.Scope, events ...timeline.Event) []timeline.Outcome {
	t.Helper()
	got, err := d.AppendEvents(t.Context(), scope, events)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// list returns the nodes of all events.
func (d *timelineDatabase) list(t *testing.T, scope timeline.Scope) []string {
	t.Helper()
	return d.listOf(t, scope, timeline.Filter{})
}

// listOf returns the nodes of the events that a filter selects.
func (d *timelineDatabase) listOf(t *testing.T, scope timeline.Scope, f timeline.Filter) []string {
	t.Helper()
	nodes := []string{}
	if _, err := d.List(t.Context(), scope, timeline.Query{Filter: f, Limit: 1000}, func(r *timeline.Row) error {
		nodes = append(nodes, r.Node)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return nodes
}

func wantEqual(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestTimelineAppend(t *testing.T) {
	d := newTimelineDatabase(t)
	a, b, c := newEvent("a", time.Minute), newEvent("b", 2*time.Minute), newEvent("c", 3*time.Minute)
	wantEqual(t, "new", []timeline.Outcome{timeline.Stored, timeline.Stored}, d.append(t, a, b))
	other, later := a, b
	other.Digest = uuid.New()
	later.At = later.At.Add(-30 * 24 * time.Hour) // of another partition
	wantEqual(t, "again", []timeline.Outcome{timeline.Different, timeline.Stored, timeline.Known}, d.append(t, other, c, later))
	wantEqual(t, "list", []string{"a", "b", "c"}, d.list(t, allEvents()))

	if _, err := d.List(t.Context(), allEvents(), timeline.Query{Limit: 1}, func(r *timeline.Row) error {
		if r.Arrival.Xact == 0 || r.Seq == 0 || r.RecordedAt.Before(a.At) {
			t.Errorf("got %+v", r)
		}
		want := timeline.Row{Arrival: r.Arrival, Seq: r.Seq, RecordedAt: r.RecordedAt, At: a.At, RecordedBy: "rosa", Tenant: "red", Facts: a.Facts, Payload: a.Payload}
		wantEqual(t, "row", want, *r)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
}

// TestTimelineAppendAtOnce checks that concurrent appends of the same events store each once, and report so
// to one caller.
func TestTimelineAppendAtOnce(t *testing.T) {
	d := newTimelineDatabase(t)
	const events, tellers = 200, 6
	counts := make([][events]int, tellers)
	var g errgroup.Group
	for teller := range tellers {
		g.Go(func() error {
			for at := 0; at < events; at += 10 {
				var batch []timeline.Event
				for i := range 10 {
					n := at + i
					if teller%2 == 1 {
						n = at + 9 - i // in another order
					}
					batch = append(batch, newEvent(fmt.Sprint(n), time.Minute))
				}
				got, err := d.AppendEvents(t.Context(), allEvents(), batch)
				if err != nil {
					return err
				}
				for i, o := range got {
					if n := at + i; o == timeline.Stored {
						if teller%2 == 1 {
							n = at + 9 - i
						}
						counts[teller][n]++
					}
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	for n := range events {
		sum := 0
		for teller := range tellers {
			sum += counts[teller][n]
		}
		if sum != 1 {
			t.Errorf("event %d was stored %d times", n, sum)
		}
	}
	wantEqual(t, "events", events, len(d.list(t, allEvents())))
}

func TestTimelineTenants(t *testing.T) {
	d := newTimelineDatabase(t)
	mine, theirs, nobodys := newEvent("mine", time.Minute), newEvent("theirs", 2*time.Minute), newEvent("nobody's", 3*time.Minute)
	mine.Fields, theirs.Fields, nobodys.Fields = []string{"spec"}, []string{"spec"}, []string{"spec"}
	theirs.Tenant, nobodys.Tenant = "blue", ""
	d.append(t, mine, theirs, nobodys)
	for name, c := range map[string]struct {
		reason string
		scope  timeline.Scope
		want   []string
	}{
		"Tenant": {"its own", redEvents(), []string{"mine"}},
		"Other":  {"its own", timeline.Scope{Tenant: "blue"}, []string{"theirs"}},
		"All":    {"those of nobody, too", allEvents(), []string{"mine", "theirs", "nobody's"}},
		"None":   {"a forgotten scope is no leak", timeline.Scope{}, []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			wantEqual(t, c.reason, c.want, d.list(t, c.scope))
			wantEqual(t, "by field: "+c.reason, c.want, d.listOf(t, c.scope, timeline.Filter{Field: "spec"}))
			got := []string{}
			at := watch.Cursor{Epoch: d.horizon(t).Epoch}
			if _, _, err := d.VisitEventsAfter(t.Context(), c.scope, at, 100, func(r *timeline.Row) error {
				got = append(got, r.Node)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			wantEqual(t, c.reason, c.want, got)
		})
	}
	if _, err := d.AppendEvents(t.Context(), redEvents(), []timeline.Event{newEvent("x", 0), {Key: uuid.New(), Tenant: "blue", Payload: []byte("{}")}}); err == nil {
		t.Error("a tenant has told an event of another's")
	}
	wantEqual(t, "nothing of it is kept", 3, len(d.list(t, allEvents())))
}

// TestTimelineKeysOfAnotherTenant checks that a tenant cannot prevent another tenant's event by using its
// key.
func TestTimelineKeysOfAnotherTenant(t *testing.T) {
	d := newTimelineDatabase(t)
	victims, same := newEvent("victims", time.Minute), newEvent("same key", time.Minute)
	victims.Tenant, same.Tenant, same.Key = "blue", "red", victims.Key
	insert := func(tenant string) error {
		_, err := connectTo(t, d.url).Exec(t.Context(), "select set_config('fleetloop.tenant', 'red', false); set role fleet_api; "+
			"insert into timeline.change_key (key, tenant, digest, at) values ('"+uuid.NewString()+"', '"+tenant+"', gen_random_uuid(), now())")
		return err
	}
	if err := insert("blue"); postgres.SQLState(err) != "42501" {
		t.Errorf("a key is inserted for another tenant: %v", err)
	}
	if err := insert("red"); err != nil {
		t.Errorf("a key of one's own: %v", err)
	}
	wantEqual(t, "red's event", []timeline.Outcome{timeline.Stored}, d.appendIn(t, redEvents(), same))
	wantEqual(t, "blue's event", []timeline.Outcome{timeline.Stored}, d.appendIn(t, timeline.Scope{Tenant: "blue"}, victims))
	wantEqual(t, "blue's again", []timeline.Outcome{timeline.Known}, d.appendIn(t, allEvents(), victims))
	wantEqual(t, "stored", []string{"same key", "victims"}, slices.Sorted(slices.Values(d.list(t, allEvents()))))
}

// TestNobodyChangesAnEvent checks that the roles of the API can only insert.
func TestNobodyChangesAnEvent(t *testing.T) {
	d := newTimelineDatabase(t)
	d.append(t, newEvent("a", time.Minute))
	for name, sql := range map[string]string{
		"Update":    "update timeline.change_event set action = 'uncordon'",
		"Delete":    "delete from timeline.change_event",
		"Truncate":  "truncate timeline.change_event",
		"Keys":      "delete from timeline.change_key",
		"Partition": "select payload from timeline.change_event_default",
		"Feed":      "update timeline.feed set no = 7",
	} {
		t.Run(name, func(t *testing.T) {
			for _, role := range []string{"fleet_api", "fleet_api_all_tenants"} {
				_, err := connectTo(t, d.url).Exec(t.Context(), "set role "+role+"; "+sql)
				if postgres.SQLState(err) != "42501" {
					t.Errorf("%s: %v", role, err)
				}
			}
		})
	}
}

// TestTimelineListIsTheModel compares pages with a model.
func TestTimelineListIsTheModel(t *testing.T) {
	d := newTimelineDatabase(t)
	var events []timeline.Event
	words := []string{"a", "b", "c"}
	now := time.Now().UTC().Truncate(time.Second)
	for i := range 120 {
		e := newEvent(fmt.Sprint(i), 0)
		e.At = now.Add(-time.Duration(i/3) * time.Hour) // several at a time
		e.Cluster, e.Node, e.Subject, e.Session = words[i%3], words[i/2%3], "", words[i%2]
		e.Actor, e.Source, e.Action = words[i/5%3], words[i/7%3], words[i/11%3]
		e.Failed, e.DryRun = i%5 == 0, i%13 == 0
		e.Message = fmt.Sprintf("Node %d%%\nZone B", i) // as newEvent has it
		e.Payload = fmt.Appendf(nil, `{"node":"%d","summary":"Node %[1]d%%","reason":"Zone B"}`, i)
		switch i % 9 { // what PostgreSQL cannot turn into text, or only seems to
		case 0:
			e.Payload = fmt.Appendf(nil, `{"node":"%d","summary":"Node %[1]d%%","changes":[{"after":["\u0000",{"\u0000":1}]}],"reason":"Zone B"}`, i)
		case 1:
			e.Message = fmt.Sprintf("Node %d%%\nZone B \\u0000", i)
			e.Payload = fmt.Appendf(nil, `{"node":"%d","summary":"Node %[1]d%%","reason":"Zone B \\u0000"}`, i)
		}
		if i%4 == 0 {
			e.Node, e.Subject = "", words[i%3]
		}
		if i%3 > 0 {
			e.Fields = words[:i%3]
		}
		events = append(events, e)
	}
	d.append(t, events...)
	for i := range events { // in list order: at the same time, the last to arrive is first
		j := i - i%3 + 2 - i%3
		if i < j {
			events[i], events[j] = events[j], events[i]
		}
	}
	wantEqual(t, "events by their text", len(events), len(d.listOf(t, redEvents(), timeline.Filter{Text: "zone b"})))
	rapid.Check(t, func(r *rapid.T) {
		word := rapid.SampledFrom([]string{"", "", "a", "b", "c", "none"})
		several := rapid.SliceOfN(rapid.SampledFrom(words), 0, 2)
		q := timeline.Query{
			Filter: timeline.Filter{
				Clusters: several.Draw(r, "clusters"), Node: word.Draw(r, "node"), Subject: word.Draw(r, "subject"), Session: word.Draw(r, "session"), Field: word.Draw(r, "field"),
				Actors: several.Draw(r, "actors"), Sources: several.Draw(r, "sources"), Actions: several.Draw(r, "actions"),
				Outcome: rapid.SampledFrom([]string{"", "", "failed", "succeeded"}).Draw(r, "outcome"),
				DryRun:  rapid.SampledFrom([]*bool{nil, nil, new(true), new(false)}).Draw(r, "dry run"),
				Text:    rapid.SampledFrom([]string{"", "", "node 1", "ZONE", "%", "_", "zone c"}).Draw(r, "text"),
			},
			Limit: rapid.IntRange(1, 50).Draw(r, "limit"),
		}
		bound := rapid.IntRange(-1, 45)
		if n := bound.Draw(r, "since"); n >= 0 {
			q.Since = now.Add(-time.Duration(n) * time.Hour)
		}
		if n := bound.Draw(r, "until"); n >= 0 {
			q.Until = now.Add(-time.Duration(n) * time.Hour)
		}
		if n := bound.Draw(r, "not before"); n >= 0 {
			q.NotBefore = now.Add(-time.Duration(n) * time.Hour)
		}
		want := []string{}
		for i := range events {
			e := &events[i]
			if q.Matches(&e.Facts) && !e.At.Before(q.Since) && !e.At.Before(q.NotBefore) && (q.Until.IsZero() || e.At.Before(q.Until)) {
				want = append(want, string(e.Payload))
			}
		}
		got := []string{}
		for page := -1; page != 0; {
			page = 0
			if _, err := d.List(t.Context(), redEvents(), q, func(row *timeline.Row) error {
				got, page = append(got, string(row.Payload)), page+1
				q.After = timeline.Place{At: row.At, Seq: row.Seq}
				return nil
			}); err != nil {
				r.Fatal(err)
			}
			if page > q.Limit {
				r.Fatalf("a page of %d", page)
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			r.Fatalf("pages (-want +got):\n%s", diff)
		}
	})
}

// TestFieldsAreFoundByAnIndex checks the plan of a page of a rare field among many events, for a
// tenant and for all tenants.
func TestFieldsAreFoundByAnIndex(t *testing.T) {
	d := newTimelineDatabase(t)
	var events []timeline.Event
	for i := range 3000 {
		e := newEvent(fmt.Sprint(i), time.Duration(i)*time.Minute)
		e.Fields = []string{"spec", "spec.replicas"}
		if i%1000 == 999 {
			e.Fields = []string{"spec", "spec.version"}
		}
		events = append(events, e)
	}
	d.append(t, events...)
	d.exec(t, "analyze timeline.change_event; analyze timeline.changed_field")
	for role, scope := range map[string]timeline.Scope{"fleet_api": redEvents(), "fleet_api_all_tenants": allEvents()} {
		wantEqual(t, "events of "+role, []string{"999", "1999", "2999"}, d.listOf(t, scope, timeline.Filter{Field: "spec.version"}))
		statement, args := pgstore.TimelinePageStatement(timeline.Query{Filter: timeline.Filter{Field: "spec.version"}, Limit: 50})
		text := d.plan(t, role, "set local enable_bitmapscan = off", statement, args)
		if !strings.Contains(text, "Index Only Scan Backward using changed_field_pkey") && !strings.Contains(text, "Index Scan Backward using changed_field_pkey") || strings.Contains(text, "Sort") {
			t.Errorf("%s reads events of a field by\n%s", role, text)
		}
	}
}

// plan returns the plan of a statement for a role, after a setting.
func (d *timelineDatabase) plan(t *testing.T, role, setting, statement string, args []any) string {
	t.Helper()
	tx, err := d.conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{"set local role " + role, "set local fleetloop.tenant = 'red'", setting} {
		if _, err := tx.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	var plan []string
	rows, err := tx.Query(t.Context(), "explain (costs off) "+statement, args...)
	if err == nil {
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
	}
	if err := errors.Join(err, tx.Rollback(t.Context())); err != nil {
		t.Fatal(err)
	}
	return strings.Join(plan, "\n")
}

func TestTimelineUnknownClusters(t *testing.T) {
	d := newTimelineDatabase(t)
	d.exec(t, `insert into tenant.resources (id, kind, tenant, name, spec, generation, created_time, updated_time, phase, last_updated_time, last_transition_time)
		values (gen_random_uuid(), 'Cluster', 'red', 'eu-1', '{}', 1, now(), now(), 'NotReady', now(), now())`)
	for _, scope := range []timeline.Scope{redEvents(), allEvents()} {
		got, err := d.FindUnknownClusters(t.Context(), scope, []string{"eu-1", "eu-2"})
		if err != nil {
			t.Fatal(err)
		}
		wantEqual(t, fmt.Sprint(scope), []string{"eu-2"}, got)
	}
	got, err := d.FindUnknownClusters(t.Context(), timeline.Scope{Tenant: "blue"}, []string{"eu-1"})
	if err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "another's", []string{"eu-1"}, got)
}

func TestTimelineUnavailable(t *testing.T) {
	pool := pgtest.Open(t, pgtest.NewMigratedDatabaseURL(t))
	ctx, s := t.Context(), pgstore.NewTimelineStore(pool)
	pool.Close()
	_, err := s.AppendEvents(ctx, allEvents(), []timeline.Event{newEvent("a", 0)})
	if err == nil || errors.Is(err, timeline.ErrCursorExpired) {
		t.Errorf("got %v", err)
	}
}
