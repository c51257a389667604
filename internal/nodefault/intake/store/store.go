// Package store stores reports in NodeFaults, one per node, with server-side apply.
//
// Each fault has its own field manager. So any number of sources and replicas can write
// to one object without knowledge of the other faults, and a fault that is over is
// removed by an apply without it. A fault that is unchanged is not written again. Reports
// about one node that arrive while others are being stored are stored together, with one
// read of the object. The last of several reports about the same fault wins.
package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// Config configures a store. The zero value is usable.
type Config struct {
	// QueueSize is how many reports may wait. Zero means DefaultPending.
	QueueSize int `key:"queue_size" env:"NODE_FAULT_INTAKE_QUEUE_SIZE" default:"4096" validate:"gt=0" doc:"Maximum number of reports waiting to be stored. Further reports get status 503."`

	// Timeout limits storing the waiting reports of one node. Zero means DefaultTimeout.
	Timeout time.Duration `key:"timeout" env:"NODE_FAULT_INTAKE_TIMEOUT" default:"10s" validate:"gt=0" doc:"Timeout of storing the reports of one node."`
}

// Defaults for the zero fields of Config.
const (
	DefaultPending = 4096
	DefaultTimeout = 10 * time.Second
)

// Deps are the dependencies of a store.
type Deps struct {
	// Live reads from the API server rather than a cache, because two replicas must see
	// each other's latest writes.
	Live client.Reader
	// Write writes to the API server.
	Write client.Writer
	// Nodes reads nodes, preferably from a cache. Nil means Live. A node that it does not
	// find is read from Live.
	Nodes client.Reader
}

// A Store implements intake.Store. It is safe for concurrent use, and any number of
// stores may write the same NodeFaults.
type Store struct {
	cfg  Config
	deps Deps

	mu      sync.Mutex
	pending int
	nodes   map[string]*line
}

// A line holds the waiting calls of one node.
type line struct {
	turn  chan struct{} // a semaphore of one; its holder stores all waiting calls
	calls []*call       // guarded by Store.mu
	users int           // guarded by Store.mu
}

// A call holds the reports of one call of Apply about one node.
type call struct {
	reports []nodefault.Report
	errs    []error
	done    chan struct{}
}

// atOnce is how many nodes one call of Apply writes concurrently.
const atOnce = 8

// New creates a store. It sends no request to the API server.
func New(cfg Config, deps Deps) (*Store, error) {
	if deps.Live == nil || deps.Write == nil {
		return nil, errors.New("create fault store: Kubernetes clients missing")
	}
	if deps.Nodes == nil {
		deps.Nodes = deps.Live
	}
	cfg.QueueSize = cmp.Or(cfg.QueueSize, DefaultPending)
	cfg.Timeout = cmp.Or(cfg.Timeout, DefaultTimeout)
	return &Store{cfg: cfg, deps: deps, nodes: map[string]*line{}}, nil
}

// Apply stores reports, and returns when each is durable or rejected.
func (s *Store) Apply(ctx context.Context, reports []nodefault.Report) error {
	if !s.admitReports(len(reports)) {
		return intake.ErrBusy
	}
	defer s.leaveReports(len(reports))

	places := map[string][]int{}
	var order []string
	for i, r := range reports {
		if _, met := places[r.Node]; !met {
			order = append(order, r.Node)
		}
		places[r.Node] = append(places[r.Node], i)
	}
	errs := make([]error, len(reports))
	slots := make(chan struct{}, atOnce)
	var working sync.WaitGroup
	for _, node := range order {
		slots <- struct{}{}
		working.Go(func() {
			defer func() { <-slots }()
			c := &call{done: make(chan struct{})}
			for _, i := range places[node] {
				c.reports = append(c.reports, reports[i])
			}
			s.storeCall(ctx, node, c)
			for n, i := range places[node] {
				errs[i] = c.errs[n]
			}
		})
	}
	working.Wait()
	return intake.Collect(errs)
}

func (s *Store) admitReports(n int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending > 0 && s.pending+n > s.cfg.QueueSize {
		return false
	}
	s.pending += n
	return true
}

func (s *Store) leaveReports(n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.pending -= n
}

// storeCall waits until a call is stored, by itself or by another goroutine.
func (s *Store) storeCall(ctx context.Context, node string, c *call) {
	l := s.joinQueue(node, c)
	defer s.leaveQueue(node, l)
	select {
	case <-c.done:
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
		if calls := s.takeQueued(l); len(calls) > 0 {
			s.storeAll(ctx, node, calls)
		}
		<-c.done // stored now, or by the previous holder
	case <-ctx.Done():
		if !s.withdrawCall(l, c) {
			<-c.done // it is being stored, so its result will be known soon
			return
		}
		err := fmt.Errorf("%w: %w", intake.ErrUnavailable, context.Cause(ctx))
		c.errs = make([]error, len(c.reports))
		for i := range c.errs {
			c.errs[i] = err
		}
	}
}

func (s *Store) joinQueue(node string, c *call) *line {
	s.mu.Lock()
	defer s.mu.Unlock()
	l, ok := s.nodes[node]
	if !ok {
		l = &line{turn: make(chan struct{}, 1)}
		s.nodes[node] = l
	}
	l.users++
	l.calls = append(l.calls, c)
	return l
}

func (s *Store) leaveQueue(node string, l *line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if l.users--; l.users == 0 {
		delete(s.nodes, node)
	}
}

func (s *Store) takeQueued(l *line) []*call {
	s.mu.Lock()
	defer s.mu.Unlock()
	calls := l.calls
	l.calls = nil
	return calls
}

// withdrawCall removes a call from the line, and reports whether it was still waiting.
func (s *Store) withdrawCall(l *line, c *call) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range l.calls {
		if l.calls[i] == c {
			l.calls = append(l.calls[:i:i], l.calls[i+1:]...)
			return true
		}
	}
	return false
}

// errTimeout is the cause of a timeout while storing.
var errTimeout = errors.New("the Kubernetes API did not respond in time")

// storeAll stores the waiting calls of a node. They belong to several callers, so the
// cancellation of one caller has no effect.
func (s *Store) storeAll(ctx context.Context, node string, calls []*call) {
	ctx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), s.cfg.Timeout, errTimeout)
	defer cancel()
	var all []nodefault.Report
	for _, c := range calls {
		all = append(all, c.reports...)
	}
	errs := s.writeReports(ctx, node, all)
	for _, c := range calls {
		c.errs, errs = errs[:len(c.reports)], errs[len(c.reports):]
		close(c.done)
	}
}
