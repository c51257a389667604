package simulation

import (
	"fmt"
	"slices"
	"time"
)

// The reasons of events, as the sentinel's specification spells them.
const (
	reasonGeneration = "generation changed - new spec to reconcile"
	reasonReady      = "max age expired (ready)"
	reasonNotReady   = "max age expired (not ready)"
)

// checkRepeats finds repeated events that came too early: two about one generation of a resource
// within the interval of the second.
func (c *checker) checkRepeats(resource string) {
	last := map[int64]*Event{}
	for _, e := range c.of[resource] {
		before := last[e.Generation]
		last[e.Generation] = e
		if before != nil && e.Decided.Before(before.At.Add(c.holdTime(e))) && !c.isExcused(before, e) {
			c.addBreach(e.At, resource, "%s and %s are about generation %d and within %s", before.ID, e.ID, e.Generation, e.At.Sub(before.At))
		}
	}
}

// isExcused reports whether an event may follow one about the same generation so soon. This is so
// in four cases: the sentinel did not watch the resource in between, or the resource moved to
// another sentinel, which does not know the earlier event; the sentinel never got the confirmation
// of the first event; it started since and does not continue from the earlier one; or the second
// event is about a report that came after the first.
func (c *checker) isExcused(before, e *Event) bool {
	switch {
	case c.wasUnwatched(e.Resource, before.Decided, e.Decided):
		return true
	case slices.ContainsFunc(c.handed[e.Resource], func(at time.Time) bool { return !at.Before(before.Decided) && !at.After(e.Decided) }):
		return true
	case c.promise.Calm:
		return false
	}
	return before.Confirmed.IsZero() || c.restarted(before, e) || c.followsReport(before, e)
}

// restarted reports whether one of two sentinels started after an event of the other, and does not
// continue from it. Two concurrent sentinels have no such excuse.
func (c *checker) restarted(before, e *Event) bool {
	first, second := c.lives[before.Life-1], c.lives[e.Life-1]
	return first.Line != second.Line && c.lives[second.Line-1].Started.After(before.Attempted)
}

// followsReport reports whether an event is about a report whose time is before the event that it
// follows. The report may have been late, or the API's clock may differ from the local one.
func (c *checker) followsReport(before, e *Event) bool {
	if e.LastUpdated.Equal(before.LastUpdated) {
		return false
	}
	return c.promise.Clocks || e.LastUpdated.Before(before.At)
}

// wasUnwatched reports whether a resource was not watched at any time in an interval.
func (c *checker) wasUnwatched(resource string, from, to time.Time) bool {
	return slices.ContainsFunc(c.versions[resource], func(v Version) bool {
		return !v.isWatched() && v.At.After(from) && v.At.Before(to)
	})
}

// holdTime returns the interval of an event.
func (c *checker) holdTime(e *Event) time.Duration {
	switch e.Reason {
	case reasonReady:
		return c.promise.earliestAge(e.Resource, c.promise.Ready)
	case reasonNotReady:
		return c.promise.earliestAge(e.Resource, c.promise.NotReady)
	}
	return c.promise.NotReady
}

// checkIDs checks that event ids match their content. Equal announcements have the same id,
// whatever sentinel sends them and however often, and different ones have different ids. An
// announcement consists of a resource, its generation, the reason, the time from which it counts,
// and the number of whole intervals since the resource fell due.
func (c *checker) checkIDs() {
	ids, nudges := map[string]string{}, map[string]string{}
	for _, e := range c.events {
		nudge := c.eventKey(e)
		if was, ok := ids[nudge]; ok && was != e.ID {
			c.addBreach(e.At, e.Resource, "%s says what %s has said: %s", e.ID, was, nudge)
		}
		if was, ok := nudges[e.ID]; ok && was != nudge {
			c.addBreach(e.At, e.Resource, "%s names two nudges: %s and %s", e.ID, was, nudge)
		}
		ids[nudge], nudges[e.ID] = e.ID, nudge
	}
}

func (c *checker) eventKey(e *Event) string {
	interval := c.holdTime(e)
	since, due := e.LastUpdated, e.LastUpdated.Add(interval)
	switch {
	case e.Reason == reasonGeneration:
		since = e.Updated
		due = since.Add(-min(interval/10, skew))
		if due.After(e.Decided) {
			since, due = time.Time{}, time.Time{}
		}
	case since.After(e.Decided.Add(skew)):
		since, due = time.Time{}, time.Time{}
	}
	if epoch := time.Unix(0, 0); due.Before(epoch) {
		due = epoch
	}
	return fmt.Sprint(e.Resource, " generation ", e.Generation, " (", e.Reason, ") since ", since.UnixMilli(), " turn ", int64(max(0, e.Decided.Sub(due))/interval))
}
