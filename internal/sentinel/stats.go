package sentinel

import (
	"sync"
	"time"
)

// Stats are how a sentinel is doing. What counts goes on from that of a
// predecessor.
type Stats struct {
	// Rounds are the complete ones, LastRound is when the last of them ended;
	// zero is never.
	Rounds    uint64
	LastRound time.Time

	// Resources are those that match the selector and are ours, as of the last
	// complete round.
	Resources int

	// Published are the events that a broker has confirmed.
	Published uint64

	// Mode is how changes are learned of just now.
	Mode Mode

	// APIErr is what the last request to the fleet API failed with, of those
	// that list, follow or look up; one of its own before the first answer.
	// BrokerErr is why the broker takes nothing. Both are nil while all is well.
	APIErr, BrokerErr error
}

// counts are the part of Stats that is counted.
type counts struct {
	mu        sync.Mutex
	rounds    uint64
	lastRound time.Time
	resources int
	published uint64
	mode      Mode
}

func (t *counts) noteRound(resources int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds++
	t.lastRound, t.resources = time.Now(), resources
}

func (t *counts) notePublished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.published++
}

func (t *counts) setMode(mode Mode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mode = mode
}

func (t *counts) snapshot() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Rounds: t.rounds, LastRound: t.lastRound, Resources: t.resources, Published: t.published, Mode: t.mode}
}

// Stats are how the sentinel is doing. It may be called at any time.
func (s *Sentinel) Stats() Stats {
	now := s.counts.snapshot()
	now.APIErr, now.BrokerErr = s.apiErr(), s.publisher.Ready()
	return now
}

// setMode notes how changes are learned of from now on.
func (s *Sentinel) setMode(mode Mode) {
	s.metrics.setMode(mode)
	s.counts.setMode(mode)
}
