package telemetry

import (
	"sync"
	"time"
)

const (
	sampleBurst  = 10
	sampleWindow = time.Minute
)

// A Sampler keeps a fault of thousands of resources from filling the log: of
// each kind it lets some lines a minute through, and the next one after that
// says how many were left out.
type Sampler struct {
	mu    sync.Mutex
	kinds map[string]*sample
}

type sample struct {
	begin   time.Time
	lines   int
	omitted int
}

// NewSampler makes a sampler that has let nothing through yet.
func NewSampler() *Sampler { return &Sampler{kinds: map[string]*sample{}} }

// Allow reports whether a line of a kind may be logged now, and how many were
// left out before it. Kinds come from a closed set.
func (s *Sampler) Allow(kind string) (omitted int, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.kinds[kind]
	if k == nil {
		k = &sample{begin: now}
		s.kinds[kind] = k
	}
	if now.Sub(k.begin) >= sampleWindow {
		k.begin, k.lines = now, 0
	}
	if k.lines >= sampleBurst {
		k.omitted++
		return 0, false
	}
	k.lines++
	omitted, k.omitted = k.omitted, 0
	return omitted, true
}

// Omitted returns how many lines of each kind were left out and told by no
// line since: of the kinds that may log again, or of all. They count as told.
func (s *Sampler) Omitted(all bool) map[string]int {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int{}
	for kind, k := range s.kinds {
		if k.omitted > 0 && (all || now.Sub(k.begin) >= sampleWindow) {
			left[kind], k.omitted = k.omitted, 0
		}
	}
	return left
}
