package policy

import (
	"sync"
	"time"
)

const (
	// usualHold is the approximate duration of holding a place. It is the distance between the retry
	// times of requests of one requester.
	usualHold     = 100 * time.Millisecond
	maxRetryDelay = 10 * time.Second // maximum retry delay

	// retryGrace is the permitted lateness of a retry that keeps its position. Executions are
	// reconciled every two seconds at least, and then wait for a worker.
	retryGrace = 10 * time.Second
)

// placeAllocator allocates the places. Callers never wait in it, because a waiting caller blocks a worker;
// rejected callers get a retry time.
type placeAllocator struct {
	mu      sync.Mutex
	running int
	of      map[string]*share
}

// A share is the allocation of one requester.
type share struct {
	running int
	next    time.Time // when the next rejected request retries
	since   time.Time // since when it wants a place and has none; otherwise zero
}

func newPlaceAllocator() *placeAllocator { return &placeAllocator{of: map[string]*share{}} }

// tryReservePlace reserves a place for a requester, or returns the delay of a retry.
func (s *placeAllocator) tryReservePlace(requester string, now time.Time) (retryAfter time.Duration, reserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[requester]
	if mine == nil {
		mine = &share{}
		s.of[requester] = mine
	}
	ahead := 0
	for name, other := range s.of {
		gone := !now.Before(other.next.Add(retryGrace))
		switch {
		case other == mine || other.running > 0:
		case gone:
			delete(s.of, name)
		case !other.since.IsZero() && (mine.running > 0 || mine.since.IsZero() || other.since.Before(mine.since)):
			ahead++
		}
	}
	limit := maxPerRequester
	if requester == "" { // anonymous requesters share one place
		limit = max(1, maxPerRequester/2)
	}
	if mine.running < limit && s.running+ahead < MaxEvaluatorProcesses {
		mine.running++
		s.running++
		mine.since = time.Time{}
		return 0, true
	}
	if mine.running == 0 && mine.since.IsZero() {
		mine.since = now
	}
	if mine.next = mine.next.Add(usualHold); mine.next.Before(now.Add(usualHold)) {
		mine.next = now.Add(usualHold)
	}
	if last := now.Add(maxRetryDelay); mine.next.After(last) {
		mine.next = last
	}
	return mine.next.Sub(now), false
}

// releasePlace releases a place.
func (s *placeAllocator) releasePlace(requester string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	mine := s.of[requester]
	if mine.running--; mine.running == 0 && mine.next.IsZero() {
		delete(s.of, requester)
	}
}
