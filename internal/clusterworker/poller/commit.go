package poller

import (
	"context"
	"fmt"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A batch is a set of changes that are written together.
type batch struct {
	changes []clusterworker.StatusChange
	causes  []cause // one per change
	touch   []string
	drifts  map[string]drifted // by cluster
}

// A cause is the observation behind a change.
type cause struct {
	row  clusterworker.Row
	seen *shoot.Observed // nil if the Shoot was absent
	from observation
	// began is when Gardener began the operation that a watch reported, zero if the
	// watch reported no new operation.
	began time.Time
}

type drifted struct {
	drift Drift
	shoot string
	from  observation
}

func (b *batch) addRequeue(d Drift, row *clusterworker.Row, from observation) {
	if b.drifts == nil {
		b.drifts = map[string]drifted{}
	}
	b.drifts[row.ClusterID] = drifted{d, row.ShootName, from}
}

// commitBatch writes a batch.
func (s *session) commitBatch(ctx context.Context, b *batch) error {
	if len(b.changes) > 0 {
		n, err := s.saveChanges(ctx, b)
		if err != nil {
			return err
		}
		if n > 0 {
			s.deps.Wrote()
		}
	}
	if len(b.drifts) > 0 {
		if err := s.requeueDrifted(ctx, b.drifts); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(b.touch, maxBatch) {
		err := s.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) error {
			return s.deps.Store.Touch(ctx, fence, part)
		})
		if err != nil {
			return fmt.Errorf("record check of %d clusters: %w", len(part), err)
		}
	}
	return nil
}

// saveChanges writes the changes of a batch, and returns how many rows were written.
// The others have changed since they were read, or are being changed, and are checked
// again.
func (s *session) saveChanges(ctx context.Context, b *batch) (int, error) {
	var saved []string
	now := time.Now()
	for i := range b.changes {
		c := &b.changes[i]
		// The row is unknown until the result of the write is known.
		s.book.removeEntry(c.ClusterID)
		c.Change = changeEventOf(c, &b.causes[i].row, now)
	}
	err := s.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) (err error) {
		saved, err = s.deps.Store.SaveStatus(ctx, fence, b.changes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("save status of %d Shoots: %w", len(b.changes), err)
	}
	now = time.Now()
	written := make(map[string]bool, len(saved))
	for _, id := range saved {
		written[id] = true
	}
	for i := range b.changes {
		c := &b.causes[i]
		if written[c.row.ClusterID] {
			s.noteSaved(ctx, &b.changes[i], c, now)
			continue
		}
		s.delayObservation(key{c.row.ClusterID, c.row.ShootName}, c.from, databasePolicy().Delay(c.from.tries))
	}
	return len(saved), nil
}

// noteSaved caches a written change and records its event.
func (s *session) noteSaved(ctx context.Context, c *clusterworker.StatusChange, by *cause, now time.Time) {
	was := by.row.Status
	row := by.row
	row.Status, row.StatusMessage, row.ReadyOnce = c.Status, c.Message, row.ReadyOnce || c.Status == v1.ShootReady
	if c.ShootUID != "" {
		row.ShootUID = c.ShootUID
	}
	if !by.began.IsZero() {
		s.metrics.lag.Observe(max(0, now.Sub(by.began)).Seconds())
	}
	if c.Status == v1.ShootDeleted {
		s.book.removeEntry(c.ClusterID)
	} else {
		s.book.putEntry(&row, by.seen)
	}
	if c.Status == was {
		return
	}
	s.metrics.countChange(c.Status)
	s.log.DebugContext(ctx, "shoot status changed", "cluster_id", c.ClusterID, "shoot", row.ShootName, "was", was, "is", c.Status, "message", c.Message)
	if c.Change == nil {
		return
	}
	if c.Status == v1.ShootError {
		s.log.WarnContext(ctx, "shoot failed", "cluster_id", c.ClusterID, "cluster", row.Name, "shoot", row.ShootName, "message", c.Message)
	}
	s.deps.Recorder.Record(ctx, *c.Change)
}

// changeEventOf returns the change event of a new status of a row, nil without an event.
func changeEventOf(c *clusterworker.StatusChange, row *clusterworker.Row, now time.Time) *clusterworker.Change {
	action, ok := actionOf(c.Status)
	if !ok || c.Status == row.Status {
		return nil
	}
	return &clusterworker.Change{
		At: now, Action: action, ClusterID: c.ClusterID, Cluster: row.Name, Tenant: row.Tenant,
		Shoot: row.ShootName, Generation: row.ClusterGeneration, Message: c.Message,
	}
}

// actionOf returns the action of a change event for a new status, or false if the
// status has no event.
func actionOf(st v1.ShootStatus) (clusterworker.Action, bool) {
	switch st {
	case v1.ShootReady:
		return clusterworker.ShootReady, true
	case v1.ShootError:
		return clusterworker.ShootFailed, true
	case v1.ShootDeleted:
		return clusterworker.ShootDeleted, true
	case v1.ShootPending, v1.ShootProgressing, v1.ShootDeleting:
	}
	return "", false
}

// requeueDrifted requeues the clusters whose Shoots differ from their last applied
// spec. Rows that it does not requeue have changed or are being changed, for example by a
// report to the API, and are checked again.
func (s *session) requeueDrifted(ctx context.Context, all map[string]drifted) error {
	ids := make([]string, 0, len(all))
	for id := range all {
		ids = append(ids, id)
	}
	var requeued []string
	err := s.tenure.writeFenced(ctx, func(ctx context.Context, fence int64) (err error) {
		requeued, err = s.deps.Store.Requeue(ctx, fence, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("requeue %d clusters: %w", len(ids), err)
	}
	counts, done := map[Drift]int{}, make(map[string]bool, len(requeued))
	for _, id := range requeued {
		done[id] = true
		d := all[id]
		counts[d.drift]++
		s.log.DebugContext(ctx, "shoot drifted, cluster requeued", "cluster_id", id, "shoot", d.shoot, "reason", d.drift)
	}
	for id, d := range all {
		if !done[id] {
			s.delayObservation(key{id, d.shoot}, d.from, databasePolicy().Delay(d.from.tries))
		}
	}
	for _, drift := range allDrifts() {
		if n := counts[drift]; n > 0 {
			s.metrics.drift.WithLabelValues(string(drift)).Add(float64(n))
			s.log.InfoContext(ctx, "shoots drifted, clusters requeued", "reason", drift, "shoots", n)
		}
	}
	return nil
}
