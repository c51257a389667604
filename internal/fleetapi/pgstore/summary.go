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
	read := summaryReader{
		Summary: v1.Summary{
			Kinds: map[string]v1.KindSummary{}, Sync: v1.SyncSummary{States: map[v1.SyncState]int64{}},
			TopReasons: []v1.SummaryReason{}, Labels: map[string]map[string]v1.LabelSummary{},
		},
		ofTenant: "tenant is null", scope: scope,
	}
	for _, collection := range []string{v1.CollectionClusters, v1.CollectionNodePools} {
		read.Kinds[collection] = v1.KindSummary{LabelSummary: v1.LabelSummary{Phases: map[v1.Phase]int64{}}}
	}
	if !scope.All {
		read.ofTenant, read.args = "tenant = $1", []any{scope.Tenant}
	}
	err := s.pool.RunSnapshotBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		b.Queue(uncompiled)
		b.Queue(inOrderOfTime)
		read.queueReadCountAge(b)
		read.queueReadCounts(b)
		read.queueReadUnsyncedCounts(b)
		read.queueCountFailedDeliveries(b)
		read.queueReadTopReasons(b)
		read.queueReadOldestNotReady(b, v1.KindCluster, v1.CollectionClusters)
		read.queueReadOldestNotReady(b, v1.KindNodePool, v1.CollectionNodePools)
	})
	switch {
	case err != nil:
		return v1.Summary{}, wrapAndMarkUnavailable(err, "read the counts")
	case read.asOf == nil || read.syncsAsOf == nil:
		return v1.Summary{}, fleetapi.ErrNotCounted
	}
	read.computeSyncedCount()
	read.dropRareLabelValues()
	if read.AsOf = *read.asOf; read.syncsAsOf.Before(read.AsOf) {
		read.AsOf = *read.syncsAsOf
	}
	read.AsOf = read.AsOf.UTC()
	return read.Summary, nil
}

// A summaryReader reads the parts of a summary.
type summaryReader struct {
	v1.Summary

	scope    fleetapi.Scope
	ofTenant string // the condition that a row of the counts belongs to the scope
	args     []any

	asOf, syncsAsOf *time.Time
}

func (s *summaryReader) queueReadCountAge(b *pgx.Batch) {
	b.Queue("select as_of, syncs_as_of, label_keys from tenant.rollup").QueryRow(func(row pgx.Row) error {
		var keys []string
		err := row.Scan(&s.asOf, &s.syncsAsOf, &keys)
		for _, key := range keys {
			s.Labels[key] = map[string]v1.LabelSummary{}
		}
		return err
	})
}

func (s *summaryReader) queueReadCounts(b *pgx.Batch) {
	var kind, label, value, phase string
	var n int64
	b.Queue("select kind, label, value, phase, n from tenant.rollup_counts where "+s.ofTenant+" and n > 0", s.args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&kind, &label, &value, &phase, &n}, func() error {
			s.addCount(kind, label, value, v1.Phase(phase), n)
			return nil
		})
		return err
	})
}

