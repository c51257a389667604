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
	db    database
	sinks sinkColumns

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
		columns.names, columns.types = append(columns.names, sink.Name), append(columns.types, sink.Type)
	}
	d := database{pool}
	return &Store{db: d, sinks: columns, Observations: Observations{d, columns}, Outbox: Outbox{d}}
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
	err = s.db.runBatch(ctx, "claim clusters", func(b *pgx.Batch) {
		b.Queue(byIndex)
		b.Queue(db.EndExpiredPauses, maxExpiredPauses)
		b.Queue(db.ClaimDue, lease, owner, int64(limits.Slots), int64(limits.TimedOut))
		scanRowsInto(b.Queue(db.ReadClaimed, lease, owner), &rows)
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

// byIndex makes the planner use indexes. Right after many rows have become due at once,
// its statistics are outdated, and it might collect and sort all rows for each claim.
// It also likes to read a small table completely to find a few rows. JIT is off because
// compilation takes longer than any of these statements.
const byIndex = "select set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), " +
	"set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)"

// StoreNames stores the names of Shoots for rows. A row whose claim is lost is returned as if
// its name were taken; its new owner may choose another.
func (s *Store) StoreNames(ctx context.Context, names []clusterworker.ProposedName) (taken []clusterworker.ProposedName, err error) {
	left := slices.Clone(names)
	err = retryWhileRowsLocked(ctx, func(ctx context.Context) (int, error) {
		ids, tokens, shoots := splitNamesIntoColumns(left)
		var named []string
		var busy int
		err := s.db.runBatch(ctx, "name Shoots", func(b *pgx.Batch) {
			b.Queue(byIndex)
			scanScalarsInto(b.Queue(db.Name, ids, tokens, shoots), &named)
			scanIntInto(b.Queue(db.CountUnnamed, ids, tokens, shoots), &busy)
		})
		switch {
		case postgres.SQLState(err) == codeUniqueViolation:
			return len(left), nil // another transaction took one of the names meanwhile
		case err != nil:
			return 0, err
		}
		left = slices.DeleteFunc(left, func(n clusterworker.ProposedName) bool { return slices.Contains(named, n.ClusterID) })
		return busy, nil
	})
	if err != nil {
		return nil, err
	}
	return left, nil
}

const codeUniqueViolation = "23505"

// ReleaseClaims releases rows. A row that stays locked by another transaction remains claimed
// until its lease ends.
func (s *Store) ReleaseClaims(ctx context.Context, claims []clusterworker.Claim) error {
	ids, tokens := splitIntoColumns(claims)
	return retryWhileRowsLocked(ctx, func(ctx context.Context) (busy int, err error) {
		err = s.db.runBatch(ctx, "release claims", func(b *pgx.Batch) {
			b.Queue(byIndex)
			b.Queue(db.Release, ids, tokens)
			scanIntInto(b.Queue(db.CountClaimed, ids, tokens), &busy)
		})
		return busy, err
	})
}

// splitIntoColumns arranges claims in columns.
func splitIntoColumns(claims []clusterworker.Claim) (ids []string, tokens []int64) {
	for i := range claims {
		ids, tokens = append(ids, claims[i].ClusterID), append(tokens, claims[i].Token)
	}
	return ids, tokens
}

// RenewLeases extends claims to a whole lease from now. A row that another transaction has
// locked is not among the returned ones.
func (s *Store) RenewLeases(
	ctx context.Context, claims []clusterworker.Claim, lease time.Duration,
) (renewedClusterIDs []string, err error) {
	ids, tokens := splitIntoColumns(claims)
	err = s.db.runBatch(ctx, "renew leases", func(b *pgx.Batch) {
		b.Queue(byIndex)
		scanScalarsInto(b.Queue(db.Renew, lease.Truncate(time.Microsecond), ids, tokens), &renewedClusterIDs)
	})
	return renewedClusterIDs, err
}

// FindNextLeaseEndOfOthers returns the time until the first lease of another owner ends, or the first
// pause.
func (s *Store) FindNextLeaseEndOfOthers(ctx context.Context, owner string) (untilEnd time.Duration, found bool, err error) {
	var ends []time.Duration
	err = s.db.runBatch(ctx, "find next lease to expire", func(b *pgx.Batch) {
		b.Queue(byIndex)
		scanScalarsInto(b.Queue(db.NextLease, sanitizeAndTruncateText(owner)), &ends)
	})
	if err != nil || len(ends) == 0 {
		return 0, false, err
	}
	return ends[0], true, nil
}

// RecordOrClearOutage records the outage that a worker sees, or removes the record.
func (s *Store) RecordOrClearOutage(ctx context.Context, owner string, outage clusterworker.Outage, ttl time.Duration) error {
	const what = "record Gardener outage"
	if outage.Since.IsZero() {
		return s.db.execStatement(ctx, what, db.EndOutage, sanitizeAndTruncateText(owner))
	}
	return s.db.execStatement(ctx, what, db.SetOutage, sanitizeAndTruncateText(owner), time.Since(outage.Since), sanitizeAndTruncateText(outage.Reason), ttl)
}

// retryWhileRowsLocked calls attempt, which returns how many rows another transaction has locked,
// until there are none or lockPatience has passed.
func retryWhileRowsLocked(ctx context.Context, attempt func(context.Context) (lockedRows int, err error)) error {
	again := backoff.Policy{Initial: time.Millisecond, Max: 100 * time.Millisecond}
	begin := time.Now()
	for try := 0; ; try++ {
		busy, err := attempt(ctx)
		if err != nil || busy == 0 || time.Since(begin) > lockPatience {
			return err
		}
		if err := backoff.Sleep(ctx, again.Delay(try)); err != nil {
			return err
		}
	}
}

func splitNamesIntoColumns(names []clusterworker.ProposedName) (ids []string, tokens []int64, shoots []string) {
	for _, n := range names {
		ids, tokens, shoots = append(ids, n.ClusterID), append(tokens, n.Token), append(shoots, sanitizeAndTruncateText(n.ShootName))
	}
	return ids, tokens, shoots
}
