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

// CountCalls returns the totals so far.
func (g *Garden) CountCalls() Counts {
	g.mu.Lock()
	defer g.mu.Unlock()
	c := g.calls.counts
	c.Calls, c.Failed = maps.Clone(c.Calls), maps.Clone(c.Failed)
	return c
}

// ListAppliedGenerations returns the generations that were applied to a name, in order, if
// Options.History is set.
func (g *Garden) ListAppliedGenerations(shootName string) []int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.history[shootName])
}

// ListShootNames returns the names of all Shoots, in order.
func (g *Garden) ListShootNames() []string {
	g.lockAndAdvance()
	defer g.mu.Unlock()
	return slices.Sorted(maps.Keys(g.store.shoots))
}

// GetShootSpec returns the spec of a Shoot, or false for an absent Shoot.
func (g *Garden) GetShootSpec(shootName string) (spec shoot.Spec, exists bool) {
	g.lockAndAdvance()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[shootName]
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

// FailNextOperations makes the next operations of a Shoot fail the given number of times. A
// negative number is permanent; 0 makes them succeed again. An absent Shoot fails once it is
// created.
func (g *Garden) FailNextOperations(shootName string, times int) {
	g.lockAndAdvance()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[shootName]; ok {
		it.breaks = times
		return
	}
	g.store.breaks[shootName] = times
}

// ReplaceWithForeignShoot creates a Shoot that no client requested, in place of one of that name.
func (g *Garden) ReplaceWithForeignShoot(manifest shoot.Manifest) {
	now := g.lockAndAdvance()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[manifest.Metadata.Name]; ok {
		it.lingers = false
		g.store.removeUnlessDeletionBlocked(it)
	}
	it := g.store.createShootAndStartOperation(manifest, now)
	it.ours = shoot.Manifest{}
}

// EditShootSpec changes the spec of a Shoot as another client does.
func (g *Garden) EditShootSpec(shootName string, edit func(*shoot.Spec)) error {
	now := g.lockAndAdvance()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[shootName]
	if !ok {
		return fmt.Errorf("edit Shoot %q: %w", shootName, shoot.ErrNotFound)
	}
	it.spec = cloneSpec(it.spec)
	edit(&it.spec)
	it.generation++
	g.store.startOperation(it, it.op.nextType(), now)
	return nil
}

// SetDeletionBlocked blocks the end of a Shoot's deletion, or unblocks it.
func (g *Garden) SetDeletionBlocked(shootName string, blocked bool) {
	now := g.lockAndAdvance()
	defer g.mu.Unlock()
	it, ok := g.store.shoots[shootName]
	if !ok {
		return
	}
	it.lingers = blocked
	if !blocked && it.deleting && it.op.due.IsZero() {
		it.op.due = now
		g.store.runDueStepsOfShoot(it, now)
	}
}

// RemoveShoot removes a Shoot without a deletion, as a client with more rights can.
func (g *Garden) RemoveShoot(shootName string) {
	g.lockAndAdvance()
	defer g.mu.Unlock()
	if it, ok := g.store.shoots[shootName]; ok {
		it.lingers = false
		g.store.removeUnlessDeletionBlocked(it)
	}
}
