package clusterworker

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A fate is what became of a claim.
type fate int

const (
	// fateResult: it was tried, and the result is to be written.
	fateResult fate = iota
	// fateBack: it was not, or it is not known how it went, and it is given back.
	fateBack
	// fateForgone: it is too late for it. The lease ends by itself.
	fateForgone
)

// An outcome is what became of a claim. There is one of each.
type outcome struct {
	ticket
	fate   fate
	result Result // of fateResult
}

func written(t ticket, r Result) outcome { return outcome{ticket: t, result: r} }
func givenBack(t ticket) outcome         { return outcome{ticket: t, fate: fateBack} }
func forgone(t ticket) outcome           { return outcome{ticket: t, fate: fateForgone} }

// submit hands an outcome to whoever writes it.
func (w *Worker) submit(o outcome) {
	w.outcomes <- o
	w.floor.known()
	w.nudge()
}

// call tries one row.
func (w *Worker) call(ctx context.Context, t ticket) {
	ctx, held := w.leases.hold(ctx, t)
	o := w.try(ctx, t)
	o.Until = w.leases.release(held)
	w.floor.leave(t.ClusterID)
	w.submit(o)
}

// try makes what is to be sent, sends it, and says what became of it.
func (w *Worker) try(ctx context.Context, t ticket) outcome {
	m, err := w.manifest(ctx, t.Claim)
	if err != nil {
		return written(t, judge(t.Claim, err, false))
	}
	// The last moment: a process that was stopped for a minute would begin its
	// call while another worker is at the row.
	if !t.hasTime(w.cfg.Lease / leaseStart) {
		return forgone(t)
	}
	if ctx.Err() != nil {
		return cutOff(ctx, t)
	}
	r := newResult(t.Claim)
	if err = w.send(ctx, t.Claim, m, &r); err == nil {
		return written(t, r)
	}
	if ctx.Err() != nil {
		return cutOff(ctx, t)
	}
	outage := false
	if class := classOf(err); class == ErrorClass(shoot.ClassUnavailable) || class == ClassTimeout {
		var stopped error
		if outage, stopped = w.breaker.down(ctx); stopped != nil {
			return cutOff(ctx, t)
		}
	} else if class == ErrorClass(shoot.ClassThrottled) {
		w.throttle.extend(time.Now().Add(min(throttleOf(err), maxPause)))
	}
	return written(t, judge(t.Claim, err, outage))
}

// cutOff is the outcome of a call that we ended. A row whose lease could not be renewed
// is not given back: another worker may be at it.
func cutOff(ctx context.Context, t ticket) outcome {
	if errors.Is(context.Cause(ctx), errLeaseOver) {
		return forgone(t)
	}
	return givenBack(t)
}

// manifest is what is to be sent, if not the deletion.
func (w *Worker) manifest(ctx context.Context, c Claim) (m shoot.Manifest, err error) {
	if c.Deleting {
		return m, nil
	}
	err = w.guard(ctx, "build Shoot", c.ClusterID, func() error {
		made, err := w.maker.Make(c)
		if err != nil {
			return &rowError{class: ClassBadSpec, err: err}
		}
		m = made
		return nil
	})
	return m, err
}

// send asks Gardener for what the claim is about, and notes in r what it did.
func (w *Worker) send(ctx context.Context, c Claim, m shoot.Manifest, r *Result) error {
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
	err := w.guard(ctx, what, c.ClusterID, ask)
	result := resultOK
	switch {
	case err != nil && ctx.Err() != nil:
		result = resultStopped
	case err != nil:
		result = string(classOf(err))
	}
	w.metrics.called(v, result, time.Since(begin))
	return err
}

// guard makes a panic in do an error of the cluster's.
func (w *Worker) guard(ctx context.Context, what, clusterID string, do func() error) (err error) {
	defer func() {
		if value := recover(); value != nil {
			w.metrics.panics.Inc()
			w.log.ErrorContext(ctx, "panic recovered", "what", what, "cluster_id", clusterID, "panic", fmt.Sprint(value), "stack", string(debug.Stack()))
			err = errFault(what, value)
		}
	}()
	return do()
}

// probe gives an error if Gardener does not answer within the time that a request of
// a call may take.
func (w *Worker) probe(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, w.cfg.CallTimeout, errCallTimeout)
	defer cancel()
	err := w.guard(ctx, "probe Gardener", "", func() error { return w.garden.Probe(ctx) })
	if answers(err) {
		return nil
	}
	return err
}

// breakerChanged tells of an outage that began or ended.
func (w *Worker) breakerChanged(ctx context.Context, reason error, after time.Duration) {
	if reason != nil {
		w.metrics.outages.Inc()
		w.metrics.breaker.Set(1)
		w.log.ErrorContext(ctx, "gardener unavailable, sync paused", "err", reason)
		w.outages.wake()
		return
	}
	w.metrics.breaker.Set(0)
	w.log.InfoContext(ctx, "gardener available again, sync resumed", "after", after.Round(time.Millisecond))
	w.outages.wake()
	w.nudge()
}
