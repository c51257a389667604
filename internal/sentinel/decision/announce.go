package decision

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// A ConfirmedEvent is the last confirmed event about a resource.
type ConfirmedEvent struct {
	Generation int64
	At         time.Time
}

// DelayRepeat delays an event while the adapters may still work on the last one for the same
// generation. It turns the verdict to publish into one to wait.
//
// A new generation is never held. Another event for the same generation waits for the interval of
// the resource's phase, from the later of the last report and the last event. Repeated
// reports can delay the next event to at most twice the interval after the last one. Otherwise an
// adapter that reports more often than the interval would never get another event.
func (v Verdict) DelayRepeat(r *Resource, last ConfirmedEvent, now time.Time) Verdict {
	isRepeat := !last.At.IsZero() && !last.At.After(now) && last.Generation == r.Generation
	if !v.ShouldPublish || !isRepeat {
		return v
	}
	waitFrom := last.At
	if !r.LastUpdated.After(now) { // a time in the future is ignored
		// In a sentinel, last.At has a monotonic reading, and may be from before the wall clock was
		// set. The last report needs one, too. Otherwise a clock that is ahead would end the wait at
		// each report.
		waitFrom = laterOf(waitFrom, now.Add(r.LastUpdated.Sub(now)))
	}
	waitUntil := waitFrom.Add(v.Interval)
	latest := last.At.Add(v.Interval).Add(v.Interval) // twice the interval may overflow a Duration
	if waitUntil.After(latest) {
		waitUntil = latest
	}
	if now.Before(waitUntil) {
		v.ShouldPublish, v.Reason, v.Next = false, ReasonAnnounced, waitUntil
	}
	return v
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// DeriveEventID returns the id of the event for a verdict. It depends on the resource, its generation, the
// rule, the time that the rule counted from, and the number of whole intervals since the resource
// fell due. All calls within one interval return the same id, before or after a crash. The next
// repetition has another id.
func DeriveEventID(resourceID string, generation int64, verdict Verdict, now time.Time) string {
	key := make([]byte, 0, 128)
	key = binary.AppendVarint(key, int64(len(resourceID)))
	key = append(key, resourceID...)
	key = binary.AppendVarint(key, generation)
	key = append(key, verdict.Reason.String()...)
	// Milliseconds, because an API may return a stored time with fewer digits.
	key = binary.AppendVarint(key, verdict.Since.UnixMilli())
	key = binary.AppendVarint(key, int64(verdict.Interval)) // the unit of the count
	key = binary.AppendVarint(key, verdict.countIntervalsSinceDue(now))
	sum := sha256.Sum256(key)
	return "evt-" + hex.EncodeToString(sum[:16])
}

// SubtractClockSkew returns the times from which the repetitions for a due resource are
// counted: since, and when it fell due. Both are independent of the API's clock.
//
// The resource fell due slightly before since. With an API clock ahead of the local one, since could
// lie after the first event and before its resend, and the id must not change in between. A since
// that is further ahead is ignored, and so is a missing one: such a resource counts as always due.
func SubtractClockSkew(since time.Time, interval time.Duration, now time.Time) (validSince, sinceLessSkew time.Time) {
	skew := min(interval/10, MaxClockSkew)
	sinceLessSkew = since.Add(-skew)
	if since.IsZero() || sinceLessSkew.After(now) {
		return time.Time{}, time.Time{}
	}
	return since, sinceLessSkew
}

// countIntervalsSinceDue returns the number of whole intervals since the resource fell due. A
// resource that is always due counts from 1970, because a Duration reaches no further.
func (v Verdict) countIntervalsSinceDue(now time.Time) (wholeIntervals int64) {
	due := laterOf(v.Next, time.Unix(0, 0))
	if v.Interval <= 0 || now.Before(due) {
		return 0
	}
	return int64(now.Sub(due) / v.Interval)
}
