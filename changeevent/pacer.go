package changeevent

import (
	"context"
	"sync/atomic"
	"time"
)

// A pacer makes requests wait for the end of a pause that the sink asked for, and ends
// every wait when the client ends.
type pacer struct {
	maxAge    time.Duration
	heldUntil atomic.Pointer[time.Time] // end of the pause that the sink asked for, nil without one

	root    context.Context //nolint:containedctx // it ends what is still under way when Close has waited long enough
	cancel  context.CancelCauseFunc
	closing chan struct{} // closed when Close is called; later pauses end at once
	endsAt  time.Time     // deadline of Close, written before closing is closed
}

// pauseSinkFor pauses all requests to the sink for the time that it asks for. The pause is
// limited by MaxAge, because no event that waits now would be sent after that.
func (p *pacer) pauseSinkFor(asked time.Duration) {
	if asked <= 0 {
		return
	}
	until := time.Now().Add(min(asked, p.maxAge))
	for {
		old := p.heldUntil.Load()
		if old != nil && !old.Before(until) || p.heldUntil.CompareAndSwap(old, &until) {
			return
		}
	}
}

// pausedUntil returns the end of the pause that the sink asked for, and whether it is still
// ahead. The time has a monotonic reading, so that a pause keeps its length when the clock is set.
func (p *pacer) pausedUntil() (until time.Time, stillPaused bool) {
	if held := p.heldUntil.Load(); held != nil {
		until = *held
	}
	return until, time.Now().Before(until)
}

// awaitEndOfPause waits for the end of the pause. Meanwhile, it calls expire to drop events
// that become too old. It returns false if the client ends first.
func (p *pacer) awaitEndOfPause(expire func()) (resumed bool) {
	for {
		until, ok := p.pausedUntil()
		if !ok {
			return true
		}
		if !p.waitOrUntilCloseButNotBefore(min(time.Until(until), lookEvery), time.Time{}) {
			return false
		}
		select {
		case <-p.closing:
			if !p.sleepUntilDuringClose(until) {
				return false
			}
		default:
		}
		expire()
	}
}

// waitOrUntilCloseButNotBefore waits for a duration. Close ends the wait, but not before notBefore, which
// the sink asked for. It returns false if Close does not wait that long.
func (p *pacer) waitOrUntilCloseButNotBefore(wait time.Duration, notBefore time.Time) (waited bool) {
	p.sleepOrUntilClose(wait)
	if !time.Now().Before(notBefore) {
		return true
	}
	return p.sleepUntilDuringClose(notBefore)
}

// sleepUntilDuringClose waits after Close was called. It returns false at once if Close ends before
// when.
func (p *pacer) sleepUntilDuringClose(when time.Time) (slept bool) {
	if when.After(p.endsAt) {
		return false
	}
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-p.root.Done():
		return false
	}
}

// sleepOrUntilClose waits for d, or until Close is called.
func (p *pacer) sleepOrUntilClose(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-p.closing:
	}
}
