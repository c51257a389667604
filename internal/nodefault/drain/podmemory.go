package drain

import (
	"maps"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A memory holds the requests to remove the pods of a node. It may be lost: a new process
// only retries a little too early.
type memory map[types.UID]try

// A try is the state of the requests to remove a pod.
type try struct {
	accepted time.Time // time at which a request was accepted, or the pod was gone
	refusals int       // consecutive rejections
	next     time.Time // earliest time of the next request
	blocker  v1alpha1.BlockedPod
}

// prunePodMemory returns the memory of a node, reduced to the pods that must still leave.
func (d *Drainer) prunePodMemory(node types.UID, going []item) memory {
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

// acquireSlot requests a drain slot for a node, and reports whether the node may be
// drained now.
func (d *Drainer) acquireSlot(node types.UID, now time.Time) (acquired bool) {
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

// keepSlot renews the drain slot of a node.
func (d *Drainer) keepSlot(node types.UID, now time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.turns[node] = now
	d.releaseStaleSlots(now)
}

// releaseSlot frees the drain slot of a node.
func (d *Drainer) releaseSlot(node types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.turns, node)
	delete(d.nodes, node)
	d.metrics.setDraining(len(d.turns))
}

// releaseStaleSlots frees the slots of nodes without a recent step: they were deleted, or
// their drain is no longer requested.
func (d *Drainer) releaseStaleSlots(now time.Time) {
	maps.DeleteFunc(d.turns, func(_ types.UID, last time.Time) bool { return now.Sub(last) > turnTerm })
	maps.DeleteFunc(d.nodes, func(node types.UID, _ memory) bool { _, is := d.turns[node]; return !is })
	d.metrics.setDraining(len(d.turns))
}
