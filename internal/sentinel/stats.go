package sentinel

import (
	"sync"
	"time"
)

// Stats describes the state of a sentinel. Counters continue those of the predecessor.
type Stats struct {
	// Rounds counts complete rounds. LastRound is the end of the last one; zero means never.
	Rounds    uint64
	LastRound time.Time

	// Resources is the number of resources that matched the selector and belonged to the shard in
	// the last complete round.
	Resources int

	// Published counts the events that the broker has confirmed.
	Published uint64

	// Mode is how the sentinel learns of changes now.
	Mode Mode

	// APIErr is the error of the last request to the fleet API that listed, followed or looked up
	// resources. Before the first response it is a special error. BrokerErr is why the broker
	// accepts no events. Both are nil if there is no problem.
	APIErr, BrokerErr error
}

// counts is the counted part of Stats.
type counts struct {
	mu        sync.Mutex
	rounds    uint64
	lastRound time.Time
	resources int
	published uint64
	mode      Mode
}

func (t *counts) recordRound(resources int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rounds++
	t.lastRound, t.resources = time.Now(), resources
}

func (t *counts) countPublished() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.published++
}

func (t *counts) setMode(mode Mode) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mode = mode
}

func (t *counts) copyStats() Stats {
	t.mu.Lock()
	defer t.mu.Unlock()
	return Stats{Rounds: t.rounds, LastRound: t.lastRound, Resources: t.resources, Published: t.published, Mode: t.mode}
}

// Stats returns the state of the sentinel. It may be called at any time.
func (s *Sentinel) Stats() Stats {
	now := s.counts.copyStats()
	now.APIErr, now.BrokerErr = s.lastAPIError(), s.publisher.Ready()
	return now
}

// setMode records how the sentinel learns of changes from now on.
func (s *Sentinel) setMode(mode Mode) {
	s.metrics.setModeGauges(mode)
	s.counts.setMode(mode)
}
