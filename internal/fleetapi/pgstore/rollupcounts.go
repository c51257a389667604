package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// rowKeys are the keys of rows, as the parameters of a statement.
type rowKeys struct{ kinds, ids []string }

func (k *rowKeys) add(kind, id string) { k.kinds, k.ids = append(k.kinds, kind), append(k.ids, id) }

// countRow brings the counts of rows up to date: it adds what each is, and subtracts what it was
// counted as. Each row is looked up by its key. Each count is written for its tenant and for all.
const countRow = `with wanted as materialized (
	select k.kind, k.id from unnest($1::text[], $2::uuid[]) as k (kind, id)
), is_now as materialized (
	select w.kind, w.id, r.tenant, r.phase, r.labels
	from wanted w join lateral (
		select r.tenant, r.phase, case when w.kind = 'Cluster' then coalesce((
				select jsonb_object_agg(l.key, left(r.labels ->> l.key, 63)) from unnest($3::text[]) as l (key) where r.labels ->> l.key is not null
			), '{}') else '{}' end as labels
		from tenant.all_resources r where r.id = w.id and r.kind = w.kind limit 1
	) r on true
), was as materialized (
	select w.kind, w.id, m.tenant, m.phase, m.labels
	from wanted w join lateral (
		select m.tenant, m.phase, m.labels from tenant.rollup_rows m where m.id = w.id and m.kind = w.kind limit 1
	) m on true
), forgotten as (
	delete from tenant.rollup_rows m using was w
	where m.id = w.id and m.kind = w.kind and not exists (select from is_now i where i.id = w.id and i.kind = w.kind)
), remembered as (
	insert into tenant.rollup_rows as m (kind, id, tenant, phase, labels) select i.kind, i.id, i.tenant, i.phase, i.labels from is_now i
	where not exists (select from was w where (w.id, w.kind, w.tenant, w.phase, w.labels) = (i.id, i.kind, i.tenant, i.phase, i.labels))
	on conflict (id, kind) do update set tenant = excluded.tenant, phase = excluded.phase, labels = excluded.labels
), difference as (
	select i.kind, i.tenant, i.phase, i.labels, 1 as n from is_now i
	union all
	select w.kind, w.tenant, w.phase, w.labels, -1 from was w
), counted as (
	select d.tenant, d.kind, '' as label, '' as value, d.phase, d.n from difference d
	union all
	select d.tenant, d.kind, l.key, l.value, d.phase, d.n from difference d, jsonb_each_text(d.labels) l
)
insert into tenant.rollup_counts as c (tenant, kind, label, value, phase, n)
select g.tenant, g.kind, g.label, g.value, g.phase, sum(g.n) from counted g
group by grouping sets ((g.tenant, g.kind, g.label, g.value, g.phase), (g.kind, g.label, g.value, g.phase)) having sum(g.n) <> 0
on conflict on constraint rollup_counts_key do update set n = c.n + excluded.n`

// updateCountsOfRows brings the counts of rows, and of the reports on them, up to date. It queues its writes, because the
// change feed waits from the first one until the commit.
func updateCountsOfRows(ctx context.Context, tx postgres.Tx, rows rowKeys, labelKeys []string) error {
	if len(rows.ids) == 0 {
		return nil
	}
	reasons, replacesReasons, err := readCurrentFailureReasons(ctx, tx, rows)
	if err != nil {
		return err
	}
	nameFailure(tx.Queue(countRow, rows.kinds, rows.ids, labelKeys), "count rows")
	if replacesReasons || len(reasons.ids) > 0 {
		args := append([]any{rows.kinds, rows.ids}, reasons.listStatementArgs()...)
		nameFailure(tx.Queue(buildReplaceReasonsSQL(reportReasons), args...), "count the failed reports")
	}
	return nil
}

// hasReasons selects whether rows have counted reasons.
const hasReasons = `select exists (select from unnest($1::text[], $2::uuid[]) as k (kind, id)
	join lateral (select from tenant.rollup_reasons m where m.id = k.id and m.kind = k.kind limit 1) m on true)`

// failedReports selects the reports on rows that are not ready in which a condition is False.
const failedReports = `select r.kind, r.id, r.tenant, r.name, coalesce(o.name, ''), a.adapter, a.conditions, a.last_report_time
	from unnest($1::text[], $2::uuid[]) as k (kind, id)
	join lateral (select * from tenant.all_resources r where r.id = k.id and r.kind = k.kind limit 1) r on r.phase <> 'Ready'
	join lateral (select * from tenant.adapter_reports a where a.resource_id = r.id and a.kind = r.kind) a on a.conditions::text like '%"False"%'
	left join lateral (select o.name from tenant.all_resources o where o.id = r.owner_id and o.kind = r.owner_kind limit 1) o on true`

