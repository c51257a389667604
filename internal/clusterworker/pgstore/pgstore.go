// Package pgstore keeps in PostgreSQL how far the sync of each cluster is, and
// tells workers when there is something to do.
//
// Claiming is one round trip, and so is writing what became of the claims. No
// call waits for a row that somebody else has locked: such a row is not
// claimed, and is left as it is by whatever else would have changed it. All
// times are the database's.
//
// A call fails with postgres.ErrUnavailable while the database is away, and
// may be tried again. If the answer to one was lost, and not the request, then
// what it claimed waits for the end of its lease, and what it wrote is written.
package pgstore

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// lockPatience is for how long a row is come back to that somebody else has
// locked. Nobody of ours holds one for longer than a statement.
const lockPatience = time.Second

// A Store keeps the rows in PostgreSQL.
type Store struct {
	pool  *postgres.Pool
	sinks []string
}

var (
	_ clusterworker.Store         = (*Store)(nil)
	_ clusterworker.ObserverStore = (*Store)(nil)
	_ clusterworker.ReportStore   = (*Store)(nil)
	_ clusterworker.OutageStore   = (*Store)(nil)
)

// New makes a store on a pool whose schema is migrated and whose role is
// migrations.RoleClusterWorker. For each of the sinks of change events it keeps
// what was done, until that is removed.
func New(pool *postgres.Pool, sinks ...string) *Store { return &Store{pool: pool, sinks: sinks} }

// Claim takes due rows for the time of a lease, as many as there is room for.
func (s *Store) Claim(ctx context.Context, owner string, room clusterworker.Room, lease time.Duration) ([]clusterworker.Claim, error) {
	lease = lease.Truncate(time.Microsecond)
	owner = sanitizeText(owner)
	until := time.Now().Add(lease)
	var rows []db.ReadClaimedRow
	err := s.sendBatch(ctx, func(b *pgx.Batch) {
		b.Queue(byIndex)
		b.Queue(db.ClaimDue, lease, owner, int64(room.Slots), int64(room.TimedOut))
		collectRows(b.Queue(db.ReadClaimed, lease, owner), &rows)
	})
	if err != nil {
		return nil, fmt.Errorf("claim clusters: %w", err)
	}
	claims := make([]clusterworker.Claim, len(rows))
	for i := range rows {
		claims[i] = claimOf(&rows[i])
		claims[i].Until = until
	}
	return claims, nil
}

// byIndex has rows found along indexes. Right after many have become due at
// once, the planner does not know of them, and might rather collect and sort all for
// each claim; and a few rows of a small table it likes to find by reading all of
// it. (A compiled plan takes longer to make than any of these to run.)
const byIndex = "select set_config('enable_bitmapscan', 'off', true), set_config('enable_hashjoin', 'off', true), " +
	"set_config('enable_mergejoin', 'off', true), set_config('jit', 'off', true)"

// claimOf copies a row into the worker's own form. Nothing is parsed, so that
// there is no row that could not be read.
func claimOf(r *db.ReadClaimedRow) clusterworker.Claim {
	c := clusterworker.Claim{
		ClusterID:         r.ClusterID,
		Token:             r.Token,
		Generation:        r.Generation,
		ClusterGeneration: r.ClusterGeneration,
		Attempts:          int(r.SyncAttempts),
		LastClass:         clusterworker.ErrorClass(r.ErrorClass),
		UnsyncedSince:     r.UnsyncedSince.Time.UTC(),
		Tenant:            r.Tenant,
		Name:              r.Name,
		Spec:              r.Spec,
		Deleting:          r.Deleting,
		ShootName:         r.ShootName,
		ShootUID:          r.ShootUID,
	}
	if n := len(r.PoolIDs); n > 0 {
		c.Pools = make([]clusterworker.Pool, n)
		for i, id := range r.PoolIDs {
			c.Pools[i] = clusterworker.Pool{ID: id, Name: r.PoolNames[i], Spec: json.RawMessage(r.PoolSpecs[i])}
		}
	}
	return c
}

// Name gives rows the names of their Shoots. A row that is not ours any more
// is told of as if its name were taken: whoever has it may choose another.
func (s *Store) Name(ctx context.Context, names []clusterworker.Naming) (taken []clusterworker.Naming, err error) {
	left := slices.Clone(names)
	err = s.retryLocked(ctx, func(ctx context.Context) (int, error) {
		ids, tokens, shoots := splitNamings(left)
		var named []string
		var busy int
		err := s.sendBatch(ctx, func(b *pgx.Batch) {
			b.Queue(byIndex)
			collectScalars(b.Queue(db.Name, ids, tokens, shoots), &named)
			readCount(b.Queue(db.CountUnnamed, ids, tokens, shoots), &busy)
		})
		switch {
		case postgres.Code(err) == codeUniqueViolation:
			return len(left), nil // somebody else took one of them meanwhile
		case err != nil:
			return 0, err
		}
		left = slices.DeleteFunc(left, func(n clusterworker.Naming) bool { return slices.Contains(named, n.ClusterID) })
		return busy, nil
	})
	if err != nil {
		return nil, fmt.Errorf("name Shoots: %w", err)
	}
	return left, nil
}

