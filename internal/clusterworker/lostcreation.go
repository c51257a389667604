package clusterworker

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// errClaimLost means that another worker has the row.
var errClaimLost = errors.New("claim lost to another worker")

// recordLostCreation records the creation of a Shoot whose result was lost, before the Shoot's deletion is sent, and
// returns the claim with what was recorded. If the result of the deletion were lost, too, nothing would show afterwards
// that there was a Shoot, and no change event would say so. A claim without a lost creation is returned unchanged.
//
// Its errors are those of Gardener, errClaimLost, and that of ctx.
func (w *Worker) recordLostCreation(ctx context.Context, claim Claim) (Claim, error) {
	if !claim.Deleting || claim.SyncedGeneration > 0 {
		return claim, nil
	}
	created, found, err := w.findCreatedShoot(ctx, claim)
	if err != nil || !found {
		return claim, err
	}
	change := newChange(claim, ShootCreated, lostCreationMessage)
	change.At = time.Now()
	recorded := claim
	recorded.ShootUID, recorded.ShootGeneration = created.UID, created.Generation
	recorded.SyncedGeneration = max(claim.Generation-1, 1)
	for failures := 0; ; failures++ {
		stands, err := w.recordCreationOnce(ctx, recorded, change)
		w.db.recordRequestResult(ctx, toRecordCreation, err)
		switch {
		case err == nil && !stands:
			return claim, errClaimLost
		case err == nil:
			if w.deps.Recorder != nil {
				w.deps.Recorder.Record(ctx, change)
			}
			return recorded, nil
		}
		if err := backoff.Sleep(ctx, databaseRetryPolicy().Delay(failures)); err != nil {
			return claim, err // at the latest when the lease ends
		}
	}
}

// findCreatedShoot returns the Shoot of a cluster, as it is in Gardener or was seen before. A Shoot that belongs to
// another cluster is not found, and its deletion will be refused.
func (w *Worker) findCreatedShoot(ctx context.Context, claim Claim) (created shoot.Applied, found bool, err error) {
	if claim.ShootUID != "" {
		return shoot.Applied{UID: claim.ShootUID, Generation: claim.ShootGeneration}, true, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	defer w.recoverPanic(ctx, "read Shoot", claim.ClusterID, &err)
	observed, err := w.deps.Garden.GetShoot(ctx, claim.ShootName)
	if errors.Is(err, shoot.ErrNotFound) {
		return shoot.Applied{}, false, nil
	}
	belongs := observed.Cluster == claim.ClusterID && observed.Installation == w.deps.Installation
	return shoot.Applied{UID: observed.UID, Generation: observed.Generation}, belongs && err == nil, err
}

func (w *Worker) recordCreationOnce(ctx context.Context, claim Claim, change Change) (stands bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return w.deps.Store.RecordCreation(ctx, claim, change)
}
