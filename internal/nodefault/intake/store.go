package intake

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// StoreConfig configures a store. The zero value is usable.
type StoreConfig struct {
	// QueueSize is how many reports may wait. Zero means DefaultQueueSize.
	QueueSize int `key:"queue_size" env:"NODE_FAULT_INTAKE_QUEUE_SIZE" default:"4096" validate:"gt=0" doc:"Maximum number of reports waiting to be stored. Further reports get status 503."`

	// Timeout limits storing the waiting reports of one node. Zero means DefaultStoreTimeout.
	Timeout time.Duration `key:"timeout" env:"NODE_FAULT_INTAKE_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of storing the reports of one node."`
}

// Defaults for the zero fields of StoreConfig.
const (
	DefaultQueueSize    = 4096
	DefaultStoreTimeout = 10 * time.Second
)

// StoreDeps are the dependencies of a store.
type StoreDeps struct {
	// Live reads from the API server rather than a cache, because two replicas must see
	// each other's latest writes.
	Live client.Reader
	// Write writes to the API server.
	Write client.Writer
	// Nodes reads nodes, preferably from a cache. Nil means Live. A node that it does not
	// find is read from Live.
	Nodes client.Reader
	// Log receives one warning if the CRD is older than this release. Nil means none.
	Log *slog.Logger
}

// A FaultStore stores reports in NodeFaults, one per node, with server-side apply. It is
// safe for concurrent use, and any number of stores may write the same NodeFaults.
//
// Each fault has its own field manager. So any number of sources and replicas can write
// to one object without knowledge of the other faults, and a fault that is over is
// removed by an apply without it. A fault that is unchanged is not written again. Reports
// about one node that arrive while others are being stored are stored together, with one
// read of the object. The last of several reports about the same fault wins.
type FaultStore struct {
	cfg  StoreConfig
	deps StoreDeps

	warnOldCRD sync.Once

	mu      sync.Mutex
	pending int
	nodes   map[string]*nodeQueue
}

// A nodeQueue holds the waiting calls of one node.
type nodeQueue struct {
	turn  chan struct{} // a semaphore of one; its holder stores all waiting calls
	calls []*queuedCall // guarded by FaultStore.mu
	users int           // guarded by FaultStore.mu
}

// A queuedCall holds the reports of one call of Apply about one node.
type queuedCall struct {
	reports []nodefault.Report
	errs    []error       // by report; set before done is closed
	done    chan struct{} // closed when the reports are stored or rejected
}

// concurrentNodes is how many nodes one call of Apply writes concurrently.
const concurrentNodes = 8

// NewFaultStore creates a store. It sends no request to the API server.
func NewFaultStore(cfg StoreConfig, deps StoreDeps) (*FaultStore, error) {
	if deps.Live == nil || deps.Write == nil {
		return nil, errors.New("create fault store: Kubernetes clients missing")
	}
	if deps.Nodes == nil {
		deps.Nodes = deps.Live
	}
	deps.Log = cmp.Or(deps.Log, slog.New(slog.DiscardHandler))
	cfg.QueueSize = cmp.Or(cfg.QueueSize, DefaultQueueSize)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultStoreTimeout)
	return &FaultStore{cfg: cfg, deps: deps, nodes: map[string]*nodeQueue{}}, nil
}

// Apply stores reports, and returns when each is durable or rejected.
func (s *FaultStore) Apply(ctx context.Context, reports []nodefault.Report) error {
	if !s.reserveQueueSpace(len(reports)) {
		return ErrBusy
	}
	defer s.releaseQueueSpace(len(reports))

	// Group the reports by node, in the order of their arrival.
	indexesByNode := map[string][]int{}
	var nodes []string
	for i, r := range reports {
		if _, known := indexesByNode[r.Node]; !known {
			nodes = append(nodes, r.Node)
		}
		indexesByNode[r.Node] = append(indexesByNode[r.Node], i)
	}

	// Store the reports of several nodes concurrently.
	errs := make([]error, len(reports))
	slots := make(chan struct{}, concurrentNodes)
	var working sync.WaitGroup
	for _, node := range nodes {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			call := &queuedCall{done: make(chan struct{})}
			for _, i := range indexesByNode[node] {
				call.reports = append(call.reports, reports[i])
			}
			s.storeOrAwaitCall(ctx, node, call)
			for n, i := range indexesByNode[node] {
				errs[i] = call.errs[n]
			}
		})
	}
	working.Wait()
	return JoinReportErrors(errs)
}

func (s *FaultStore) reserveQueueSpace(n int) (reserved bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending > 0 && s.pending+n > s.cfg.QueueSize {
		return false
	}
	s.pending += n
	return true
}

func (s *FaultStore) releaseQueueSpace(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= n
}

// storeOrAwaitCall waits until a call is stored, by itself or by another goroutine.
func (s *FaultStore) storeOrAwaitCall(ctx context.Context, node string, c *queuedCall) {
	queue := s.joinNodeQueue(node, c)
	defer s.leaveNodeQueue(node, queue)
	select {
	case <-c.done:
	case queue.turn <- struct{}{}:
		defer func() { <-queue.turn }()
		if calls := s.takeQueuedCalls(queue); len(calls) > 0 {
			s.storeCallsTogether(ctx, node, calls)
		}
		<-c.done // stored now, or by the previous holder
	case <-ctx.Done():
		if !s.removeQueuedCall(queue, c) {
			<-c.done // it is being stored, so its result will be known soon
			return
		}
		err := fmt.Errorf("%w: %w", ErrUnavailable, context.Cause(ctx))
		c.errs = make([]error, len(c.reports))
		for i := range c.errs {
			c.errs[i] = err
		}
	}
}

func (s *FaultStore) joinNodeQueue(node string, c *queuedCall) *nodeQueue {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue, ok := s.nodes[node]
	if !ok {
		queue = &nodeQueue{turn: make(chan struct{}, 1)}
		s.nodes[node] = queue
	}
	queue.users++
	queue.calls = append(queue.calls, c)
	return queue
}

func (s *FaultStore) leaveNodeQueue(node string, queue *nodeQueue) {
	s.mu.Lock()
	defer s.mu.Unlock()
	queue.users--
	if queue.users == 0 {
		delete(s.nodes, node)
	}
}

func (s *FaultStore) takeQueuedCalls(queue *nodeQueue) []*queuedCall {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := queue.calls
	queue.calls = nil
	return calls
}

// removeQueuedCall removes a call from the queue, and reports whether it was still waiting.
func (s *FaultStore) removeQueuedCall(queue *nodeQueue, c *queuedCall) (wasQueued bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range queue.calls {
		if queue.calls[i] == c {
			queue.calls = append(queue.calls[:i:i], queue.calls[i+1:]...)
			return true
		}
	}
	return false
}

// errStoreTimeout is the cause of a timeout while storing.
var errStoreTimeout = errors.New("the Kubernetes API did not respond in time")

// storeCallsTogether stores the waiting calls of a node. They belong to several callers, so the
// cancellation of one caller has no effect.
func (s *FaultStore) storeCallsTogether(ctx context.Context, node string, calls []*queuedCall) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.cfg.Timeout, errStoreTimeout)
	defer cancel()
	var all []nodefault.Report
	for _, c := range calls {
		all = append(all, c.reports...)
	}
	errs := s.writeReports(ctx, node, all)
	for _, c := range calls {
		c.errs = errs[:len(c.reports)]
		errs = errs[len(c.reports):]
		close(c.done)
	}
}
