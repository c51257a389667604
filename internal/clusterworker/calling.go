package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A fate is how a claim ended.
type fate int

const (
	// fateResult means that the row was tried and its result is not written yet.
	fateResult fate = iota
	// fateBack means that the row was not tried, or its result is unknown, and the
	// claim is released.
	fateBack
	// fateForgone means that it is too late to try the row. The lease expires.
	fateForgone
)

// An outcome is the end of a claim. Every claim has exactly one.
type outcome struct {
	ticket
	fate   fate
	result Result // only for fateResult
}

func outcomeOf(t ticket, r Result) outcome { return outcome{ticket: t, result: r} }
func givenBack(t ticket) outcome           { return outcome{ticket: t, fate: fateBack} }
func expiredOutcome(t ticket) outcome      { return outcome{ticket: t, fate: fateForgone} }

// submitOutcome passes an outcome to the writer.
func (w *Worker) submitOutcome(o outcome) {
	w.outcomes <- o
	w.floor.noteOutcome()
	w.wakeClaimer()
}

// syncRow tries to sync one row.
func (w *Worker) syncRow(ctx context.Context, t ticket) {
	ctx, held := w.leases.startRenewing(ctx, t)
	o := w.trySync(ctx, t)
	o.Until = w.leases.stopRenewing(held)
	w.floor.endCall(t.ClusterID)
	w.submitOutcome(o)
}

// trySync builds the manifest, sends it, and returns the outcome.
func (w *Worker) trySync(ctx context.Context, t ticket) outcome {
	m, err := w.newManifestOfClaim(ctx, t.Claim)
	if err != nil {
		return outcomeOf(t, classifyFailure(t.Claim, err, false))
	}
	// This is the last check before the call. A process that was suspended for a minute
	// would otherwise begin its call while another worker holds the row.
	if !t.hasTime(w.cfg.Lease / leaseStart) {
		return expiredOutcome(t)
	}
	if ctx.Err() != nil {
		return canceledOutcome(ctx, t)
	}
	r := newResult(t.Claim)
	if err = w.sendToGardener(ctx, t.Claim, m, &r); err == nil {
		return outcomeOf(t, r)
	}
	if ctx.Err() != nil {
		return canceledOutcome(ctx, t)
	}
	outage := false
	if class := classOf(err); class == ErrorClass(shoot.ClassUnavailable) || class == ClassTimeout {
		var stopped error
		if outage, stopped = w.breaker.probeUnlessOpen(ctx); stopped != nil {
			return canceledOutcome(ctx, t)
		}
	} else if class == ErrorClass(shoot.ClassThrottled) {
		w.throttle.extendUntil(time.Now().Add(min(throttleOf(err), maxPause)))
	}
	return outcomeOf(t, classifyFailure(t.Claim, err, outage))
}

// canceledOutcome returns the outcome of a call that the worker canceled. A row whose lease
// could not be renewed is not released, because another worker may hold it.
func canceledOutcome(ctx context.Context, t ticket) outcome {
	if errors.Is(context.Cause(ctx), errLeaseOver) {
		return expiredOutcome(t)
	}
	return givenBack(t)
}

// newManifestOfClaim returns the manifest to send, which is empty for a deletion.
func (w *Worker) newManifestOfClaim(ctx context.Context, c Claim) (m shoot.Manifest, err error) {
	if c.Deleting {
		return m, nil
	}
	err = w.recoverPanic(ctx, "build Shoot", c.ClusterID, func() error {
		made, err := w.maker.Make(c)
		if err != nil {
			return &rowError{class: ClassBadSpec, err: err}
		}
		m = made
		return nil
	})
	return m, err
}

// sendToGardener sends the apply or delete request of the claim, and records the answer
// in r.
func (w *Worker) sendToGardener(ctx context.Context, c Claim, m shoot.Manifest, r *Result) error {
	callCtx, cancel := context.WithTimeoutCause(ctx, w.cfg.callBound(), errCallTimeout)
	defer cancel()
	v, what, ask := verbApply, "apply Shoot", func() (err error) {
		r.Applied, err = w.garden.ApplyShoot(callCtx, m, c.ShootUID != "")
		return err
	}
	if c.Deleting {
		ref := shoot.Ref{Name: c.ShootName, UID: c.ShootUID, Cluster: c.ClusterID, Installation: w.installation}
		v, what, ask = verbDelete, "delete Shoot", func() error {
			d, err := w.garden.DeleteShoot(callCtx, ref)
			r.Absent = d.Absent
			return err
		}
	}
	begin := time.Now()
	err := w.recoverPanic(ctx, what, c.ClusterID, ask)
	result := resultOK
	switch {
	case err != nil && ctx.Err() != nil:
		result = resultStopped
	case err != nil:
		result = string(classOf(err))
	}
	w.metrics.observeCall(v, result, time.Since(begin))
	return err
}

// recoverPanic turns a panic in do into an error of the cluster.
func (w *Worker) recoverPanic(ctx context.Context, what, clusterID string, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			w.metrics.panics.Inc()
			w.log.ErrorContext(ctx, "panic recovered", "what", what, "cluster_id", clusterID, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			err = errFault(what, value)
		}
	}()
	return do()
}

// probeGardener returns an error if Gardener does not answer within CallTimeout.
func (w *Worker) probeGardener(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	err := w.recoverPanic(ctx, "probe Gardener", "", func() error { return w.garden.Probe(ctx) })
	if gardenerAnswers(err) {
		return nil
	}
	return err
}

// recordOutageChange logs and counts an outage that began or ended.
func (w *Worker) recordOutageChange(ctx context.Context, reason error, outageDuration time.Duration) {
	if reason != nil {
		w.metrics.outages.Inc()
		w.metrics.breaker.Set(1)
		w.log.ErrorContext(ctx, "gardener unavailable, sync paused", "err", reason)
		w.outages.requestReport()
		return
	}
	w.metrics.breaker.Set(0)
	w.log.InfoContext(ctx, "gardener available again, sync resumed", "after", outageDuration.Round(time.Millisecond))
	w.outages.requestReport()
	w.wakeClaimer()
}
