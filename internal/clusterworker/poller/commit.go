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
	changes   []pendingChange
	drifts    map[string]driftedShoot // by cluster
	unchanged []pendingUnchanged
}

// A pendingUnchanged is an observation without a change.
type pendingUnchanged struct {
	clusterworker.UnchangedStatus
	key      shootKey
	observed observation
	// isNew is whether the observation shows a generation of the Shoot for the first time.
	isNew bool
}

// A pendingChange is a change of a row with the observation behind it.
type pendingChange struct {
	change   clusterworker.StatusChange
	row      clusterworker.Row
	observed observation
	shoot    *shoot.Observed // nil if the row's Shoot was absent
	// operationBegan is when Gardener began the operation that a watch reported, zero if the
	// watch reported no new operation.
	operationBegan time.Time
}

type driftedShoot struct {
	drift    Drift
	key      shootKey
	observed observation
}

// A statusWriter writes what observations mean for their rows.
type statusWriter struct {
	poller       *Poller
	term         *leaderTerm
	inbox        *inbox
	cache        *statusCache
	delayed      *delayedObservations
	installation string
}

// progressInterval is the shortest time between the write of a Shoot's status and that of further progress. Other changes
// are written at once.
const progressInterval = 5 * time.Second

// cacheOrDelayEvent reports whether an event needs no write now, compared with the cached row. If it changes nothing, its
// Shoot is cached. If it shows only progress soon after the last write, it is delayed. The absence of a Shoot always counts
// as a change, and so does any requested observation.
func (w *statusWriter) cacheOrDelayEvent(key shootKey, observed *observation) (done bool) {
	if !observed.fromWatch || observed.checkDrift || observed.shoot == nil {
		return false
	}
	entry, ok := w.cache.getEntry(key.cluster)
	if !ok || entry.row.ShootName != key.name {
		return false
	}
	decision, ok := w.decideRowActionRecoveringPanic(&entry.row, observed)
	if !ok || observed.shoot.Generation > entry.row.StatusGeneration {
		return false
	}
	if decision == (rowDecision{}) {
		w.cache.storeRowAndShoot(&entry.row, observed.shoot)
		return true
	}
	remaining := progressInterval - time.Since(entry.savedAt)
	if !decision.isProgressOnly() || remaining <= 0 {
		return false
	}
	w.cache.recordLastOperation(key.cluster, observed.shoot)
	later := *observed
	later.fromWatch = false // its delay is no lag
	w.delayed.delayObservation(key, later, remaining)
	return true
}

// isProgressOnly reports whether the only consequence is another message about a Shoot in progress.
func (d rowDecision) isProgressOnly() bool {
	return d.change != nil && d.drift == DriftNone && !d.needsLiveRead && d.change.ShootUID == "" &&
		d.change.Status == v1.ShootProgressing && d.change.WasStatus == v1.ShootProgressing
}

// decideRowActionRecoveringPanic decides what an observation means for a row. It recovers from a panic, so that a faulty
// Shoot does not affect the others.
func (w *statusWriter) decideRowActionRecoveringPanic(row *clusterworker.Row, observed *observation) (decision rowDecision, noPanic bool) {
	defer func() {
		if v := recover(); v != nil {
			w.poller.metrics.countFailure(classPanic)
			w.poller.log.Error("panic recovered, shoot skipped", "cluster_id", row.ClusterID, "shoot", row.ShootName, "err", fmt.Sprint(v), "stack", string(debug.Stack()))
			decision, noPanic = rowDecision{}, false
		}
	}()
	return decideRowAction(row, w.installation, observed), true
}

// queueRowWritesAndLiveRead adds the consequences of an observation for a row to a batch. recordCheckTime is
// whether to record the time of the observation even if nothing has changed.
func (w *statusWriter) queueRowWritesAndLiveRead(batch *pendingWrites, row *clusterworker.Row, observed observation, recordCheckTime bool) {
	decision, ok := w.decideRowActionRecoveringPanic(row, &observed)
	if !ok {
		return
	}
	key := shootKey{row.ClusterID, row.ShootName}
	if decision.needsLiveRead {
		w.queueLiveReadOrBackOff(key, row, observed)
	}
	if decision.drift != DriftNone {
		batch.addDriftedShoot(decision.drift, key, observed)
	}
	ownShoot := shootIfOwnedByRow(row, w.installation, observed.shoot)
	if decision.change != nil {
		pending := pendingChange{change: *decision.change, row: *row, observed: observed, shoot: ownShoot}
		pending.operationBegan = w.newWatchedOperationBeginOrZero(row.ClusterID, ownShoot, observed.fromWatch)
		batch.changes = append(batch.changes, pending)
		return
	}
	w.cache.storeRowAndShoot(row, ownShoot)
	pending := pendingUnchanged{key: key, observed: observed}
	pending.ClusterID, pending.ShootUID = row.ClusterID, row.ShootUID
	if ownShoot != nil {
		pending.isNew = ownShoot.Generation > row.StatusGeneration
		pending.Generation = max(ownShoot.Generation, row.StatusGeneration) // the observation may be stale
	}
	if (recordCheckTime || pending.isNew) && !decision.needsLiveRead && row.ShootName != "" {
		batch.unchanged = append(batch.unchanged, pending)
	}
}

