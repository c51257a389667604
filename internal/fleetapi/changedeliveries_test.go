package fleetapi_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// deliveries reads the deliveries of an event.
func (f *fixture) deliveries(id string) v1.ChangeDeliveries {
	f.Helper()
	return read[v1.ChangeDeliveries](f.do("GET", v1.ChangesPath+"/"+url.PathEscape(id)+"/deliveries", nil).want(200))
}

// addDeliveries stores deliveries of the event shoot-1 of the tenant red, as the cluster-worker does.
func addDeliveries(t *testing.T, f *fixture) {
	t.Helper()
	conn := f.connect()
	const change = `{"at":"2026-01-02T03:04:05Z","action":"shoot-failed","cluster":"eu-1","tenant":"red"}`
	for _, sql := range []string{
		`insert into tenant.cluster_change_deliveries (event_id, sink, tenant, sink_type, state, attempts, first_attempt_at, last_attempt_at,
			finished_at, error, http_status, happened_at, cluster_id, change)
			select 'shoot-1', d.sink, 'red', 'slack', d.state, d.attempts, first_at, last_at, '2026-01-02T03:05:00Z', d.error, d.status, now(), gen_random_uuid(), $1
			from (values
				('accepts', 'delivered', 2, '2026-01-02T03:04:06Z'::timestamptz, '2026-01-02T03:04:11Z'::timestamptz, '', 0),
				('rejects', 'rejected', 1, '2026-01-02T03:04:06Z', '2026-01-02T03:04:06Z', 'client_error', 400),
				('skips', 'skipped', 0, null, null, '', 0)
			) d (sink, state, attempts, first_at, last_at, error, status)`,
		`insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change, attempts, first_attempt_at, last_attempt_at, due_at, retry_at, error)
			values ('shoot-1', 'waits', 'red', 'pagerduty', gen_random_uuid(), $1, 3, '2026-01-02T03:04:06Z', '2026-01-02T03:06:00Z',
				'2036-01-02T03:04:05Z', '2036-01-02T03:04:05Z', 'timeout'),
			('shoot-1', 'is-sent', 'red', 'grafana', gen_random_uuid(), $1, 1, '2026-01-02T03:04:06Z', '2026-01-02T03:04:06Z',
				'2036-01-02T03:04:05Z', '2026-01-02T03:04:05Z', 'dns')`,
	} {
		if _, err := conn.Exec(t.Context(), sql, change); err != nil {
			t.Fatal(err)
		}
	}
}

// summarize returns a delivery in one line.
func summarize(list []v1.ChangeDelivery) []string {
	lines := []string{}
	for _, d := range list {
		line := []string{d.Sink, d.Type, string(d.State)}
		for name, at := range map[string]bool{"next": d.NextAttemptAt != nil, "finished": d.FinishedAt != nil} {
			if at {
				line = append(line, name)
			}
		}
		lines = append(lines, strings.TrimSpace(strings.Join(append(line, d.Error), " ")))
	}
	return lines
}

