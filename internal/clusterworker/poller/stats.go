package poller

import (
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// Stats are the state of a poller. All fields but Leads, Fence and GardenerErr are zero
// unless the poller is the leader.
type Stats struct {
	// Leads is whether this process is the leader, and Fence identifies its term.
	Leads bool
	Fence int64
	// Watching is whether a watch is active.
	Watching bool
	// LastList is when all Shoots were last compared with the database.
	LastList time.Time
	// Shoots is the number of rows by status, and Orphans the number of Shoots without
	// a cluster, as of LastList.
	Shoots  map[v1.ShootStatus]int
	Orphans int
	// GardenerErr is the last error of Gardener, nil while it answers.
	GardenerErr error
}

// pollerState is the part of a poller that its exported methods read.
type pollerState struct {
	mu    sync.Mutex
	term  *leaderTerm
	cache *statusCache
	stats Stats
}

// beginTerm records the start of a term, and returns the cache for its duration.
func (s *pollerState) beginTerm(term *leaderTerm) *statusCache {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term, s.cache = term, &statusCache{entries: map[string]cacheEntry{}}
	s.stats = Stats{Fence: term.fence}
	return s.cache
}

func (s *pollerState) endTerm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.term, s.cache = nil, nil
	s.stats = Stats{Fence: s.stats.Fence, GardenerErr: s.stats.GardenerErr}
}

// recordGardenerResult records an error of Gardener, or nil for an answer. It reports whether
// the error is the first of consecutive ones.
func (s *pollerState) recordGardenerResult(err error) (firstFailure bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	firstFailure = err != nil && s.stats.GardenerErr == nil
	s.stats.GardenerErr = err
	return firstFailure
}

func (s *pollerState) isWatching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Watching
}

// updateStats changes the published state.
func (s *pollerState) updateStats(modify func(*Stats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	modify(&s.stats)
}

// holdsCurrentTerm reports whether this process holds a term that is not over.
func (s *pollerState) holdsCurrentTerm() bool {
	return s.term != nil && time.Now().Before(s.term.writeDeadline())
}

// CollectStats returns the state of the poller. It may be called at any time.
func (p *Poller) CollectStats() Stats {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	stats := p.state.stats
	stats.Leads = p.state.holdsCurrentTerm()
	return stats
}

// IsLeader reports whether this process is the leader.
func (p *Poller) IsLeader() bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.holdsCurrentTerm()
}

// IsStatusCurrent reports whether a row's status is about the Shoot as it was last sent, rather
// than an earlier state. known is false if the Shoot was not observed since the term
// began.
func (p *Poller) IsStatusCurrent(row *clusterworker.Row) (current, known bool) {
	p.state.mu.Lock()
	cache := p.state.cache
	p.state.mu.Unlock()
	if cache == nil {
		return false, false
	}
	entry, ok := cache.getEntry(row.ClusterID)
	if !ok {
		return false, false
	}
	if entry.row.Status != row.Status {
		return false, true // the status has changed since
	}
	if entry.uid == "" { // the Shoot was absent
		return entry.row.SyncedGeneration >= row.SyncedGeneration, true
	}
	isSameShoot := row.ShootUID == "" || entry.uid == row.ShootUID
	return isSameShoot && entry.generation >= row.ShootGeneration, true
}
