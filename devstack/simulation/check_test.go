package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// A Promise is the behaviour that the sentinel guarantees, in figures. World derives it from a
// configuration.
type Promise struct {
	// Wait is how long a resource may be due without an event, counted from its due time or from
	// the end of the last fault after that.
	Wait time.Duration

	// Patience is the additional wait of a resource that is due by age, because other resources are
	// due as well.
	Patience time.Duration

	// Swift is Wait for a changed generation while a watch is open and without faults, after the
	// time Settled; zero means none.
	Swift   time.Duration
	Settled time.Time

	// Early returns the fraction of its age by which a resource falls due early; nil means none.
	Early func(resource string) float64

	// Stale is how old the sentinel's data about a resource may be when it decides.
	Stale time.Duration

	// Stop is the maximum duration of a stop.
	Stop time.Duration

	// NotReady and Ready are the ages at which resources are due.
	NotReady, Ready time.Duration

	// Calm says that the world had no faults: no event may be repeated.
	Calm bool

	// Clocks says that the API's clock differs from the sentinel's.
	Clocks bool

	// Drifts says that the list is read by page numbers. Each resource that leaves the list then
	// moves the others, and the sentinel may miss one.
	Drifts bool

	// Until is the end of the history. A resource whose deadline is later is not checked.
	Until time.Time
}

// skew is how far ahead the API's clock may be and still be accepted.
const skew = time.Minute

// earliestAge returns an age without the fraction by which a resource falls due early.
func (p *Promise) earliestAge(resource string, age time.Duration) time.Duration {
	if p.Early == nil {
		return age
	}
	return age - time.Duration(p.Early(resource)*float64(age))
}

// A Breach is a broken promise.
type Breach struct {
	At       time.Time
	Resource string
	What     string
}

// FindBreaches returns the breaches of a promise in order of time.
func (h *History) FindBreaches(p Promise) []Breach {
	h.mu.Lock()
	defer h.mu.Unlock()
	c := &checker{History: h, promise: p, strikes: h.allStrikes(p.Drifts), of: map[string][]*Event{}}
	for _, e := range h.events {
		c.of[e.Resource] = append(c.of[e.Resource], e)
	}
	for _, text := range h.faults {
		c.addBreach(h.begin, "", "%s", text)
	}
	c.checkStopTimes()
	c.checkIDs()
	for resource, versions := range h.versions {
		c.checkGenerations(resource, versions)
		c.checkAges(resource, versions)
		c.checkRepeats(resource)
	}
	for _, e := range h.events {
		c.checkJustified(e)
	}
	slices.SortFunc(c.breaches, func(a, b Breach) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.Resource, b.Resource), cmp.Compare(a.What, b.What))
	})
	return c.breaches
}

// allStrikes returns the faults that occurred, the times without a sentinel, and the changes that
// make pages drift.
func (h *History) allStrikes(withDrifts bool) []Strike {
	all := slices.Clone(h.strikes)
	gone := h.begin
	for _, l := range h.lives { // in the order of their start
		if !l.Started.Before(gone) {
			all = append(all, Strike{What: "no sentinel", From: gone, To: l.Started})
		}
		gone = laterOf(gone, l.Told)
	}
	for _, versions := range h.versions {
		for i := 1; withDrifts && i < len(versions); i++ {
			if at := versions[i].At; versions[i-1].isWatched() && !versions[i].isWatched() {
				all = append(all, Strike{What: "pages drift", From: at, To: at})
			}
		}
	}
	slices.SortFunc(all, func(a, b Strike) int { return a.From.Compare(b.From) })
	return all
}

type checker struct {
	*History
	promise  Promise
	strikes  []Strike
	of       map[string][]*Event // by resource, in the order of storage
	breaches []Breach
}

func (c *checker) addBreach(at time.Time, resource, format string, args ...any) {
	c.breaches = append(c.breaches, Breach{At: at, Resource: resource, What: fmt.Sprintf(format, args...)})
}

// deadlineFor returns the deadline for a resource that fell due at a time and may wait for a
// duration. Faults before the deadline extend it.
func (c *checker) deadlineFor(due time.Time, wait time.Duration) time.Time {
	d := due.Add(wait)
	for _, s := range c.strikes {
		if s.From.After(d) {
			break
		}
		if most := s.To.Add(wait); most.After(d) {
			d = most
		}
	}
	return d
}

// checkStopTimes compares the duration of each stop with its limit.
func (c *checker) checkStopTimes() {
	for _, l := range c.lives {
		if took := l.Ended.Sub(l.Told); !l.Told.IsZero() && took > c.promise.Stop {
			c.addBreach(l.Ended, "", "life %d took %s to stop", l.Number, took)
		}
	}
}

// checkGenerations finds generations that no adapter has observed and that were not published in time. A
// generation that is published together with a later one counts as published.
func (c *checker) checkGenerations(resource string, versions []Version) {
	for i, v := range versions {
		if !v.isWatched() || !v.isUnobserved() || i > 0 && versions[i-1].isWatched() && versions[i-1].Generation == v.Generation {
			continue
		}
		wait := c.promise.Wait
		if c.promise.Swift > 0 && v.At.After(c.promise.Settled) {
			wait = c.promise.Swift
		}
		deadline := c.deadlineFor(v.At, wait)
		if deadline.After(c.promise.Until) || c.hasCeased(versions[i+1:], deadline) {
			continue
		}
		if !slices.ContainsFunc(c.of[resource], func(e *Event) bool { return e.Generation >= v.Generation && !e.At.After(deadline) }) {
			c.addBreach(deadline, resource, "generation %d, there since %s, is not published by %s", v.Generation, c.secondsSince(v.At), c.secondsSince(deadline))
		}
	}
}

