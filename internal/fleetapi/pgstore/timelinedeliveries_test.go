package pgstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgtest"
)

// addRejected stores a rejected delivery of an event of the tenant red.
func (d *timelineDatabase) addRejected(t *testing.T, event string, ago time.Duration) {
	t.Helper()
	d.exec(t, fmt.Sprintf(`insert into tenant.cluster_change_deliveries
		(event_id, sink, tenant, sink_type, state, attempts, error, http_status, happened_at, cluster_id, change)
		values ('%s', 'chat', 'red', 'slack', 'rejected', 1, 'client_error', 400, now() - interval '%d seconds', gen_random_uuid(),
			'{"action":"shoot-failed","cluster":"eu-1"}')`, event, int(ago.Seconds())))
}

// counts returns the number of queued events and of recorded requests.
func (d *timelineDatabase) counts(t *testing.T) string {
	t.Helper()
	return d.texts(t, `select (select count(*) from tenant.cluster_change_events) || ' queued, ' ||
		(select count(*) from timeline.change_event where action = 'change-resent') || ' recorded'`)[0]
}

// TestResendIsDoneOnce covers that of concurrent requests for one event, through several processes, one
// queues the event and is recorded, and that the others find it pending.
func TestResendIsDoneOnce(t *testing.T) {
	d := newTimelineDatabase(t)
	d.addRejected(t, "x", 0)
	other := pgstore.NewTimelineStore(pgtest.Open(t, d.url))
	var queued atomic.Int64
	var g errgroup.Group
	for i := range 16 {
		store := d.TimelineStore
		if i%2 == 1 {
			store = other
		}
		g.Go(func() error {
			sinks, err := store.RequeueEvent(t.Context(), redEvents(), timeline.Resend{EventID: "x", Who: "rosa", IdempotencyKey: fmt.Sprint(i / 4)})
			queued.Add(int64(len(sinks)))
			return err
		})
	}
	if err := g.Wait(); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "queued", int64(1), queued.Load())
	wantEqual(t, "stored", "1 queued, 1 recorded", d.counts(t))
}

// TestResendIsAllOrNothing covers a request that ends between its two writes: by an error, and by the death
// of its connection. Neither write stays, and the same request works afterwards.
func TestResendIsAllOrNothing(t *testing.T) {
	for name, tc := range map[string]struct{ reason, fail string }{
		"Error":      {"the second write is refused", "raise exception 'no room'"},
		"Connection": {"the server ends the session between the writes", "perform pg_terminate_backend(pg_backend_pid()); perform pg_sleep(1)"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTimelineDatabase(t)
			d.addRejected(t, "x", 0)
			request := timeline.Resend{EventID: "x", Who: "rosa", IdempotencyKey: "k"}
			d.exec(t, `create function public.fail() returns trigger language plpgsql security definer as $$ begin `+tc.fail+`; return new; end $$`)
			d.exec(t, `create trigger fail before insert on timeline.change_event for each row execute function public.fail()`)
			if sinks, err := d.RequeueEvent(t.Context(), redEvents(), request); err == nil || len(sinks) > 0 {
				t.Fatalf("%s: queued for %v, %v; want an error", tc.reason, sinks, err)
			}
			wantEqual(t, tc.reason, "0 queued, 0 recorded", d.counts(t))
			d.exec(t, `drop trigger fail on timeline.change_event`)
			if sinks, err := d.RequeueEvent(t.Context(), redEvents(), request); err != nil || len(sinks) != 1 {
				t.Errorf("afterwards: queued for %v, %v", sinks, err)
			}
			wantEqual(t, "afterwards", "1 queued, 1 recorded", d.counts(t))
		})
	}
}

// TestRepeatedResend covers that a request which is repeated after its delivery queues nothing.
func TestRepeatedResend(t *testing.T) {
	d := newTimelineDatabase(t)
	d.addRejected(t, "x", 0)
	for i, want := range []int{1, 0, 0} {
		sinks, err := d.RequeueEvent(t.Context(), redEvents(), timeline.Resend{EventID: "x", Sink: "chat", Who: "rosa", IdempotencyKey: "k"})
		if err != nil || len(sinks) != want {
			t.Errorf("request %d: queued for %v, %v; want %d", i, sinks, err, want)
		}
		d.exec(t, "delete from tenant.cluster_change_events") // delivered
	}
	wantEqual(t, "stored", "0 queued, 1 recorded", d.counts(t))
	sinks, err := d.RequeueEvent(t.Context(), redEvents(), timeline.Resend{EventID: "x", Sink: "chat", Who: "rita", IdempotencyKey: "k"})
	if err != nil || len(sinks) != 1 {
		t.Errorf("the key of another author: queued for %v, %v", sinks, err)
	}
}

