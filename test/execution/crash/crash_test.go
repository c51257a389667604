package crash

import (
	"fmt"
	"slices"
	"sync"
	"testing"
)

const (
	// lanes is how many controllers live and die beside each other, each with a
	// namespace of its own.
	lanes = 4
	// mostWrites is more than any execution needs.
	mostWrites = 40
)

// Wherever the controller dies, the next one goes on: the end is the same, the
// action is done once, by the plan that was approved, and the audit has all of it.
func TestDiesAtEachWrite(t *testing.T) { diesAtEach(t, (*lane).run, courses()...) }

// diesAtEach has the controller die at each write of executions that go courses.
func diesAtEach(t *testing.T, run func(l *lane, at point) (struck string), courses ...course) {
	t.Helper()
	var all []*matrix
	for _, c := range courses {
		all = append(all, &matrix{course: c, run: run, struck: map[string][]string{}})
	}
	t.Run("lanes", func(t *testing.T) {
		for _, m := range all {
			for n := range lanes {
				t.Run(fmt.Sprintf("%s-%d", m.course.name, n), func(t *testing.T) {
					t.Parallel()
					m.lane(t)
				})
			}
		}
	})
	if t.Failed() {
		return
	}
	for _, m := range all {
		for _, mode := range modes() {
			got := m.struck[mode]
			slices.Sort(got)
			t.Logf("%s: %d deaths %s: %q", m.course.name, len(got), mode, got)
			if want := m.course.deaths(); !slices.Equal(want, got) {
				t.Errorf("%s: controllers died %s %q, want %q", m.course.name, mode, got, want)
			}
		}
	}
}

func modes() []string { return []string{before, after} }

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
	// run has an execution go its way, during which the controller dies, and says
	// at which write it did.
	run func(l *lane, at point) (struck string)

	mu     sync.Mutex
	begun  bool
	n      [2]int  // of the last point that was given away, in each mode
	over   [2]bool // there are no more writes
	struck map[string][]string
}

// next gives a point: nowhere first, then the nth write before and after it is
// made, until a run needs no more.
func (m *matrix) next() (at point, ok bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.begun {
		m.begun = true
		return point{}, true
	}
	mode := 0
	if m.over[0] || !m.over[1] && m.n[1] < m.n[0] {
		mode = 1
	}
	if m.over[mode] {
		return point{}, false
	}
	m.n[mode]++
	return point{n: m.n[mode], answered: mode == 1}, true
}

// done notes what came of a point: where the controller died, or that it did not.
func (m *matrix) done(at point, struck string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	mode := slices.Index(modes(), at.mode())
	switch {
	case struck != "":
		m.struck[at.mode()] = append(m.struck[at.mode()], struck)
	case at.n > 0:
		m.over[mode] = true
	}
}