func TestDeliveries(t *testing.T) {
	red, blue, system := newTenants(t)
	addDeliveries(t, red)
	got := red.deliveries("shoot-1")
	wantEqual(t, "sinks", []string{
		"accepts slack delivered finished", "is-sent grafana pending dns", "rejects slack rejected finished client_error",
		"skips slack skipped finished", "waits pagerduty pending next timeout",
	}, summarize(got.Items))
	at := func(text string) string { return "2026-01-02T" + text + "Z" }
	accepts, waits := got.Items[0], got.Items[4]
	wantEqual(t, "times", []string{at("03:04:06"), at("03:04:11"), at("03:05:00"), "2036-01-02T03:04:05Z"}, []string{
		accepts.FirstAttemptAt.Format("2006-01-02T15:04:05Z07:00"), accepts.LastAttemptAt.Format("2006-01-02T15:04:05Z07:00"),
		accepts.FinishedAt.Format("2006-01-02T15:04:05Z07:00"), waits.NextAttemptAt.Format("2006-01-02T15:04:05Z07:00"),
	})
	wantEqual(t, "attempts and status", []int{2, 3, 400}, []int{accepts.Attempts, waits.Attempts, got.Items[2].HTTPStatus})
	wantEqual(t, "who sees all tenants", got, system.deliveries("shoot-1"))

	for _, none := range []v1.ChangeDeliveries{blue.deliveries("shoot-1"), red.deliveries("cluster/1/cluster-created/2"), red.deliveries("?&%")} {
		if none.Recorded || len(none.Items) != 0 || !strings.Contains(none.Reason, "only the deliveries of the cluster-worker") {
			t.Errorf("an event without deliveries here: %+v", none)
		}
	}
	red.do("GET", v1.ChangesPath+"/"+strings.Repeat("x", 1025)+"/deliveries", nil).problem(404, "not_found", "not the id")
	red.do("GET", v1.ChangesPath+"/x/deliveries?strict=true&sink=a", nil).problem(400, "invalid_query", "")
}

func TestResend(t *testing.T) {
	red, blue, system := newTenants(t)
	addDeliveries(t, red)
	conn := red.connect()
	path := v1.ChangesPath + "/shoot-1/resend"
	resend := func(status int, key string, body any) v1.ChangeResent {
		t.Helper()
		return read[v1.ChangeResent](red.doWith(http.Header{v1.IdempotencyKeyHeader: {key}}, "POST", path, body).want(status))
	}
	finish := func() { // the cluster-worker delivers what is pending
		t.Helper()
		if _, err := conn.Exec(t.Context(), `with gone as (delete from tenant.cluster_change_events returning event_id, sink)
			update tenant.cluster_change_deliveries d set state = 'delivered' from gone g where d.event_id = g.event_id and d.sink = g.sink`); err != nil {
			t.Fatal(err)
		}
	}
	blue.do("POST", path, nil).problem(404, "not_found", "no delivery here")
	system.do("POST", path, nil).problem(403, "forbidden", "cannot send change events again")
	red.do("POST", v1.ChangesPath+"/other/resend", nil).problem(404, "not_found", "/api/changes/other/deliveries")
	red.do("POST", path, v1.ChangeResend{Sink: "skips"}).problem(404, "not_found", `to sink "skips"`)
	red.do("POST", path+"?strict=true", `{"sinks":"a"}`).problem(400, "invalid_body", "")
	red.do("POST", path, `{"reason":"`+strings.Repeat("x", 1025)+`"}`).problem(400, "invalid_fields", "")

	wantEqual(t, "pending", []string{}, resend(200, "", v1.ChangeResend{Sink: "waits"}).Queued)
	first := resend(202, "k", v1.ChangeResend{Reason: " told to "})
	wantEqual(t, "those that gave up", []string{"rejects"}, first.Queued)
	wantEqual(t, "afterwards", []string{
		"accepts slack delivered finished", "is-sent grafana pending dns", "rejects slack pending", "skips slack skipped finished", "waits pagerduty pending next timeout",
	}, summarize(first.Items))
	wantEqual(t, "attempts are kept", 1, first.Items[2].Attempts)
	wantEqual(t, "while it is pending", []string{}, resend(200, "other", nil).Queued)
	finish()
	wantEqual(t, "to all that gave up, if none did", []string{}, resend(200, "", nil).Queued)
	wantEqual(t, "to one that accepted it", []string{"rejects"}, resend(202, "k", v1.ChangeResend{Sink: "rejects"}).Queued)
	finish()
	wantEqual(t, "the same request again", []string{}, resend(200, "k", v1.ChangeResend{Sink: "rejects"}).Queued)
	wantEqual(t, "with another key", []string{"rejects"}, resend(202, "k2", v1.ChangeResend{Sink: "rejects"}).Queued)

	var told []string
	for _, e := range red.changes("?action=change-resent").Items {
		told = append(told, strings.Join([]string{e.Actor, e.Cluster, e.Subject, e.Reason, e.Details["event_id"], e.Details["sinks"], e.Summary}, "|"))
	}
	const again = "rosa|eu-1|clusters/eu-1||shoot-1|rejects|rosa sent change event shoot-failed of cluster eu-1 again to rejects"
	wantEqual(t, "change events", []string{again, again, "rosa|eu-1|clusters/eu-1|told to|shoot-1|rejects|rosa sent change event shoot-failed of cluster eu-1 again to rejects - told to"}, told)
	if n := len(blue.changes("?action=change-resent").Items); n != 0 {
		t.Errorf("another tenant sees %d of the requests", n)
	}
}

