package gate

import (
	"fmt"
	"maps"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// A budget tracks the members that are inside or ready, and selects the next one with room.
//
// Ready members are grouped into streams by action, namespace and requester, because the same
// limits block all members of a stream. The streams of an action form its lane, except those whose
// namespace or requester has reached its limit. The next member is therefore the first of one of
// the lanes, of which a few dozen exist.
//
// Read-only executions have a separate budget, so that neither kind blocks the other.
type budget struct {
	cfg Config

	held     [2]int // by pool
	byAction map[string]int
	shares   map[shareKey]*share
	streams  map[streamKey]*stream
	lanes    map[laneKey]*lane

	nodes    int
	acted    map[string]bool // nodes with an execution inside
	cordoned map[string]bool // nodes that executions left cordoned
	cordons  bool            // whether SetCordonedNodes was called
}

// A pool is a number of places: one pool for executions that change something, one for read-only
// ones.
type pool int

const (
	poolChanges pool = iota
	poolReads
)

func poolOf(c Claim) pool {
	if c.ReadOnly {
		return poolReads
	}
	return poolChanges
}

type laneKey struct {
	action string
	pool   pool
	node   bool // whether it uses the node budget
}

type lane struct {
	streams heap[*stream]
}

type shareKey struct {
	of   shareOf
	name string
	pool pool
}

type shareOf int

const (
	ofNamespace shareOf = iota
	ofRequester
)

// A share counts the places of a pool that a namespace or a requester uses.
type share struct {
	key     shareKey
	most    int // zero means no limit
	held    int
	streams map[*stream]bool
}

func (s *share) isFull() bool { return s.most > 0 && s.held >= s.most }

type streamKey struct {
	lane                 laneKey
	namespace, requester string
}

type stream struct {
	key    streamKey
	shares [2]*share
	ready  heap[*member]
	at     int // index in its lane; -1 outside the lane
}

func (s *stream) isBefore(o *stream) bool { return s.ready[0].isBefore(o.ready[0]) }

func (s *stream) setHeapIndex(i int) { s.at = i }

func newBudget(cfg Config) budget {
	return budget{
		cfg: cfg, byAction: make(map[string]int), shares: make(map[shareKey]*share),
		streams: make(map[streamKey]*stream), lanes: make(map[laneKey]*lane),
		acted: make(map[string]bool), cordoned: make(map[string]bool),
	}
}

// ensureShares returns the two shares that a claim counts towards. Targets outside namespaces use a
// share without a limit.
func (b *budget) ensureShares(c Claim) [2]*share {
	space := b.ensureShare(shareKey{ofNamespace, c.TargetNamespace, poolOf(c)})
	if c.TargetNamespace != "" {
		space.most = b.cfg.MaxPerNamespace
	}
	asks := b.ensureShare(shareKey{ofRequester, c.Requester, poolOf(c)})
	asks.most = b.cfg.MaxPerRequester
	if c.Requester == "" && asks.most > 0 { // an empty requester must not gain a full second share
		asks.most = max(1, asks.most/2)
	}
	return [2]*share{space, asks}
}

func (b *budget) ensureShare(k shareKey) *share {
	s := b.shares[k]
	if s == nil {
		s = &share{key: k, streams: make(map[*stream]bool)}
		b.shares[k] = s
	}
	return s
}

// dropUnusedShares deletes shares that have neither places nor streams.
func (b *budget) dropUnusedShares(shares [2]*share) {
	for _, s := range shares {
		if s.held == 0 && len(s.streams) == 0 {
			delete(b.shares, s.key)
		}
	}
}

// queueReady adds a ready member to its stream.
func (b *budget) queueReady(m *member) {
	lane := laneKey{action: m.Action, pool: poolOf(m.Claim), node: m.Node && !b.cordoned[m.Target]}
	key := streamKey{lane: lane, namespace: m.TargetNamespace, requester: m.Requester}
	s := b.streams[key]
	if s == nil {
		s = &stream{key: key, shares: b.ensureShares(m.Claim), at: -1}
		b.streams[key] = s
		for _, of := range s.shares {
			of.streams[s] = true
		}
	}
	m.stream = s
	s.ready.pushItem(m)
	b.placeStreamInLane(s)
}

// removeReady removes a ready member from its stream.
func (b *budget) removeReady(m *member) {
	s := m.stream
	s.ready.removeAt(m.at)
	m.stream = nil
	b.placeStreamInLane(s)
	if len(s.ready) > 0 {
		return
	}
	delete(b.streams, s.key)
	for _, of := range s.shares {
		delete(of.streams, s)
	}
	b.dropUnusedShares(s.shares)
}

// placeStreamInLane moves a stream to its position in its lane, or out of the lane.
func (b *budget) placeStreamInLane(s *stream) {
	key := s.key.lane
	l := b.lanes[key]
	switch out := len(s.ready) == 0 || s.shares[0].isFull() || s.shares[1].isFull(); {
	case !out && l == nil:
		l = &lane{}
		b.lanes[key] = l
		l.streams.pushItem(s)
	case !out && s.at < 0:
		l.streams.pushItem(s)
	case !out:
		l.streams.restoreOrderAt(s.at)
	case s.at >= 0:
		// The stream may be empty and cannot be compared then. The last place of the heap
		// needs no comparison.
		l.streams.removeAt(s.at)
		s.at = -1
		if len(l.streams) == 0 {
			delete(b.lanes, key)
		}
	}
}

// firstReadyWithRoom returns the first ready member with room in all budgets, or nil.
func (b *budget) firstReadyWithRoom() *member {
	var first *member
	for key, l := range b.lanes {
		if !b.laneHasRoom(key) {
			continue
		}
		if m := l.streams[0].ready[0]; first == nil || m.isBefore(first) {
			first = m
		}
	}
	return first
}

func (b *budget) laneHasRoom(key laneKey) bool {
	most, bound := b.cfg.MaxPerAction[key.action]
	if b.held[key.pool] >= b.cfg.MaxConcurrent || bound && b.byAction[key.action] >= most {
		return false
	}
	return !key.node || b.countNodesInUse() < b.maxNodesInUse()
}

func (b *budget) maxNodesInUse() int { return max(1, b.nodes*b.cfg.MaxNodePercent/100) }

func (b *budget) countNodesInUse() int {
	n := len(b.cordoned)
	for t := range b.acted {
		if !b.cordoned[t] {
			n++
		}
	}
	return n
}

// addInsideCounts counts a member as inside.
func (b *budget) addInsideCounts(m *member) {
	b.held[poolOf(m.Claim)]++
	b.byAction[m.Action]++
	if m.Node {
		b.acted[m.Target] = true
	}
	for _, s := range b.ensureShares(m.Claim) {
		s.held++
		b.updateLanesOfShare(s)
	}
}

// subtractInsideCounts stops counting a member as inside.
func (b *budget) subtractInsideCounts(m *member) {
	b.held[poolOf(m.Claim)]--
	if b.byAction[m.Action]--; b.byAction[m.Action] == 0 {
		delete(b.byAction, m.Action)
	}
	if m.Node {
		delete(b.acted, m.Target)
	}
	shares := b.ensureShares(m.Claim)
	for _, s := range shares {
		s.held--
		b.updateLanesOfShare(s)
	}
	b.dropUnusedShares(shares)
}

// markNodeCordoned counts the node of a member as cordoned until SetCordonedNodes reports the actual state.
// Another execution must not start in between.
func (b *budget) markNodeCordoned(m *member) {
	if m.Node && b.cordons {
		b.cordoned[m.Target] = true
	}
}

// updateLanesOfShare updates the streams of a share that may have reached or left its limit.
func (b *budget) updateLanesOfShare(s *share) {
	if s.most == 0 {
		return
	}
	for one := range s.streams {
		b.placeStreamInLane(one)
	}
}

// describeExceededLimit describes the limit that blocks a ready member.
func (b *budget) describeExceededLimit(m *member) string {
	what := "executions"
	if m.ReadOnly {
		what = "read-only executions"
	}
	most, bound := b.cfg.MaxPerAction[m.Action]
	space, asks := m.stream.shares[ofNamespace], m.stream.shares[ofRequester]
	switch held := b.held[poolOf(m.Claim)]; {
	case held >= b.cfg.MaxConcurrent:
		return fmt.Sprintf("limit reached: %d %s are running (limits.max_concurrent)", held, what)
	case space.isFull():
		return fmt.Sprintf("limit reached: %d %s are running in namespace %q (limits.max_per_namespace)", space.held, what, m.TargetNamespace)
	case asks.isFull() && m.Requester == "":
		return fmt.Sprintf("limit reached: %d %s without a requester are running (limits.max_per_requester): set spec.requestedBy", asks.held, what)
	case asks.isFull():
		return fmt.Sprintf("limit reached: %d %s requested by %q are running (limits.max_per_requester)", asks.held, what, m.Requester)
	case bound && b.byAction[m.Action] >= most:
		return fmt.Sprintf("limit reached: %d executions of %s are running (limits.max_per_action)", b.byAction[m.Action], m.Action)
	}
	return fmt.Sprintf("limit reached: %d nodes are in use by actions or cordoned, at most %d of %d are allowed at a time (limits.max_node_percent): uncordon a node", b.countNodesInUse(), b.maxNodesInUse(), b.nodes)
}

// insideCount returns the number of members inside.
func (b *budget) insideCount() int { return b.held[poolChanges] + b.held[poolReads] }

// inFlightExcept returns the executions inside, except one.
func (b *budget) inFlightExcept(except *member) execution.InputInFlight {
	in := execution.InputInFlight{Total: b.insideCount(), ByAction: maps.Clone(b.byAction), ByNamespace: make(map[string]int), SameTarget: []string{}}
	for key, s := range b.shares {
		if key.of == ofNamespace && s.held > 0 {
			in.ByNamespace[key.name] += s.held
		}
	}
	if except == nil || except.state != stateReserved && except.state != stateInside {
		return in
	}
	in.Total--
	decrementCount(in.ByAction, except.Action)
	decrementCount(in.ByNamespace, except.TargetNamespace)
	return in
}

func decrementCount(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
