package crash

import (
	"fmt"
	"sync"
	"testing"
)

// lanes is how many controllers live and die beside each other, each with a
// namespace of its own.
const lanes = 4

// Wherever the controller dies, the next one goes on: the end is the same, the
// action is done once, by the plan that was approved, and the audit has all of it.
func TestDiesAtEachWrite(t *testing.T) {
	t.Parallel()
	diesAtEach(t, (*lane).run, courses()...)
}

// diesAtEach has the controller die at each write of executions that go courses.
func diesAtEach(t *testing.T, run func(l *lane, at point), courses ...course) {
	t.Helper()
	for _, c := range courses {
		m := &matrix{course: c, run: run, points: c.points()}
		for n := range lanes {
			t.Run(fmt.Sprintf("%s-%d", c.name, n), func(t *testing.T) {
				t.Parallel()
				m.lane(t)
			})
		}
	}
}

const (
	before = "before"
	after  = "after"
)

func (p point) mode() string {
	if p.answered {
		return after
	}
	return before
}

// A matrix has all points, and gives each of them to one lane.
type matrix struct {
	course course
	// run has an execution go its way, during which the controller dies.
	run func(l *lane, at point)

	mu     sync.Mutex
	points []point // that nobody has yet
}

// next gives a point.
func (m *matrix) next() (at point, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.points) == 0 {
		return point{}, false
	}
	at, m.points = m.points[0], m.points[1:]
	return at, true
}
