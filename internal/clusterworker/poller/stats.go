package poller

import (
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// Stats are how a poller is doing. All but Leads, Fence and GardenerErr are
// those of a poller that has the term, and zero otherwise.
type Stats struct {
	// Leads is whether this process observes for all, and Fence which term it is.
	Leads bool
	Fence int64
	// Watching is whether a watch tells of changes just now.
	Watching bool
	// LastList is when all Shoots were last held against the database.
	LastList time.Time
	// Shoots are the rows by status, and Orphans the Shoots without a cluster,
	// as of then.
	Shoots  map[v1.ShootStatus]int
	Orphans int
	// GardenerErr is what Gardener last failed with, nil while it answers.
	GardenerErr error
}

// state is what others may ask of a poller.
type state struct {
	mu     sync.Mutex
	tenure *leadership
	book   *statusCache
	stats  Stats
}

// beginTerm notes a term, and gives the book that is kept during it.
func (s *state) beginTerm(t *leadership) *statusCache {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenure, s.book = t, &statusCache{entries: map[string]entry{}}
	s.stats = Stats{Fence: t.fence}
	return s.book
}

func (s *state) endTerm() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tenure, s.book = nil, nil
	s.stats = Stats{Fence: s.stats.Fence, GardenerErr: s.stats.GardenerErr}
}

// noteGardener notes what Gardener failed with, or that it answers, and reports
// whether it is the first of a row of failures.
func (s *state) noteGardener(err error) (first bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first = err != nil && s.stats.GardenerErr == nil
	s.stats.GardenerErr = err
	return first
}

func (s *state) setWatching(is bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Watching = is
}

func (s *state) isWatching() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats.Watching
}

func (s *state) noteListed(at time.Time, counts map[v1.ShootStatus]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.LastList, s.stats.Shoots = at, counts
}

func (s *state) setOrphans(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Orphans = n
}

// isLeading reports whether the term is ours and not over.
func (s *state) isLeading() bool {
	return s.tenure != nil && time.Now().Before(s.tenure.writeDeadline())
}

// Stats are how the poller is doing. It may be called at any time.
func (p *Poller) Stats() Stats {
	s := &p.state
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.stats
	now.Leads = s.isLeading()
	return now
}

// Leads reports whether this process observes for all.
func (p *Poller) Leads() bool {
	p.state.mu.Lock()
	defer p.state.mu.Unlock()
	return p.state.isLeading()
}

// Current reports whether a row's status is about the Shoot as it was sent last,
// and not about what it was before. It is not known of a row whose Shoot was not
// seen since our term began.
func (p *Poller) Current(row *clusterworker.Row) (current, known bool) {
	p.state.mu.Lock()
	b := p.state.book
	p.state.mu.Unlock()
	if b == nil {
		return false, false
	}
	e, ok := b.getEntry(row.ClusterID)
	switch {
	case !ok:
		return false, false
	case e.row.Status != row.Status:
		return false, true // it has changed since
	case e.uid == "":
		return e.row.SyncedGeneration >= row.SyncedGeneration, true
	}
	return e.generation >= row.ShootGeneration && (row.ShootUID == "" || e.uid == row.ShootUID), true
}
