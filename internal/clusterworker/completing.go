package clusterworker

import (
	"context"
	"log/slog"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

// maxBatch is the largest number of results in one write.
const maxBatch = 200

// A writer writes the outcomes of claims. It is one goroutine.
//
// Results that could not be written are written later, as long as the lease holds.
// Failed results move behind the others, and the next batch is half as large. So one
// result that the database rejects ends up alone, and does not block the others.
type writer struct {
	*Worker
	pending []outcome // results
	back    []outcome // to release at shutdown
	batch   int       // size of the next write
	failed  int       // consecutive failed writes
	timer   *time.Timer
}

// writeOutcomes writes outcomes until all are written and no more can come, or ctx
// ends.
func (w *Worker) writeOutcomes(ctx context.Context) {
	c := &writer{Worker: w, batch: maxBatch, timer: time.NewTimer(0)}
	defer c.timer.Stop()
	defer c.writePulse.noteIdle()
	for c.awaitOutcome(ctx) {
		c.writePulse.noteProgress()
		c.collectMoreOutcomes(ctx)
		if c.writeBatch(ctx) != nil {
			_ = backoff.Sleep(ctx, dbRetry().Delay(c.failed))
			c.failed++
		}
	}
	c.releaseUnfinished(ctx)
	if n := len(c.pending); n > 0 {
		c.log.WarnContext(ctx, "results not written before shutdown, clusters will be retried", "results", n)
	}
}

// awaitOutcome waits for an outcome, and reports whether there is one to write.
func (c *writer) awaitOutcome(ctx context.Context) (hasOutcome bool) {
	for len(c.pending) == 0 {
		c.writePulse.noteIdle()
		select {
		case o := <-c.outcomes:
			c.sortOutcome(ctx, o)
		case <-c.ended:
			// No outcome can follow those in the channel.
			if c.takeQueuedOutcomes(ctx); len(c.pending) == 0 {
				return false
			}
		case <-ctx.Done():
			return false
		}
	}
	return ctx.Err() == nil
}

// sortOutcome adds an outcome to the results or to the claims to release.
func (c *writer) sortOutcome(ctx context.Context, o outcome) {
	switch o.fate {
	case fateResult:
		c.pending = append(c.pending, o)
	case fateBack:
		c.back = append(c.back, o)
	case fateForgone:
		c.counts.forgone.Add(1)
		c.metrics.forgone.Inc()
		c.log.DebugContext(ctx, "claim abandoned", "cluster_id", o.ClusterID)
		c.lookAgain(o)
		c.floor.settleClaims(1)
		c.wakeClaimer()
	}
}

// takeQueuedOutcomes takes the outcomes in the channel, up to one batch.
func (c *writer) takeQueuedOutcomes(ctx context.Context) {
	for len(c.pending) < maxBatch {
		select {
		case o := <-c.outcomes:
			c.sortOutcome(ctx, o)
		default:
			return
		}
	}
}

// collectMoreOutcomes waits a little for more results while calls run.
func (c *writer) collectMoreOutcomes(ctx context.Context) {
	c.takeQueuedOutcomes(ctx)
	c.timer.Reset(c.cfg.CompleteDelay)
	for len(c.pending) < maxBatch {
		if running, _, _ := c.floor.currentLoad(); running == 0 {
			c.takeQueuedOutcomes(ctx)
			return
		}
		select {
		case o := <-c.outcomes:
			c.sortOutcome(ctx, o)
		case <-c.timer.C:
			return
		}
	}
}

// writeBatch writes one batch.
func (c *writer) writeBatch(ctx context.Context) error {
	results := c.peekBatch()
	n := len(results)
	now := c.pending[:n]
	lost, err := c.completeOnce(ctx, results)
	c.db.noteRequest(ctx, toComplete, err)
	if err != nil {
		c.batch = max(1, n/2)
		c.moveBackOrDropExpired(ctx, n)
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
			c.noteLost(ctx, o)
		} else {
			c.noteWritten(ctx, o)
		}
	}
	c.floor.settleClaims(n)
	c.pending = slices.Delete(c.pending, 0, n)
	c.wakeClaimer()
	return nil
}

// peekBatch returns the results of the next batch, at most one per cluster. A claim
// that was lost to a later claim of this worker is identified by its cluster.
func (c *writer) peekBatch() []Result {
	most := min(c.batch, len(c.pending))
	results := make([]Result, 0, most)
	clusters := make(map[string]struct{}, most)
	for i := range c.pending[:most] {
		o := &c.pending[i]
		if _, ok := clusters[o.ClusterID]; ok {
			break
		}
		clusters[o.ClusterID] = struct{}{}
		if change, ok := changeOf(o.Claim, o.result); ok {
			change.At = time.Now()
			o.result.Change = &change
		}
		results = append(results, o.result)
	}
	return results
}

