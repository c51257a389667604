package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// An outcomeKind is how a claim ended.
type outcomeKind int

const (
	// outcomeResult means that the row was tried and its result is not written yet.
	outcomeResult outcomeKind = iota
	// outcomeRelease means that the row was not tried, or its result is unknown, and the
	// claim is released.
	outcomeRelease
	// outcomeAbandoned means that it is too late to try the row. The lease expires.
	outcomeAbandoned
)

// An outcome is the end of a claim. Every claim has exactly one.
type outcome struct {
	timedClaim
	kind   outcomeKind
	result Result // only for outcomeResult
}

func newResultOutcome(claim timedClaim, result Result) outcome {
	return outcome{timedClaim: claim, kind: outcomeResult, result: result}
}

func newReleaseOutcome(claim timedClaim) outcome {
	return outcome{timedClaim: claim, kind: outcomeRelease}
}

func newAbandonedOutcome(claim timedClaim) outcome {
	return outcome{timedClaim: claim, kind: outcomeAbandoned}
}

// newCanceledOutcome returns the outcome of a call that the worker canceled. A row whose lease
// could not be renewed is not released, because another worker may hold it.
func newCanceledOutcome(ctx context.Context, claim timedClaim) outcome {
	if errors.Is(context.Cause(ctx), errLeaseOver) {
		return newAbandonedOutcome(claim)
	}
	return newReleaseOutcome(claim)
}

// queueOutcomeAndWakeClaimer passes an outcome to the writer.
func (w *Worker) queueOutcomeAndWakeClaimer(o outcome) {
	w.outcomes <- o
	w.limiter.subtractClaimWithoutOutcome()
	w.wakeClaimer()
}

// syncClaimAndQueueOutcome tries to sync one row. At shutdown the call may continue for a while.
func (w *Worker) syncClaimAndQueueOutcome(ctx context.Context, claim timedClaim) {
	graceCtx, release := withGracePeriod(ctx, w.cfg.StopTimeout-w.cfg.stopTimeReservedForWrites())
	defer release()
	leaseCtx, lease := w.leases.startRenewingLease(graceCtx, claim)
	o := w.buildAndSyncShoot(leaseCtx, claim)
	o.Until = w.leases.stopRenewingLease(lease)
	w.limiter.releaseSlot(claim.ClusterID)
	w.queueOutcomeAndWakeClaimer(o)
}

// buildAndSyncShoot builds the manifest, sends it, and returns the outcome.
func (w *Worker) buildAndSyncShoot(ctx context.Context, claim timedClaim) outcome {
	manifest, err := w.buildManifestUnlessDeleting(ctx, claim.Claim)
	if err != nil {
		return newResultOutcome(claim, newFailureResult(claim.Claim, err, false))
	}
	// This is the last check before the call. A process that was suspended for a minute
	// would otherwise begin its call while another worker holds the row.
	if !claim.hasLeaseFor(w.cfg.minLeaseToStartCall()) {
		return newAbandonedOutcome(claim)
	}
	if ctx.Err() != nil {
		return newCanceledOutcome(ctx, claim)
	}
	var result Result
	if claim.Claim, err = w.recordUnreportedCreation(ctx, claim.Claim); err == nil {
		result, err = w.applyOrDeleteShoot(ctx, claim.Claim, manifest)
	}
	switch {
	case err == nil:
		return newResultOutcome(claim, result)
	case errors.Is(err, errClaimLost):
		return newAbandonedOutcome(claim)
	case ctx.Err() != nil:
		return newCanceledOutcome(ctx, claim)
	default:
		return w.checkOutageAndThrottle(ctx, claim, err)
	}
}

// checkOutageAndThrottle returns the outcome of a call that failed. It probes Gardener if an outage can be the reason,
// and pauses all calls if Gardener throttles the worker.
func (w *Worker) checkOutageAndThrottle(ctx context.Context, claim timedClaim, callErr error) outcome {
	class := classifyError(callErr)
	gardenerDown := false
	if class == ErrorClass(shoot.ClassUnavailable) || class == ClassTimeout {
		var err error
		if gardenerDown, err = w.breaker.probeUnlessOpen(ctx); err != nil {
			return newCanceledOutcome(ctx, claim)
		}
	}
	if class == ErrorClass(shoot.ClassThrottled) {
		w.throttle.extendWaitUntil(time.Now().Add(min(retryAfterWithinLimits(callErr), maxPause)))
	}
	return newResultOutcome(claim, newFailureResult(claim.Claim, callErr, gardenerDown))
}

