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

// nameAndStartCalls stores the nth choice for the names of unnamed rows, and starts the
// calls of those that got it. It returns the others for the next choice. No Shoot is
// created before its name is in the database: a successor of this worker would not find
// it.
func (c *claimer) nameAndStartCalls(ctx, callCtx, dbCtx context.Context, tickets []ticket, choice int) (nameTaken []ticket) {
	names := make([]Naming, 0, len(tickets))
	asked := tickets[:0:0]
	for _, t := range tickets {
		name, err := c.chooseName(ctx, t.Claim, choice)
		if err != nil {
			c.submitOutcome(outcomeOf(t, classifyFailure(t.Claim, err, false)))
			continue
		}
		t.ShootName = name
		names = append(names, Naming{ClusterID: t.ClusterID, Token: t.Token, ShootName: name})
		asked = append(asked, t)
	}
	taken, ok := c.storeNames(ctx, dbCtx, asked, names)
	for _, t := range asked {
		switch {
		case ctx.Err() != nil:
			c.submitOutcome(givenBack(t))
		case !ok:
			c.submitOutcome(expiredOutcome(t))
		case taken[t.ClusterID]:
			nameTaken = append(nameTaken, t)
		default:
			c.startCall(callCtx, t)
		}
	}
	return nameTaken
}

// chooseName returns the nth choice for the name of a claim's Shoot.
func (c *claimer) chooseName(ctx context.Context, claim Claim, choice int) (name string, err error) {
	if choice >= nameChoices {
		return "", errNoName
	}
	err = c.recoverPanic(ctx, "name Shoot", claim.ClusterID, func() error {
		if name = c.maker.Name(claim, choice); name == "" {
			return &rowError{class: ClassBadSpec, err: errors.New("no Shoot name can be derived from the cluster name")}
		}
		return nil
	})
	return name, err
}

// storeNames writes names, and returns the clusters whose name is taken. It retries as
// long as the leases leave enough time for calls.
func (c *claimer) storeNames(ctx, dbCtx context.Context, tickets []ticket, names []Naming) (taken map[string]bool, ok bool) {
	if len(names) == 0 {
		return nil, true
	}
	for failed := 0; ; failed++ {
		c.claimPulse.noteProgress()
		list, err := c.storeNamesOnce(dbCtx, names)
		c.db.noteRequest(dbCtx, toName, err)
		if err == nil {
			taken = make(map[string]bool, len(list))
			for _, n := range list {
				taken[n.ClusterID] = true
			}
			return taken, true
		}
		if backoff.Sleep(ctx, dbRetry().Delay(failed)) != nil || !tickets[0].hasTime(c.cfg.Lease/leaseStart) {
			return nil, false
		}
	}
}

func (c *claimer) storeNamesOnce(hard context.Context, names []Naming) ([]Naming, error) {
	ctx, cancel := context.WithTimeoutCause(hard, min(storeTimeout, c.cfg.Lease/2), errStoreTimeout)
	defer cancel()
	return c.store.StoreNames(ctx, names)
}
