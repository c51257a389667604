package gate

import (
	"fmt"
	"maps"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// A budget knows who is inside and who is ready, and whom it has room for.
//
// Those that are ready stand in streams: one for each action and namespace,
// because all of a stream are held up by the same. The streams of an action
// stand in its lane, except those of a namespace that is full. So whoever is
// next is the first of one of the lanes, of which there are a few dozen.
type budget struct {
	cfg Config

	held        int
	byAction    map[string]int
	byNamespace map[string]*namespace
	lanes       map[laneKey]*lane

	nodes    int
	acted    map[string]bool // nodes that are acted on
	cordoned map[string]bool // and those that are left cordoned
	cordons  bool            // whether it is said which are
}

type laneKey struct {
	action string
	node   bool // whether it takes one from the budget of nodes
}

type lane struct {
	streams heap[*stream]
}

type namespace struct {
	name    string
	held    int
	streams map[laneKey]*stream
}

type stream struct {
	key       laneKey
	namespace *namespace
	ready     heap[*member]
	at        int // in its lane; outside of it -1
}

func (s *stream) before(o *stream) bool { return s.ready[0].before(o.ready[0]) }

func (s *stream) setAt(i int) { s.at = i }

func newBudget(cfg Config) budget {
	return budget{
		cfg: cfg, byAction: make(map[string]int), byNamespace: make(map[string]*namespace), lanes: make(map[laneKey]*lane),
		acted: make(map[string]bool), cordoned: make(map[string]bool),
	}
}

// full says whether a namespace has all it may have. What is outside of
// namespaces has no such bound.
func (b *budget) full(n *namespace) bool {
	return b.cfg.MaxPerNamespace > 0 && n.name != "" && n.held >= b.cfg.MaxPerNamespace
}

func (b *budget) namespace(name string) *namespace {
	n := b.byNamespace[name]
	if n == nil {
		n = &namespace{name: name, streams: make(map[laneKey]*stream)}
		b.byNamespace[name] = n
	}
	return n
}

func (b *budget) forget(n *namespace) {
	if n.held == 0 && len(n.streams) == 0 {
		delete(b.byNamespace, n.name)
	}
}

// place takes in one that is ready.
func (b *budget) place(m *member) {
	n := b.namespace(m.TargetNamespace)
	key := laneKey{action: m.Action, node: m.Node && !b.cordoned[m.Target]}
	s := n.streams[key]
	if s == nil {
		s = &stream{key: key, namespace: n, at: -1}
		n.streams[key] = s
	}
	m.stream = s
	s.ready.push(m)
	b.line(s)
}

// unplace takes it out again.
func (b *budget) unplace(m *member) {
	s := m.stream
	s.ready.remove(m.at)
	m.stream = nil
	b.line(s)
	b.forget(s.namespace)
}

// line has a stream stand in its lane where it belongs, or outside.
func (b *budget) line(s *stream) {
	if len(s.ready) == 0 {
		delete(s.namespace.streams, s.key)
	}
	l := b.lanes[s.key]
	switch out := len(s.ready) == 0 || b.full(s.namespace); {
	case !out && l == nil:
		l = &lane{}
		b.lanes[s.key] = l
		l.streams.push(s)
	case !out && s.at < 0:
		l.streams.push(s)
	case !out:
		l.streams.fix(s.at)
	case s.at >= 0:
		// Its first may be gone, by which it would be compared; at the end of the
		// heap nothing is.
		l.streams.remove(s.at)
		s.at = -1
		if len(l.streams) == 0 {
			delete(b.lanes, s.key)
		}
	}
}

// next is the first of all for whom there is room; nil is none.
func (b *budget) next() *member {
	if b.held >= b.cfg.MaxConcurrent {
		return nil
	}
	var first *member
	for key, l := range b.lanes {
		if !b.room(key) {
			continue
		}
		if m := l.streams[0].ready[0]; first == nil || m.before(first) {
			first = m
		}
	}
	return first
}

func (b *budget) room(key laneKey) bool {
	most, bound := b.cfg.MaxPerAction[key.action]
	if bound && b.byAction[key.action] >= most {
		return false
	}
	return !key.node || b.nodesActedOn() < b.nodesAllowed()
}

func (b *budget) nodesAllowed() int { return max(1, b.nodes*b.cfg.MaxNodePercent/100) }

func (b *budget) nodesActedOn() int {
	n := len(b.cordoned)
	for t := range b.acted {
		if !b.cordoned[t] {
			n++
		}
	}
	return n
}

// hold counts one as inside.
func (b *budget) hold(m *member) {
	b.held++
	b.byAction[m.Action]++
	if m.Node {
		b.acted[m.Target] = true
	}
	n := b.namespace(m.TargetNamespace)
	n.held++
	b.relineAll(n)
}

// release counts it as outside again.
func (b *budget) release(m *member) {
	b.held--
	if b.byAction[m.Action]--; b.byAction[m.Action] == 0 {
		delete(b.byAction, m.Action)
	}
	if m.Node {
		delete(b.acted, m.Target)
	}
	n := b.namespace(m.TargetNamespace)
	n.held--
	b.relineAll(n)
	b.forget(n)
}

// acts counts the node that one has acted on as cordoned, until it is known
// whether it is: another must not go in between.
func (b *budget) acts(m *member) {
	if m.Node && b.cordons {
		b.cordoned[m.Target] = true
	}
}

// relineAll follows a namespace that may have become full, or no longer is. It
// has a stream for each action at most.
func (b *budget) relineAll(n *namespace) {
	if b.cfg.MaxPerNamespace == 0 {
		return
	}
	for _, s := range n.streams {
		b.line(s)
	}
}

// short says what there is not enough of for one that is ready.
func (b *budget) short(m *member) string {
	most, bound := b.cfg.MaxPerAction[m.Action]
	n := b.byNamespace[m.TargetNamespace]
	switch {
	case b.held >= b.cfg.MaxConcurrent:
		return fmt.Sprintf("%d executions are under way, and no more may be at once", b.held)
	case n != nil && b.full(n):
		return fmt.Sprintf("%d executions are under way in namespace %q, and no more may be at once", n.held, n.name)
	case bound && b.byAction[m.Action] >= most:
		return fmt.Sprintf("%d executions of %s are under way, and no more may be at once", b.byAction[m.Action], m.Action)
	}
	return fmt.Sprintf("%d nodes are acted on or left cordoned, and no more than %d of %d may be at once: uncordon one", b.nodesActedOn(), b.nodesAllowed(), b.nodes)
}

// inFlight is who is inside, but for one.
func (b *budget) inFlight(but *member) execution.InputInFlight {
	in := execution.InputInFlight{Total: b.held, ByAction: maps.Clone(b.byAction), ByNamespace: make(map[string]int), SameTarget: []string{}}
	for name, n := range b.byNamespace {
		if n.held > 0 {
			in.ByNamespace[name] = n.held
		}
	}
	if but == nil || but.state != stateReserved && but.state != stateInside {
		return in
	}
	in.Total--
	less(in.ByAction, but.Action)
	less(in.ByNamespace, but.TargetNamespace)
	return in
}

func less(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
