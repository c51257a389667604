package evaluator

import (
	"sync"
	"time"
)

const (
	// usual is about how long a place is held: so far apart are those told to
	// come back that were turned away for the same requester.
	usual = 100 * time.Millisecond
	most  = 10 * time.Second // until when anybody is told to come back

	// grace is how much later than told somebody can come back whose turn it is: what
	// is executed is looked at every two seconds at least, and then waits for a worker.
	grace = 10 * time.Second
)

// shares says who has a place. Nobody waits in it, since whoever does
// holds a worker up: those who are turned away are told when to come back.
type shares struct {
	mu      sync.Mutex
	running int
	of      map[string]*share
}

// A share is what one requester has.
type share struct {
	running int
	next    time.Time // when the next one that is turned away comes back
	since   time.Time // since when it has wanted a place and has none; zero is not
}

func newShares() *shares { return &shares{of: map[string]*share{}} }

// acquireSlot takes a place for a requester, or says after what time to ask again.
func (s *shares) acquireSlot(requester string, now time.Time) (after time.Duration, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	mine := s.of[requester]
	if mine == nil {
		mine = &share{}
		s.of[requester] = mine
	}
	ahead := 0
	for name, other := range s.of {
		gone := !now.Before(other.next.Add(grace))
		switch {
		case other == mine || other.running > 0:
		case gone:
			delete(s.of, name)
		case !other.since.IsZero() && (mine.running > 0 || mine.since.IsZero() || other.since.Before(mine.since)):
			ahead++
		}
	}
	limit := maxPerRequester
	if requester == "" { // nobody has a second share by not saying who asks
		limit = max(1, maxPerRequester/2)
	}
	if mine.running < limit && s.running+ahead < MaxProcesses {
		mine.running++
		s.running++
		mine.since = time.Time{}
		return 0, true
	}
	if mine.running == 0 && mine.since.IsZero() {
		mine.since = now
	}
	if mine.next = mine.next.Add(usual); mine.next.Before(now.Add(usual)) {
		mine.next = now.Add(usual)
	}
	if last := now.Add(most); mine.next.After(last) {
		mine.next = last
	}
	return mine.next.Sub(now), false
}

// releaseSlot gives a place back.
func (s *shares) releaseSlot(requester string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running--
	mine := s.of[requester]
	if mine.running--; mine.running == 0 && mine.next.IsZero() {
		delete(s.of, requester)
	}
}
