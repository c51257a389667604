package pgstore

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// A TimelineStore stores change events. A call fails with timeline.ErrUnavailable while the database is
// unavailable, and may be retried.
type TimelineStore struct {
	pool *postgres.Pool
}

var _ timeline.Store = (*TimelineStore)(nil)

// NewTimelineStore returns a store on a pool whose schema is migrated.
func NewTimelineStore(pool *postgres.Pool) *TimelineStore { return &TimelineStore{pool: pool} }

const (
	// givenEvents is a table of the events that the parameters hold.
	givenEvents = `with given as (
	select * from unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::text[], $5::text[], $6::text[], $7::text[], $8::text[],
		$9::text[], $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::boolean[], $16::boolean[]) with ordinality
		as g (key, digest, at, tenant, recorded_by, cluster, node, source, actor, action, subject, session, payload, fields, failed, dry_run, place)
)`
	// storedEvents inserts them in their order.
	storedEvents = `insert into timeline.change_event (feed, at, tenant, recorded_by, cluster, node, source, actor, action, subject, session, payload, fields, failed, dry_run)
	select (select f.no from timeline.feed f), g.at, nullif(g.tenant, ''), g.recorded_by,
		g.cluster, g.node, g.source, g.actor, g.action, g.subject, g.session, g.payload::json, string_to_array(g.fields, E'\n'), g.failed, g.dry_run
	from given g`
	// changedFields indexes events by the fields that they name. It reads the rows that returnedEvents returns.
	changedFields  = `insert into timeline.changed_field (field, at, seq, tenant) select unnest(s.fields), s.at, s.seq, s.tenant from stored s`
	returnedEvents = ` order by g.place returning at, seq, tenant, fields`
)

// fieldSeparator joins the fields of an event into one parameter. No field name contains it,
// because names are one line.
const fieldSeparator = "\n"

// insertKeyedEvents inserts the events whose keys are new, and returns these keys. Keys are inserted in order,
// so that transactions with the same keys wait for each other without deadlock.
const insertKeyedEvents = givenEvents + `, fresh as (
	insert into timeline.change_key (key, tenant, digest, at)
	select g.key, g.tenant, g.digest, g.at from given g order by g.key
	on conflict (key, tenant) do nothing
	returning key
), stored as (
	` + storedEvents + ` join fresh using (key)` + returnedEvents + `
), changed as (
	` + changedFields + `
)
select key::text from fresh`

// insertOwnEvents inserts events that are never repeated.
const insertOwnEvents = givenEvents + `, stored as (` + storedEvents + returnedEvents + `) ` + changedFields

// selectStoredDigests selects the stored digests of known events.
const selectStoredDigests = `select key::text, k.digest::text
from timeline.change_key k join unnest($1::uuid[], $2::text[]) as g (key, tenant) using (key, tenant)`

func buildInsertParams(events []timeline.Event) []any {
	n := len(events)
	keys, digests, at := make([]string, n), make([]string, n), make([]time.Time, n)
	failed, dryRun := make([]bool, n), make([]bool, n)
	var texts [11][]string
	for i := range texts {
		texts[i] = make([]string, n)
	}
	for i := range events {
		e := &events[i]
		keys[i], digests[i], at[i] = e.Key.String(), e.Digest.String(), e.At
		failed[i], dryRun[i] = e.Failed, e.DryRun
		for j, text := range [len(texts)]string{
			e.Tenant, e.RecordedBy, e.Cluster, e.Node, e.Source, e.Actor, e.Action, e.Subject, e.Session, string(e.Payload),
			strings.Join(e.Fields, fieldSeparator),
		} {
			texts[j][i] = text
		}
	}
	args := []any{keys, digests, at}
	for _, t := range texts {
		args = append(args, t)
	}
	return append(args, failed, dryRun)
}

// AppendEvents stores events, whose keys differ, and returns the outcome of each.
func (s *TimelineStore) AppendEvents(
	ctx context.Context, scope timeline.Scope, events []timeline.Event,
) (eventOutcomes []timeline.Outcome, err error) {
	inserted, err := s.insertNewEvents(ctx, scope, events)
	for range maxRoutingRetries {
		if !isPartitionRoutingConflict(err) {
			break
		}
		inserted, err = s.insertNewEvents(ctx, scope, events)
	}
	if err != nil {
		return nil, wrapAndMarkTimelineUnavailable(err, "append %d change events", len(events))
	}
	outcomes := make([]timeline.Outcome, len(events))
	if len(inserted) == len(events) {
		return outcomes, nil
	}
	storedDigests, err := s.readStoredDigests(ctx, scope, events, inserted)
	if err != nil {
		return nil, err
	}
	for i := range events {
		key := events[i].Key.String()
		if inserted[key] {
			continue
		}
		outcomes[i] = timeline.Known
		if digest := storedDigests[key]; digest != "" && digest != events[i].Digest.String() {
			outcomes[i] = timeline.Different
		}
	}
	return outcomes, nil
}

