package main

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"golang.org/x/sync/errgroup"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore/db"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

const (
	owner = "bare"
	lease = time.Minute
)

// A bareWorker works on dedicated connections, with the role of a worker.
type bareWorker struct{ conns []*pgx.Conn }

// connectBareWorker opens the given number of connections.
func connectBareWorker(ctx context.Context, cfg postgres.Config, connections int) (*bareWorker, error) {
	b := &bareWorker{}
	for range connections {
		cc, err := cfg.NewConnConfig()
		if err != nil {
			return nil, err
		}
		conn, err := pgx.ConnectConfig(ctx, cc)
		if err == nil {
			b.conns = append(b.conns, conn)
			// The same settings as in the transactions of pgstore.
			_, err = conn.Exec(ctx, "set enable_bitmapscan = off; set enable_hashjoin = off; set enable_mergejoin = off; set jit = off")
		}
		if err != nil {
			return nil, errors.Join(err, b.Close(ctx))
		}
	}
	return b, nil
}

// Close closes the connections.
func (b *bareWorker) Close(ctx context.Context) error {
	var errs []error
	for _, conn := range b.conns {
		errs = append(errs, conn.Close(context.WithoutCancel(ctx)))
	}
	return errors.Join(errs...)
}

// forEachConnInParallel calls do concurrently on every connection.
func (b *bareWorker) forEachConnInParallel(ctx context.Context, do func(context.Context, *pgx.Conn) error) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, conn := range b.conns {
		g.Go(func() error { return do(ctx, conn) })
	}
	return g.Wait()
}

// CompleteAllDueRows claims and completes all due rows by the statements of pgstore, batch rows at a
// time on each connection, and returns their number.
func (b *bareWorker) CompleteAllDueRows(ctx context.Context, batch int) (rows int, err error) {
	var sum atomic.Int64
	err = b.forEachConnInParallel(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			n, err := claimAndComplete(ctx, conn, batch)
			sum.Add(int64(n))
			if n == 0 || err != nil {
				return err
			}
		}
	})
	return int(sum.Load()), err
}

// claimAndComplete claims and completes one batch.
func claimAndComplete(ctx context.Context, conn *pgx.Conn, batch int) (rows int, err error) {
	claims, err := claimRows(ctx, conn, batch)
	if err != nil || len(claims) == 0 {
		return 0, err
	}
	return completeRows(ctx, conn, newResults(claims))
}

// A bareClaim is a claimed row, as far as its completion needs it.
type bareClaim struct {
	clusterID         pgtype.UUID
	token, generation int64
}

// claimRows claims up to batch due rows and reads them, in one round trip.
func claimRows(ctx context.Context, conn *pgx.Conn, batch int) (claims []bareClaim, err error) {
	var statements pgx.Batch
	statements.Queue(db.ClaimDue, lease, owner, int64(batch), int64(batch))
	statements.Queue(db.ReadClaimed, lease, owner).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var c bareClaim
			columns := make([]any, len(rows.FieldDescriptions())) // all but the first three are received but not decoded
			columns[0], columns[1], columns[2] = &c.clusterID, &c.token, &c.generation
			if err := rows.Scan(columns...); err != nil {
				return err
			}
			claims = append(claims, c)
		}
		return rows.Err()
	})
	err = conn.SendBatch(ctx, &statements).Close()
	return claims, err
}

// newResults returns results that say that the Shoots of all claims are applied.
func newResults(claims []bareClaim) []clusterworker.Result {
	var results []clusterworker.Result
	for _, c := range claims {
		results = append(results, clusterworker.Result{
			ClusterID:         c.clusterID.String(),
			Token:             c.token,
			Generation:        c.generation,
			ClusterGeneration: c.generation,
			Applied:           shoot.Applied{Generation: 1},
		})
	}
	return results
}

// completeRows writes results until all of their rows are completed.
//
// db.Complete skips rows that are locked. Other connections lock rows of these claims for moments:
// their claim statement locks a row before it finds that the row is taken. So the statement is
// repeated with the same results. It ignores rows that are completed, because they have lost their
// claim token. The repetition ends because the other connections run out of due rows to claim; if
// it takes longer than the lease, another worker may take a row, and only the end of ctx ends it.
func completeRows(ctx context.Context, conn *pgx.Conn, results []clusterworker.Result) (rows int, err error) {
	args, err := pgstore.SortResultsAndBuildArgs(results, nil, nil)
	if err != nil {
		return 0, err
	}
	for rows < len(results) {
		completed, err := conn.Exec(ctx, db.Complete, args...)
		if err != nil {
			return rows, err
		}
		rows += int(completed.RowsAffected())
	}
	return rows, nil
}

// Statements of the design that holds a row locked while it is processed.
const (
	lockOne = `select s.cluster_id, s.generation, s.sync_attempts, coalesce(s.shoot_name, ''), c.tenant, c.name, c.spec, c.deleted_time
from tenant.cluster_sync s join tenant.clusters c on c.id = s.cluster_id
where s.synced is null and s.paused_at is null and s.due_at <= now()
order by s.due_at limit 1 for update of s skip locked`

	markOne = `update tenant.cluster_sync set synced = now(), synced_generation = $2, sync_error = null, sync_attempts = 0,
	sync_last_attempt = now(), unsynced_since = null where cluster_id = $1`
)

// ProcessDueRowsOneByOne processes due rows one by one on every connection: it locks a row, calls
// call, marks the row and commits. It ends after maxRows rows, or when none is due.
func (b *bareWorker) ProcessDueRowsOneByOne(
	ctx context.Context,
	maxRows int,
	callWhileLocked func(context.Context) error,
) (rows int, err error) {
	var begun, sum atomic.Int64
	err = b.forEachConnInParallel(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		for begun.Add(1) <= int64(maxRows) {
			found, err := lockAndCompleteRow(ctx, conn, callWhileLocked)
			if !found || err != nil {
				return err
			}
			sum.Add(1)
		}
		return nil
	})
	return int(sum.Load()), err
}

func lockAndCompleteRow(ctx context.Context, conn *pgx.Conn, callWhileLocked func(context.Context) error) (found bool, err error) {
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var id pgtype.UUID
		var generation int64
		err := tx.QueryRow(ctx, lockOne).Scan(&id, &generation, nil, nil, nil, nil, nil, nil)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		if err := callWhileLocked(ctx); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, markOne, id, generation)
		return err
	})
	return found, err
}
