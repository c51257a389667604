package poller

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A pendingWrites is a set of changes that are written together.
type pendingWrites struct {
	changes []clusterworker.StatusChange
	causes  []changeCause // one per change
	touch   []string
	drifts  map[string]driftedShoot // by cluster
}

// A changeCause is the observation behind a change.
type changeCause struct {
	row  clusterworker.Row
	seen *shoot.Observed // nil if the Shoot was absent
	from observation
	// began is when Gardener began the operation that a watch reported, zero if the
	// watch reported no new operation.
	began time.Time
}

type driftedShoot struct {
	drift Drift
	shoot string
	from  observation
}

func (b *pendingWrites) addDriftedRow(drift Drift, row *clusterworker.Row, observed observation) {
	if b.drifts == nil {
		b.drifts = map[string]driftedShoot{}
	}
	b.drifts[row.ClusterID] = driftedShoot{drift, row.ShootName, observed}
}

// A statusWriter writes what observations mean for their rows.
type statusWriter struct {
	poller       *Poller
	tenure       *leaderTerm
	inbox        *inbox
	book         *statusCache
	later        *delayedObservations
	installation string
}

// cacheShootIfUnchanged reports whether an event changes nothing, compared with the cached row, and then
// caches its Shoot. The
// absence of a Shoot always counts as a change, and so does any requested observation.
func (w *statusWriter) cacheShootIfUnchanged(key shootKey, observed *observation) (cached bool) {
	if !observed.told || observed.thorough || observed.shoot == nil {
		return false
	}
	e, ok := w.book.getEntry(key.cluster)
	if !ok || e.row.ShootName != key.name {
		return false
	}
	j, ok := w.classifyRowRecoveringPanic(&e.row, observed)
	if !ok || j != (rowDecision{}) {
		return false
	}
	w.book.storeRowAndShoot(&e.row, observed.shoot)
	return true
}

