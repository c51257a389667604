package drain

import (
	"maps"
	"sync"
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

// prune forgets the pods that need not leave any more.
func (m memory) prune(going []item) {
	there := map[types.UID]bool{}
	for _, it := range going {
		there[it.pod.UID] = true
	}
	maps.DeleteFunc(m, func(pod types.UID, _ try) bool { return !there[pod] })
}

// slots holds the nodes that are drained, with their memory. A node without a recent step loses its
// slot: it was deleted, or its drain is no longer requested.
type slots struct {
	most     int
	draining func() []types.UID // the nodes with a drain in state Running
	metrics  *metrics

	mu    sync.Mutex
	nodes map[types.UID]*slot
}

type slot struct {
	last time.Time // time of the last step
	pods memory
}

// acquire requests a slot for a node, and reports whether the node may be drained now.
func (s *slots) acquire(node types.UID, now time.Time) (acquired bool) {
	running := s.draining()
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
	s.renew(node, now)
	return true
}

// keep renews the slot of a node, and returns the memory of its pods.
func (s *slots) keep(node types.UID, now time.Time) memory {
	s.mu.Lock()
	defer s.mu.Unlock()
	pods := s.renew(node, now)
	s.releaseStale(now)
	return pods
}

func (s *slots) renew(node types.UID, now time.Time) memory {
	if s.nodes[node] == nil {
		s.nodes[node] = &slot{pods: memory{}}
	}
	s.nodes[node].last = now
	s.metrics.nodes.Set(float64(len(s.nodes)))
	return s.nodes[node].pods
}

// release frees the slot of a node.
func (s *slots) release(node types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.nodes, node)
	s.metrics.nodes.Set(float64(len(s.nodes)))
}

func (s *slots) releaseStale(now time.Time) {
	maps.DeleteFunc(s.nodes, func(_ types.UID, node *slot) bool { return now.Sub(node.last) > turnTerm })
	s.metrics.nodes.Set(float64(len(s.nodes)))
}
