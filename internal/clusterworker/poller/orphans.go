package poller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// An OrphanCandidates is the result of a list beyond the Shoots that belong to a row.
type OrphanCandidates struct {
	Installation string
	// History is the id of the database's present history.
	History string
	// Listed is the number of all Shoots, and Clusters the number of rows that were
	// read from the database.
	Listed, Clusters int
	// Orphans are Shoots whose cluster is not in the database, and Strays are those
	// whose cluster has a Shoot of another name.
	Orphans, Strays []shoot.Observed
	// Before are the uids of the last list's orphans.
	Before map[string]bool
	Now    time.Time
	// MinAge is the minimum age of an orphan.
	MinAge time.Duration
	// Delete is whether to delete orphans.
	Delete bool
}

// An OrphanPlan is the action on Shoots that belong to no row.
type OrphanPlan struct {
	// Seen are the uids for the comparison with the next list.
	Seen map[string]bool
	// Report are confirmed orphans, and Delete are those of them to delete.
	Report, Delete []shoot.Observed
	// Halt is why deletion is blocked and an operator has to act, nil otherwise.
	Halt error
}

// Reasons to block deletion.
var (
	errNoClusters = errors.New("there are Shoots, but the database has no clusters: check that DATABASE_URL is the right database")
	errTooMany    = errors.New("more orphan Shoots than may be deleted at once: check that DATABASE_URL is the right database")
)

// PlanOrphanCleanup returns the action on Shoots that belong to no row. It is a pure
// function, and slow to accept an orphan: a list is a snapshot, databases are restored
// and exchanged, and a deleted Shoot cannot be recovered.
func PlanOrphanCleanup(candidates OrphanCandidates) OrphanPlan {
	plan := OrphanPlan{Seen: map[string]bool{}}
	if candidates.Clusters == 0 && candidates.Listed > 0 {
		plan.Halt = errNoClusters
		return plan
	}
	var deletable []shoot.Observed
	for _, orphan := range candidates.Orphans {
		if orphan.Installation != candidates.Installation || orphan.UID == "" {
			continue
		}
		plan.Seen[orphan.UID] = true
		isTooYoung := candidates.Now.Sub(orphan.Created) < candidates.MinAge
		if !candidates.Before[orphan.UID] || isTooYoung {
			continue
		}
		plan.Report = append(plan.Report, orphan)
		// A Shoot of another history may belong to a cluster that a restore has lost.
		isOfThisHistory := orphan.History != "" && orphan.History == candidates.History
		if !orphan.Deleting && isClusterID(orphan.Cluster) && isOfThisHistory {
			deletable = append(deletable, orphan)
		}
	}
	if !candidates.Delete {
		return plan
	}
	if len(deletable) > max(1, candidates.Listed/100) {
		plan.Halt = errTooMany
		return plan
	}
	plan.Delete = deletable
	return plan
}

// An orphanCleaner reports and deletes orphans.
type orphanCleaner struct {
	poller       *Poller
	term         *leaderTerm
	installation string
	lastOrphans  map[string]bool // uids of the last list's orphans
	running      *sync.WaitGroup
	deleting     sync.Mutex // held while orphans are deleted
}

// reportOrphansAndStartDeletion reports orphans, and deletes those that the plan deletes.
func (c *orphanCleaner) reportOrphansAndStartDeletion(ctx context.Context, candidates OrphanCandidates) {
	candidates.Installation = c.installation
	candidates.History = c.readHistoryID(ctx)
	candidates.Before = c.lastOrphans
	candidates.Now = time.Now()
	candidates.MinAge = c.poller.cfg.OrphanAge
	candidates.Delete = c.poller.cfg.DeleteOrphans
	plan := PlanOrphanCleanup(candidates)
	c.lastOrphans = plan.Seen
	c.reportPlan(ctx, plan, candidates)
	if c.poller.deps.Remover == nil || len(plan.Delete) == 0 {
		return
	}
	if !c.deleting.TryLock() {
		return // the orphans of the last list are still being deleted
	}
	c.running.Go(func() {
		defer c.deleting.Unlock()
		for i := range plan.Delete {
			c.recheckAndDeleteOrphan(ctx, &plan.Delete[i])
		}
	})
}

