package poller

import (
	"context"
	"errors"
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

// reportAndDeleteOrphans reports orphans, and deletes those that the plan deletes.
func (s *session) reportAndDeleteOrphans(ctx context.Context, c Census) {
	p := PlanOrphans(c)
	s.orphans = p.Seen
	s.metrics.orphans.Set(float64(len(p.Report)))
	s.metrics.strays.Set(float64(len(c.Strays)))
	s.state.setOrphans(len(p.Report))
	if p.Halt != nil {
		s.metrics.orphanHalts.Inc()
		s.log.ErrorContext(ctx, "orphan cleanup blocked", "err", p.Halt, "shoots", c.Listed, "clusters", c.Clusters, "orphans", len(c.Orphans))
	}
	for i := range p.Report {
		o := &p.Report[i]
		s.log.WarnContext(ctx, "orphan shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID, "created", o.Created, "deleting", o.Deleting)
	}
	for i := range c.Strays {
		o := &c.Strays[i]
		s.log.WarnContext(ctx, "duplicate shoot found", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID)
	}
	if s.deps.Remover == nil || len(p.Delete) == 0 || !s.reaping.TryLock() {
		return
	}
	s.wg.Go(func() {
		defer s.reaping.Unlock()
		for i := range p.Delete {
			s.deleteOrphan(ctx, &p.Delete[i])
		}
	})
}

// deleteOrphan deletes an orphan after a last check.
func (s *session) deleteOrphan(ctx context.Context, o *shoot.Observed) {
	still, err := s.isStillOrphan(ctx, o)
	if err == nil && still {
		dctx, cancel := context.WithTimeoutCause(ctx, s.cfg.CallTimeout, errTimeout)
		defer cancel()
		err = s.tenure.writeFenced(dctx, func(ctx context.Context, _ int64) error {
			_, err := s.deps.Remover.DeleteShoot(ctx, shoot.Ref{Name: o.Name, UID: o.UID, Cluster: o.Cluster, Installation: s.installation})
			return err
		})
	}
	switch {
	case ctx.Err() != nil:
	case err != nil:
		s.metrics.countFailure(string(shoot.ClassOf(err)))
		s.log.WarnContext(ctx, "orphan shoot not deleted", "shoot", o.Name, "cluster_id", o.Cluster, "err", err)
	case still:
		s.metrics.orphansDeleted.Inc()
		s.log.WarnContext(ctx, "orphan shoot deleted", "shoot", o.Name, "cluster_id", o.Cluster, "shoot_uid", o.UID)
	}
}

// isStillOrphan checks again, in Gardener and in the database, that a Shoot is an orphan.
func (s *session) isStillOrphan(ctx context.Context, o *shoot.Observed) (bool, error) {
	live, err := s.getShoot(ctx, o.Name)
	if err != nil || live == nil || live.UID != o.UID || live.Cluster != o.Cluster || live.Installation != s.installation || live.Deleting {
		return false, err
	}
	rows, err := s.rowsOf(ctx, []string{o.Cluster})
	return err == nil && len(rows) == 0, err
}
