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
	var done []clusterworker.Result
	var claim pgx.Batch
	claim.Queue(db.ClaimDue, lease, owner, int64(batch), int64(batch))
	claim.Queue(db.ReadClaimed, lease, owner).Query(func(rows pgx.Rows) error {
		for rows.Next() {
			var id pgtype.UUID
			var token, generation int64
			dest := make([]any, len(rows.FieldDescriptions())) // the other columns are received but not decoded
			dest[0], dest[1], dest[2] = &id, &token, &generation
			if err := rows.Scan(dest...); err != nil {
				return err
			}
			done = append(done, clusterworker.Result{
				ClusterID: id.String(), Token: token, Generation: generation, ClusterGeneration: generation, Applied: shoot.Applied{Generation: 1},
			})
		}
		return rows.Err()
	})
	if err := conn.SendBatch(ctx, &claim).Close(); err != nil || len(done) == 0 {
		return 0, err
	}
	args, err := pgstore.SortResultsAndBuildArgs(done, nil, nil)
	if err != nil {
		return 0, err
	}
	// Another connection that claims at the same moment may have a row locked, only to
	// find that it is taken.
	for completed := 0; completed < len(done); {
		written, err := conn.Exec(ctx, db.Complete, args...)
		if err != nil {
			return completed, err
		}
		completed += int(written.RowsAffected())
	}
	return len(done), nil
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
func (b *bareWorker) ProcessDueRowsOneByOne(ctx context.Context, maxRows int, callWhileLocked func(context.Context) error) (rows int, err error) {
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