// buildManifestUnlessDeleting returns the manifest to send, which is empty for a deletion.
func (w *Worker) buildManifestUnlessDeleting(ctx context.Context, claim Claim) (manifest shoot.Manifest, err error) {
	if claim.Deleting {
		return shoot.Manifest{}, nil
	}
	defer w.recoverPanic(ctx, "build Shoot", claim.ClusterID, &err)
	manifest, err = w.deps.Maker.BuildManifest(claim)
	if err != nil {
		return shoot.Manifest{}, &rowError{class: ClassBadSpec, err: err}
	}
	return manifest, nil
}

// applyOrDeleteShoot sends the apply or delete request of the claim, and measures how long it takes.
func (w *Worker) applyOrDeleteShoot(ctx context.Context, claim Claim, manifest shoot.Manifest) (result Result, err error) {
	callCtx, cancel := context.WithTimeoutCause(ctx, w.cfg.totalCallTimeout(), errCallTimeout)
	defer cancel()
	began := time.Now()
	verb := verbApply
	if claim.Deleting {
		verb = verbDelete
		result, err = w.deleteShoot(callCtx, claim)
	} else {
		result, err = w.applyShoot(callCtx, claim, manifest)
	}
	measuredResult := resultOK
	switch {
	case err != nil && ctx.Err() != nil:
		measuredResult = resultStopped
	case err != nil:
		measuredResult = string(classifyError(err))
	}
	w.metrics.observeCallDuration(verb, measuredResult, time.Since(began))
	return result, err
}

func (w *Worker) applyShoot(ctx context.Context, claim Claim, manifest shoot.Manifest) (result Result, err error) {
	defer w.recoverPanic(ctx, "apply Shoot", claim.ClusterID, &err)
	result = newSuccessResult(claim)
	result.Applied, err = w.deps.Garden.ApplyShoot(ctx, manifest, claim.ShootUID != "")
	return result, err
}

func (w *Worker) deleteShoot(ctx context.Context, claim Claim) (result Result, err error) {
	defer w.recoverPanic(ctx, "delete Shoot", claim.ClusterID, &err)
	ref := shoot.Ref{Name: claim.ShootName, UID: claim.ShootUID, Cluster: claim.ClusterID, Installation: w.deps.Installation}
	deletion, err := w.deps.Garden.DeleteShoot(ctx, ref)
	result = newSuccessResult(claim)
	result.Absent, result.Applied.UID = deletion.Absent, deletion.UID
	return result, err
}

// probeGardener returns an error if Gardener does not answer within CallTimeout.
func (w *Worker) probeGardener(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	defer w.recoverPanic(ctx, "probe Gardener", "", &err)
	err = w.deps.Garden.Probe(ctx)
	if isAnswerFromGardener(err) {
		return nil
	}
	return err
}

// recoverPanic turns a panic of the caller into an error of the cluster. The caller defers it.
func (w *Worker) recoverPanic(ctx context.Context, action, clusterID string, err *error) {
	value := recover()
	if value == nil {
		return
	}
	w.metrics.panics.Inc()
	w.log.ErrorContext(ctx, "panic recovered", "what", action, "cluster_id", clusterID, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
	*err = newPanicError(action, value)
}

// recordOutageChange logs and counts an outage that began or ended.
func (w *Worker) recordOutageChange(ctx context.Context, outageErr error, outageDuration time.Duration) {
	if outageErr != nil {
		w.metrics.outages.Inc()
		w.metrics.breaker.Set(1)
		w.log.ErrorContext(ctx, "gardener unavailable, sync paused", "err", outageErr)
		w.outages.triggerOutageWrite()
		return
	}
	w.metrics.breaker.Set(0)
	w.log.InfoContext(ctx, "gardener available again, sync resumed", "after", outageDuration.Round(time.Millisecond))
	w.outages.triggerOutageWrite()
	w.wakeClaimer()
}