// insertNewEvents inserts events and returns the inserted keys. It takes one round trip and is one
// transaction. It may be sent twice after a dead connection, which is safe because of the keys.
func (s *TimelineStore) insertNewEvents(ctx context.Context, scope timeline.Scope, events []timeline.Event) (map[string]bool, error) {
	var keys []string
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		queueCollectValues(b.Queue(insertKeyedEvents, buildInsertParams(events)...), &keys)
	})
	inserted := make(map[string]bool, len(keys))
	for _, key := range keys {
		inserted[key] = true
	}
	return inserted, err
}

// maxRoutingRetries is the maximum number of retries of an insert whose partition changed.
const maxRoutingRetries = 5

// isPartitionRoutingConflict reports whether an event was routed to the default partition while its own partition
// was created. The constraint in this error has no name.
func isPartitionRoutingConflict(err error) bool {
	const checkViolation = "23514"
	return postgres.SQLState(err) == checkViolation && postgres.ViolatedConstraint(err) == ""
}

// readStoredDigests returns the stored digests of the events whose keys are not excluded.
func (s *TimelineStore) readStoredDigests(
	ctx context.Context, scope timeline.Scope, events []timeline.Event, excludedKeys map[string]bool,
) (digestByKey map[string]string, err error) {
	var keys, tenants []string
	for i := range events {
		if key := events[i].Key.String(); !excludedKeys[key] {
			keys, tenants = append(keys, key), append(tenants, events[i].Tenant)
		}
	}
	var rows []struct{ Key, Digest string }
	err = s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		queueCollectRows(b.Queue(selectStoredDigests, keys, tenants), &rows)
	})
	if err != nil {
		return nil, wrapAndMarkTimelineUnavailable(err, "find duplicates of %d change events", len(keys))
	}
	digestByKey = make(map[string]string, len(rows))
	for _, row := range rows {
		digestByKey[row.Key] = row.Digest
	}
	return digestByKey, nil
}

// insertTimelineEvents inserts events in a transaction of the caller, whose scope must include them. Their keys
// are not stored, because these events are never repeated.
func insertTimelineEvents(ctx context.Context, tx postgres.Querier, events []timeline.Event) error {
	if len(events) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, insertOwnEvents, buildInsertParams(events)...); err != nil {
		return fmt.Errorf("store %d change events: %w", len(events), err)
	}
	return nil
}

// FindUnknownClusters returns the names that no cluster in the scope has.
func (s *TimelineStore) FindUnknownClusters(ctx context.Context, scope timeline.Scope, names []string) ([]string, error) {
	var unknown []string
	err := s.pool.RunBatch(ctx, toPostgresScope(scope), func(b *pgx.Batch) {
		queueCollectValues(b.Queue(db.ListUnknownClusters, names), &unknown)
	})
	if err != nil {
		return nil, wrapAndMarkTimelineUnavailable(err, "find %d clusters", len(names))
	}
	return unknown, nil
}

// readFeed reads what no scope limits.
func (s *TimelineStore) readFeed(ctx context.Context, queue func(*pgx.Batch)) error {
	return s.retryReadAfterEpochRenewal(ctx, func() error {
		return s.pool.RunBatch(ctx, toPostgresScope(timeline.Scope{}), queue)
	})
}

// retryReadAfterEpochRenewal runs a read of the feed. If the database has been restored since, it starts a new feed and
// runs the read again.
func (s *TimelineStore) retryReadAfterEpochRenewal(ctx context.Context, read func() error) error {
	err := read()
	if !errors.Is(err, errOtherHistory) {
		return err
	}
	err = s.pool.RunBatch(postgres.WithoutStandby(ctx), toPostgresScope(timeline.Scope{}), func(b *pgx.Batch) { b.Queue(db.RenewTimeline) })
	if err != nil {
		return fmt.Errorf("start a new feed of change events: %w", err)
	}
	return read()
}
