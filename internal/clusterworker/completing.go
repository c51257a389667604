package clusterworker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// maxBatch is the largest number of results in one write.
const maxBatch = 200

// An outcomeWriter writes the outcomes of claims. It is one goroutine.
//
// Results that could not be written are written later, as long as the lease holds.
// Failed results move behind the others, and the next batch is half as large. So one
// result that the database rejects ends up alone, and does not block the others.
type outcomeWriter struct {
	worker   *Worker
	pending  []outcome // results
	releases []Claim   // to release at shutdown
	batch    int       // size of the next write
	failures int       // consecutive failed writes
	timer    *time.Timer
}

// writeOutcomesUntilDone writes outcomes until all are written and no more can come, or ctx
// ends.
func (w *Worker) writeOutcomesUntilDone(ctx context.Context) {
	c := &outcomeWriter{worker: w, batch: maxBatch, timer: time.NewTimer(0)}
	defer c.timer.Stop()
	defer w.writePulse.recordIdle()
	for c.waitForOutcome(ctx) {
		w.writePulse.recordProgress()
		c.receiveOutcomesWithinDelay(ctx)
		if c.writeResultBatch(ctx) != nil {
			_ = backoff.Sleep(ctx, databaseRetryPolicy().Delay(c.failures)) // the loop checks ctx
			c.failures++
		}
	}
	c.releaseUnfinishedClaims(ctx)
	if n := len(c.pending); n > 0 {
		w.log.WarnContext(ctx, "results not written before shutdown, clusters will be retried", "results", n)
	}
}

