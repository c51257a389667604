package main

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// clusterID returns the id of cluster i. Ids sort in the order of i.
func clusterID(i int) uuid.UUID {
	var id uuid.UUID
	// Version 7: 48 bits of milliseconds, then 74 free bits.
	epoch := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	binary.BigEndian.PutUint64(id[:8], uint64(epoch+int64(i))<<16) //nolint:gosec // of this century
	binary.BigEndian.PutUint64(id[8:], uint64(i))                  //nolint:gosec // never negative
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	return id
}

// A clusterOwner is a connection as the owner of the schema.
type clusterOwner struct{ conn *pgx.Conn }

// openClusterOwner connects as the owner.
func openClusterOwner(ctx context.Context, databaseURL string) (*clusterOwner, error) {
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return nil, err
	}
	return &clusterOwner{conn}, nil
}

// Close closes the connection.
func (o *clusterOwner) Close(ctx context.Context) error {
	return o.conn.Close(context.WithoutCancel(ctx))
}

// InsertClustersWithPools adds clusters with the numbers from first up to but excluding end, each with a
// node pool. They have never been synced.
func (o *clusterOwner) InsertClustersWithPools(ctx context.Context, first, end int) error {
	now := time.Now()
	load := func(kind string, row func(i int) (id uuid.UUID, name, spec string, owner, ownerKind any)) error {
		i := first
		_, err := o.conn.CopyFrom(ctx, pgx.Identifier{"tenant", "resources"}, []string{
			"id", "kind", "tenant", "name", "spec", "owner_id", "owner_kind", "generation",
			"created_time", "updated_time", "phase", "last_updated_time", "last_transition_time",
		}, pgx.CopyFromFunc(func() ([]any, error) {
			if i >= end {
				return nil, nil
			}
			id, name, spec, owner, ownerKind := row(i)
			i++
			return []any{id, kind, "acme", name, spec, owner, ownerKind, int64(1), now, now, "Pending", now, now}, nil
		}))
		return err
	}
	err := load("Cluster", func(i int) (uuid.UUID, string, string, any, any) {
		return clusterID(i), fmt.Sprintf("cluster-%07d", i), newSpec(0), nil, nil
	})
	if err == nil {
		err = load("NodePool", func(i int) (uuid.UUID, string, string, any, any) {
			return uuid.New(), "default", `{"machineType":"local","minimum":1,"maximum":3}`, clusterID(i), "Cluster"
		})
	}
	if err != nil {
		return fmt.Errorf("load %d clusters: %w", end-first, err)
	}
	return o.execSQL(ctx, "vacuum (analyze) tenant.clusters, tenant.nodepools, tenant.cluster_sync")
}

func newSpec(edit int) string {
	return fmt.Sprintf(`{"region":"local","version":"1.34.2","network":{"type":"calico"},"team":"team-%d","edit":%d}`, edit%97, edit)
}

// MarkAllUnsynced makes every cluster due by one statement, as if each had been changed, and
// vacuums the table, as a quiet day would.
func (o *clusterOwner) MarkAllUnsynced(ctx context.Context) error {
	err := o.execSQL(ctx, "checkpoint") // so that no checkpoint falls into the measurement
	if err == nil {
		err = o.execSQL(ctx, `update tenant.cluster_sync set generation = generation + 1, synced = null, sync_attempts = 0,
			unsynced_since = now(), due_at = now(), claim_token = null, claimed_by = null`)
	}
	if err != nil {
		return err
	}
	return o.execSQL(ctx, "vacuum (analyze) tenant.cluster_sync")
}

// MarkAllSynced marks every cluster as synced, without a Gardener.
func (o *clusterOwner) MarkAllSynced(ctx context.Context) error {
	err := o.execSQL(ctx, `update tenant.cluster_sync set synced = now(), synced_generation = generation, cluster_generation = generation,
		unsynced_since = null, claim_token = null, claimed_by = null, shoot_name = coalesce(shoot_name, 'shoot-' || right(cluster_id::text, 12))`)
	if err != nil {
		return err
	}
	return o.execSQL(ctx, "vacuum (analyze) tenant.cluster_sync, tenant.clusters, tenant.nodepools")
}

// EditCluster changes the spec of cluster i in a transaction.
func (o *clusterOwner) EditCluster(ctx context.Context, i, edit int) error {
	tag, err := o.conn.Exec(
		ctx,
		"update tenant.resources set spec = $2::text::json, generation = generation + 1, updated_time = now() where id = $1 and kind = 'Cluster'",
		clusterID(i),
		newSpec(edit),
	)
	if err == nil && tag.RowsAffected() != 1 {
		err = fmt.Errorf("there is no cluster %d", i)
	}
	return err
}

// SetTriggers enables or disables the trigger that updates the sync row on every change of
// a cluster.
func (o *clusterOwner) SetTriggers(ctx context.Context, enabled bool) error {
	if enabled {
		return o.execSQL(ctx, "alter table tenant.clusters enable trigger cluster_changed")
	}
	return o.execSQL(ctx, "alter table tenant.clusters disable trigger cluster_changed")
}

// SetNotifications enables or disables the notification of workers.
func (o *clusterOwner) SetNotifications(ctx context.Context, enabled bool) error {
	if enabled {
		return o.execSQL(ctx, "alter table tenant.cluster_sync enable trigger notify")
	}
	return o.execSQL(ctx, "alter table tenant.cluster_sync disable trigger notify")
}

// CountUnsynced returns the number of clusters that are not synced.
func (o *clusterOwner) CountUnsynced(ctx context.Context) (n int, err error) {
	err = o.conn.QueryRow(ctx, "select count(*) from tenant.cluster_sync where synced is null").Scan(&n)
	return n, err
}

// CountUnready returns the number of clusters that are not synced or whose Shoot is not
// ready.
func (o *clusterOwner) CountUnready(ctx context.Context) (n int, err error) {
	err = o.conn.QueryRow(ctx, "select count(*) from tenant.cluster_sync where synced is null or shoot_status is distinct from 'ready'").
		Scan(&n)
	return n, err
}

// CountConnections returns the number of connections of an application.
func (o *clusterOwner) CountConnections(ctx context.Context, application string) (n int, err error) {
	err = o.conn.QueryRow(ctx, "select count(*) from pg_stat_activity where application_name = $1", application).Scan(&n)
	return n, err
}

func (o *clusterOwner) execSQL(ctx context.Context, sql string) error {
	_, err := o.conn.Exec(ctx, sql)
	return err
}
