package decision

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"time"
)

// An Announcement is the last event about a resource that a broker confirmed.
type Announcement struct {
	Generation int64
	At         time.Time
}

// Hold turns a verdict to publish into one to wait, if last was about the same
// generation and its adapters may still be at work.
//
// A new generation is never held. Anything more for the same one waits the
// interval of the resource's phase from the later of the last report and the
// last announcement. Reports that keep coming without ending the matter can
// put the next event off to twice the interval after the last, no further: or
// an adapter that reports faster than that could never be reminded.
func (v Verdict) Hold(r *Resource, last Announcement, now time.Time) Verdict {
	if !v.ShouldPublish || last.At.IsZero() || last.Generation != r.Generation || last.At.After(now) {
		return v
	}
	from := last.At
	if !r.LastUpdated.After(now) { // one from the future tells nothing
		from = latestOf(from, r.LastUpdated)
	}
	until := from.Add(v.Interval)
	// Added twice: twice the interval may be more than a Duration holds.
	if most := last.At.Add(v.Interval).Add(v.Interval); until.After(most) {
		until = most
	}
	if now.Before(until) {
		v.ShouldPublish, v.Reason, v.Next = false, ReasonAnnounced, until
	}
	return v
}

func latestOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// EventID names the event that v calls for. It depends on the resource, its
// generation, the rule, the time that the rule counted from, and the number of
// whole intervals since the resource fell due: whoever asks within the same
// interval, before or after a crash, gets the same id, and the next nudge has
// another.
func EventID(resourceID string, generation int64, v Verdict, now time.Time) string {
	key := make([]byte, 0, 128)
	key = binary.AppendVarint(key, int64(len(resourceID)))
	key = append(key, resourceID...)
	key = binary.AppendVarint(key, generation)
	key = append(key, v.Reason.String()...)
	// Milliseconds: an API may serve a time in fewer digits once it is stored.
	key = binary.AppendVarint(key, v.Since.UnixMilli())
	key = binary.AppendVarint(key, int64(v.Interval)) // the unit of the count
	key = binary.AppendVarint(key, v.countIntervals(now))
	sum := sha256.Sum256(key)
	return "evt-" + hex.EncodeToString(sum[:16])
}

// CountFrom is what the nudges of a resource are counted from that is due at
// now, whatever the API's clock says: since, and when it fell due.
//
// That is a little before since. A clock that is ahead of ours would otherwise
// put since behind the first event and before its resend, and the id must not
// change in between. A since that is further ahead is nothing to count from,
// and neither is one that the API did not give: such a resource is due since
// ever.
func CountFrom(since time.Time, interval time.Duration, now time.Time) (from, due time.Time) {
	due = since.Add(-min(interval/10, MaxClockSkew))
	if since.IsZero() || due.After(now) {
		return time.Time{}, time.Time{}
	}
	return since, due
}

// countIntervals counts the whole intervals since the resource fell due. What is due
// since ever counts from 1970, for durations do not reach further.
func (v Verdict) countIntervals(now time.Time) int64 {
	due := latestOf(v.Next, time.Unix(0, 0))
	if v.Interval <= 0 || now.Before(due) {
		return 0
	}
	return int64(now.Sub(due) / v.Interval)
}