// queueLiveReadOrBackOff requests a live read that confirms an observation. It delays the read if the row has changed during
// several ones.
func (w *statusWriter) queueLiveReadOrBackOff(key shootKey, row *clusterworker.Row, observed observation) {
	if observed.tries > maxImmediateReads && !observed.wasDelayed {
		w.delayed.delayObservation(key, observed, databaseRetryPolicy().Delay(observed.tries))
		return
	}
	readFor := *row
	w.inbox.queueLiveReadIfNotPending(liveRead{
		shootKey: key, readFor: &readFor, checkDrift: observed.checkDrift, fromPoll: observed.fromPoll, tries: observed.tries + 1,
	})
}

func (b *pendingWrites) addDriftedShoot(drift Drift, key shootKey, observed observation) {
	if b.drifts == nil {
		b.drifts = map[string]driftedShoot{}
	}
	b.drifts[key.cluster] = driftedShoot{drift, key, observed}
}

// newWatchedOperationBeginOrZero returns when Gardener began the operation that a watch reported, zero if it reported no new one.
func (w *statusWriter) newWatchedOperationBeginOrZero(clusterID string, observed *shoot.Observed, fromWatch bool) time.Time {
	if !fromWatch || observed == nil || observed.LastOperation == nil {
		return time.Time{}
	}
	began := observed.LastOperation.Updated
	if !w.cache.isNewerOperation(clusterID, began) {
		return time.Time{}
	}
	return began
}

// writeBatch writes a batch.
func (w *statusWriter) writeBatch(ctx context.Context, batch *pendingWrites) error {
	if err := w.saveStatusChanges(ctx, batch.changes); err != nil {
		return err
	}
	if err := w.requeueDriftedClusters(ctx, batch.drifts); err != nil {
		return err
	}
	for part := range slices.Chunk(batch.unchanged, maxBatch) {
		if err := w.recordUnchanged(ctx, part); err != nil {
			return fmt.Errorf("record check of %d clusters: %w", len(part), err)
		}
	}
	return nil
}

// recordUnchanged writes observations without a change. New generations that are not written are checked again: no
// other event may follow.
func (w *statusWriter) recordUnchanged(ctx context.Context, pending []pendingUnchanged) error {
	observed := make([]clusterworker.UnchangedStatus, len(pending))
	for i := range pending {
		observed[i] = pending[i].UnchangedStatus
	}
	var recorded []string
	err := w.term.writeWithinTerm(ctx, func(ctx context.Context, fence int64) (err error) {
		recorded, err = w.poller.deps.Store.RecordUnchanged(ctx, fence, observed)
		return err
	})
	if err != nil {
		return err
	}
	isRecorded := toSet(recorded)
	mayBeReportable := false
	for i := range pending {
		p := &pending[i]
		mayBeReportable = mayBeReportable || p.isNew
		if p.isNew && !isRecorded[p.ClusterID] {
			w.recheckAfterDelay(p.key, p.observed)
		}
	}
	if mayBeReportable && w.poller.deps.Wrote != nil {
		w.poller.deps.Wrote()
	}
	return nil
}

// saveStatusChanges writes changes. Rows that are not written have changed since they were read, or are being changed, and
// are checked again.
func (w *statusWriter) saveStatusChanges(ctx context.Context, pending []pendingChange) error {
	if len(pending) == 0 {
		return nil
	}
	now := time.Now()
	changes := make([]clusterworker.StatusChange, len(pending))
	for i := range pending {
		p := &pending[i]
		// The row is unknown until the result of the write is known.
		w.cache.removeEntry(p.row.ClusterID)
		p.change.Change = newStatusChangeEventOrNil(&p.change, &p.row, now)
		changes[i] = p.change
	}
	var saved []string
	err := w.term.writeWithinTerm(ctx, func(ctx context.Context, fence int64) (err error) {
		saved, err = w.poller.deps.Store.SaveStatus(ctx, fence, changes)
		return err
	})
	if err != nil {
		return fmt.Errorf("save status of %d Shoots: %w", len(changes), err)
	}
	now = time.Now()
	isSaved := toSet(saved)
	for i := range pending {
		p := &pending[i]
		if isSaved[p.row.ClusterID] {
			w.cacheSavedChangeAndRecordEvent(ctx, p, now)
		} else {
			w.recheckAfterDelay(shootKey{p.row.ClusterID, p.row.ShootName}, p.observed)
		}
	}
	if len(saved) > 0 && w.poller.deps.Wrote != nil {
		w.poller.deps.Wrote()
	}
	return nil
}