// hasCeased reports whether a resource no longer waits for an event by a time.
func (c *checker) hasCeased(later []Version, by time.Time) bool {
	for _, v := range later {
		if v.At.After(by) {
			return false
		}
		if !v.isWatched() || !v.isUnobserved() {
			return true
		}
	}
	return false
}

// A span is an uninterrupted time in which a resource is due, whatever was published about it. hold
// is the maximum time that one event delays the next one.
type span struct {
	from, to time.Time
	hold     time.Duration
}

// checkAges finds resources that were due and had no event for longer than one event is valid.
func (c *checker) checkAges(resource string, versions []Version) {
	for _, s := range c.dueSpans(versions) {
		from := s.from
		for _, e := range c.of[resource] {
			if e.At.After(s.to) {
				break
			}
			if holds := e.At.Add(s.hold); holds.After(from) {
				if c.checkLate(resource, s, from, e.At) {
					return
				}
				from = holds
			}
		}
		if c.checkLate(resource, s, from, s.to) {
			return
		}
	}
}

// checkLate reports a breach if a resource that may be held until a time was not published by its
// deadline, but at another time.
func (c *checker) checkLate(resource string, s span, from, at time.Time) (late bool) {
	deadline := c.deadlineFor(from, c.promise.Wait+c.promise.Patience)
	if !at.After(deadline) || deadline.After(c.promise.Until) {
		return false
	}
	c.addBreach(deadline, resource, "due since %s, nothing said of it from %s to %s", c.secondsSince(s.from), c.secondsSince(from), c.secondsSince(deadline))
	return true
}

// dueSpans returns the times in which a resource is due.
func (c *checker) dueSpans(versions []Version) []span {
	var all []span
	for i, v := range versions {
		to := c.promise.Until
		if i+1 < len(versions) {
			to = versions[i+1].At
		}
		for _, s := range c.versionDueSpans(&v, to) {
			if last := len(all) - 1; last >= 0 && all[last].to.Equal(s.from) {
				all[last].to, all[last].hold = s.to, max(all[last].hold, s.hold)
				continue
			}
			all = append(all, s)
		}
	}
	return all
}

// versionDueSpans returns the times at which a version of a resource is due, until the next version. It
// returns two if the API's clock is so far ahead that the time of the last report is not accepted
// at first, and one otherwise.
func (c *checker) versionDueSpans(v *Version, to time.Time) []span {
	if !v.isWatched() {
		return nil
	}
	spans := []span{{from: v.At, to: to}}
	if !v.isUnobserved() {
		spans[0].to = earlierOf(to, v.LastUpdated.Add(-skew))
		spans = append(spans, span{from: laterOf(v.At, v.LastUpdated.Add(c.maxAge(v))), to: to})
	}
	spans = slices.DeleteFunc(spans, func(s span) bool { return !s.from.Before(s.to) })
	for i := range spans {
		spans[i].hold = 2 * c.eventInterval(v)
	}
	return spans
}

func (c *checker) maxAge(v *Version) time.Duration {
	if v.Phase == "Ready" {
		return c.promise.Ready
	}
	return c.promise.NotReady
}

// eventInterval returns how long one event about a version is valid.
func (c *checker) eventInterval(v *Version) time.Duration {
	if v.isUnobserved() {
		return c.promise.NotReady
	}
	return c.maxAge(v)
}

// checkJustified checks an event against the state of the resource at the time of the decision. Shortly
// before, the resource must have had such a version, been selected, and been due.
func (c *checker) checkJustified(e *Event) {
	versions := c.versions[e.Resource]
	seen := false
	for i, v := range versions {
		if v.At.After(e.Decided) {
			break
		}
		gone := i+1 < len(versions) && versions[i+1].At.Before(e.Decided.Add(-c.promise.Stale))
		if gone || !v.isWatched() || v.Generation != e.Generation || !v.LastUpdated.Equal(e.LastUpdated) {
			continue
		}
		seen = true
		if c.isDue(&v, e.Decided) {
			return
		}
	}
	if seen {
		c.addBreach(e.At, e.Resource, "%s is about a resource that was not due at %s", e.ID, c.secondsSince(e.Decided))
		return
	}
	c.addBreach(e.At, e.Resource, "%s is about what the resource was not at %s: gone, not selected, or never so", e.ID, c.secondsSince(e.Decided))
}

// isDue reports whether a version of a resource is due at a time, slightly before its age if that
// is configured.
func (c *checker) isDue(v *Version, at time.Time) bool {
	early := v.LastUpdated.Add(c.promise.earliestAge(v.Resource, c.maxAge(v)))
	return v.isUnobserved() || v.LastUpdated.After(at.Add(skew)) || !early.After(at)
}

func earlierOf(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

func laterOf(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
