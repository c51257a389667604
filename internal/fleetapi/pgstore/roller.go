package pgstore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

const (
	// rollInterval is the interval at which changes are counted.
	rollInterval = time.Second
	// rollBatch is the number of changes, or of rows of a recount, that one transaction counts. The
	// change feed stops at a transaction that writes, so each must be short.
	rollBatch = 1000
	// sweepInterval is the interval at which counts that have become zero are removed.
	sweepInterval = time.Minute
)

// A Roller counts clusters, node pools and syncs for Store.Summary, from the change feed. Any number
// of rollers may work on one database: while one is counting, the others have nothing to do.
//
// Each step is one transaction, which counts some changes and moves the position in the feed past
// them. What a row was last counted as is remembered with the counts, so a row that is read again
// does not count twice. If the feed no longer has the changes after the position, all rows are
// counted anew, in steps of the same kind.
type Roller struct {
	pool *postgres.Pool
	keys []string // label keys, saved by the first step
	log  *slog.Logger

	saved   bool // the keys were saved
	failing bool
	sweepAt time.Time
}

// NewRoller returns a roller that counts clusters by the values of the label keys. If rollers of
// several processes have different keys, those of the process that started last count.
func NewRoller(pool *postgres.Pool, labelKeys []string, log *slog.Logger) *Roller {
	return &Roller{pool: pool, keys: append([]string{}, labelKeys...), log: log}
}

// Run counts until ctx ends. It retries while the database is unavailable.
func (r *Roller) Run(ctx context.Context) error {
	for {
		more, err := r.countOnce(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && !r.failing:
			r.log.WarnContext(ctx, "counting resources failed, retrying", "err", err)
		case err == nil && r.failing:
			r.log.InfoContext(ctx, "counting resources works again")
		}
		r.failing = err != nil
		if more && err == nil {
			continue
		}
		if backoff.Sleep(ctx, rollInterval) != nil {
			return nil
		}
	}
}

// A rollState is the row of tenant.rollup.
type rollState struct {
	keys        []string
	epoch       *string
	after       watch.Position
	recountKind *string
	recountID   *string
}

// countOnce counts changes and, once there are none left, the syncs. It reports whether there is
// more to count at once.
func (r *Roller) countOnce(ctx context.Context) (more bool, err error) {
	if more, err = r.runStep(ctx, r.countResources); err == nil && !more {
		more, err = r.runStep(ctx, r.countSyncs)
	}
	if err != nil {
		return false, fmt.Errorf("count resources: %w", err)
	}
	return more, nil
}

// A rollStep reads before it writes. It reports whether there is more to count at once.
type rollStep func(ctx context.Context, tx postgres.Tx, s *rollState) (more bool, err error)

// runStep runs a step in one transaction, unless another process is counting.
func (r *Roller) runStep(ctx context.Context, step rollStep) (more bool, err error) {
	err = New(r.pool).readFeedRenewingEpoch(ctx, func() error {
		return r.pool.InTx(ctx, scopeOf(fleetapi.Scope{All: true}), func(ctx context.Context, tx postgres.Tx) error {
			more, err = runStepInTx(ctx, tx, step)
			return err
		})
	})
	return more, err
}

// runStepInTx reads the position and runs a step. The lock is an advisory one, because a lock on a
// row would make the transaction one that writes before it has read.
func runStepInTx(ctx context.Context, tx postgres.Tx, step rollStep) (more bool, err error) {
	var locked bool
	err = tx.QueryRow(ctx, `select pg_try_advisory_xact_lock(hashtext('fleetloop tenant.rollup')), set_config('jit', 'off', true)`).Scan(&locked, nil)
	if err != nil || !locked {
		return false, err
	}
	var s rollState
	err = tx.QueryRow(ctx, `select label_keys, epoch, xact, seq, recount_kind, recount_id from tenant.rollup`).
		Scan(&s.keys, &s.epoch, &s.after.Xact, &s.after.Seq, &s.recountKind, &s.recountID)
	if err != nil {
		return false, fmt.Errorf("read the position: %w", err)
	}
	return step(ctx, tx, &s)
}

