package memory

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Counts are what happened in a garden.
type Counts struct {
	// Calls and Failed are by verb; a watch is one call.
	Calls, Failed map[Verb]int

	// Created, Changed and Unchanged are what calls to apply did, and Deleted is
	// how many deletions began.
	Created, Changed, Unchanged, Deleted int

	// Overlaps is how often a Shoot was written to while another call was
	// still writing to it, and MaxInFlight to how many at most at a time.
	Overlaps, MaxInFlight int
}

// Counts gives what happened so far.
func (g *Garden) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.counts
	c.Calls, c.Failed = maps.Clone(c.Calls), maps.Clone(c.Failed)
	return c
}

// History is the generations that were applied to a name, in their order, if
// that is kept.
func (g *Garden) History(name string) []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.history[name])
}

// Names are the names of all Shoots, in order.
func (g *Garden) Names() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advanceTo(time.Now())
	return slices.Sorted(maps.Keys(g.shoots))
}

// Spec is what a Shoot should be, false if there is none.
func (g *Garden) Spec(name string) (shoot.Spec, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advanceTo(time.Now())
	it, ok := g.shoots[name]
	if !ok {
		return shoot.Spec{}, false
	}
	return cloneSpec(it.spec), true
}

// SetOutage begins or ends a time in which every call is refused. Watches end
// when it begins; what goes on in the garden goes on.
func (g *Garden) SetOutage(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outage = on
	g.wakeWatchers()
}

// Break makes the next operations of a Shoot fail, so many times, or for good if
// negative; 0 makes them succeed again. One that is not there yet fails when it
// is made.
func (g *Garden) Break(name string, times int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advanceTo(time.Now())
	if it, ok := g.shoots[name]; ok {
		it.breaks = times
		return
	}
	g.breaks[name] = times
}

// Put makes a Shoot that nobody here asked for, in place of one of that name.
func (g *Garden) Put(m shoot.Manifest) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.advanceTo(now)
	if it, ok := g.shoots[m.Metadata.Name]; ok {
		it.lingers = false
		g.finishDeletion(it)
	}
	it := g.createItem(m, now)
	it.ours = shoot.Manifest{}
}

// Edit changes the spec of a Shoot as somebody else does.
func (g *Garden) Edit(name string, edit func(*shoot.Spec)) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.advanceTo(now)
	it, ok := g.shoots[name]
	if !ok {
		return fmt.Errorf("edit Shoot %q: %w", name, shoot.ErrNotFound)
	}
	it.spec = cloneSpec(it.spec)
	edit(&it.spec)
	it.generation++
	g.startOperation(it, it.op.nextType(), now)
	return nil
}

// Linger keeps a Shoot from going when its deletion is done, or lets it go.
func (g *Garden) Linger(name string, on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.advanceTo(now)
	it, ok := g.shoots[name]
	if !ok {
		return
	}
	it.lingers = on
	if !on && it.deleting && it.op.due.IsZero() {
		it.op.due = now
		g.runDueSteps(it, now)
	}
}

// Remove takes a Shoot away without a deletion, as somebody with more rights can.
func (g *Garden) Remove(name string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.advanceTo(time.Now())
	if it, ok := g.shoots[name]; ok {
		it.lingers = false
		g.finishDeletion(it)
	}
}
