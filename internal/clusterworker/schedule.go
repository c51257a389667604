package clusterworker

import (
	"slices"
	"sync"
	"time"
)

// A cause is why rows are claimed. The set is closed: it is a metric's label.
type cause string

const (
	// causeNotify is a notification, or the time after one in which others may
	// have been left out.
	causeNotify cause = "notify"
	// causeDrain is a claim that got all that it asked for: there may be more.
	causeDrain cause = "drain"
	// causeRetry is a row that we know will be due.
	causeRetry cause = "retry"
	// causePoll is that it was long ago.
	causePoll cause = "poll"
)

const (
	// burst is for how long after a notification rows are looked for every
	// burstInterval. The database does not notify of changes that follow one
	// another too closely.
	burst         = time.Second
	burstInterval = 50 * time.Millisecond

	// linger is how long slots that become free wait for others, so that rows are
	// not claimed one by one.
	linger = 10 * time.Millisecond
	// goodPart of the slots, as a divisor, does not wait.
	goodPart = 2
)

// A schedule says when to claim. It is the claimer's alone, but for its alarms.
type schedule struct {
	alarms *alarms
	slots  int

	last   time.Time // when the last claim began
	pollAt time.Time // the next one if nothing happens
	woken  time.Time // zero if no notification waits for a claim
	until  time.Time // the end of the burst
	more   bool
	// moreTimedOut is more for rows whose last try timed out.
	moreTimedOut bool
}

// noteNotification notes a notification.
func (s *schedule) noteNotification(now time.Time) {
	if s.woken.IsZero() {
		s.woken = now
	}
	s.until = now.Add(burst)
}

// pollBy has the next poll be no later than at. Before the first claim that is
// at once in any case.
func (s *schedule) pollBy(at time.Time) {
	if at.Before(s.pollAt) {
		s.pollAt = at
	}
}

// noteClaim notes a claim that began at some time, and whether it got all it asked
// for, and all rows that timed out. The next poll is an interval later.
func (s *schedule) noteClaim(began time.Time, full filled, interval time.Duration) {
	s.last, s.pollAt, s.woken = began, began.Add(interval), time.Time{}
	s.more, s.moreTimedOut = full.all, full.timedOut
	s.alarms.removePassed(began)
}

// A filled says whether a claim got all that there was room for.
type filled struct{ all, timedOut bool }

// nextClaim is when to claim again and why, if there is room for some rows and the
// first of the slots became free at some time.
func (s *schedule) nextClaim(room Room, freed time.Time) (time.Time, cause) {
	at, why := s.pollAt, causePoll
	consider := func(t time.Time, c cause) {
		if t.Before(at) {
			at, why = t, c
		}
	}
	if first, ok := s.alarms.firstAlarm(); ok {
		consider(first, causeRetry)
	}
	switch t := s.last.Add(burstInterval); {
	case s.more && room.Slots >= max(1, s.slots/goodPart):
		consider(s.last, causeDrain)
	case s.more, s.moreTimedOut && room.TimedOut > 0:
		consider(freed.Add(linger), causeDrain)
	case !t.After(s.until):
		consider(t, causeNotify)
	}
	if !s.woken.IsZero() {
		consider(s.woken, causeNotify)
	}
	return at, why
}

// grain is how close alarms can be: one claim does for all that are closer.
const grain = burstInterval

// Alarms are times at which rows will be due, as far as we know. There is at most one
// for each grain of the longest delay, however many rows fail.
type alarms struct {
	mu    sync.Mutex
	times []time.Time // ascending, a grain apart
	base  time.Time
}

func newAlarms() *alarms { return &alarms{base: time.Now()} }

// setAlarm adds an alarm, up to a grain later than asked for and never earlier.
func (a *alarms) setAlarm(at time.Time) {
	if past := at.Sub(a.base) % grain; past > 0 {
		at = at.Add(grain - past)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if i, found := slices.BinarySearchFunc(a.times, at, time.Time.Compare); !found {
		a.times = slices.Insert(a.times, i, at)
	}
}

// firstAlarm is the earliest alarm.
func (a *alarms) firstAlarm() (time.Time, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.times) == 0 {
		return time.Time{}, false
	}
	return a.times[0], true
}

// removePassed removes the alarms up to now.
func (a *alarms) removePassed(now time.Time) {
	a.mu.Lock()
	defer a.mu.Unlock()
	i, found := slices.BinarySearchFunc(a.times, now, time.Time.Compare)
	if found {
		i++
	}
	a.times = slices.Delete(a.times, 0, i)
}