func (c *orphanCleaner) reportPlan(ctx context.Context, plan OrphanPlan, candidates OrphanCandidates) {
	metrics, log := c.poller.metrics, c.poller.log
	metrics.orphans.Set(float64(len(plan.Report)))
	metrics.strays.Set(float64(len(candidates.Strays)))
	c.poller.state.updateStats(func(now *Stats) { now.Orphans = len(plan.Report) })
	if plan.Halt != nil {
		metrics.orphanHalts.Inc()
		log.ErrorContext(ctx, "orphan cleanup blocked", "err", plan.Halt, "shoots", candidates.Listed, "clusters", candidates.Clusters, "orphans", len(candidates.Orphans))
	}
	for _, orphan := range plan.Report {
		log.WarnContext(ctx, "orphan shoot found", "shoot", orphan.Name, "cluster_id", orphan.Cluster, "shoot_uid", orphan.UID, "created", orphan.Created,
			"deleting", orphan.Deleting, "from_other_history", orphan.History != candidates.History)
	}
	for _, stray := range candidates.Strays {
		log.WarnContext(ctx, "duplicate shoot found", "shoot", stray.Name, "cluster_id", stray.Cluster, "shoot_uid", stray.UID)
	}
}

// readHistoryID returns the id of the database's present history. It is empty after an error,
// which keeps all orphans.
func (c *orphanCleaner) readHistoryID(ctx context.Context) string {
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	id, err := c.poller.deps.Store.GetHistoryID(ctx)
	if err != nil {
		c.poller.log.WarnContext(ctx, "history id not read, no orphan is deleted", "err", err)
	}
	return id
}

// recheckAndDeleteOrphan deletes an orphan after a last check.
func (c *orphanCleaner) recheckAndDeleteOrphan(ctx context.Context, orphan *shoot.Observed) {
	stillOrphan, err := c.isStillOrphan(ctx, orphan)
	if err == nil && stillOrphan {
		err = c.deleteOrphan(ctx, orphan)
	}
	switch {
	case ctx.Err() != nil:
		return // the term is over
	case err != nil:
		c.poller.metrics.countFailure(string(shoot.ClassOf(err)))
		c.poller.log.WarnContext(ctx, "orphan shoot not deleted", "shoot", orphan.Name, "cluster_id", orphan.Cluster, "err", err)
	case stillOrphan:
		c.poller.metrics.orphansDeleted.Inc()
		c.poller.log.WarnContext(ctx, "orphan shoot deleted", "shoot", orphan.Name, "cluster_id", orphan.Cluster, "shoot_uid", orphan.UID)
	}
}

// isStillOrphan checks again, in Gardener and in the database, that a Shoot is an orphan.
func (c *orphanCleaner) isStillOrphan(ctx context.Context, orphan *shoot.Observed) (stillOrphan bool, err error) {
	live, err := c.poller.getShootOrNil(ctx, orphan.Name)
	if err != nil || live == nil {
		return false, err
	}
	isSame := live.UID == orphan.UID && live.Cluster == orphan.Cluster && live.Installation == c.installation && live.History == orphan.History
	if !isSame || live.Deleting {
		return false, nil
	}
	rows, err := c.poller.readRowsByClusterID(ctx, []string{orphan.Cluster})
	return err == nil && len(rows) == 0, err
}

func (c *orphanCleaner) deleteOrphan(ctx context.Context, orphan *shoot.Observed) error {
	ctx, cancel := context.WithTimeoutCause(ctx, c.poller.cfg.CallTimeout, errTimeout)
	defer cancel()
	ref := shoot.Ref{Name: orphan.Name, UID: orphan.UID, Cluster: orphan.Cluster, Installation: c.installation}
	return c.term.writeWithinTerm(ctx, func(ctx context.Context, _ int64) error {
		_, err := c.poller.deps.Remover.DeleteShoot(ctx, ref)
		return err
	})
}
