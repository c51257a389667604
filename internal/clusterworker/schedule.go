package clusterworker

import (
	"slices"
	"sync"
	"sync/atomic"
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

	lastClaim  time.Time // start of the last claim
	nextPoll   time.Time // next claim if nothing happens
	notifiedAt time.Time // zero if no notification waits for a claim
	burstEnd   time.Time
	reached    reachedLimits // of the last claim
}

// A reachedLimits is whether a claim returned all that there was room for: all rows, and rows whose last try timed out.
type reachedLimits struct{ all, timedOut bool }

// startClaimBurst makes claims due after a notification, and for a while after it.
func (s *schedule) startClaimBurst(now time.Time) {
	if s.notifiedAt.IsZero() {
		s.notifiedAt = now
	}
	s.burstEnd = now.Add(burst)
}

// setPollIfEarlier moves the next poll to at or earlier. Before the first claim the poll is due
// at once in any case.
func (s *schedule) setPollIfEarlier(at time.Time) {
	if at.Before(s.nextPoll) {
		s.nextPoll = at
	}
}

// recordClaim records the start of a claim, and which of its limits it reached. The next poll
// follows a pollInterval later.
func (s *schedule) recordClaim(began time.Time, reached reachedLimits, pollInterval time.Duration) {
	s.lastClaim = began
	s.nextPoll = began.Add(pollInterval)
	s.notifiedAt = time.Time{}
	s.reached = reached
	s.alarms.removePassedAlarms(began)
}

// nextClaimTime returns when to claim next and why. slotFreedAt is when the first slot became free.
func (s *schedule) nextClaimTime(limits ClaimLimits, slotFreedAt time.Time) (claimAt time.Time, cause claimCause) {
	next := scheduledClaim{s.nextPoll, causePoll}
	if alarmAt, ok := s.alarms.earliestAlarm(); ok {
		next = next.orEarlier(alarmAt, causeRetry)
	}
	manySlotsFree := limits.Slots >= max(1, s.slots/goodPart)
	mayTryTimedOut := s.reached.timedOut && limits.TimedOut > 0
	nextInBurst := s.lastClaim.Add(burstInterval)
	switch {
	case s.reached.all && manySlotsFree:
		next = next.orEarlier(s.lastClaim, causeDrain)
	case s.reached.all || mayTryTimedOut:
		next = next.orEarlier(slotFreedAt.Add(linger), causeDrain)
	case !nextInBurst.After(s.burstEnd):
		next = next.orEarlier(nextInBurst, causeNotify)
	}
	if !s.notifiedAt.IsZero() {
		next = next.orEarlier(s.notifiedAt, causeNotify)
	}
	return next.at, next.cause
}

// A scheduledClaim is the time of a claim and its cause.
type scheduledClaim struct {
	at    time.Time
	cause claimCause
}

func (c scheduledClaim) orEarlier(at time.Time, cause claimCause) scheduledClaim {
	if at.Before(c.at) {
		return scheduledClaim{at, cause}
	}
	return c
}

// A lastNotification is the time of the last notification.
type lastNotification struct{ at atomic.Pointer[time.Time] }

func (l *lastNotification) recordNotification(now time.Time) { l.at.Store(&now) }

// notificationSlack is how long after a notification a change may come without one.
const notificationSlack = 2 * burstInterval

// mayHaveMissedNotification reports whether a row may have changed since its claim without a
// later event that wakes the claimer. A claimed row that changes is due when its result
// is written, and that sends no notification.
func (l *lastNotification) mayHaveMissedNotification(claimedAt, now time.Time) bool {
	at := l.at.Load()
	if at == nil {
		return false
	}
	claimedBefore := claimedAt.Before(at.Add(notificationSlack))
	burstIsOver := now.After(at.Add(burst - burstInterval))
	return claimedBefore && burstIsOver
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
	a.times = slices.DeleteFunc(a.times, func(at time.Time) bool { return !at.After(now) })
}