// recheckAfterDelay handles an observation again later, because its row could not be written.
func (w *statusWriter) recheckAfterDelay(key shootKey, observed observation) {
	w.delayed.delayObservation(key, observed, databaseRetryPolicy().Delay(observed.tries))
}

// cacheSavedChangeAndRecordEvent caches a written change and records its event.
func (w *statusWriter) cacheSavedChangeAndRecordEvent(ctx context.Context, saved *pendingChange, now time.Time) {
	change, row := saved.change, saved.row
	previous := row.Status
	row.Status, row.StatusMessage, row.StatusGeneration = change.Status, change.Message, change.Generation
	row.ReadyOnce = row.ReadyOnce || change.Status == v1.ShootReady
	if change.ShootUID != "" {
		row.ShootUID = change.ShootUID
	}
	w.cache.storeSavedRowAndShoot(&row, saved.shoot, now)
	if !saved.operationBegan.IsZero() {
		w.poller.metrics.lag.Observe(max(0, now.Sub(saved.operationBegan)).Seconds())
	}
	if change.Status == previous {
		return
	}
	w.poller.metrics.countStatusChange(change.Status)
	w.poller.log.DebugContext(ctx, "shoot status changed", "cluster_id", change.ClusterID, "shoot", row.ShootName, "was", previous, "is", change.Status, "message", change.Message)
	if change.Change == nil {
		return
	}
	if change.Status == v1.ShootError {
		w.poller.log.WarnContext(ctx, "shoot failed", "cluster_id", change.ClusterID, "cluster", row.Name, "shoot", row.ShootName, "message", change.Message)
	}
	if w.poller.deps.Recorder != nil {
		w.poller.deps.Recorder.Record(ctx, *change.Change)
	}
}

// requeueDriftedClusters requeues the clusters whose Shoots differ from their last applied
// spec. Rows that it does not requeue have changed or are being changed, for example by a
// report to the API, and are checked again.
func (w *statusWriter) requeueDriftedClusters(ctx context.Context, driftedByCluster map[string]driftedShoot) error {
	if len(driftedByCluster) == 0 {
		return nil
	}
	var requeued []string
	err := w.term.writeWithinTerm(ctx, func(ctx context.Context, fence int64) (err error) {
		requeued, err = w.poller.deps.Store.RequeueSynced(ctx, fence, slices.Collect(maps.Keys(driftedByCluster)))
		return err
	})
	if err != nil {
		return fmt.Errorf("requeue %d clusters: %w", len(driftedByCluster), err)
	}
	counts := map[Drift]int{}
	isRequeued := toSet(requeued)
	for id, drifted := range driftedByCluster {
		if !isRequeued[id] {
			w.recheckAfterDelay(drifted.key, drifted.observed)
			continue
		}
		counts[drifted.drift]++
		level := slog.LevelDebug
		if drifted.drift == DriftMissing || drifted.drift == DriftAhead {
			level = slog.LevelWarn // the Shoot is created again, or is newer than the database
		}
		w.poller.log.Log(ctx, level, "shoot drifted, cluster requeued", "cluster_id", id, "shoot", drifted.key.name, "reason", drifted.drift)
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

// newStatusChangeEventOrNil returns the change event of a new status of a row, nil without an event.
func newStatusChangeEventOrNil(change *clusterworker.StatusChange, row *clusterworker.Row, now time.Time) *clusterworker.Change {
	action, ok := changeActionOfStatus(change.Status)
	if !ok || change.Status == row.Status {
		return nil
	}
	event := &clusterworker.Change{
		At: now, Action: action, ClusterID: change.ClusterID, Cluster: row.Name, Tenant: row.Tenant,
		Shoot: row.ShootName, Generation: row.ClusterGeneration, Message: change.Message,
	}
	if action == clusterworker.ShootDeleted {
		event.ShootUID = row.ShootUID
	}
	return event
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
		return "", false
	}
	return "", false
}