// waitForOutcome waits for an outcome, and reports whether there is one to write.
func (c *outcomeWriter) waitForOutcome(ctx context.Context) (hasOutcome bool) {
	for len(c.pending) == 0 {
		c.worker.writePulse.recordIdle()
		select {
		case o := <-c.worker.outcomes:
			c.addOutcomeByKind(ctx, o)
		case <-c.worker.ended:
			// No outcome can follow those in the channel.
			c.receiveQueuedOutcomes(ctx)
			return len(c.pending) > 0 && ctx.Err() == nil
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// addOutcomeByKind adds an outcome to the results or to the claims to release, or drops an abandoned claim.
func (c *outcomeWriter) addOutcomeByKind(ctx context.Context, o outcome) {
	switch o.kind {
	case outcomeResult:
		c.pending = append(c.pending, o)
	case outcomeRelease:
		c.releases = append(c.releases, o.Claim)
	case outcomeAbandoned:
		c.worker.metrics.abandoned.Inc()
		c.worker.log.DebugContext(ctx, "claim abandoned", "cluster_id", o.ClusterID)
		c.setAlarmAfterLeaseEnd(o)
		c.finishClaims(1)
	}
}

// receiveQueuedOutcomes takes the outcomes in the channel, up to one batch.
func (c *outcomeWriter) receiveQueuedOutcomes(ctx context.Context) {
	for len(c.pending) < maxBatch {
		select {
		case o := <-c.worker.outcomes:
			c.addOutcomeByKind(ctx, o)
		default:
			return
		}
	}
}

// receiveOutcomesWithinDelay waits a little for more results while calls run.
func (c *outcomeWriter) receiveOutcomesWithinDelay(ctx context.Context) {
	c.receiveQueuedOutcomes(ctx)
	c.timer.Reset(c.worker.cfg.CompleteDelay)
	for len(c.pending) < maxBatch {
		if c.worker.limiter.counts().running == 0 {
			c.receiveQueuedOutcomes(ctx)
			return
		}
		select {
		case o := <-c.worker.outcomes:
			c.addOutcomeByKind(ctx, o)
		case <-c.timer.C:
			return
		}
	}
}

// writeResultBatch writes one batch.
func (c *outcomeWriter) writeResultBatch(ctx context.Context) error {
	results := c.prepareFirstPendingResults()
	lost, err := c.writeResultsOnce(ctx, results)
	c.worker.db.recordRequestResult(ctx, toComplete, err)
	if err != nil {
		c.batch = max(1, len(results)/2)
		c.requeueResultsOrDropExpired(ctx, len(results))
		return err
	}
	c.failures = 0
	c.batch = min(maxBatch, 2*c.batch)
	for _, o := range c.pending[:len(results)] {
		if slices.Contains(lost, o.ClusterID) {
			c.recordLostClaim(ctx, o)
		} else {
			c.recordWrittenResult(ctx, o)
		}
	}
	c.pending = slices.Delete(c.pending, 0, len(results))
	c.finishClaims(len(results))
	return nil
}

// prepareFirstPendingResults returns the results of the next batch, at most one per cluster. A claim
// that was lost to a later claim of this worker is identified by its cluster.
func (c *outcomeWriter) prepareFirstPendingResults() []Result {
	maxResults := min(c.batch, len(c.pending))
	results := make([]Result, 0, maxResults)
	clusters := make(map[string]bool, maxResults)
	for i := range c.pending[:maxResults] {
		o := &c.pending[i]
		if clusters[o.ClusterID] {
			break
		}
		clusters[o.ClusterID] = true
		if change, ok := newSyncChange(o.Claim, o.result); ok {
			change.At = time.Now()
			o.result.Change = &change
		}
		results = append(results, o.result)
	}
	return results
}

func (c *outcomeWriter) writeResultsOnce(ctx context.Context, results []Result) (lostClusterIDs []string, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return c.worker.deps.Store.WriteResults(ctx, results)
}

// requeueResultsOrDropExpired moves the first count results behind the others, except those whose lease is over.
// Those rows are due again and some worker will retry them.
func (c *outcomeWriter) requeueResultsOrDropExpired(ctx context.Context, count int) {
	unwritten := slices.Clone(c.pending[:count])
	c.pending = slices.Delete(c.pending, 0, count)
	for _, o := range unwritten {
		if o.hasLeaseFor(0) {
			c.pending = append(c.pending, o)
			continue
		}
		c.recordLostClaim(ctx, o)
		c.finishClaims(1)
	}
}

// finishClaims makes room for new claims instead of finished ones.
func (c *outcomeWriter) finishClaims(count int) {
	c.worker.limiter.subtractFinishedClaims(count)
	c.worker.wakeClaimer()
}

// recordLostClaim counts a result that was not written because the claim was lost.
func (c *outcomeWriter) recordLostClaim(ctx context.Context, o outcome) {
	c.worker.metrics.fenced.Inc()
	c.worker.log.WarnContext(ctx, "claim lost, result discarded", "cluster_id", o.ClusterID, "token", o.Token)
	c.setAlarmAfterLeaseEnd(o)
}

// setAlarmAfterLeaseEnd sets an alarm to claim the row after its lease ends, in case no other
// worker has.
func (c *outcomeWriter) setAlarmAfterLeaseEnd(o outcome) {
	c.worker.alarms.addAlarm(o.Until.Add(time.Second))
}

// recordWrittenResult logs and counts a written result, and sends its change event.
func (c *outcomeWriter) recordWrittenResult(ctx context.Context, o outcome) {
	w, now := c.worker, time.Now()
	w.metrics.countSyncResult(o.timedClaim, o.result)
	if o.result.Err != nil {
		w.alarms.addAlarm(now.Add(o.result.Delay))
		c.logSyncFailure(ctx, o)
	} else {
		w.log.DebugContext(ctx, "cluster synced", "cluster_id", o.ClusterID, "shoot", o.ShootName, "generation", o.Generation, "deleting", o.Deleting)
		c.warnOfRecreation(ctx, o)
	}
	if w.notified.mayHaveMissedNotification(o.claimed, now) {
		w.alarms.addAlarm(now)
	}
	if o.result.Change != nil && w.deps.Recorder != nil {
		w.deps.Recorder.Record(ctx, *o.result.Change)
	}
}

// warnOfRecreation logs a warning if the sync created a Shoot that existed before. Another client deleted the Shoot, or
// the restore of a backup brought back a deleted cluster.
func (c *outcomeWriter) warnOfRecreation(ctx context.Context, o outcome) {
	if !o.result.Applied.Created || o.ShootUID == "" {
		return
	}
	if omitted, ok := c.worker.sampler.AllowLogLine("recreation"); ok {
		c.worker.log.WarnContext(ctx, "missing Shoot created again", "cluster_id", o.ClusterID, "shoot", o.ShootName, "suppressed", omitted)
	}
}

// logSyncFailure logs a failure: at debug level, or as a warning. The warnings are the first
// failure of a row and the one that makes it stuck.
func (c *outcomeWriter) logSyncFailure(ctx context.Context, o outcome) {
	result, failures := o.result, countFailuresWithThis(o.Claim)
	level, log := slog.LevelDebug, c.worker.log
	isFirstOrStuck := failures == 1 || failures == v1.StuckAttempts
	if result.CountsAttempt && isFirstOrStuck {
		if omitted, ok := c.worker.sampler.AllowLogLine(string(result.Class)); ok {
			level = slog.LevelWarn
			if omitted > 0 {
				log = log.With("suppressed", omitted)
			}
		}
	}
	log.Log(ctx, level, "cluster sync failed", "cluster_id", o.ClusterID, "shoot", o.ShootName, "class", string(result.Class),
		"err", result.Err, "failures", failures, "counts", result.CountsAttempt, "retry_in", result.Delay.Round(time.Second))
}

// releaseUnfinishedClaims releases unfinished claims, until the database accepts that or ctx
// ends.
func (c *outcomeWriter) releaseUnfinishedClaims(ctx context.Context) {
	if len(c.releases) == 0 {
		return
	}
	for failures := 0; ctx.Err() == nil; failures++ {
		c.worker.writePulse.recordProgress()
		err := c.releaseClaimsOnce(ctx)
		c.worker.db.recordRequestResult(ctx, toRelease, err)
		if err == nil {
			c.worker.limiter.subtractFinishedClaims(len(c.releases))
			c.worker.released = len(c.releases)
			return
		}
		_ = backoff.Sleep(ctx, databaseRetryPolicy().Delay(failures)) // the loop checks ctx
	}
	c.worker.log.WarnContext(ctx, "claims not released before shutdown, leases will expire", "claims", len(c.releases))
}

func (c *outcomeWriter) releaseClaimsOnce(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return c.worker.deps.Store.ReleaseClaims(ctx, c.releases)
}

// newSyncChange returns the change event of a written result, or false without an event.
func newSyncChange(claim Claim, result Result) (change Change, hasChange bool) {
	switch {
	case result.Err != nil && result.CountsAttempt && claim.Attempts == 0:
		return newChange(claim, ShootFailed, string(result.Class)+": "+result.Err.Error()), true
	case result.Err != nil:
		return Change{}, false
	case result.Absent && claim.ReportedShootUID != "":
		return newShootChange(claim, ShootDeleted, claim.ReportedShootUID, ""), true
	case result.Absent:
		return Change{}, false
	case result.Applied.UID != claim.ReportedShootUID && result.Deleting:
		// The Shoot appeared after recordUnreportedCreation did not find it.
		return newShootChange(claim, ShootCreated, result.Applied.UID, lostCreationMessage), true
	case result.Applied.UID != claim.ReportedShootUID:
		// This call created the Shoot, or the result of an earlier one was lost.
		return newShootChange(claim, ShootCreated, result.Applied.UID, ""), true
	case result.Deleting:
		return Change{}, false
	case result.Applied.Changed, hasUnrecordedUpdate(claim, result.Applied):
		return newChange(claim, ShootUpdated, ""), true
	}
	return Change{}, false
}

// lostCreationMessage is the message of a creation that is reported late.
const lostCreationMessage = "reported late, because the result of the creation was lost"

func newChange(claim Claim, action Action, message string) Change {
	return Change{
		Action: action, Message: message, ClusterID: claim.ClusterID, Cluster: claim.Name, Tenant: claim.Tenant,
		Shoot: claim.ShootName, Generation: claim.ClusterGeneration,
	}
}

// newShootChange returns a change that happens once to a Shoot: its creation or its deletion.
func newShootChange(claim Claim, action Action, shootUID, message string) Change {
	change := newChange(claim, action, message)
	change.ShootUID = shootUID
	return change
}

// hasUnrecordedUpdate reports whether an earlier sync changed the Shoot and its result was lost: the Shoot
// had a newer generation than the last recorded one, and its spec has changed since.
func hasUnrecordedUpdate(claim Claim, applied shoot.Applied) bool {
	return applied.SentBefore > claim.SyncedGeneration && applied.Generation > claim.ShootGeneration
}