// classifyRowRecoveringPanic classifies a row, and recovers from a panic, so that a faulty Shoot
// does not affect the others.
func (w *statusWriter) classifyRowRecoveringPanic(row *clusterworker.Row, observed *observation) (decision rowDecision, classified bool) {
	defer func() {
		if v := recover(); v != nil {
			w.poller.metrics.countFailure(classPanic)
			w.poller.log.Error("panic recovered, shoot skipped", "cluster_id", row.ClusterID, "shoot", row.ShootName, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			decision, classified = rowDecision{}, false
		}
	}()
	return decideRowAction(row, w.installation, observed), true
}

// queueRowWritesAndLiveRead adds the consequences of an observation for a row to a batch. recordCheckTime is
// whether to record the time of the observation even if nothing has changed.
func (w *statusWriter) queueRowWritesAndLiveRead(batch *pendingWrites, row *clusterworker.Row, observed observation, recordCheckTime bool) {
	j, ok := w.classifyRowRecoveringPanic(row, &observed)
	if !ok {
		return
	}
	o := shootIfOwnedByRow(row, w.installation, observed.shoot)
	k := shootKey{row.ClusterID, row.ShootName}
	switch {
	case j.look && observed.tries > maxTries && !observed.waited:
		w.later.delayObservation(k, observed, databaseRetryPolicy().Delay(observed.tries))
	case j.look:
		asked := *row
		w.inbox.queueLiveRead(liveRead{shootKey: k, asked: &asked, thorough: observed.thorough, polled: observed.polled, tries: observed.tries + 1})
	}
	if j.drift != DriftNone {
		batch.addDriftedRow(j.drift, row, observed)
	}
	if j.change != nil {
		batch.changes = append(batch.changes, *j.change)
		c := changeCause{row: *row, seen: o, from: observed}
		if observed.told && o != nil && o.LastOperation != nil && w.book.isNewerOperation(row.ClusterID, o.LastOperation.Updated) {
			c.began = o.LastOperation.Updated
		}
		batch.causes = append(batch.causes, c)
		return
	}
	w.book.storeRowAndShoot(row, o)
	if recordCheckTime && !j.look && row.ShootName != "" {
		batch.touch = append(batch.touch, row.ClusterID)
	}
}

// writeBatch writes a batch.
func (w *statusWriter) writeBatch(ctx context.Context, batch *pendingWrites) error {
	if len(batch.changes) > 0 {
		n, err := w.saveStatusChanges(ctx, batch)
		if err != nil {
			return err
		}
		if n > 0 {
			w.poller.deps.Wrote()
		}
	}
	if len(batch.drifts) > 0 {
		if err := w.requeueDriftedClusters(ctx, batch.drifts); err != nil {
			return err
		}
	}
	for part := range slices.Chunk(batch.touch, maxBatch) {
		err := w.tenure.writeWithinTerm(ctx, func(ctx context.Context, fence int64) error {
			return w.poller.deps.Store.RecordObservationTime(ctx, fence, part)
		})
		if err != nil {
			return fmt.Errorf("record check of %d clusters: %w", len(part), err)
		}
	}
	return nil
}

// saveStatusChanges writes the changes of a batch, and returns how many rows were written.
// The others have changed since they were read, or are being changed, and are checked
// again.
func (w *statusWriter) saveStatusChanges(ctx context.Context, batch *pendingWrites) (savedRows int, err error) {
	var saved []string
	now := time.Now()
	for i := range batch.changes {
		c := &batch.changes[i]
		// The row is unknown until the result of the write is known.
		w.book.removeEntry(c.ClusterID)
		c.Change = newStatusChangeEvent(c, &batch.causes[i].row, now)
	}
	err = w.tenure.writeWithinTerm(ctx, func(ctx context.Context, fence int64) (err error) {
		saved, err = w.poller.deps.Store.SaveStatus(ctx, fence, batch.changes)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("save status of %d Shoots: %w", len(batch.changes), err)
	}
	now = time.Now()
	written := toSet(saved)
	for i := range batch.changes {
		c := &batch.causes[i]
		if written[c.row.ClusterID] {
			w.cacheAndRecordSavedChange(ctx, &batch.changes[i], c, now)
			continue
		}
		w.later.delayObservation(shootKey{c.row.ClusterID, c.row.ShootName}, c.from, databaseRetryPolicy().Delay(c.from.tries))
	}
	return len(saved), nil
}

// cacheAndRecordSavedChange caches a written change and records its event.
func (w *statusWriter) cacheAndRecordSavedChange(
	ctx context.Context, change *clusterworker.StatusChange, cause *changeCause, now time.Time,
) {
	was := cause.row.Status
	row := cause.row
	row.Status, row.StatusMessage, row.ReadyOnce = change.Status, change.Message, row.ReadyOnce || change.Status == v1.ShootReady
	if change.ShootUID != "" {
		row.ShootUID = change.ShootUID
	}
	if !cause.began.IsZero() {
		w.poller.metrics.lag.Observe(max(0, now.Sub(cause.began)).Seconds())
	}
	if change.Status == v1.ShootDeleted {
		w.book.removeEntry(change.ClusterID)
	} else {
		w.book.storeRowAndShoot(&row, cause.seen)
	}
	if change.Status == was {
		return
	}
	w.poller.metrics.countStatusChange(change.Status)
	w.poller.log.DebugContext(ctx, "shoot status changed", "cluster_id", change.ClusterID, "shoot", row.ShootName, "was", was, "is", change.Status, "message", change.Message)
	if change.Change == nil {
		return
	}
	if change.Status == v1.ShootError {
		w.poller.log.WarnContext(ctx, "shoot failed", "cluster_id", change.ClusterID, "cluster", row.Name, "shoot", row.ShootName, "message", change.Message)
	}
	w.poller.deps.Recorder.Record(ctx, *change.Change)
}

// requeueDriftedClusters requeues the clusters whose Shoots differ from their last applied
// spec. Rows that it does not requeue have changed or are being changed, for example by a
// report to the API, and are checked again.
func (w *statusWriter) requeueDriftedClusters(ctx context.Context, driftedByCluster map[string]driftedShoot) error {
	ids := slices.Collect(maps.Keys(driftedByCluster))
	var requeued []string
	err := w.tenure.writeWithinTerm(ctx, func(ctx context.Context, fence int64) (err error) {
		requeued, err = w.poller.deps.Store.RequeueSynced(ctx, fence, ids)
		return err
	})
	if err != nil {
		return fmt.Errorf("requeue %d clusters: %w", len(ids), err)
	}
	counts, done := map[Drift]int{}, toSet(requeued)
	for id := range done {
		d := driftedByCluster[id]
		counts[d.drift]++
		level := slog.LevelDebug
		if d.drift == DriftMissing || d.drift == DriftAhead {
			level = slog.LevelWarn // the Shoot is created again, or is newer than the database
		}
		w.poller.log.Log(ctx, level, "shoot drifted, cluster requeued", "cluster_id", id, "shoot", d.shoot, "reason", d.drift)
	}
	for id, d := range driftedByCluster {
		if !done[id] {
			w.later.delayObservation(shootKey{id, d.shoot}, d.from, databaseRetryPolicy().Delay(d.from.tries))
		}
	}
	for _, drift := range listDriftKinds() {
		if n := counts[drift]; n > 0 {
			w.poller.metrics.drift.WithLabelValues(string(drift)).Add(float64(n))
			w.poller.log.InfoContext(ctx, "shoots drifted, clusters requeued", "reason", drift, "shoots", n)
		}
	}
	return nil
}

func toSet(ids []string) map[string]bool {
	set := make(map[string]bool, len(ids))
	for _, id := range ids {
		set[id] = true
	}
	return set
}

// newStatusChangeEvent returns the change event of a new status of a row, nil without an event.
func newStatusChangeEvent(change *clusterworker.StatusChange, row *clusterworker.Row, now time.Time) *clusterworker.Change {
	action, ok := changeActionOfStatus(change.Status)
	if !ok || change.Status == row.Status {
		return nil
	}
	return &clusterworker.Change{
		At: now, Action: action, ClusterID: change.ClusterID, Cluster: row.Name, Tenant: row.Tenant,
		Shoot: row.ShootName, Generation: row.ClusterGeneration, Message: change.Message,
	}
}

// changeActionOfStatus returns the action of a change event for a new status, or false if the
// status has no event.
func changeActionOfStatus(status v1.ShootStatus) (action clusterworker.Action, hasEvent bool) {
	switch status {
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