// countResources counts the next changes, or the next rows of a recount.
func (r *Roller) countResources(ctx context.Context, tx postgres.Tx, s *rollState) (more bool, err error) {
	expired, horizon, err := readRollHorizon(ctx, tx, s)
	if err != nil {
		return false, err
	}
	changedKeys := !r.saved && !slices.Equal(s.keys, r.keys)
	switch {
	case expired || changedKeys:
		if changedKeys {
			s.keys = r.keys
		}
		r.log.InfoContext(ctx, "counting all resources anew", "label_keys", s.keys)
		more, err = true, startRecount(ctx, tx, s.keys, horizon)
	case s.recountKind != nil:
		more, err = true, recountStep(ctx, tx, s)
	default:
		more, err = countChanges(ctx, tx, s)
	}
	r.saved = r.saved || err == nil
	return more, err
}

// readRollHorizon returns the current end of the feed, and whether changes after the position are
// gone.
func readRollHorizon(ctx context.Context, tx postgres.Tx, s *rollState) (expired bool, horizon watch.Cursor, err error) {
	after := watch.Cursor{Position: s.after}
	if s.epoch != nil {
		if after.Epoch, err = uuid.Parse(*s.epoch); err != nil {
			return false, horizon, fmt.Errorf("read the epoch of the counts: %w", err)
		}
	}
	var row db.FeedBoundsRow
	var b pgx.Batch
	queueBounds(&b, fleetapi.ChangeQuery{After: after}, func(bounds *db.FeedBoundsRow) error {
		row = *bounds
		return nil
	})
	if err := tx.SendBatch(ctx, &b).Close(); err != nil {
		return false, horizon, fmt.Errorf("read the bounds of the change feed: %w", err)
	}
	if horizon, err = horizonCursor(&row); err != nil {
		return false, horizon, err
	}
	_, err = horizonNotBefore(after, &row)
	if errors.Is(err, fleetapi.ErrCursorExpired) {
		return true, horizon, nil
	}
	return false, horizon, err
}

// startRecount moves the position to the end of the feed, and begins to count all rows. Until the
// last of them is counted, the counts keep their age.
func startRecount(ctx context.Context, tx postgres.Tx, keys []string, horizon watch.Cursor) error {
	_, err := tx.Exec(ctx, `update tenant.rollup set label_keys = $1, epoch = $2::uuid, xact = $3, seq = $4, recount_kind = $5, recount_id = $6::uuid`,
		keys, horizon.Epoch.String(), horizon.Xact, horizon.Seq, v1.KindCluster, uuid.Nil.String())
	if err != nil {
		return fmt.Errorf("start to count all resources: %w", err)
	}
	return nil
}

// nextRows selects the next ids of a kind in order: of rows that exist, and of rows that were
// counted.
const nextRows = `select id from (
	(select id from tenant.all_resources where kind = $1 and id > $2::uuid order by id limit $3)
	union
	(select id from tenant.rollup_rows where kind = $1 and id > $2::uuid order by id limit $3)
) both_rows order by id limit $3`

// recountStep counts the next rows of a recount.
func recountStep(ctx context.Context, tx postgres.Tx, s *rollState) error {
	rows, err := tx.Query(ctx, nextRows, *s.recountKind, *s.recountID, rollBatch)
	if err != nil {
		return fmt.Errorf("read the rows to count: %w", err)
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return fmt.Errorf("read the rows to count: %w", err)
	}
	keys := rowKeys{ids: ids, kinds: make([]string, len(ids))}
	for i := range keys.kinds {
		keys.kinds[i] = *s.recountKind
	}
	if err := countRows(ctx, tx, keys, s.keys); err != nil {
		return err
	}
	kind, last := s.recountKind, s.recountID
	switch {
	case len(ids) == rollBatch:
		last = &ids[len(ids)-1]
	case *kind == v1.KindCluster:
		pools, first := v1.KindNodePool, uuid.Nil.String()
		kind, last = &pools, &first
	default:
		kind, last = nil, nil
	}
	if _, err := tx.Exec(ctx, "update tenant.rollup set recount_kind = $1, recount_id = $2::uuid", kind, last); err != nil {
		return fmt.Errorf("save the position of the recount: %w", err)
	}
	return nil
}