// TestUndelivered covers the list of the deliveries that fail, and their counts: what failed and is tried
// again, and what was given up within a day and is not queued again.
func TestUndelivered(t *testing.T) {
	red, blue, system := newTenants(t)
	red.startRoller()
	addDeliveries(t, red)
	conn := red.connect()
	for _, sql := range []string{
		`update tenant.cluster_change_events set failures = 3 where sink = 'waits'`, // is-sent has not failed yet
		`update tenant.cluster_change_deliveries set finished_at = now()`,
		`insert into tenant.cluster_change_deliveries (event_id, sink, tenant, sink_type, state, attempts, finished_at, error, http_status, happened_at, cluster_id, change)
			select e.id, 'chat', 'red', 'slack', 'expired', 7, now() - e.ago, 'timeout', 0, now(), gen_random_uuid(), '{"at":"2026-01-02T03:04:05Z","action":"shoot-ready","cluster":"eu-2"}'
			from (values ('hours', interval '23 hours'), ('days', interval '25 hours'), ('again', interval '1 hour')) e (id, ago)`,
		`insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change) values ('again', 'chat', 'red', 'slack', gen_random_uuid(), '{}')`,
	} {
		if _, err := conn.Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	list := func(f *fixture) v1.UndeliveredChanges {
		return read[v1.UndeliveredChanges](f.do("GET", v1.UndeliveredChangesPath, nil).want(200))
	}
	got := list(red)
	lines := []string{}
	for _, u := range got.Items {
		lines = append(lines, strings.Join([]string{u.EventID, u.Action, u.Cluster, u.Time.Format("15:04:05"), summarize([]v1.ChangeDelivery{u.Delivery})[0]}, " "))
	}
	wantEqual(t, "deliveries that fail", []string{
		"shoot-1 shoot-failed eu-1 03:04:05 rejects slack rejected finished client_error",
		"hours shoot-ready eu-2 03:04:05 chat slack expired finished timeout",
		"shoot-1 shoot-failed eu-1 03:04:05 waits pagerduty pending next timeout",
	}, lines)
	wantEqual(t, "who sees all tenants", got, list(system))
	wantEqual(t, "another tenant", v1.UndeliveredChanges{Items: []v1.UndeliveredChange{}}, list(blue))

	since := time.Date(2026, 1, 2, 3, 4, 6, 0, time.UTC)
	for f, want := range map[*fixture]v1.DeliverySummary{red: {Failing: 1, FailingSince: &since, GivenUp: 2}, blue: {}, system: {Failing: 1, FailingSince: &since, GivenUp: 2}} {
		wantEqual(t, "counts", want, f.summary().Deliveries)
	}
	if _, err := conn.Exec(t.Context(), `insert into tenant.cluster_change_events (event_id, sink, tenant, sink_type, cluster_id, change, failures)
		select 'many-' || i, 'chat', 'red', 'slack', gen_random_uuid(), '{"at":"2026-01-02T03:04:05Z"}', 1 from generate_series(1, 10100) i`); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "a count that ends", int64(v1.MaxDeliveries), red.summary().Deliveries.Failing)
	got = list(red)
	wantEqual(t, "a list that ends", true, got.More && len(got.Items) == 100)
}
