package drain

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A memory is what is remembered of the pods of a node while they go. Nothing
// is lost with it: a process that begins anew asks a bit too soon.
type memory map[types.UID]try

// A try is what became of asking a pod to go.
type try struct {
	accepted time.Time // it was told to go, or was gone, then
	refusals int       // in a row
	next     time.Time // not before it is asked again
	blocker  v1alpha1.BlockedPod
}

// podMemory is what is remembered of those pods of a node that have still to go.
func (d *Drainer) podMemory(node types.UID, going []item) memory {
	d.mu.Lock()
	defer d.mu.Unlock()
	m, is := d.nodes[node]
	if !is {
		m = memory{}
		d.nodes[node] = m
	}
	there := map[types.UID]bool{}
	for _, it := range going {
		there[it.pod.UID] = true
	}
	maps.DeleteFunc(m, func(pod types.UID, _ try) bool { return !there[pod] })
	return m
}

// acquireSlot asks to drain another node, and says whether it may be drained now.
func (d *Drainer) acquireSlot(node types.UID, now time.Time) bool {
	running := d.draining()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.releaseStaleSlots(now)
	busy := maps.Clone(d.turns)
	for _, other := range running {
		busy[other] = now
	}
	delete(busy, node)
	if len(busy) >= d.cfg.MaxNodes {
		return false
	}
	d.turns[node] = now
	d.metrics.setDraining(len(d.turns))
	return true
}

// keepSlot keeps the turn of a node that is being drained.
func (d *Drainer) keepSlot(node types.UID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[node] = now
	d.releaseStaleSlots(now)
}

// releaseSlot gives the turn of a node to others.
func (d *Drainer) releaseSlot(node types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, node)
	delete(d.nodes, node)
	d.metrics.setDraining(len(d.turns))
}

// releaseStaleSlots takes their turn from nodes that nobody has stepped for long: they are no
// more, or nobody wants them drained.
func (d *Drainer) releaseStaleSlots(now time.Time) {
	maps.DeleteFunc(d.turns, func(_ types.UID, last time.Time) bool { return now.Sub(last) > turnTerm })
	maps.DeleteFunc(d.nodes, func(node types.UID, _ memory) bool { _, is := d.turns[node]; return !is })
	d.metrics.setDraining(len(d.turns))
}