// settledChanges selects the next changes of all kinds. The counts are as old as the oldest change
// that is committed but stands behind a transaction that is still running.
const (
	settledChanges = `select xact, seq, kind, id from tenant.resource_changes
		where (xact, seq) > ($1, $2) and xact < pg_snapshot_xmin(pg_current_snapshot()) order by xact, seq limit $3`
	countedUntil = `select least(statement_timestamp(), (select min(changed_at) from tenant.resource_changes where xact >= pg_snapshot_xmin(pg_current_snapshot())))`
)

// countChanges counts the next changes of the feed.
func countChanges(ctx context.Context, tx postgres.Tx, s *rollState) (more bool, err error) {
	// The time is read before the changes: those that settle in between are counted without it.
	var until time.Time
	if err := tx.QueryRow(ctx, countedUntil).Scan(&until); err != nil {
		return false, fmt.Errorf("read the age of the change feed: %w", err)
	}
	rows, err := tx.Query(ctx, settledChanges, s.after.Xact, s.after.Seq, rollBatch)
	if err != nil {
		return false, fmt.Errorf("read the changes: %w", err)
	}
	var keys rowKeys
	seen := map[fleetapi.Key]bool{}
	var key fleetapi.Key
	tag, err := pgx.ForEachRow(rows, []any{&s.after.Xact, &s.after.Seq, &key.Kind, &key.ID}, func() error {
		if !seen[key] && (key.Kind == v1.KindCluster || key.Kind == v1.KindNodePool) {
			seen[key] = true
			keys.kinds, keys.ids = append(keys.kinds, key.Kind), append(keys.ids, key.ID)
		}
		return nil
	})
	if err != nil {
		return false, fmt.Errorf("read the changes: %w", err)
	}
	if err := countRows(ctx, tx, keys, s.keys); err != nil {
		return false, err
	}
	more = tag.RowsAffected() == rollBatch
	update, args := "update tenant.rollup set xact = $1, seq = $2", []any{s.after.Xact, s.after.Seq}
	if !more {
		update, args = update+", as_of = $3", append(args, until)
	}
	if _, err := tx.Exec(ctx, update, args...); err != nil {
		return false, fmt.Errorf("save the position in the change feed: %w", err)
	}
	return more, nil
}

// rowKeys are the keys of rows, as the parameters of a statement.
type rowKeys struct{ kinds, ids []string }

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
	on conflict (id, kind) do update set tenant = excluded.tenant, phase = excluded.phase, labels = excluded.labels
		where (m.tenant, m.phase, m.labels) is distinct from (excluded.tenant, excluded.phase, excluded.labels)
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

// countRows brings the counts of rows, and of the reports on them, up to date.
func countRows(ctx context.Context, tx postgres.Tx, keys rowKeys, labelKeys []string) error {
	if len(keys.ids) == 0 {
		return nil
	}
	reasons, err := readFailedReports(ctx, tx, keys)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, countRow, keys.kinds, keys.ids, labelKeys); err != nil {
		return fmt.Errorf("count rows: %w", err)
	}
	if _, err := tx.Exec(ctx, replaceReasons(`source <> 'sync'`), append([]any{keys.kinds, keys.ids}, reasons.args()...)...); err != nil {
		return fmt.Errorf("count the failed reports: %w", err)
	}
	return nil
}

