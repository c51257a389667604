package clusterworker

import (
	"sync"
	"time"
)

const (
	sampleBurst  = 10
	sampleWindow = time.Minute
)

// A sampler keeps a fault of thousands of clusters from filling the log: of
// each class it lets some lines a minute through, and the next one after that
// says how many were left out.
type sampler struct {
	mu      sync.Mutex
	classes map[ErrorClass]*sample
}

type sample struct {
	begin   time.Time
	lines   int
	omitted int
}

func newSampler() *sampler { return &sampler{classes: map[ErrorClass]*sample{}} }

// allow reports whether a line of a class may be logged now, and how many were
// left out before it.
func (s *sampler) allow(class ErrorClass) (omitted int, ok bool) {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.classes[class]
	if c == nil {
		c = &sample{begin: now}
		s.classes[class] = c
	}
	if now.Sub(c.begin) >= sampleWindow {
		c.begin, c.lines = now, 0
	}
	if c.lines >= sampleBurst {
		c.omitted++
		return 0, false
	}
	c.lines++
	omitted, c.omitted = c.omitted, 0
	return omitted, true
}
