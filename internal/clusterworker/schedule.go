package clusterworker

import (
	"slices"
	"sync"
	"time"
)

// A claimCause is why rows are claimed. The set is closed: it is a metric label.
type claimCause string

const (
	// causeNotify is a notification, or the time after it in which the database may
	// have omitted others.
	causeNotify claimCause = "notify"
	// causeDrain is a claim that returned all that it asked for, so that there may be
	// more rows.
	causeDrain claimCause = "drain"
	// causeRetry is a row that is known to become due.
	causeRetry claimCause = "retry"
	// causePoll is the end of the poll interval.
	causePoll claimCause = "poll"
)

const (
	// burst is how long after a notification the worker claims every burstInterval. The
	// database sends no notification for changes in quick succession.
	burst         = time.Second
	burstInterval = 50 * time.Millisecond

	// linger is how long free slots wait for others, so that rows are not claimed one
	// by one.
	linger = 10 * time.Millisecond
	// goodPart is the part of the slots, as a divisor, that does not wait.
	goodPart = 2
)

// A schedule decides when to claim. Only the claimer uses it, except for its alarms.
type schedule struct {
	alarms *alarms
	slots  int

	last   time.Time // start of the last claim
	pollAt time.Time // next claim if nothing happens
	woken  time.Time // zero if no notification waits for a claim
	until  time.Time // end of the burst
	more   bool
	// moreTimedOut is like more, for rows whose last try timed out.
	moreTimedOut bool
}

// startClaimBurst makes claims due after a notification, and for a while after it.
func (s *schedule) startClaimBurst(now time.Time) {
	if s.woken.IsZero() {
		s.woken = now
	}
	s.until = now.Add(burst)
}

// setPollIfEarlier moves the next poll to at or earlier. Before the first claim the poll is due
// at once in any case.
func (s *schedule) setPollIfEarlier(at time.Time) {
	if at.Before(s.pollAt) {
		s.pollAt = at
	}
}

// recordClaim records the start of a claim, and which of its limits it reached. The next poll
// follows a pollInterval later.
func (s *schedule) recordClaim(began time.Time, reached reachedLimits, pollInterval time.Duration) {
	s.last, s.pollAt, s.woken = began, began.Add(pollInterval), time.Time{}
	s.more, s.moreTimedOut = reached.all, reached.timedOut
	s.alarms.removePassedAlarms(began)
}

// A reachedLimits is whether a claim returned all that there was room for.
type reachedLimits struct{ all, timedOut bool }

// nextClaimTime returns when to claim next and why. slotFreedAt is when the first slot became free.
func (s *schedule) nextClaimTime(limits ClaimLimits, slotFreedAt time.Time) (claimAt time.Time, reason claimCause) {
	at, why := s.pollAt, causePoll
	consider := func(t time.Time, c claimCause) {
		if t.Before(at) {
			at, why = t, c
		}
	}
	if first, ok := s.alarms.earliestAlarm(); ok {
		consider(first, causeRetry)
	}
	switch t := s.last.Add(burstInterval); {
	case s.more && limits.Slots >= max(1, s.slots/goodPart):
		consider(s.last, causeDrain)
	case s.more, s.moreTimedOut && limits.TimedOut > 0:
		consider(slotFreedAt.Add(linger), causeDrain)
	case !t.After(s.until):
		consider(t, causeNotify)
	}
	if !s.woken.IsZero() {
		consider(s.woken, causeNotify)
	}
	return at, why
}

// grain is the distance between alarms. One claim serves all rows that are due within
// it.
const grain = burstInterval

// alarms are the known times at which rows become due. There is at most one for each
// grain of the longest delay, however many rows fail.
type alarms struct {
	mu    sync.Mutex
	times []time.Time // ascending, one grain apart
	base  time.Time
}

func newAlarms() *alarms { return &alarms{base: time.Now()} }

// addAlarm adds an alarm, up to a grain later than asked for and never earlier.
func (a *alarms) addAlarm(at time.Time) {
	if past := at.Sub(a.base) % grain; past > 0 {
		at = at.Add(grain - past)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i, found := slices.BinarySearchFunc(a.times, at, time.Time.Compare); !found {
		a.times = slices.Insert(a.times, i, at)
	}
}

// earliestAlarm returns the earliest alarm.
func (a *alarms) earliestAlarm() (at time.Time, exists bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.times) == 0 {
		return time.Time{}, false
	}
	return a.times[0], true
}

// removePassedAlarms removes the alarms up to now.
func (a *alarms) removePassedAlarms(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := slices.BinarySearchFunc(a.times, now, time.Time.Compare)
	if found {
		i++
	}
	a.times = slices.Delete(a.times, 0, i)
}