// failedReports selects the reports on rows that are not ready in which a condition is False.
const failedReports = `select r.kind, r.id, r.tenant, r.name, coalesce(o.name, ''), a.adapter, a.conditions, a.last_report_time
	from unnest($1::text[], $2::uuid[]) as k (kind, id)
	join lateral (select * from tenant.all_resources r where r.id = k.id and r.kind = k.kind limit 1) r on r.phase <> 'Ready'
	join lateral (select * from tenant.adapter_reports a where a.resource_id = r.id and a.kind = r.kind) a on a.conditions::text like '%"False"%'
	left join lateral (select o.name from tenant.all_resources o where o.id = r.owner_id and o.kind = r.owner_kind limit 1) o on true`

// readFailedReports returns the reasons that adapters reported on rows.
func readFailedReports(ctx context.Context, tx postgres.Tx, keys rowKeys) (found reasonRows, err error) {
	rows, err := tx.Query(ctx, failedReports, keys.kinds, keys.ids)
	if err != nil {
		return found, fmt.Errorf("read the failed reports: %w", err)
	}
	var key fleetapi.Key
	var tenant, name, ownerName, adapter string
	var text []byte
	var at time.Time
	_, err = pgx.ForEachRow(rows, []any{&key.Kind, &key.ID, &tenant, &name, &ownerName, &adapter, &text, &at}, func() error {
		var conditions []v1.AdapterCondition
		if json.Unmarshal(text, &conditions) != nil {
			return nil // other software wrote it; it must not hold up the counts
		}
		if c, failed := fleetapi.FailedReport(conditions); failed {
			since := at
			if !c.LastTransitionTime.IsZero() {
				since = c.LastTransitionTime
			}
			found.addReason(key, tenant, v1.ReasonSourceAdapter+adapter, fleetapi.NormalizeCondition(c, name, ownerName, tenant), since, nil)
		}
		return nil
	})
	if err != nil {
		return found, fmt.Errorf("read the failed reports: %w", err)
	}
	return found, nil
}

// reasonRows are rows of tenant.rollup_reasons, as the parameters of a statement.
type reasonRows struct {
	kinds, ids, tenants, sources, reasons []string
	since                                 []time.Time
	messages                              []*string
}

func (r *reasonRows) addReason(key fleetapi.Key, tenant, source, reason string, since time.Time, message *string) {
	r.kinds, r.ids = append(r.kinds, key.Kind), append(r.ids, key.ID)
	r.tenants, r.sources, r.reasons = append(r.tenants, tenant), append(r.sources, source), append(r.reasons, reason)
	r.since, r.messages = append(r.since, since), append(r.messages, message)
}

func (r *reasonRows) args() []any {
	return []any{r.kinds, r.ids, r.tenants, r.sources, r.reasons, r.since, r.messages}
}

