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

var errNoName = &rowError{class: ErrorClass(shoot.ClassConflict), err: fmt.Errorf("all %d candidate names for the Shoot are in use", nameChoices)}

// storeNamesAndStartCalls stores the nth choice for the names of unnamed rows, and starts the
// calls of those that got it. It returns the others for the next choice. No Shoot is
// created before its name is in the database: a successor of this worker would not find
// it.
func (c *claimer) storeNamesAndStartCalls(
	ctx, callCtx, databaseCtx context.Context, claims []timedClaim, choiceIndex int,
) (nameTaken []timedClaim) {
	names := make([]ProposedName, 0, len(claims))
	asked := claims[:0:0]
	for _, t := range claims {
		name, err := c.deriveShootName(ctx, t.Claim, choiceIndex)
		if err != nil {
			c.queueOutcomeAndWakeClaimer(newResultOutcome(t, newFailureResult(t.Claim, err, false)))
			continue
		}
		t.ShootName = name
		names = append(names, ProposedName{ClusterID: t.ClusterID, Token: t.Token, ShootName: name})
		asked = append(asked, t)
	}
	taken, ok := c.storeNamesWithRetry(ctx, databaseCtx, asked, names)
	for _, t := range asked {
		switch {
		case ctx.Err() != nil:
			c.queueOutcomeAndWakeClaimer(newReleaseOutcome(t))
		case !ok:
			c.queueOutcomeAndWakeClaimer(newAbandonedOutcome(t))
		case taken[t.ClusterID]:
			nameTaken = append(nameTaken, t)
		default:
			c.startSyncOrAbandon(callCtx, t)
		}
	}
	return nameTaken
}

// deriveShootName returns the nth choice for the name of a claim's Shoot.
func (c *claimer) deriveShootName(ctx context.Context, claim Claim, choiceIndex int) (name string, err error) {
	if choiceIndex >= nameChoices {
		return "", errNoName
	}
	err = c.callRecoveringPanic(ctx, "name Shoot", claim.ClusterID, func() error {
		if name = c.maker.DeriveShootName(claim, choiceIndex); name == "" {
			return &rowError{class: ClassBadSpec, err: errors.New("no Shoot name can be derived from the cluster name")}
		}
		return nil
	})
	return name, err
}

// storeNamesWithRetry writes names, and returns the clusters whose name is taken. It retries as
// long as the leases leave enough time for calls.
func (c *claimer) storeNamesWithRetry(
	ctx, databaseCtx context.Context, claims []timedClaim, names []ProposedName,
) (clustersWithTakenName map[string]bool, stored bool) {
	if len(names) == 0 {
		return nil, true
	}
	for failed := 0; ; failed++ {
		c.claimPulse.recordProgress()
		list, err := c.storeNamesOnce(databaseCtx, names)
		c.db.recordRequestResult(databaseCtx, toName, err)
		if err == nil {
			clustersWithTakenName = make(map[string]bool, len(list))
			for _, n := range list {
				clustersWithTakenName[n.ClusterID] = true
			}
			return clustersWithTakenName, true
		}
		if backoff.Sleep(ctx, databaseRetryPolicy().Delay(failed)) != nil || !claims[0].hasLeaseFor(c.cfg.Lease/leaseStart) {
			return nil, false
		}
	}
}

func (c *claimer) storeNamesOnce(databaseCtx context.Context, names []ProposedName) (taken []ProposedName, err error) {
	ctx, cancel := context.WithTimeoutCause(databaseCtx, min(storeTimeout, c.cfg.Lease/2), errStoreTimeout)
	defer cancel()
	return c.store.StoreNames(ctx, names)
}
