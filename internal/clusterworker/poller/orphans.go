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
	p := OrphanPlan{Seen: map[string]bool{}}
	if candidates.Clusters == 0 && candidates.Listed > 0 {
		p.Halt = errNoClusters
		return p
	}
	var doomed []shoot.Observed
	for _, o := range candidates.Orphans {
		if o.Installation != candidates.Installation || o.UID == "" {
			continue
		}
		p.Seen[o.UID] = true
		if !candidates.Before[o.UID] || candidates.Now.Sub(o.Created) < candidates.MinAge {
			continue
		}
		p.Report = append(p.Report, o)
		// A Shoot of another history may belong to a cluster that a restore has lost.
		if !o.Deleting && isClusterID(o.Cluster) && o.History != "" && o.History == candidates.History {
			doomed = append(doomed, o)
		}
	}
	switch {
	case !candidates.Delete:
	case len(doomed) > max(1, candidates.Listed/100):
		p.Halt = errTooMany
	default:
		p.Delete = doomed
	}
	return p
}

// An orphanCleaner reports and deletes orphans.
type orphanCleaner struct {
	poller       *Poller
	tenure       *leaderTerm
	installation string
	before       map[string]bool // uids of the last list's orphans
	running      *sync.WaitGroup
	reaping      sync.Mutex // held while orphans are deleted
}

// reportAndDeleteOrphans reports orphans, and deletes those that the plan deletes.
func (k *orphanCleaner) reportAndDeleteOrphans(ctx context.Context, candidates OrphanCandidates) {
	candidates.Installation, candidates.Before = k.installation, k.before
	candidates.Now, candidates.MinAge, candidates.Delete = time.Now(), k.poller.cfg.OrphanAge, k.poller.cfg.DeleteOrphans
	candidates.History = k.readHistoryID(ctx)
	p := PlanOrphanCleanup(candidates)
	k.before = p.Seen
	k.poller.metrics.orphans.Set(float64(len(p.Report)))
	k.poller.metrics.strays.Set(float64(len(candidates.Strays)))
	k.poller.state.updateStats(func(now *Stats) { now.Orphans = len(p.Report) })
	if p.Halt != nil {
		k.poller.metrics.orphanHalts.Inc()
		k.poller.log.ErrorContext(ctx, "orphan cleanup blocked", "err", p.Halt, "shoots", candidates.Listed, "clusters", candidates.Clusters, "orphans", len(candidates.Orphans))
	}
	for i := range p.Report {
		o := &p.Report[i]
		k.poller.log.WarnContext(ctx, "orphan shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID, "created", o.Created, "deleting", o.Deleting,
			"from_other_history", o.History != candidates.History)
	}
	for i := range candidates.Strays {
		o := &candidates.Strays[i]
		k.poller.log.WarnContext(ctx, "duplicate shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID)
	}
	if k.poller.deps.Remover == nil || len(p.Delete) == 0 || !k.reaping.TryLock() {
		return
	}
	k.running.Go(func() {
		defer k.reaping.Unlock()
		for i := range p.Delete {
			k.recheckAndDeleteOrphan(ctx, &p.Delete[i])
		}
	})
}

// readHistoryID returns the id of the database's present history. It is empty after an error,
// which keeps all orphans.
func (k *orphanCleaner) readHistoryID(ctx context.Context) string {
	ctx, cancel := withReadTimeout(ctx)
	defer cancel()
	id, err := k.poller.deps.Store.GetHistoryID(ctx)
	if err != nil {
		k.poller.log.WarnContext(ctx, "history id not read, no orphan is deleted", "err", err)
	}
	return id
}

// recheckAndDeleteOrphan deletes an orphan after a last check.
func (k *orphanCleaner) recheckAndDeleteOrphan(ctx context.Context, orphan *shoot.Observed) {
	still, err := k.isStillOrphan(ctx, orphan)
	if err == nil && still {
		dctx, cancel := context.WithTimeoutCause(ctx, k.poller.cfg.CallTimeout, errTimeout)
		defer cancel()
		err = k.tenure.writeWithinTerm(dctx, func(ctx context.Context, _ int64) error {
			_, err := k.poller.deps.Remover.DeleteShoot(ctx, shoot.Ref{Name: orphan.Name, UID: orphan.UID, Cluster: orphan.Cluster, Installation: k.installation})
			return err
		})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.poller.metrics.countFailure(string(shoot.ClassOf(err)))
		k.poller.log.WarnContext(ctx, "orphan shoot not deleted", "shoot", orphan.Name, "cluster_id", orphan.Cluster, "err", err)
	case still:
		k.poller.metrics.orphansDeleted.Inc()
		k.poller.log.WarnContext(ctx, "orphan shoot deleted", "shoot", orphan.Name, "cluster_id", orphan.Cluster, "shoot_uid", orphan.UID)
	}
}

// isStillOrphan checks again, in Gardener and in the database, that a Shoot is an orphan.
func (k *orphanCleaner) isStillOrphan(ctx context.Context, orphan *shoot.Observed) (stillOrphan bool, err error) {
	live, err := k.poller.getShootOrNil(ctx, orphan.Name)
	if err != nil || live == nil || live.UID != orphan.UID || live.Cluster != orphan.Cluster || live.Installation != k.installation || live.Deleting || live.History != orphan.History {
		return false, err
	}
	rows, err := k.poller.readRowsByClusterID(ctx, []string{orphan.Cluster})
	return err == nil && len(rows) == 0, err
}