// replaceReasons returns the statement that replaces the reasons of rows, of sources that a condition
// selects, and their counts.
func replaceReasons(sources string) string {
	return `with wanted as materialized (
	select k.kind, k.id from unnest($1::text[], $2::uuid[]) as k (kind, id)
), is_now as materialized (
	select n.kind, n.id, n.tenant, n.source, n.reason, n.since, md5(n.message)::uuid as digest
	from unnest($3::text[], $4::uuid[], $5::text[], $6::text[], $7::text[], $8::timestamptz[], $9::text[]) as n (kind, id, tenant, source, reason, since, message)
), was as materialized (
	select m.* from wanted w join lateral (select * from tenant.rollup_reasons m where m.id = w.id and m.kind = w.kind) m on m.` + sources + `
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

// syncCounts returns the statement that counts the syncs that are not synced, each in its state at
// the time of the statement. The states change as time passes, so no change could tell of them. The
// others are not read. Clusters that the counts do not include yet are left out, so that the synced
// ones are the rest. The oldest of each tenant is looked up by its time.
func syncCounts() *clause {
	c := new(clause)
	c.writeSQL(`select w.tenant, w.state, w.n, w.since, o.cluster_id
	from (
		select m.tenant, s.state, count(*) as n, min(s.unsynced_since) filter (where s.synced is null) as since
		from `, syncStates("tenant.all_cluster_syncs", c.addArg(v1.StuckAttempts, "integer")), ` join tenant.rollup_rows m on m.id = s.cluster_id and m.kind = '`, v1.KindCluster, `'
		where s.synced is null or s.paused_at is not null
		group by grouping sets ((m.tenant, s.state), (s.state))
	) w left join lateral (
		select s.cluster_id from tenant.all_cluster_syncs s join tenant.rollup_rows m on m.id = s.cluster_id and m.kind = '`, v1.KindCluster, `'
		where s.synced is null and s.unsynced_since = w.since and (w.tenant is null or m.tenant = w.tenant) order by s.cluster_id limit 1
	) o on true`)
	return c
}

// saveSyncCounts replaces the counts of syncs.
const saveSyncCounts = `with counted as materialized (
	select k.* from unnest($1::text[], $2::text[], $3::bigint[], $4::timestamptz[], $5::uuid[]) as k (tenant, state, n, since, id)
), forgotten as (
	delete from tenant.rollup_syncs o where not exists (select from counted k where k.tenant is not distinct from o.tenant and k.state = o.state)
)
insert into tenant.rollup_syncs as o (tenant, state, n, oldest_since, oldest_id)
select k.tenant, k.state, k.n, k.since, k.id from counted k
on conflict on constraint rollup_syncs_key do update set n = excluded.n, oldest_since = excluded.oldest_since, oldest_id = excluded.oldest_id
	where (o.n, o.oldest_since, o.oldest_id) is distinct from (excluded.n, excluded.oldest_since, excluded.oldest_id)`

// changedSyncErrors selects the syncs whose error is not counted as it is, and outdatedSyncErrors
// those whose counted error is over.
const (
	changedSyncErrors = `select s.cluster_id, m.tenant, r.name, s.sync_error, coalesce(s.unsynced_since, s.due_at)
	from tenant.all_cluster_syncs s
	join tenant.rollup_rows m on m.id = s.cluster_id and m.kind = 'Cluster'
	join lateral (select name from tenant.all_resources r where r.id = s.cluster_id and r.kind = 'Cluster' limit 1) r on true
	left join tenant.rollup_reasons p on p.id = s.cluster_id and p.kind = 'Cluster' and p.source = 'sync'
	where s.synced is null and s.sync_error is not null
		and (p.id is null or p.digest <> md5(s.sync_error)::uuid or p.tenant <> m.tenant or p.since <> coalesce(s.unsynced_since, p.since))
	limit $1`
	outdatedSyncErrors = `select p.id from tenant.rollup_reasons p left join tenant.all_cluster_syncs s on s.cluster_id = p.id
	where p.source = 'sync' and (s.cluster_id is null or s.synced is not null or s.sync_error is null) limit $1`
)

// syncCountRows are rows of tenant.rollup_syncs, as the parameters of a statement.
type syncCountRows struct {
	tenants []*string
	states  []string
	counts  []int64
	since   []*time.Time
	ids     []*string
}

// countSyncs counts the states of the syncs, and their errors.
func (r *Roller) countSyncs(ctx context.Context, tx postgres.Tx, s *rollState) (more bool, err error) {
	if s.recountKind != nil {
		return false, nil
	}
	var at time.Time
	if err := tx.QueryRow(ctx, "select statement_timestamp()").Scan(&at); err != nil {
		return false, fmt.Errorf("read the clock: %w", err)
	}
	counts, err := readSyncCounts(ctx, tx)
	if err != nil {
		return false, err
	}
	keys, errs, more, err := readSyncErrors(ctx, tx)
	if err != nil {
		return false, err
	}
	if _, err := tx.Exec(ctx, saveSyncCounts, counts.tenants, counts.states, counts.counts, counts.since, counts.ids); err != nil {
		return false, fmt.Errorf("save the counts of syncs: %w", err)
	}
	if len(keys.ids) > 0 {
		if _, err := tx.Exec(ctx, replaceReasons(`source = 'sync'`), append([]any{keys.kinds, keys.ids}, errs.args()...)...); err != nil {
			return false, fmt.Errorf("count the errors of syncs: %w", err)
		}
	}
	if more {
		return true, nil
	}
	if _, err := tx.Exec(ctx, "update tenant.rollup set syncs_as_of = $1", at); err != nil {
		return false, fmt.Errorf("save the age of the counts of syncs: %w", err)
	}
	return false, r.sweepCounts(ctx, tx)
}

func readSyncCounts(ctx context.Context, tx postgres.Tx) (c syncCountRows, err error) {
	states := syncCounts()
	rows, err := tx.Query(ctx, states.sql.String(), states.args...)
	if err != nil {
		return c, fmt.Errorf("count the states of syncs: %w", err)
	}
	var tenant, id *string
	var state string
	var n int64
	var since *time.Time
	_, err = pgx.ForEachRow(rows, []any{&tenant, &state, &n, &since, &id}, func() error {
		c.tenants, c.states, c.counts = append(c.tenants, tenant), append(c.states, state), append(c.counts, n)
		c.since, c.ids = append(c.since, since), append(c.ids, id)
		return nil
	})
	if err != nil {
		return c, fmt.Errorf("count the states of syncs: %w", err)
	}
	return c, nil
}

// readSyncErrors returns the reasons of syncs whose counted error differs, and the keys of all syncs
// whose counted error must be replaced. more means that others remain.
func readSyncErrors(ctx context.Context, tx postgres.Tx) (keys rowKeys, found reasonRows, more bool, err error) {
	rows, err := tx.Query(ctx, changedSyncErrors, rollBatch)
	if err != nil {
		return keys, found, false, fmt.Errorf("read the errors of syncs: %w", err)
	}
	key := fleetapi.Key{Kind: v1.KindCluster}
	var tenant, name, message string
	var since time.Time
	changed, err := pgx.ForEachRow(rows, []any{&key.ID, &tenant, &name, &message, &since}, func() error {
		keys.kinds, keys.ids = append(keys.kinds, key.Kind), append(keys.ids, key.ID)
		reason := cmp.Or(fleetapi.NormalizeReason(message, name, tenant), "no message")
		found.addReason(key, tenant, v1.ReasonSourceSync, reason, since, &message)
		return nil
	})
	if err != nil {
		return keys, found, false, fmt.Errorf("read the errors of syncs: %w", err)
	}
	if rows, err = tx.Query(ctx, outdatedSyncErrors, rollBatch); err != nil {
		return keys, found, false, fmt.Errorf("read the errors of syncs that are over: %w", err)
	}
	outdated, err := pgx.ForEachRow(rows, []any{&key.ID}, func() error {
		keys.kinds, keys.ids = append(keys.kinds, key.Kind), append(keys.ids, key.ID)
		return nil
	})
	if err != nil {
		return keys, found, false, fmt.Errorf("read the errors of syncs that are over: %w", err)
	}
	return keys, found, max(changed.RowsAffected(), outdated.RowsAffected()) == rollBatch, nil
}

// sweepCounts removes counts that have become zero. They do no harm, so it does so rarely.
func (r *Roller) sweepCounts(ctx context.Context, tx postgres.Tx) error {
	if time.Now().Before(r.sweepAt) {
		return nil
	}
	for _, table := range []string{"rollup_counts", "rollup_reason_counts"} {
		if _, err := tx.Exec(ctx, "delete from tenant."+table+" where n = 0"); err != nil {
			return fmt.Errorf("remove empty counts: %w", err)
		}
	}
	r.sweepAt = time.Now().Add(sweepInterval)
	return nil
}
