package clusterworker

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// nameChoices limits how many names are tried for a Shoot.
const nameChoices = 10

var errNoName = &rowError{
	class: ErrorClass(shoot.ClassConflict),
	err:   fmt.Errorf("all %d candidate names for the Shoot are in use", nameChoices),
}

// storeNamesAndStartCalls stores the nth choice for the names of unnamed rows, and starts the
// calls of those that got it. It returns the others for the next choice. No Shoot is
// created before its name is in the database: a successor of this worker would not find
// it.
func (c *claimer) storeNamesAndStartCalls(ctx context.Context, claims []timedClaim, choiceIndex int) (nameTaken []timedClaim) {
	w := c.worker
	var named []timedClaim
	for _, claim := range claims {
		name, err := w.deriveShootName(ctx, claim.Claim, choiceIndex)
		if err != nil {
			w.queueOutcomeAndWakeClaimer(newResultOutcome(claim, newFailureResult(claim.Claim, err, false)))
			continue
		}
		claim.ShootName = name
		named = append(named, claim)
	}
	if len(named) == 0 {
		return nil
	}
	taken, skipped, stored := c.storeNamesWithRetry(ctx, named)
	for _, claim := range named {
		switch {
		case ctx.Err() != nil:
			w.queueOutcomeAndWakeClaimer(newReleaseOutcome(claim))
		case !stored, skipped[claim.ClusterID]: // its name stays open
			w.queueOutcomeAndWakeClaimer(newAbandonedOutcome(claim))
		case taken[claim.ClusterID]:
			nameTaken = append(nameTaken, claim)
		default:
			c.startSyncOrAbandon(ctx, claim)
		}
	}
	return nameTaken
}

// deriveShootName returns the nth choice for the name of a claim's Shoot.
func (w *Worker) deriveShootName(ctx context.Context, claim Claim, choiceIndex int) (name string, err error) {
	if choiceIndex >= nameChoices {
		return "", errNoName
	}
	defer w.recoverPanic(ctx, "name Shoot", claim.ClusterID, &err)
	name = w.deps.Maker.DeriveShootName(claim, choiceIndex)
	if name == "" {
		return "", &rowError{class: ClassBadSpec, err: errors.New("no Shoot name can be derived from the cluster name")}
	}
	return name, nil
}

// storeNamesWithRetry stores the names of claims, and returns the clusters whose name is taken and those that the store
// skipped. It retries as long as the leases leave enough time for calls.
func (c *claimer) storeNamesWithRetry(ctx context.Context, claims []timedClaim) (taken, skipped map[string]bool, stored bool) {
	w := c.worker
	names := make([]ProposedName, len(claims))
	for i, claim := range claims {
		names[i] = ProposedName{ClusterID: claim.ClusterID, Token: claim.Token, ShootName: claim.ShootName}
	}
	for failures := 0; ; failures++ {
		w.claimPulse.recordProgress()
		takenNames, skippedNames, err := w.storeNamesOnce(ctx, names)
		w.db.recordRequestResult(ctx, toName, err)
		if err == nil {
			return toClusterSet(takenNames), toClusterSet(skippedNames), true
		}
		if backoff.Sleep(ctx, databaseRetryPolicy().Delay(failures)) != nil || !claims[0].hasLeaseFor(w.cfg.minLeaseToStartCall()) {
			return nil, nil, false
		}
	}
}

func toClusterSet(names []ProposedName) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name.ClusterID] = true
	}
	return set
}

func (w *Worker) storeNamesOnce(ctx context.Context, names []ProposedName) (taken, skipped []ProposedName, err error) {
	queryCtx, cancel := w.withQueryTimeout(ctx, min(storeTimeout, w.cfg.Lease/2))
	defer cancel()
	return w.deps.Store.StoreNames(queryCtx, names)
}