const codeUniqueViolation = "23505"

// Release gives rows back. One that somebody else keeps locked stays claimed
// until its lease ends.
func (s *Store) Release(ctx context.Context, claims []clusterworker.Claim) error {
	ids, tokens := tokensOf(claims)
	err := s.retryLocked(ctx, func(ctx context.Context) (busy int, err error) {
		err = s.sendBatch(ctx, func(b *pgx.Batch) {
			b.Queue(byIndex)
			b.Queue(db.Release, ids, tokens)
			readCount(b.Queue(db.CountClaimed, ids, tokens), &busy)
		})
		return busy, err
	})
	if err != nil {
		return fmt.Errorf("release claims: %w", err)
	}
	return nil
}

// tokensOf lays claims out in columns.
func tokensOf(claims []clusterworker.Claim) (ids []string, tokens []int64) {
	for i := range claims {
		ids, tokens = append(ids, claims[i].ClusterID), append(tokens, claims[i].Token)
	}
	return ids, tokens
}

// Renew has claims end a whole lease from now. One that somebody else keeps locked is
// not among those that it gives.
func (s *Store) Renew(ctx context.Context, claims []clusterworker.Claim, lease time.Duration) (renewed []string, err error) {
	ids, tokens := tokensOf(claims)
	err = s.sendBatch(ctx, func(b *pgx.Batch) {
		b.Queue(byIndex)
		collectScalars(b.Queue(db.Renew, lease.Truncate(time.Microsecond), ids, tokens), &renewed)
	})
	if err != nil {
		return nil, fmt.Errorf("renew leases: %w", err)
	}
	return renewed, nil
}

// NextLease gives the time until the first lease of another owner ends.
func (s *Store) NextLease(ctx context.Context, owner string) (in time.Duration, ok bool, err error) {
	var ends []time.Duration
	err = s.sendBatch(ctx, func(b *pgx.Batch) {
		b.Queue(byIndex)
		collectScalars(b.Queue(db.NextLease, sanitizeText(owner)), &ends)
	})
	if err != nil {
		return 0, false, fmt.Errorf("find next lease to expire: %w", err)
	}
	if len(ends) == 0 {
		return 0, false, nil
	}
	return ends[0], true, nil
}

// SetOutage notes the outage that a worker sees, or removes the note.
func (s *Store) SetOutage(ctx context.Context, owner string, o clusterworker.Outage, ttl time.Duration) error {
	err := s.sendBatch(ctx, func(b *pgx.Batch) {
		if o.Since.IsZero() {
			b.Queue(db.EndOutage, sanitizeText(owner))
			return
		}
		b.Queue(db.SetOutage, sanitizeText(owner), time.Since(o.Since), sanitizeText(o.Reason), ttl)
	})
	if err != nil {
		return fmt.Errorf("record Gardener outage: %w", err)
	}
	return nil
}

// retryLocked calls work, which says how many rows somebody else has locked, until
// there are none or patience ends.
func (s *Store) retryLocked(ctx context.Context, work func(context.Context) (busy int, err error)) error {
	again := backoff.Policy{Initial: time.Millisecond, Max: 100 * time.Millisecond}
	begin := time.Now()
	for try := 0; ; try++ {
		busy, err := work(ctx)
		if err != nil || busy == 0 || time.Since(begin) > lockPatience {
			return err
		}
		if err := backoff.Sleep(ctx, again.Delay(try)); err != nil {
			return err
		}
	}
}

// sendBatch runs statements in one round trip and one transaction. The policies of
// our role know of no tenant.
func (s *Store) sendBatch(ctx context.Context, fill func(*pgx.Batch)) error {
	return s.pool.Read(ctx, postgres.Scope{}, fill)
}

func splitNamings(names []clusterworker.Naming) (ids []string, tokens []int64, shoots []string) {
	for _, n := range names {
		ids, tokens, shoots = append(ids, n.ClusterID), append(tokens, n.Token), append(shoots, sanitizeText(n.ShootName))
	}
	return ids, tokens, shoots
}

// collectRows appends the rows that a queued statement gives to a list.
func collectRows[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows((*list)[:0], rows, pgx.RowToStructByPos[T])
		return err
	})
}

// collectScalars is collect for rows of one column.
func collectScalars[T any](q *pgx.QueuedQuery, list *[]T) {
	q.Query(func(rows pgx.Rows) error {
		var err error
		*list, err = pgx.AppendRows((*list)[:0], rows, pgx.RowTo[T])
		return err
	})
}

// readCount reads the only value that a queued statement gives.
func readCount(q *pgx.QueuedQuery, n *int) {
	q.QueryRow(func(row pgx.Row) error { return row.Scan(n) })
}
