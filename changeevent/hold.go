package changeevent

import "time"

// holdSink pauses all requests to the sink for the time that it asks for. The pause is
// limited by MaxAge, because no event that waits now would be sent after that.
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

// heldOff returns the end of the pause that the sink asked for, and whether it is still
// ahead.
func (c *client) heldOff() (until time.Time, ok bool) {
	until = timeFromUnixNano(c.heldUntil.Load())
	return until, time.Now().Before(until)
}

// awaitResume waits for the end of the pause. Meanwhile, it calls expire to drop events
// that become too old. It returns false if the client ends first.
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

// waitBeforeRetry waits for the next attempt, at least until the end of any pause. A
// pause may come from any response, including one that arrives meanwhile. It waits up to
// spread longer while MaxElapsedTime lasts, so that clients with the same pause do not
// return at the same time. It returns false as early as possible if the events would be
// too old by then or the client ends first.
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

// waitAtLeast waits for a duration. Close ends the wait, but not before notBefore, which
// the sink asked for. It returns false if Close does not wait that long.
func (c *client) waitAtLeast(wait time.Duration, notBefore time.Time) bool {
	c.pauseUntilClose(wait)
	if !time.Now().Before(notBefore) {
		return true
	}
	return c.sleepUntil(notBefore)
}

// sleepUntil waits after Close was called. It returns false at once if Close ends before
// when.
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

// whyNotReady returns why events were not sent before the client ended.
func (c *client) whyNotReady() string {
	if until, ok := c.heldOff(); ok && c.keys.current.Load() != nil {
		return "the sink asked for no requests until " + CanonicalTime(until)
	}
	return c.keys.missingReason()
}