// readCurrentFailureReasons returns the reasons of rows, and whether they have counted reasons.
func readCurrentFailureReasons(ctx context.Context, tx postgres.Tx, rows rowKeys) (reasons reasonRows, haveCounted bool, err error) {
	var reports []failedReport
	var b pgx.Batch
	queueCollectRows(b.Queue(failedReports, rows.kinds, rows.ids), &reports)
	queueScanRow(b.Queue(hasReasons, rows.kinds, rows.ids), &haveCounted)
	if err := tx.RunBatch(ctx, &b); err != nil {
		return reasons, false, fmt.Errorf("read the failed reports: %w", err)
	}
	for _, report := range reports {
		var conditions []v1.AdapterCondition
		if json.Unmarshal(report.Conditions, &conditions) != nil {
			continue // other software wrote it; it must not hold up the counts
		}
		condition, failed := fleetapi.FindFailedCondition(conditions)
		if !failed {
			continue
		}
		since := condition.LastTransitionTime
		if since.IsZero() {
			since = report.LastReportTime
		}
		reasons.addReason(reasonRow{
			key: report.Key, tenant: report.Tenant, source: v1.ReasonSourceAdapter + report.Adapter, since: since,
			reason: fleetapi.NormalizeFailedCondition(condition, report.Name, report.OwnerName, report.Tenant),
		})
	}
	return reasons, haveCounted, nil
}

// A failedReport is a row of failedReports.
type failedReport struct {
	fleetapi.Key

	Tenant, Name, OwnerName, Adapter string
	Conditions                       []byte
	LastReportTime                   time.Time
}

// reasonRows are rows of tenant.rollup_reasons, as the parameters of a statement.
type reasonRows struct {
	kinds, ids, tenants, sources, reasons []string
	since                                 []time.Time
	messages                              []*string
}

// A reasonRow is one row. The message is nil if it is that of a report.
type reasonRow struct {
	key                    fleetapi.Key
	tenant, source, reason string
	since                  time.Time
	message                *string
}

func (r *reasonRows) addReason(row reasonRow) {
	r.kinds, r.ids = append(r.kinds, row.key.Kind), append(r.ids, row.key.ID)
	r.tenants, r.sources, r.reasons = append(r.tenants, row.tenant), append(r.sources, row.source), append(r.reasons, row.reason)
	r.since, r.messages = append(r.since, row.since), append(r.messages, row.message)
}

func (r *reasonRows) listStatementArgs() []any {
	return []any{r.kinds, r.ids, r.tenants, r.sources, r.reasons, r.since, r.messages}
}

// reportReasons and syncReasons select the counted reasons m that are replaced for a row w. Those of its
// reports include the error of its sync if that was counted for another tenant than the row, or if the
// row is gone; the counter of syncs then counts the error anew, and need not compare the tenants.
const (
	reportReasons = `m.source <> 'sync'
		or m.tenant is distinct from (select c.tenant from tenant.rollup_rows c where c.id = w.id and c.kind = w.kind)`
	syncReasons = `m.source = 'sync'`
)

// buildReplaceReasonsSQL returns the statement that replaces the reasons of rows that a condition selects, and
// their counts.
func buildReplaceReasonsSQL(conditionSQL string) string {
	return `with wanted as materialized (
	select k.kind, k.id from unnest($1::text[], $2::uuid[]) as k (kind, id)
), is_now as materialized (
	select n.kind, n.id, n.tenant, n.source, n.reason, n.since, md5(n.message)::uuid as digest
	from unnest($3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::text[]) as n (kind, id, tenant, source, reason, since, message)
), was as materialized (
	select m.* from wanted w join lateral (select * from tenant.rollup_reasons m where m.id = w.id and m.kind = w.kind) m on ` + conditionSQL + `
), forgotten as (
	delete from tenant.rollup_reasons m using was w
	where m.id = w.id and m.kind = w.kind and m.source = w.source
		and not exists (select from is_now i where i.id = w.id and i.kind = w.kind and i.source = w.source)
), remembered as (
	insert into tenant.rollup_reasons as m (kind, id, source, tenant, reason, since, digest)
	select i.kind, i.id, i.source, i.tenant, i.reason, i.since, i.digest from is_now i
	on conflict (id, kind, source) do update set tenant = excluded.tenant, reason = excluded.reason, since = excluded.since, digest = excluded.digest
		where (m.tenant, m.reason, m.since, m.digest) is distinct from (excluded.tenant, excluded.reason, excluded.since, excluded.digest)
), difference as (
	select i.tenant, i.source, i.reason, 1 as n from is_now i
	union all
	select w.tenant, w.source, w.reason, -1 from was w
)
insert into tenant.rollup_reason_counts as c (tenant, source, reason, n)
select d.tenant, d.source, d.reason, sum(d.n) from difference d
group by grouping sets ((d.tenant, d.source, d.reason), (d.source, d.reason)) having sum(d.n) <> 0
on conflict on constraint rollup_reason_counts_key do update set n = c.n + excluded.n`
}