func (s *summaryReader) addCount(kind, label, value string, phase v1.Phase, count int64) {
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
func (s *summaryReader) dropRareLabelValues() {
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

// queueReadUnsyncedCounts reads the syncs that are not synced, and the one that waits longest.
func (s *summaryReader) queueReadUnsyncedCounts(b *pgx.Batch) {
	var state v1.SyncState
	var n int64
	var since *time.Time
	var id, name, phase *string
	b.Queue(`select s.state, s.n, s.oldest_since, r.id, r.name, r.phase from tenant.rollup_syncs s
		left join lateral (select id, name, phase from tenant.resources where id = s.oldest_id and kind = '`+v1.KindCluster+`' limit 1) r on true
		where s.`+s.ofTenant, s.args...).Query(func(rows pgx.Rows) error {
		_, err := pgx.ForEachRow(rows, []any{&state, &n, &since, &id, &name, &phase}, func() error {
			s.Sync.States[state] = n
			if oldest := s.Sync.OldestUnsynced; since != nil && id != nil && (oldest == nil || since.Before(oldest.Since)) {
				s.Sync.OldestUnsynced = &v1.OldestResource{ID: *id, Name: *name, Phase: v1.Phase(*phase), Since: since.UTC()}
			}
			return nil
		})
		return err
	})
}

// queueCountFailedDeliveries counts the deliveries that fail or were given up. They are few, or their count ends
// at v1.MaxDeliveries.
func (s *summaryReader) queueCountFailedDeliveries(b *pgx.Batch) {
	tenant := ""
	if !s.scope.All {
		tenant = s.ofTenant + " and "
	}
	limit := strconv.Itoa(v1.MaxDeliveries)
	b.Queue(`select f.n, f.since, g.n from (
			select count(*) as n, min(first_attempt_at) as since from (
				select first_attempt_at from tenant.cluster_change_events where `+tenant+`failures > 0 order by first_attempt_at limit `+limit+`) x
		) f, (
			select count(*) as n from (
				select from tenant.cluster_change_deliveries d where `+tenant+`state in ('rejected', 'expired') and finished_at > now() - interval '24 hours'
					and not exists (select from tenant.cluster_change_events c where c.event_id = d.event_id and c.sink = d.sink) limit `+limit+`) x
		) g`, s.args...).QueryRow(func(row pgx.Row) error {
		err := row.Scan(&s.Deliveries.Failing, &s.Deliveries.FailingSince, &s.Deliveries.GivenUp)
		if since := s.Deliveries.FailingSince; since != nil {
			*since = since.UTC()
		}
		return err
	})
}

// computeSyncedCount sets the number of synced clusters: those that are in no other state.
func (s *summaryReader) computeSyncedCount() {
	synced := s.Kinds[v1.CollectionClusters].Total
	for _, n := range s.Sync.States {
		synced -= n
	}
	if synced > 0 {
		s.Sync.States[v1.SyncSynced] = synced
	}
}

// queueReadTopReasons reads the most frequent reasons, each with the resource that it holds up for longest.
func (s *summaryReader) queueReadTopReasons(b *pgx.Batch) {
	oldestOf := ""
	if !s.scope.All {
		oldestOf = s.ofTenant + " and "
	}
	args := append(slices.Clone(s.args), fleetapi.MaxSummaryReasons)
	limit := "$1"
	if len(args) > 1 {
		limit = "$2"
	}
	b.Queue(`select c.source, c.reason, c.n, o.since, o.kind, o.id, coalesce(r.name, '') from (
			select source, reason, n from tenant.rollup_reason_counts where `+s.ofTenant+` and n > 0 order by n desc, source, reason limit `+limit+`
		) c
		join lateral (select since, kind, id from tenant.rollup_reasons where `+oldestOf+`source = c.source and reason = c.reason order by since, id limit 1) o on true
		left join lateral (select name from tenant.resources where id = o.id and kind = o.kind limit 1) r on true
		order by c.n desc, c.source, c.reason`, args...).Query(func(rows pgx.Rows) error {
		var err error
		s.TopReasons, err = pgx.AppendRows(s.TopReasons, rows, func(row pgx.CollectableRow) (r v1.SummaryReason, err error) {
			err = row.Scan(&r.Source, &r.Reason, &r.Count, &r.Since, &r.Example.Kind, &r.Example.ID, &r.Example.Name)
			r.Since = r.Since.UTC()
			return r, err
		})
		return err
	})
}

// queueReadOldestNotReady reads the resource of a kind that is not ready for longest, from its index.
func (s *summaryReader) queueReadOldestNotReady(b *pgx.Batch, kind, collection string) {
	tenant := ""
	if !s.scope.All {
		tenant = " and " + s.ofTenant
	}
	b.Queue("select id, name, phase, last_transition_time from "+chooseResourceTable(s.scope)+" where kind = '"+kind+"' and phase <> '"+string(v1.PhaseReady)+"'"+tenant+
		" order by last_transition_time, id limit 1", s.args...).Query(func(rows pgx.Rows) error {
		oldest, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (o v1.OldestResource, err error) {
			err = row.Scan(&o.ID, &o.Name, &o.Phase, &o.Since)
			o.Since = o.Since.UTC()
			return o, err
		})
		if len(oldest) == 1 {
			of := s.Kinds[collection]
			of.OldestNotReady = &oldest[0]
			s.Kinds[collection] = of
		}
		return err
	})
}
