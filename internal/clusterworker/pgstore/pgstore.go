// Package pgstore stores the sync state of each cluster in PostgreSQL, and notifies
// workers of due rows.
//
// A claim is one round trip, and so is the write of results. No call waits for a row
// that another transaction has locked: such a row is not claimed, and no other change
// applies to it. All times are those of the database.
//
// A call fails with postgres.ErrUnavailable while the database is unavailable, and may
// be retried. If the request was carried out and only its answer was lost, claimed rows
// wait for the end of their lease, and written rows stay written.
package pgstore

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// lockPatience limits how long a call retries rows that another transaction has locked.
// Fleetloop's own processes hold locks for one statement at most.
const lockPatience = time.Second

// A Store stores the rows in PostgreSQL.
type Store struct {
	db, indexed database
	sinks       sinkColumns

	// Observations is the store of the worker that observes the Shoots.
	Observations Observations

	// Outbox is the store of pending change events.
	Outbox Outbox
}

var (
	_ clusterworker.Store       = (*Store)(nil)
	_ clusterworker.ReportStore = (*Store)(nil)
	_ clusterworker.OutageStore = (*Store)(nil)
)

// sinkColumns holds the sinks of change events in columns.
type sinkColumns struct{ names, types []string }

// New returns a store on a pool whose schema is migrated and whose role is
// postgres.RoleClusterWorker. It keeps the changes for each of the sinks until they
// are finished.
func New(pool *postgres.Pool, sinks ...clusterworker.EventSink) *Store {
	var columns sinkColumns
	for _, sink := range sinks {
		columns.names = append(columns.names, sink.Name)
		columns.types = append(columns.types, sink.Type)
	}
	d := database{pool: pool}
	indexed := database{pool: pool, preferIndexes: true}
	return &Store{
		db: d, indexed: indexed, sinks: columns, Observations: Observations{d, columns},
		Outbox: Outbox{db: d, indexed: indexed, claimedDownTo: map[string]string{}},
	}
}

// maxExpiredPauses limits the pauses that one claim ends.
const maxExpiredPauses = 1000

// ClaimRows leases due rows, as many as limits allow. Before that it ends the pauses whose
// time is over.
func (s *Store) ClaimRows(
	ctx context.Context, owner string, limits clusterworker.ClaimLimits, lease time.Duration,
) (claims []clusterworker.Claim, err error) {
	lease = lease.Truncate(time.Microsecond)
	owner = sanitizeAndTruncateText(owner)
	until := time.Now().Add(lease)
	var rows []db.ReadClaimedRow
	err = s.indexed.runBatch(ctx, "claim clusters", func(b *pgx.Batch) {
		b.Queue(db.EndExpiredPauses, maxExpiredPauses)
		b.Queue(db.ClaimDue, lease, owner, int64(limits.Slots), int64(limits.TimedOut))
		scanListInto(b.Queue(db.ReadClaimed, lease, owner), &rows, pgx.RowToStructByPos[db.ReadClaimedRow])
	})
	if err != nil {
		return nil, err
	}
	claims = make([]clusterworker.Claim, len(rows))
	for i := range rows {
		claims[i] = toClaim(&rows[i])
		claims[i].Until = until
	}
	return claims, nil
}

// StoreNames stores the names of Shoots for rows. A row that stays locked by another transaction
// is skipped.
func (s *Store) StoreNames(
	ctx context.Context, names []clusterworker.ProposedName,
) (taken, skipped []clusterworker.ProposedName, err error) {
	locked := slices.Clone(names)
	err = retryBrieflyWhileRowsLocked(ctx, func(ctx context.Context) (lockedRows int, err error) {
		unstored, err := s.storeNamesOnce(ctx, locked)
		taken, skipped, locked = append(taken, unstored.taken...), append(skipped, unstored.lost...), unstored.locked
		return len(locked), err
	})
	if err != nil {
		return nil, nil, err
	}
	return taken, append(skipped, locked...), nil
}

// unstoredNames are names that were not stored: another row has the name, the claim is lost, or another transaction has
// locked the row.
type unstoredNames struct{ taken, lost, locked []clusterworker.ProposedName }

