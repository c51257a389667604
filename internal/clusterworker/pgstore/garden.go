package pgstore

import (
	"context"

	"github.com/jackc/pgx/v5"
)

const (
	takeGarden = `update tenant.installation set garden = $1 where garden is null or ($2 and garden <> $1)`
	register   = `select tenant.register_cluster_worker()`
	unregister = `select removed, coalesce(running, ''), guarded from tenant.unregister_cluster_worker($1)`
	readGarden = `select coalesce(garden, '') from tenant.installation`
)

// RegisterClusterWorker records that this installation has a cluster-worker. From then on the
// database keeps the row of a cluster until its Shoot is confirmed gone.
func (s *Store) RegisterClusterWorker(ctx context.Context) error {
	return s.db.execStatement(ctx, "register cluster-worker", register)
}

// An Unregistration is the result of UnregisterClusterWorker.
type Unregistration struct {
	// Removed is whether the installation no longer has a cluster-worker.
	Removed bool
	// Running is the worker that observes the Shoots, empty if none does.
	Running string
	// Guarded is the number of clusters with a Shoot that is not confirmed gone.
	Guarded int64
}

// UnregisterClusterWorker removes the record of RegisterClusterWorker. It changes nothing while a worker
// observes the Shoots or, unless abandonShoots is set, while a cluster has a Shoot that is not
// confirmed gone.
func (s *Store) UnregisterClusterWorker(ctx context.Context, abandonShoots bool) (u Unregistration, err error) {
	err = s.db.queryRow(ctx, "unregister cluster-worker", []any{&u.Removed, &u.Running, &u.Guarded}, unregister, abandonShoots)
	return u, err
}

// RecordGardenIfNone records the garden of this database's Shoots, if none is recorded. With
// overwriteExisting it replaces the recorded one, so that the Shoots are created again there. It
// returns the garden that is now recorded.
func (s *Store) RecordGardenIfNone(ctx context.Context, gardenIdentity string, overwriteExisting bool) (recorded string, err error) {
	err = s.db.runBatch(ctx, "record garden of the installation", func(b *pgx.Batch) {
		b.Queue(takeGarden, gardenIdentity, overwriteExisting)
		scanRowInto(b.Queue(readGarden), &recorded)
	})
	return recorded, err
}

// GetRecordedGarden returns the garden of this database's Shoots, empty if no worker has recorded
// one.
func (s *Store) GetRecordedGarden(ctx context.Context) (gardenIdentity string, err error) {
	err = s.db.queryRow(ctx, "read garden of the installation", []any{&gardenIdentity}, readGarden)
	return gardenIdentity, err
}

// GetInstallationID returns the id of this database. A copy of a database has the id of the
// original.
func (s *Store) GetInstallationID(ctx context.Context) (id string, err error) {
	return s.Observations.GetInstallationID(ctx)
}
