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

// recordUnreportedCreation records the creation of a Shoot whose result was lost, before another call is sent, and returns the
// claim with what was recorded. If the Shoot were gone afterwards and the result of that call were lost, too, nothing
// would show that there was a Shoot, and no change event would say so. A claim without a lost creation is returned
// unchanged.
//
// Its errors are those of Gardener, errClaimLost, and that of ctx.
func (w *Worker) recordUnreportedCreation(ctx context.Context, claim Claim) (Claim, error) {
	shootUID, err := w.findUnreportedShoot(ctx, claim)
	if err != nil || shootUID == "" {
		return claim, err
	}
	change := newShootChange(claim, ShootCreated, shootUID, lostCreationMessage)
	change.At = time.Now()
	recorded := claim
	recorded.ShootUID, recorded.ReportedShootUID = shootUID, shootUID
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

// findUnreportedShoot returns the UID of a Shoot whose creation was not reported, or none. It is one that the poller has
// recorded or, before a deletion, one that is in Gardener. A Shoot that belongs to another cluster is not found, and its
// deletion will be refused.
func (w *Worker) findUnreportedShoot(ctx context.Context, claim Claim) (shootUID string, err error) {
	switch {
	case claim.ShootUID != claim.ReportedShootUID:
		return claim.ShootUID, nil
	case !claim.Deleting:
		return "", nil // the call will tell the UID
	}
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	defer w.recoverPanic(ctx, "read Shoot", claim.ClusterID, &err)
	observed, err := w.deps.Garden.GetShoot(ctx, claim.ShootName)
	if errors.Is(err, shoot.ErrNotFound) {
		return "", nil
	}
	belongs := observed.Cluster == claim.ClusterID && observed.Installation == w.deps.Installation
	if err != nil || !belongs || observed.UID == claim.ReportedShootUID {
		return "", err
	}
	return observed.UID, nil
}

func (w *Worker) recordCreationOnce(ctx context.Context, claim Claim, change Change) (stands bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return w.deps.Store.RecordCreation(ctx, claim, change)
}