// TestDeliveriesOfTenants covers that a tenant neither sees nor repeats the deliveries of another, and
// what the role of one tenant may write.
func TestDeliveriesOfTenants(t *testing.T) {
	d := newTimelineDatabase(t)
	d.addRejected(t, "x", 0)
	blue := timeline.Scope{Tenant: "blue"}
	for name, tc := range map[string]struct {
		scope timeline.Scope
		want  int
	}{"Own": {redEvents(), 1}, "Other": {blue, 0}, "None": {timeline.Scope{}, 0}, "All": {allEvents(), 1}} {
		list, err := d.ListDeliveries(t.Context(), tc.scope, "x")
		if err != nil || len(list) != tc.want {
			t.Errorf("%s: %v, %v; want %d", name, list, err, tc.want)
		}
	}
	if _, err := d.RequeueEvent(t.Context(), blue, timeline.Resend{EventID: "x", Who: "bert"}); !errors.Is(err, timeline.ErrNoDelivery) {
		t.Errorf("another tenant's request ends with %v", err)
	}
	if sinks, err := d.RequeueEvent(t.Context(), allEvents(), timeline.Resend{EventID: "x", Who: "otto"}); err != nil || len(sinks) != 1 {
		t.Errorf("an operator's request: %v, %v", sinks, err)
	}
	wantEqual(t, "the tenant of the request", []string{"red"}, d.texts(t, "select tenant from timeline.change_event where action = 'change-resent'"))

	pool := pgtest.Open(t, d.url)
	const insert = `insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change) values ('y', 'chat', $1, '', gen_random_uuid(), '{}')`
	for sql, tenant := range map[string]string{
		insert: "blue",
		// A cluster-worker sends what is queued, so a tenant must not queue what no worker has recorded.
		insert + ` -- invented`: "red",
		`insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change)
			select event_id, sink, tenant, sink_type, cluster_id, '{"cluster":"another"}' from tenant.cluster_change_deliveries where tenant = $1`: "red",
		`update tenant.cluster_change_events set sink = $1`:                                                                                     "red",
		`delete from tenant.cluster_change_events where sink = $1`:                                                                              "red",
		`update tenant.cluster_change_deliveries set state = $1`:                                                                                "delivered",
		`delete from tenant.cluster_change_deliveries where sink = $1`:                                                                          "chat",
		`select tenant.delete_expired_deliveries('1 day', 1) where $1::text is not null`:                                                        "",
		`insert into tenant.cluster_change_events (tenant, sink, cluster_id, change, attempts) values ($1, 'chat', gen_random_uuid(), '{}', 9)`: "red",
	} {
		err := pool.RunBatch(t.Context(), postgres.Scope{Tenant: "red"}, func(b *pgx.Batch) { b.Queue(sql, tenant) })
		if postgres.SQLState(err) != "42501" {
			t.Errorf("%s with %q: %v, want no right", sql, tenant, err)
		}
	}
}

// TestKeeperForgetsDeliveries covers that deliveries go with their events.
func TestKeeperForgetsDeliveries(t *testing.T) {
	d := newTimelineDatabase(t)
	d.addRejected(t, "old", 91*day)
	d.addRejected(t, "young", 89*day)
	d.keep(t, 90*day)
	wantEqual(t, "kept", []string{"young"}, d.texts(t, "select event_id from tenant.cluster_change_deliveries"))
}

// TestUndeliveredIsFoundByIndexes checks that the list of failing deliveries reads neither all that fail nor
// all that were ever given up.
func TestUndeliveredIsFoundByIndexes(t *testing.T) {
	d := newTimelineDatabase(t)
	for _, sql := range []string{
		`insert into tenant.cluster_change_deliveries (event_id, sink, tenant, sink_type, state, attempts, finished_at, error, http_status, happened_at, cluster_id, change)
			select 'g-' || n, 'chat', case when n % 100 = 0 then 'red' else 'blue' end, 'slack', 'rejected', 1, now() - n * interval '5 minutes', '', 0, now(), gen_random_uuid(), repeat('x', 300)
			from generate_series(1, 20000) n`,
		`insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change, failures, first_attempt_at)
			select 'f-' || n, 'chat', case when n % 100 = 0 then 'red' else 'blue' end, 'slack', gen_random_uuid(), repeat('x', 300), 1, now() - n * interval '1 second'
			from generate_series(1, 20000) n`,
		"analyze tenant.cluster_change_deliveries, tenant.cluster_change_events",
	} {
		d.exec(t, sql)
	}
	for role, indexes := range map[string][]string{
		"fleet_api":             {"cluster_change_deliveries_given_up_tenant_idx", "cluster_change_events_failing_tenant_idx"},
		"fleet_api_all_tenants": {"cluster_change_deliveries_given_up_idx", "cluster_change_events_failing_idx"},
	} {
		t.Run(role, func(t *testing.T) {
			tx, err := d.conn.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }()
			for _, sql := range []string{"set local role " + role, "select set_config('fleetloop.tenant', 'red', true)"} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			rows, err := tx.Query(t.Context(), "explain (costs off) "+db.ListUndelivered, 24*time.Hour, 101)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			text := strings.Join(plan, "\n")
			for _, index := range indexes {
				if !strings.Contains(text, "using "+index+" ") || strings.Contains(text, "Sort") || strings.Contains(text, "Seq Scan") {
					t.Errorf("want the index %s, and neither a sort nor a scan of a table, got\n%s", index, text)
				}
			}
		})
	}
}
