package changeevent

import "time"

// holdSink has all workers leave the sink alone for as long as it asks. No request
// is sent before, whichever event it is of. MaxAge bounds it: nothing that waits
// now would be sent after that.
func (c *client) holdSink(asked time.Duration) {
	if asked <= 0 {
		return
	}
	until := time.Now().Add(min(asked, c.cfg.MaxAge)).UnixNano()
	for {
		old := c.heldUntil.Load()
		if old >= until || c.heldUntil.CompareAndSwap(old, until) {
			return
		}
	}
}

// heldOff returns until when the sink asks to be left alone, and whether that is
// still to come.
func (c *client) heldOff() (until time.Time, ok bool) {
	until = unixNano(c.heldUntil.Load())
	return until, time.Now().Before(until)
}

// awaitResume waits until the sink may be asked again, and meanwhile has what grows
// too old given up by expire. It reports false if the client ends before.
func (c *client) awaitResume(expire func()) bool {
	for {
		until, ok := c.heldOff()
		if !ok {
			return true
		}
		if !c.waitAtLeast(min(time.Until(until), lookEvery), time.Time{}) {
			return false
		}
		select {
		case <-c.closing:
			if !c.sleepUntil(until) {
				return false
			}
		default:
		}
		expire()
	}
}

// waitBeforeRetry waits for the next attempt: for as long as the sink asks for, in this
// answer or in that to any other request, also if that one comes meanwhile. Up to
// spread more is waited while MaxElapsedTime lasts: all who were told the same time
// would otherwise come back at the same time. It reports false, as early as it
// can, if the events would be too old by then or the client ends before.
func (s *sending) waitBeforeRetry(a answer, spread time.Duration) bool {
	after := a.after
	for {
		until, _ := s.heldOff()
		after = max(after, time.Until(until))
		wait := max(after, min(after+spread, s.cfg.Retry.MaxElapsedTime-time.Since(s.began)))
		if time.Now().Add(wait).After(s.oldestEventTime().Add(s.cfg.MaxAge)) {
			return false
		}
		s.log.DebugContext(s.ctx, "change event delivery failed, retrying", "error_class", a.class, "status", a.status, "attempts", s.tries, "wait", wait)
		if !s.waitAtLeast(wait, time.Now().Add(after)) {
			return false
		}
		if _, held := s.heldOff(); !held {
			return true
		}
		after = 0
	}
}

// waitAtLeast waits so long. Close ends the wait, but not before notBefore, which the
// sink asked for: it reports false if Close does not wait that long.
func (c *client) waitAtLeast(wait time.Duration, notBefore time.Time) bool {
	c.pauseUntilClose(wait)
	if !time.Now().Before(notBefore) {
		return true
	}
	return c.sleepUntil(notBefore)
}

// sleepUntil waits after Close has begun. It reports false, at once, if Close
// ends before.
func (c *client) sleepUntil(when time.Time) bool {
	if when.After(c.endsAt) {
		return false
	}
	timer := time.NewTimer(time.Until(when))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.root.Done():
		return false
	}
}

// whyNotReady says why events were not sent before the client ended.
func (c *client) whyNotReady() string {
	if until, ok := c.heldOff(); ok && c.keys.current.Load() != nil {
		return "the sink asked for no requests until " + CanonicalTime(until)
	}
	return c.keys.missingReason()
}
