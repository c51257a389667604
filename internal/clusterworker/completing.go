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
	*Worker
	pending []outcome // results
	back    []outcome // to release at shutdown
	batch   int       // size of the next write
	failed  int       // consecutive failed writes
	timer   *time.Timer
}

// writeOutcomesUntilDone writes outcomes until all are written and no more can come, or ctx
// ends.
func (w *Worker) writeOutcomesUntilDone(ctx context.Context) {
	c := &outcomeWriter{Worker: w, batch: maxBatch, timer: time.NewTimer(0)}
	defer c.timer.Stop()
	defer c.writePulse.recordIdle()
	for c.waitForOutcome(ctx) {
		c.writePulse.recordProgress()
		c.receiveOutcomesWithinDelay(ctx)
		if c.writeResultBatch(ctx) != nil {
			_ = backoff.Sleep(ctx, databaseRetryPolicy().Delay(c.failed))
			c.failed++
		}
	}
	c.releaseUnfinishedClaims(ctx)
	if n := len(c.pending); n > 0 {
		c.log.WarnContext(ctx, "results not written before shutdown, clusters will be retried", "results", n)
	}
}

// waitForOutcome waits for an outcome, and reports whether there is one to write.
func (c *outcomeWriter) waitForOutcome(ctx context.Context) (hasOutcome bool) {
	for len(c.pending) == 0 {
		c.writePulse.recordIdle()
		select {
		case o := <-c.outcomes:
			c.addToPendingResultsOrReleases(ctx, o)
		case <-c.ended:
			// No outcome can follow those in the channel.
			if c.receiveQueuedOutcomes(ctx); len(c.pending) == 0 {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// addToPendingResultsOrReleases adds an outcome to the results or to the claims to release.
func (c *outcomeWriter) addToPendingResultsOrReleases(ctx context.Context, o outcome) {
	switch o.fate {
	case fateResult:
		c.pending = append(c.pending, o)
	case fateBack:
		c.back = append(c.back, o)
	case fateForgone:
		c.counts.forgone.Add(1)
		c.metrics.forgone.Inc()
		c.log.DebugContext(ctx, "claim abandoned", "cluster_id", o.ClusterID)
		c.setAlarmAfterLeaseEnd(o)
		c.floor.subtractWrittenClaims(1)
		c.wakeClaimer()
	}
}

// receiveQueuedOutcomes takes the outcomes in the channel, up to one batch.
func (c *outcomeWriter) receiveQueuedOutcomes(ctx context.Context) {
	for len(c.pending) < maxBatch {
		select {
		case o := <-c.outcomes:
			c.addToPendingResultsOrReleases(ctx, o)
		default:
			return
		}
	}
}

// receiveOutcomesWithinDelay waits a little for more results while calls run.
func (c *outcomeWriter) receiveOutcomesWithinDelay(ctx context.Context) {
	c.receiveQueuedOutcomes(ctx)
	c.timer.Reset(c.cfg.CompleteDelay)
	for len(c.pending) < maxBatch {
		if running, _, _ := c.floor.countCallsAndClaims(); running == 0 {
			c.receiveQueuedOutcomes(ctx)
			return
		}
		select {
		case o := <-c.outcomes:
			c.addToPendingResultsOrReleases(ctx, o)
		case <-c.timer.C:
			return
		}
	}
}

// writeResultBatch writes one batch.
func (c *outcomeWriter) writeResultBatch(ctx context.Context) error {
	results := c.prepareNextResultBatch()
	n := len(results)
	now := c.pending[:n]
	lost, err := c.writeResultsOnce(ctx, results)
	c.db.recordRequestResult(ctx, toComplete, err)
	if err != nil {
		c.batch = max(1, n/2)
		c.requeueResultsOrDropExpired(ctx, n)
		return err
	}
	c.failed = 0
	c.batch = min(maxBatch, 2*c.batch)
	gone := make(map[string]bool, len(lost))
	for _, id := range lost {
		gone[id] = true
	}
	for _, o := range now {
		if gone[o.ClusterID] {
			c.recordLostClaim(ctx, o)
		} else {
			c.recordWrittenResult(ctx, o)
		}
	}
	c.floor.subtractWrittenClaims(n)
	c.pending = slices.Delete(c.pending, 0, n)
	c.wakeClaimer()
	return nil
}

// prepareNextResultBatch returns the results of the next batch, at most one per cluster. A claim
// that was lost to a later claim of this worker is identified by its cluster.
func (c *outcomeWriter) prepareNextResultBatch() []Result {
	most := min(c.batch, len(c.pending))
	results := make([]Result, 0, most)
	clusters := make(map[string]struct{}, most)
	for i := range c.pending[:most] {
		o := &c.pending[i]
		if _, ok := clusters[o.ClusterID]; ok {
			break
		}
		clusters[o.ClusterID] = struct{}{}
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
	return c.store.WriteResults(ctx, results)
}

// requeueResultsOrDropExpired moves the first count results behind the others, except those whose lease is over.
// Those rows are due again and some worker will retry them.
func (c *outcomeWriter) requeueResultsOrDropExpired(ctx context.Context, count int) {
	first := slices.Clone(c.pending[:count])
	c.pending = slices.Delete(c.pending, 0, count)
	for _, o := range first {
		if o.hasLeaseFor(0) {
			c.pending = append(c.pending, o)
			continue
		}
		c.recordLostClaim(ctx, o)
		c.floor.subtractWrittenClaims(1)
		c.wakeClaimer()
	}
}

// recordLostClaim counts a result that was not written because the claim was lost.
func (c *outcomeWriter) recordLostClaim(ctx context.Context, o outcome) {
	c.counts.lost.Add(1)
	c.metrics.fenced.Inc()
	c.log.WarnContext(ctx, "claim lost, result discarded", "cluster_id", o.ClusterID, "token", o.Token)
	c.setAlarmAfterLeaseEnd(o)
}

// setAlarmAfterLeaseEnd sets an alarm to claim the row after its lease ends, in case no other
// worker has.
func (c *outcomeWriter) setAlarmAfterLeaseEnd(o outcome) { c.alarms.addAlarm(o.Until.Add(time.Second)) }

// recordWrittenResult logs and counts a written result, and sends its change event.
func (c *outcomeWriter) recordWrittenResult(ctx context.Context, o outcome) {
	now := time.Now()
	c.metrics.countSyncResult(o.timedClaim, o.result)
	switch {
	case o.result.Err != nil:
		c.counts.failed.Add(1)
		c.alarms.addAlarm(now.Add(o.result.Delay))
		c.logSyncFailure(ctx, o)
	default:
		c.counts.synced.Add(1)
		c.log.DebugContext(ctx, "cluster synced", "cluster_id", o.ClusterID, "shoot", o.ShootName, "generation", o.Generation, "deleting", o.Deleting)
	}
	staysDue := o.result.Err == nil && o.result.Generation != o.Generation
	if staysDue || c.woken.mayHaveMissedNotification(o.claimed, now) {
		c.alarms.addAlarm(now)
	}
	if o.result.Change != nil {
		c.recorder.Record(ctx, *o.result.Change)
	}
}

// logSyncFailure logs a failure: at debug level, or as a warning. The warnings are the first
// failure of a row and the one that makes it stuck.
func (c *outcomeWriter) logSyncFailure(ctx context.Context, o outcome) {
	r, n := o.result, countFailuresWithThis(o.Claim)
	level, log := slog.LevelDebug, c.log
	if r.Spend && (n == 1 || n == v1.StuckAttempts) {
		if omitted, ok := c.sampler.AllowLogLine(string(r.Class)); ok {
			level = slog.LevelWarn
			if omitted > 0 {
				log = log.With("suppressed", omitted)
			}
		}
	}
	log.Log(ctx, level, "cluster sync failed", "cluster_id", o.ClusterID, "shoot", o.ShootName, "class", string(r.Class),
		"err", r.Err, "failures", n, "counts", r.Spend, "retry_in", r.Delay.Round(time.Second))
}

// releaseUnfinishedClaims releases unfinished claims, until the database accepts that or ctx
// ends.
func (c *outcomeWriter) releaseUnfinishedClaims(ctx context.Context) {
	if len(c.back) == 0 {
		return
	}
	claims := make([]Claim, len(c.back))
	for i, o := range c.back {
		claims[i] = o.Claim
	}
	for failed := 0; ctx.Err() == nil; failed++ {
		c.writePulse.recordProgress()
		err := c.releaseClaimsOnce(ctx, claims)
		c.db.recordRequestResult(ctx, toRelease, err)
		if err == nil {
			c.floor.subtractWrittenClaims(len(claims))
			c.counts.released.Add(uint64(len(claims)))
			return
		}
		_ = backoff.Sleep(ctx, databaseRetryPolicy().Delay(failed))
	}
	c.log.WarnContext(ctx, "claims not released before shutdown, leases will expire", "claims", len(claims))
}

func (c *outcomeWriter) releaseClaimsOnce(ctx context.Context, claims []Claim) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return c.store.ReleaseClaims(ctx, claims)
}

// hasUnrecordedUpdate reports whether an earlier sync changed the Shoot and its result was lost: the Shoot
// had a newer generation than the last recorded one, and its spec has changed since.
func hasUnrecordedUpdate(claim Claim, applied shoot.Applied) bool {
	return applied.SentBefore > claim.SyncedGeneration && applied.Generation > claim.ShootGeneration
}

// newSyncChange returns the change event of a written result, or false without an event.
func newSyncChange(claim Claim, result Result) (change Change, hasChange bool) {
	change = Change{ClusterID: claim.ClusterID, Cluster: claim.Name, Tenant: claim.Tenant, Shoot: claim.ShootName, Generation: claim.ClusterGeneration}
	switch {
	case result.Err != nil && result.Spend && claim.Attempts == 0:
		change.Action, change.Message = ShootFailed, string(result.Class)+": "+result.Err.Error()
	case result.Err != nil:
		return Change{}, false
	case result.Deleting && result.Absent && claim.ShootUID != "":
		change.Action = ShootDeleted
	case result.Deleting && (result.Absent || claim.SyncedGeneration > 0):
		return Change{}, false
	case claim.Deleting:
		// No success was recorded until now.
		change.Action, change.Message = ShootCreated, "reported at the deletion, because the result of the creation was lost"
	case result.Applied.Created, claim.SyncedGeneration == 0:
		// A Shoot that exists although no success was recorded: the result of its creation was lost. Its UID may be
		// known, because the poller records it, too.
		change.Action = ShootCreated
	case result.Applied.Changed, hasUnrecordedUpdate(claim, result.Applied):
		change.Action = ShootUpdated
	default:
		return Change{}, false
	}
	return change, true
}
