package pgstore

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
)

// ReadSummary reads the counts of a scope that a RollupCounter has made.
func (s *Store) ReadSummary(ctx context.Context, scope fleetapi.Scope) (v1.Summary, error) {
	q := newSummaryQuery(scope)
	var rows summaryRows
	err := s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(uncompiled)
		b.Queue(inOrderOfTime)
		queueScanRow(b.Queue("select as_of, syncs_as_of, label_keys from tenant.rollup"), &rows.asOf, &rows.syncsAsOf, &rows.labelKeys)
		queueCollectRows(q.queueReadCounts(b), &rows.counts)
		queueCollectRows(q.queueReadUnsyncedCounts(b), &rows.unsynced)
		queueScanRow(q.queueCountFailedDeliveries(b), &rows.deliveries.Failing, &rows.deliveries.FailingSince, &rows.deliveries.GivenUp)
		queueCollectRows(q.queueReadTopReasons(b), &rows.topReasons)
		queueCollectRows(q.queueReadOldestNotReady(b, v1.KindCluster), &rows.oldestCluster)
		queueCollectRows(q.queueReadOldestNotReady(b, v1.KindNodePool), &rows.oldestNodePool)
	})
	switch {
	case err != nil:
		return v1.Summary{}, wrapAndMarkUnavailable(err, "read the counts")
	case rows.asOf == nil || rows.syncsAsOf == nil:
		return v1.Summary{}, fleetapi.ErrNotCounted
	}
	return rows.buildSummary(), nil
}

// A summaryQuery reads the parts of a summary.
type summaryQuery struct {
	scope    fleetapi.Scope
	ofTenant string // the condition that a row of the counts belongs to the scope
	args     []any
}

func newSummaryQuery(scope fleetapi.Scope) summaryQuery {
	if scope.All {
		return summaryQuery{scope: scope, ofTenant: "tenant is null"}
	}
	return summaryQuery{scope: scope, ofTenant: "tenant = $1", args: []any{scope.Tenant}}
}

// tenantConditionSQL returns the condition that a row of another table than the counts belongs to the scope, followed
// by and.
func (q summaryQuery) tenantConditionSQL() string {
	if q.scope.All {
		return ""
	}
	return q.ofTenant + " and "
}

func (q summaryQuery) queueReadCounts(b *pgx.Batch) *pgx.QueuedQuery {
	return b.Queue("select kind, label, value, phase, n from tenant.rollup_counts where "+q.ofTenant+" and n > 0", q.args...)
}

// queueReadUnsyncedCounts reads the counts of the syncs that are not synced, each with the one that waits longest.
func (q summaryQuery) queueReadUnsyncedCounts(b *pgx.Batch) *pgx.QueuedQuery {
	return b.Queue(`select s.state, s.n, s.oldest_since, r.id, r.name, r.phase from tenant.rollup_syncs s
		left join lateral (select id, name, phase from tenant.resources where id = s.oldest_id and kind = '`+v1.KindCluster+`' limit 1) r on true
		where s.`+q.ofTenant, q.args...)
}

// queueCountFailedDeliveries counts the deliveries that fail or were given up. They are few, or their count ends
// at v1.MaxDeliveries.
func (q summaryQuery) queueCountFailedDeliveries(b *pgx.Batch) *pgx.QueuedQuery {
	tenant, limit := q.tenantConditionSQL(), strconv.Itoa(v1.MaxDeliveries)
	return b.Queue(`select f.n, f.since, g.n from (
			select count(*) as n, min(first_attempt_at) as since from (
				select first_attempt_at from tenant.cluster_change_events where `+tenant+`failures > 0 order by first_attempt_at limit `+limit+`) x
		) f, (
			select count(*) as n from (
				select from tenant.cluster_change_deliveries d where `+tenant+`state in ('rejected', 'expired') and finished_at > now() - interval '24 hours'
					and not exists (select from tenant.cluster_change_events c where c.event_id = d.event_id and c.sink = d.sink) limit `+limit+`) x
		) g`, q.args...)
}

// queueReadTopReasons reads the most frequent reasons, each with the resource that it holds up for longest.
func (q summaryQuery) queueReadTopReasons(b *pgx.Batch) *pgx.QueuedQuery {
	args := append(slices.Clone(q.args), fleetapi.MaxSummaryReasons)
	limit := "$" + strconv.Itoa(len(args))
	return b.Queue(`select c.source, c.reason, c.n, o.since, o.kind, o.id, coalesce(r.name, '') from (
			select source, reason, n from tenant.rollup_reason_counts where `+q.ofTenant+` and n > 0 order by n desc, source, reason limit `+limit+`
		) c
		join lateral (select since, kind, id from tenant.rollup_reasons where `+q.tenantConditionSQL()+`source = c.source and reason = c.reason order by since, id limit 1) o on true
		left join lateral (select name from tenant.resources where id = o.id and kind = o.kind limit 1) r on true
		order by c.n desc, c.source, c.reason`, args...)
}

// queueReadOldestNotReady reads the resource of a kind that is not ready for longest, from its index.
func (q summaryQuery) queueReadOldestNotReady(b *pgx.Batch, kind string) *pgx.QueuedQuery {
	return b.Queue("select id, name, phase, last_transition_time from "+chooseResourceTable(q.scope)+" where "+q.tenantConditionSQL()+
		"kind = '"+kind+"' and phase <> '"+string(v1.PhaseReady)+"' order by last_transition_time, id limit 1", q.args...)
}

