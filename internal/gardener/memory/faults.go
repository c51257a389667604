package memory

import (
	"fmt"
	"maps"
	"slices"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Counts are the totals of the calls to a garden.
type Counts struct {
	// Calls and Failed are by verb; a watch is one call.
	Calls, Failed map[Verb]int

	// Created, Changed and Unchanged are the results of applies, and Deleted is the
	// number of deletions that began.
	Created, Changed, Unchanged, Deleted int

	// Overlaps is how many times a Shoot was written while another call was writing it.
	// MaxInFlight is the largest number of Shoots being written at a time.
	Overlaps, MaxInFlight int
}

// Counts returns the totals so far.
func (g *Garden) Counts() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls.counts
	c.Calls, c.Failed = maps.Clone(c.Calls), maps.Clone(c.Failed)
	return c
}

// History returns the generations that were applied to a name, in order, if
// Options.History is set.
func (g *Garden) History(name string) []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.history[name])
}

// Names returns the names of all Shoots, in order.
func (g *Garden) Names() []string {
	g.lockNow()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.store.shoots))
}

// Spec returns the spec of a Shoot, or false for an absent Shoot.
func (g *Garden) Spec(name string) (shoot.Spec, bool) {
	g.lockNow()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[name]
	if !ok {
		return shoot.Spec{}, false
	}
	return cloneSpec(it.spec), true
}

// SetOutage begins or ends an outage, in which every call fails. Watches end when it
// begins; operations in the garden continue.
func (g *Garden) SetOutage(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.outage = on
	g.store.changes.wakeWatchers()
}

// Break makes the next operations of a Shoot fail the given number of times, or
// permanently if negative; 0 makes them succeed again. An absent Shoot fails once it is
// created.
func (g *Garden) Break(name string, times int) {
	g.lockNow()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[name]; ok {
		it.breaks = times
		return
	}
	g.store.breaks[name] = times
}

// Put creates a Shoot that no client requested, in place of one of that name.
func (g *Garden) Put(m shoot.Manifest) {
	now := g.lockNow()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[m.Metadata.Name]; ok {
		it.lingers = false
		g.store.removeUnlessLingering(it)
	}
	it := g.store.createItem(m, now)
	it.ours = shoot.Manifest{}
}

// Edit changes the spec of a Shoot as another client does.
func (g *Garden) Edit(name string, edit func(*shoot.Spec)) error {
	now := g.lockNow()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[name]
	if !ok {
		return fmt.Errorf("edit Shoot %q: %w", name, shoot.ErrNotFound)
	}
	it.spec = cloneSpec(it.spec)
	edit(&it.spec)
	it.generation++
	g.store.startOperation(it, it.op.nextOperationType(), now)
	return nil
}

// BlockDeletion blocks the end of a Shoot's deletion, or unblocks it.
func (g *Garden) BlockDeletion(name string, blocked bool) {
	now := g.lockNow()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[name]
	if !ok {
		return
	}
	it.lingers = blocked
	if !blocked && it.deleting && it.op.due.IsZero() {
		it.op.due = now
		g.store.runDueSteps(it, now)
	}
}

// Remove removes a Shoot without a deletion, as a client with more rights can.
func (g *Garden) Remove(name string) {
	g.lockNow()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[name]; ok {
		it.lingers = false
		g.store.removeUnlessLingering(it)
	}
}