func (s *Store) storeNamesOnce(ctx context.Context, names []clusterworker.ProposedName) (unstored unstoredNames, err error) {
	ids, tokens, shoots := make([]string, len(names)), make([]int64, len(names)), make([]string, len(names))
	for i, name := range names {
		ids[i], tokens[i], shoots[i] = name.ClusterID, name.Token, sanitizeAndTruncateText(name.ShootName)
	}
	var stored []string
	var rows []db.NamesOfRow
	err = s.indexed.runBatch(ctx, "name Shoots", func(b *pgx.Batch) {
		scanListInto(b.Queue(db.Name, ids, tokens, shoots), &stored, pgx.RowTo[string])
		scanListInto(b.Queue(db.NamesOf, ids, tokens, shoots), &rows, pgx.RowToStructByPos[db.NamesOfRow])
	})
	if postgres.SQLState(err) == codeUniqueViolation {
		return unstoredNames{locked: names}, nil // another transaction took one of the names meanwhile
	}
	if err != nil {
		return unstoredNames{}, err
	}
	byID := make(map[string]db.NamesOfRow, len(rows))
	for _, row := range rows {
		byID[row.ClusterID] = row
	}
	for _, name := range names {
		switch row := byID[name.ClusterID]; {
		case slices.Contains(stored, name.ClusterID):
		case !row.Nameless:
			unstored.lost = append(unstored.lost, name)
		case row.Taken:
			unstored.taken = append(unstored.taken, name)
		default:
			unstored.locked = append(unstored.locked, name)
		}
	}
	return unstored, nil
}

const codeUniqueViolation = "23505"

// ReleaseClaims releases rows. A row that stays locked by another transaction remains claimed
// until its lease ends.
func (s *Store) ReleaseClaims(ctx context.Context, claims []clusterworker.Claim) error {
	ids, tokens := splitIntoColumns(claims)
	return retryBrieflyWhileRowsLocked(ctx, func(ctx context.Context) (lockedRows int, err error) {
		err = s.indexed.runBatch(ctx, "release claims", func(b *pgx.Batch) {
			b.Queue(db.Release, ids, tokens)
			scanRowInto(b.Queue(db.CountClaimed, ids, tokens), &lockedRows)
		})
		return lockedRows, err
	})
}

// retryBrieflyWhileRowsLocked calls attempt, which returns how many rows another transaction has locked,
// until there are none or lockPatience has passed.
func retryBrieflyWhileRowsLocked(ctx context.Context, attempt func(context.Context) (lockedRows int, err error)) error {
	policy := backoff.Policy{Initial: time.Millisecond, Max: 100 * time.Millisecond}
	began := time.Now()
	for try := 0; ; try++ {
		lockedRows, err := attempt(ctx)
		if err != nil || lockedRows == 0 || time.Since(began) > lockPatience {
			return err
		}
		if err := backoff.Sleep(ctx, policy.Delay(try)); err != nil {
			return err
		}
	}
}

// splitIntoColumns arranges claims in columns.
func splitIntoColumns(claims []clusterworker.Claim) (ids []string, tokens []int64) {
	for i := range claims {
		ids = append(ids, claims[i].ClusterID)
		tokens = append(tokens, claims[i].Token)
	}
	return ids, tokens
}

// RenewLeases extends claims to a whole lease from now. A row that another transaction has
// locked is not among the returned ones.
func (s *Store) RenewLeases(
	ctx context.Context, claims []clusterworker.Claim, lease time.Duration,
) (renewedClusterIDs []string, err error) {
	ids, tokens := splitIntoColumns(claims)
	return queryScalars[string](ctx, s.indexed, "renew leases", db.Renew, lease.Truncate(time.Microsecond), ids, tokens)
}

// FindNextLeaseEndOfOthers returns the time until the first lease of another owner ends, or the first
// pause.
func (s *Store) FindNextLeaseEndOfOthers(ctx context.Context, owner string) (untilEnd time.Duration, found bool, err error) {
	ends, err := queryScalars[time.Duration](ctx, s.indexed, "find next lease to expire", db.NextLease, sanitizeAndTruncateText(owner))
	if err != nil || len(ends) == 0 {
		return 0, false, err
	}
	return ends[0], true, nil
}

// RecordOrClearOutage records the outage that a worker sees, or removes the record.
func (s *Store) RecordOrClearOutage(ctx context.Context, owner string, outage clusterworker.Outage, ttl time.Duration) error {
	const action = "record Gardener outage"
	owner = sanitizeAndTruncateText(owner)
	if outage.Since.IsZero() {
		return s.db.execStatement(ctx, action, db.EndOutage, owner)
	}
	return s.db.execStatement(ctx, action, db.SetOutage, owner, time.Since(outage.Since), sanitizeAndTruncateText(outage.Reason), ttl)
}
