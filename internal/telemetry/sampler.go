package telemetry

import (
	"sync"
	"time"
)

const (
	sampleBurst  = 10
	sampleWindow = time.Minute
)

// A Sampler prevents a fault of thousands of resources from filling the log. It allows some lines
// per minute of each kind, and the next line after that contains the number of omitted lines.
type Sampler struct {
	mu    sync.Mutex
	kinds map[string]*sample
}

type sample struct {
	begin   time.Time
	lines   int
	omitted int
}

// NewSampler returns a sampler that has not allowed any line yet.
func NewSampler() *Sampler { return &Sampler{kinds: map[string]*sample{}} }

// AllowLogLine reports whether a line of a kind may be logged now, and how many were omitted before it.
// Kinds come from a closed set.
func (s *Sampler) AllowLogLine(kind string) (omitted int, ok bool) {
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

// TakeOmitted returns how many lines of each kind were omitted and not reported since: for the kinds
// that may log again, or with includeBlockedKinds for all. It counts them as reported.
func (s *Sampler) TakeOmitted(includeBlockedKinds bool) map[string]int {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	left := map[string]int{}
	for kind, k := range s.kinds {
		if k.omitted > 0 && (includeBlockedKinds || now.Sub(k.begin) >= sampleWindow) {
			left[kind], k.omitted = k.omitted, 0
		}
	}
	return left
}