func (c *writer) completeOnce(ctx context.Context, results []Result) ([]string, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return c.store.Complete(ctx, results)
}

// moveBackOrDropExpired moves the first count results behind the others, except those whose lease is over.
// Those rows are due again and some worker will retry them.
func (c *writer) moveBackOrDropExpired(ctx context.Context, count int) {
	first := slices.Clone(c.pending[:count])
	c.pending = slices.Delete(c.pending, 0, count)
	for _, o := range first {
		if o.hasTime(0) {
			c.pending = append(c.pending, o)
			continue
		}
		c.noteLost(ctx, o)
		c.floor.settleClaims(1)
		c.wakeClaimer()
	}
}

// noteLost counts a result that was not written because the claim was lost.
func (c *writer) noteLost(ctx context.Context, o outcome) {
	c.counts.lost.Add(1)
	c.metrics.fenced.Inc()
	c.log.WarnContext(ctx, "claim lost, result discarded", "cluster_id", o.ClusterID, "token", o.Token)
	c.lookAgain(o)
}

// lookAgain sets an alarm to claim the row after its lease ends, in case no other
// worker has.
func (c *writer) lookAgain(o outcome) { c.alarms.setAlarm(o.Until.Add(time.Second)) }

// noteWritten logs and counts a written result, and sends its change event.
func (c *writer) noteWritten(ctx context.Context, o outcome) {
	now := time.Now()
	c.metrics.countResult(o.ticket, o.result)
	switch {
	case o.result.Err != nil:
		c.counts.failed.Add(1)
		c.alarms.setAlarm(now.Add(o.result.Delay))
		c.logFailure(ctx, o)
	default:
		c.counts.synced.Add(1)
		c.log.DebugContext(ctx, "cluster synced", "cluster_id", o.ClusterID, "shoot", o.ShootName, "generation", o.Generation, "deleting", o.Deleting)
	}
	if c.woken.missedNotification(o.claimed, now) {
		c.alarms.setAlarm(now)
	}
	if o.result.Change != nil {
		c.recorder.Record(ctx, *o.result.Change)
	}
}

// logFailure logs the first failure of a row and the one that makes it stuck as
// warnings, and the others at debug level.
func (c *writer) logFailure(ctx context.Context, o outcome) {
	r, n := o.result, failureCount(o.Claim)
	level, log := slog.LevelDebug, c.log
	if r.Spend && (n == 1 || n == v1.StuckAttempts) {
		if omitted, ok := c.sampler.Allow(string(r.Class)); ok {
			level = slog.LevelWarn
			if omitted > 0 {
				log = log.With("suppressed", omitted)
			}
		}
	}
	log.Log(ctx, level, "cluster sync failed", "cluster_id", o.ClusterID, "shoot", o.ShootName, "class", string(r.Class),
		"err", r.Err, "failures", n, "counts", r.Spend, "retry_in", r.Delay.Round(time.Second))
}

// releaseUnfinished releases unfinished claims, until the database accepts that or ctx
// ends.
func (c *writer) releaseUnfinished(ctx context.Context) {
	if len(c.back) == 0 {
		return
	}
	claims := make([]Claim, len(c.back))
	for i, o := range c.back {
		claims[i] = o.Claim
	}
	for failed := 0; ctx.Err() == nil; failed++ {
		c.writePulse.noteProgress()
		err := c.releaseOnce(ctx, claims)
		c.db.noteRequest(ctx, toRelease, err)
		if err == nil {
			c.floor.settleClaims(len(claims))
			c.counts.released.Add(uint64(len(claims)))
			return
		}
		_ = backoff.Sleep(ctx, dbRetry().Delay(failed))
	}
	c.log.WarnContext(ctx, "claims not released before shutdown, leases will expire", "claims", len(claims))
}

func (c *writer) releaseOnce(ctx context.Context, claims []Claim) error {
	ctx, cancel := context.WithTimeoutCause(ctx, storeTimeout, errStoreTimeout)
	defer cancel()
	return c.store.Release(ctx, claims)
}

// changeOf returns the change event of a written result, or false without an event.
func changeOf(c Claim, r Result) (Change, bool) {
	change := Change{ClusterID: c.ClusterID, Cluster: c.Name, Tenant: c.Tenant, Shoot: c.ShootName, Generation: c.ClusterGeneration}
	switch {
	case r.Err != nil && r.Spend && c.Attempts == 0:
		change.Action, change.Message = ShootFailed, string(r.Class)+": "+r.Err.Error()
	case r.Err != nil:
		return Change{}, false
	case r.Deleting && r.Absent && c.ShootUID != "":
		change.Action = ShootDeleted
	case r.Deleting:
		return Change{}, false
	case r.Applied.Created:
		change.Action = ShootCreated
	case r.Applied.Changed:
		change.Action = ShootUpdated
	default:
		return Change{}, false
	}
	return change, true
}
