package drain

import (
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// podRequests holds the requests to remove the pods of a node. It may be lost: a new process
// only retries a little too early.
type podRequests map[types.UID]requestState

// A requestState is the state of the requests to remove a pod.
type requestState struct {
	accepted time.Time // time at which a request was accepted, or the pod was gone
	refusals int       // consecutive rejections
	next     time.Time // earliest time of the next request
	blocker  v1alpha1.BlockedPod
}

// forgetOtherPods forgets the pods that need not leave any more.
func (requests podRequests) forgetOtherPods(leaving []podPlan) {
	mustLeave := map[types.UID]bool{}
	for _, plan := range leaving {
		mustLeave[plan.pod.UID] = true
	}
	maps.DeleteFunc(requests, func(pod types.UID, _ requestState) bool { return !mustLeave[pod] })
}

// drainSlots holds the nodes that are drained, with the requests for their pods. A node without a
// recent step loses its slot: it was deleted, or its drain is no longer requested.
type drainSlots struct {
	most                  int                // at most this many nodes are drained at a time
	nodesWithRunningDrain func() []types.UID // the nodes with a drain in state Running
	metrics               *metrics

	mu    sync.Mutex
	nodes map[types.UID]*drainSlot
}

type drainSlot struct {
	lastStep time.Time
	requests podRequests
}

// acquire requests a slot for a node, and reports whether the node may be drained now.
func (s *drainSlots) acquire(node types.UID, now time.Time) (acquired bool) {
	running := s.nodesWithRunningDrain()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.releaseStale(now)
	busy := map[types.UID]bool{}
	for other := range s.nodes {
		busy[other] = true
	}
	for _, other := range running {
		busy[other] = true
	}
	delete(busy, node)
	if len(busy) >= s.most {
		return false
	}
	s.createOrRenew(node, now)
	return true
}

// renewAndReleaseStale renews the slot of a node, frees the slots without a recent step, and
// returns the requests for its pods.
func (s *drainSlots) renewAndReleaseStale(node types.UID, now time.Time) podRequests {
	s.mu.Lock()
	defer s.mu.Unlock()
	requests := s.createOrRenew(node, now)
	s.releaseStale(now)
	return requests
}

// createOrRenew records a step of a node, and returns the requests for its pods.
func (s *drainSlots) createOrRenew(node types.UID, now time.Time) podRequests {
	if s.nodes[node] == nil {
		s.nodes[node] = &drainSlot{requests: podRequests{}}
	}
	s.nodes[node].lastStep = now
	s.metrics.nodes.Set(float64(len(s.nodes)))
	return s.nodes[node].requests
}

// release frees the slot of a node.
func (s *drainSlots) release(node types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
	s.metrics.nodes.Set(float64(len(s.nodes)))
}

// releaseStale frees the slots without a recent step.
func (s *drainSlots) releaseStale(now time.Time) {
	maps.DeleteFunc(s.nodes, func(_ types.UID, slot *drainSlot) bool { return now.Sub(slot.lastStep) > slotTerm })
	s.metrics.nodes.Set(float64(len(s.nodes)))
}
