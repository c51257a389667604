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
	// fateResult means that the row was tried and its result is not written yet.
	fateResult outcomeKind = iota
	// fateBack means that the row was not tried, or its result is unknown, and the
	// claim is released.
	fateBack
	// fateForgone means that it is too late to try the row. The lease expires.
	fateForgone
)

// An outcome is the end of a claim. Every claim has exactly one.
type outcome struct {
	timedClaim
	fate   outcomeKind
	result Result // only for fateResult
}

func newResultOutcome(claim timedClaim, result Result) outcome {
	return outcome{timedClaim: claim, result: result}
}

func newReleaseOutcome(claim timedClaim) outcome { return outcome{timedClaim: claim, fate: fateBack} }

func newAbandonedOutcome(claim timedClaim) outcome {
	return outcome{timedClaim: claim, fate: fateForgone}
}

// queueOutcomeAndWakeClaimer passes an outcome to the writer.
func (w *Worker) queueOutcomeAndWakeClaimer(o outcome) {
	w.outcomes <- o
	w.floor.decrementClaimsWithoutOutcome()
	w.wakeClaimer()
}

// syncClaimAndQueueOutcome tries to sync one row.
func (w *Worker) syncClaimAndQueueOutcome(ctx context.Context, claim timedClaim) {
	ctx, held := w.leases.startRenewingLease(ctx, claim)
	o := w.buildAndSyncShoot(ctx, claim)
	o.Until = w.leases.stopRenewingLease(held)
	w.floor.releaseSlot(claim.ClusterID)
	w.queueOutcomeAndWakeClaimer(o)
}

// buildAndSyncShoot builds the manifest, sends it, and returns the outcome.
func (w *Worker) buildAndSyncShoot(ctx context.Context, claim timedClaim) outcome {
	m, err := w.buildManifestUnlessDeleting(ctx, claim.Claim)
	if err != nil {
		return newResultOutcome(claim, newFailureResult(claim.Claim, err, false))
	}
	// This is the last check before the call. A process that was suspended for a minute
	// would otherwise begin its call while another worker holds the row.
	if !claim.hasLeaseFor(w.cfg.Lease / leaseStart) {
		return newAbandonedOutcome(claim)
	}
	if ctx.Err() != nil {
		return newCanceledOutcome(ctx, claim)
	}
	r := newSuccessResult(claim.Claim)
	if err = w.applyOrDeleteShoot(ctx, claim.Claim, m, &r); err == nil {
		return newResultOutcome(claim, r)
	}
	if ctx.Err() != nil {
		return newCanceledOutcome(ctx, claim)
	}
	outage := false
	if class := classifyError(err); class == ErrorClass(shoot.ClassUnavailable) || class == ClassTimeout {
		var stopped error
		if outage, stopped = w.breaker.probeUnlessOpen(ctx); stopped != nil {
			return newCanceledOutcome(ctx, claim)
		}
	} else if class == ErrorClass(shoot.ClassThrottled) {
		w.throttle.extendWaitUntil(time.Now().Add(min(retryAfterWithinLimits(err), maxPause)))
	}
	return newResultOutcome(claim, newFailureResult(claim.Claim, err, outage))
}

// newCanceledOutcome returns the outcome of a call that the worker canceled. A row whose lease
// could not be renewed is not released, because another worker may hold it.
func newCanceledOutcome(ctx context.Context, claim timedClaim) outcome {
	if errors.Is(context.Cause(ctx), errLeaseOver) {
		return newAbandonedOutcome(claim)
	}
	return newReleaseOutcome(claim)
}

// buildManifestUnlessDeleting returns the manifest to send, which is empty for a deletion.
func (w *Worker) buildManifestUnlessDeleting(ctx context.Context, claim Claim) (manifest shoot.Manifest, err error) {
	if claim.Deleting {
		return manifest, nil
	}
	err = w.callRecoveringPanic(ctx, "build Shoot", claim.ClusterID, func() error {
		made, err := w.maker.BuildManifest(claim)
		if err != nil {
			return &rowError{class: ClassBadSpec, err: err}
		}
		manifest = made
		return nil
	})
	return manifest, err
}

// applyOrDeleteShoot sends the apply or delete request of the claim, and records the answer
// in r.
func (w *Worker) applyOrDeleteShoot(ctx context.Context, claim Claim, manifest shoot.Manifest, result *Result) error {
	callCtx, cancel := context.WithTimeoutCause(ctx, w.cfg.totalCallTimeout(), errCallTimeout)
	defer cancel()
	v, what, ask := verbApply, "apply Shoot", func() (err error) {
		result.Applied, err = w.garden.ApplyShoot(callCtx, manifest, claim.ShootUID != "")
		return err
	}
	if claim.Deleting {
		ref := shoot.Ref{Name: claim.ShootName, UID: claim.ShootUID, Cluster: claim.ClusterID, Installation: w.installation}
		v, what, ask = verbDelete, "delete Shoot", func() error {
			creation, err := w.findUnrecordedCreation(callCtx, claim)
			if err != nil {
				return err
			}
			if creation != nil {
				*result = newLateCreationResult(claim, creation)
				return nil
			}
			d, err := w.garden.DeleteShoot(callCtx, ref)
			result.Absent, result.Applied.UID = d.Absent, d.UID
			return err
		}
	}
	begin := time.Now()
	err := w.callRecoveringPanic(ctx, what, claim.ClusterID, ask)
	outcome := resultOK
	switch {
	case err != nil && ctx.Err() != nil:
		outcome = resultStopped
	case err != nil:
		outcome = string(classifyError(err))
	}
	w.metrics.observeCallDuration(v, outcome, time.Since(begin))
	return err
}

// findUnrecordedCreation returns the Shoot of a cluster that is being deleted, if no success was recorded for it:
// the result of the creation was lost. It is recorded before the deletion is sent. If the result of the deletion
// were lost, too, nothing would show afterwards that there was a Shoot, and no change event would say so.
func (w *Worker) findUnrecordedCreation(ctx context.Context, claim Claim) (creation *shoot.Observed, err error) {
	if claim.SyncedGeneration > 0 || claim.Generation == 1 { // with generation 1 there was no creation to send
		return nil, nil
	}
	found, err := w.garden.GetShoot(ctx, claim.ShootName)
	if errors.Is(err, shoot.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	if found.Cluster != claim.ClusterID || found.Installation != w.installation {
		return nil, nil // the deletion will be refused
	}
	return &found, nil
}

// callRecoveringPanic turns a panic in call into an error of the cluster.
func (w *Worker) callRecoveringPanic(ctx context.Context, action, clusterID string, call func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			w.metrics.panics.Inc()
			w.log.ErrorContext(ctx, "panic recovered", "what", action, "cluster_id", clusterID, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			err = newPanicError(action, value)
		}
	}()
	return call()
}

// probeGardener returns an error if Gardener does not answer within CallTimeout.
func (w *Worker) probeGardener(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	err := w.callRecoveringPanic(ctx, "probe Gardener", "", func() error { return w.garden.Probe(ctx) })
	if isAnswerFromGardener(err) {
		return nil
	}
	return err
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