// summaryRows are the rows of which a summary is made.
type summaryRows struct {
	asOf, syncsAsOf *time.Time
	labelKeys       []string
	counts          []rollupCountRow
	unsynced        []unsyncedCountRow
	deliveries      v1.DeliverySummary
	topReasons      []topReasonRow
	oldestCluster   []v1.OldestResource
	oldestNodePool  []v1.OldestResource
}

type rollupCountRow struct {
	Kind, Label, Value string
	Phase              v1.Phase
	Count              int64
}

type unsyncedCountRow struct {
	State       v1.SyncState
	Count       int64
	OldestSince *time.Time
	// The oldest one, nil if it no longer exists.
	ID, Name, Phase *string
}

type topReasonRow struct {
	Source, Reason string
	Count          int64
	Since          time.Time
	Kind, ID, Name string
}

func (r *summaryRows) buildSummary() v1.Summary {
	s := summaryBuilder{v1.Summary{
		AsOf:       r.asOf.UTC(),
		Kinds:      map[string]v1.KindSummary{},
		Sync:       v1.SyncSummary{States: map[v1.SyncState]int64{}},
		Deliveries: r.deliveries,
		TopReasons: []v1.SummaryReason{},
		Labels:     map[string]map[string]v1.LabelSummary{},
	}}
	if r.syncsAsOf.Before(*r.asOf) {
		s.AsOf = r.syncsAsOf.UTC()
	}
	s.Deliveries.FailingSince = inUTC(s.Deliveries.FailingSince)
	for _, key := range r.labelKeys {
		s.Labels[key] = map[string]v1.LabelSummary{}
	}
	s.Kinds[v1.CollectionClusters] = newKindSummary(r.oldestCluster)
	s.Kinds[v1.CollectionNodePools] = newKindSummary(r.oldestNodePool)
	for _, row := range r.counts {
		s.addCount(row.Kind, row.Label, row.Value, row.Phase, row.Count)
	}
	s.dropRareLabelValues()
	for _, row := range r.unsynced {
		s.addUnsyncedCount(row)
	}
	s.computeSyncedCount()
	for _, row := range r.topReasons {
		s.TopReasons = append(s.TopReasons, v1.SummaryReason{
			Source: row.Source, Reason: row.Reason, Count: row.Count, Since: row.Since.UTC(),
			Example: v1.ReasonExample{Kind: row.Kind, ID: row.ID, Name: row.Name},
		})
	}
	return s.Summary
}

// newKindSummary returns a summary without counts. At most one resource is the oldest.
func newKindSummary(oldestNotReady []v1.OldestResource) v1.KindSummary {
	summary := v1.KindSummary{LabelSummary: v1.LabelSummary{Phases: map[v1.Phase]int64{}}}
	if len(oldestNotReady) > 0 {
		summary.OldestNotReady = &oldestNotReady[0]
		summary.OldestNotReady.Since = summary.OldestNotReady.Since.UTC()
	}
	return summary
}

// A summaryBuilder is a summary under construction.
type summaryBuilder struct{ v1.Summary }

func (s *summaryBuilder) addCount(kind, label, value string, phase v1.Phase, count int64) {
	if label == "" {
		collection := v1.CollectionClusters
		if kind == v1.KindNodePool {
			collection = v1.CollectionNodePools
		}
		of := s.Kinds[collection]
		of.Total += count
		of.Phases[phase] += count
		s.Kinds[collection] = of
		return
	}
	values, counted := s.Labels[label]
	if !counted || kind != v1.KindCluster {
		return // a key that is no longer counted, whose rows the recount has not removed yet
	}
	of, known := values[value]
	if !known {
		of.Phases = map[v1.Phase]int64{}
	}
	of.Total += count
	of.Phases[phase] += count
	values[value] = of
}

// dropRareLabelValues keeps the most frequent values of each label.
func (s *summaryBuilder) dropRareLabelValues() {
	for key, values := range s.Labels {
		if len(values) <= fleetapi.MaxSummaryValues {
			continue
		}
		names := make([]string, 0, len(values))
		for name := range values {
			names = append(names, name)
		}
		slices.SortFunc(names, func(a, b string) int {
			if d := values[b].Total - values[a].Total; d != 0 {
				return int(min(max(d, -1), 1))
			}
			return strings.Compare(a, b)
		})
		for _, name := range names[fleetapi.MaxSummaryValues:] {
			delete(values, name)
		}
		if s.MoreLabelValues == nil {
			s.MoreLabelValues = map[string]int{}
		}
		s.MoreLabelValues[key] = len(names) - fleetapi.MaxSummaryValues
	}
}

func (s *summaryBuilder) addUnsyncedCount(row unsyncedCountRow) {
	s.Sync.States[row.State] = row.Count
	if row.OldestSince == nil || row.ID == nil {
		return
	}
	if s.Sync.OldestUnsynced == nil || row.OldestSince.Before(s.Sync.OldestUnsynced.Since) {
		s.Sync.OldestUnsynced = &v1.OldestResource{ID: *row.ID, Name: *row.Name, Phase: v1.Phase(*row.Phase), Since: row.OldestSince.UTC()}
	}
}

// computeSyncedCount sets the number of synced clusters: those that are in no other state.
func (s *summaryBuilder) computeSyncedCount() {
	synced := s.Kinds[v1.CollectionClusters].Total
	for _, n := range s.Sync.States {
		synced -= n
	}
	if synced > 0 {
		s.Sync.States[v1.SyncSynced] = synced
	}
}
