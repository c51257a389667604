package poller

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Census is the result of a list beyond the Shoots that belong to a row.
type Census struct {
	Installation string
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

// A Plan is the action on Shoots that belong to no row.
type Plan struct {
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

// PlanOrphans returns the action on Shoots that belong to no row. It is a pure
// function, and slow to accept an orphan: a list is a snapshot, databases are restored
// and exchanged, and a deleted Shoot cannot be recovered.
func PlanOrphans(c Census) Plan {
	p := Plan{Seen: map[string]bool{}}
	if c.Clusters == 0 && c.Listed > 0 {
		p.Halt = errNoClusters
		return p
	}
	var doomed []shoot.Observed
	for _, o := range c.Orphans {
		if o.Installation != c.Installation || o.UID == "" {
			continue
		}
		p.Seen[o.UID] = true
		if !c.Before[o.UID] || c.Now.Sub(o.Created) < c.MinAge {
			continue
		}
		p.Report = append(p.Report, o)
		if !o.Deleting && isID(o.Cluster) {
			doomed = append(doomed, o)
		}
	}
	switch {
	case !c.Delete:
	case len(doomed) > max(1, c.Listed/100):
		p.Halt = errTooMany
	default:
		p.Delete = doomed
	}
	return p
}

// An orphanKeeper reports and deletes orphans.
type orphanKeeper struct {
	poller       *Poller
	tenure       *leadership
	installation string
	before       map[string]bool // uids of the last list's orphans
	running      *sync.WaitGroup
	reaping      sync.Mutex // held while orphans are deleted
}

// handleCensus reports orphans, and deletes those that the plan deletes.
func (k *orphanKeeper) handleCensus(ctx context.Context, c Census) {
	c.Installation, c.Before = k.installation, k.before
	c.Now, c.MinAge, c.Delete = time.Now(), k.poller.cfg.OrphanAge, k.poller.cfg.DeleteOrphans
	p := PlanOrphans(c)
	k.before = p.Seen
	k.poller.metrics.orphans.Set(float64(len(p.Report)))
	k.poller.metrics.strays.Set(float64(len(c.Strays)))
	k.poller.state.update(func(now *Stats) { now.Orphans = len(p.Report) })
	if p.Halt != nil {
		k.poller.metrics.orphanHalts.Inc()
		k.poller.log.ErrorContext(ctx, "orphan cleanup blocked", "err", p.Halt, "shoots", c.Listed, "clusters", c.Clusters, "orphans", len(c.Orphans))
	}
	for i := range p.Report {
		o := &p.Report[i]
		k.poller.log.WarnContext(ctx, "orphan shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID, "created", o.Created, "deleting", o.Deleting)
	}
	for i := range c.Strays {
		o := &c.Strays[i]
		k.poller.log.WarnContext(ctx, "duplicate shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID)
	}
	if k.poller.deps.Remover == nil || len(p.Delete) == 0 || !k.reaping.TryLock() {
		return
	}
	k.running.Go(func() {
		defer k.reaping.Unlock()
		for i := range p.Delete {
			k.deleteOrphan(ctx, &p.Delete[i])
		}
	})
}

// deleteOrphan deletes an orphan after a last check.
func (k *orphanKeeper) deleteOrphan(ctx context.Context, o *shoot.Observed) {
	still, err := k.isStillOrphan(ctx, o)
	if err == nil && still {
		dctx, cancel := context.WithTimeoutCause(ctx, k.poller.cfg.CallTimeout, errTimeout)
		defer cancel()
		err = k.tenure.writeFenced(dctx, func(ctx context.Context, _ int64) error {
			_, err := k.poller.deps.Remover.DeleteShoot(ctx, shoot.Ref{Name: o.Name, UID: o.UID, Cluster: o.Cluster, Installation: k.installation})
			return err
		})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		k.poller.metrics.countFailure(string(shoot.ClassOf(err)))
		k.poller.log.WarnContext(ctx, "orphan shoot not deleted", "shoot", o.Name, "cluster_id", o.Cluster, "err", err)
	case still:
		k.poller.metrics.orphansDeleted.Inc()
		k.poller.log.WarnContext(ctx, "orphan shoot deleted", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID)
	}
}

// isStillOrphan checks again, in Gardener and in the database, that a Shoot is an orphan.
func (k *orphanKeeper) isStillOrphan(ctx context.Context, o *shoot.Observed) (bool, error) {
	live, err := k.poller.getShoot(ctx, o.Name)
	if err != nil || live == nil || live.UID != o.UID || live.Cluster != o.Cluster || live.Installation != k.installation || live.Deleting {
		return false, err
	}
	rows, err := k.poller.rowsOf(ctx, []string{o.Cluster})
	return err == nil && len(rows) == 0, err
}
