package execution

import (
	"fmt"
	"maps"
)

// A gateBudget tracks the members that are inside or ready, and selects the next one with room.
//
// Ready members are grouped into streams by action, namespace and requester, because the same
// limits block all members of a stream. The streams of an action form its lane, except those whose
// namespace or requester has reached its limit. The next member is therefore the first of one of
// the lanes, of which a few dozen exist.
//
// Read-only executions have a separate budget, so that neither kind blocks the other.
type gateBudget struct {
	cfg GateConfig

	held     [2]int // by pool
	byAction map[string]int
	shares   map[shareKey]*budgetShare
	streams  map[streamKey]*memberStream
	lanes    map[laneKey]*streamLane

	nodes    int
	acted    map[string]bool // nodes with an execution inside
	cordoned map[string]bool // nodes that executions left cordoned
	cordons  bool            // whether SetCordonedNodes was called
}

// A budgetPool is a number of places: one pool for executions that change something, one for read-only
// ones.
type budgetPool int

const (
	poolChanges budgetPool = iota
	poolReads
)

func budgetPoolOf(c Claim) budgetPool {
	if c.ReadOnly {
		return poolReads
	}
	return poolChanges
}

type laneKey struct {
	action string
	pool   budgetPool
	node   bool // whether it uses the node budget
}

type streamLane struct {
	streams memberHeap[*memberStream]
}

type shareKey struct {
	of   shareOf
	name string
	pool budgetPool
}

type shareOf int

const (
	ofNamespace shareOf = iota
	ofRequester
)

// A budgetShare counts the places of a pool that a namespace or a requester uses.
type budgetShare struct {
	key     shareKey
	most    int // zero means no limit
	held    int
	streams map[*memberStream]bool
}

func (s *budgetShare) isFull() bool { return s.most > 0 && s.held >= s.most }

type streamKey struct {
	lane                 laneKey
	namespace, requester string
}

type memberStream struct {
	key    streamKey
	shares [2]*budgetShare
	ready  memberHeap[*gateMember]
	at     int // index in its lane; -1 outside the lane
}

func (s *memberStream) isBefore(o *memberStream) bool { return s.ready[0].isBefore(o.ready[0]) }

func (s *memberStream) setHeapIndex(i int) { s.at = i }

func newGateBudget(cfg GateConfig) gateBudget {
	return gateBudget{
		cfg: cfg, byAction: make(map[string]int), shares: make(map[shareKey]*budgetShare),
		streams: make(map[streamKey]*memberStream), lanes: make(map[laneKey]*streamLane),
		acted: make(map[string]bool), cordoned: make(map[string]bool),
	}
}

// ensureShares returns the two shares that a claim counts towards. Targets outside namespaces use a
// share without a limit.
func (b *gateBudget) ensureShares(c Claim) [2]*budgetShare {
	space := b.ensureShare(shareKey{ofNamespace, c.TargetNamespace, budgetPoolOf(c)})
	if c.TargetNamespace != "" {
		space.most = b.cfg.MaxPerNamespace
	}
	asks := b.ensureShare(shareKey{ofRequester, c.Requester, budgetPoolOf(c)})
	asks.most = b.cfg.MaxPerRequester
	if c.Requester == "" && asks.most > 0 { // an empty requester must not gain a full second share
		asks.most = max(1, asks.most/2)
	}
	return [2]*budgetShare{space, asks}
}

func (b *gateBudget) ensureShare(k shareKey) *budgetShare {
	s := b.shares[k]
	if s == nil {
		s = &budgetShare{key: k, streams: make(map[*memberStream]bool)}
		b.shares[k] = s
	}
	return s
}

// dropUnusedShares deletes shares that have neither places nor streams.
func (b *gateBudget) dropUnusedShares(shares [2]*budgetShare) {
	for _, s := range shares {
		if s.held == 0 && len(s.streams) == 0 {
			delete(b.shares, s.key)
		}
	}
}

// queueReady adds a ready member to its stream.
func (b *gateBudget) queueReady(m *gateMember) {
	lane := laneKey{action: m.Action, pool: budgetPoolOf(m.Claim), node: m.Node && !b.cordoned[m.Target]}
	key := streamKey{lane: lane, namespace: m.TargetNamespace, requester: m.Requester}
	s := b.streams[key]
	if s == nil {
		s = &memberStream{key: key, shares: b.ensureShares(m.Claim), at: -1}
		b.streams[key] = s
		for _, of := range s.shares {
			of.streams[s] = true
		}
	}
	m.stream = s
	s.ready.pushItem(m)
	b.updateStreamInLane(s)
}

// removeReady removes a ready member from its stream.
func (b *gateBudget) removeReady(m *gateMember) {
	s := m.stream
	s.ready.removeAt(m.at)
	m.stream = nil
	b.updateStreamInLane(s)
	if len(s.ready) > 0 {
		return
	}
	delete(b.streams, s.key)
	for _, of := range s.shares {
		delete(of.streams, s)
	}
	b.dropUnusedShares(s.shares)
}

// updateStreamInLane moves a stream to its position in its lane, or out of the lane.
func (b *gateBudget) updateStreamInLane(s *memberStream) {
	key := s.key.lane
	l := b.lanes[key]
	switch out := len(s.ready) == 0 || s.shares[0].isFull() || s.shares[1].isFull(); {
	case !out && l == nil:
		l = &streamLane{}
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
func (b *gateBudget) firstReadyWithRoom() *gateMember {
	var first *gateMember
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

func (b *gateBudget) laneHasRoom(key laneKey) bool {
	most, bound := b.cfg.MaxPerAction[key.action]
	if b.held[key.pool] >= b.cfg.MaxConcurrent || bound && b.byAction[key.action] >= most {
		return false
	}
	return !key.node || b.countNodesInUse() < b.maxNodesInUse()
}

func (b *gateBudget) maxNodesInUse() int { return max(1, b.nodes*b.cfg.MaxNodePercent/100) }

func (b *gateBudget) countNodesInUse() int {
	n := len(b.cordoned)
	for t := range b.acted {
		if !b.cordoned[t] {
			n++
		}
	}
	return n
}

// addInsideCounts counts a member as inside.
func (b *gateBudget) addInsideCounts(m *gateMember) {
	b.held[budgetPoolOf(m.Claim)]++
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
func (b *gateBudget) subtractInsideCounts(m *gateMember) {
	b.held[budgetPoolOf(m.Claim)]--
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
func (b *gateBudget) markNodeCordoned(m *gateMember) {
	if m.Node && b.cordons {
		b.cordoned[m.Target] = true
	}
}

// updateLanesOfShare updates the streams of a share that may have reached or left its limit.
func (b *gateBudget) updateLanesOfShare(s *budgetShare) {
	if s.most == 0 {
		return
	}
	for one := range s.streams {
		b.updateStreamInLane(one)
	}
}

// describeExceededLimit describes the limit that blocks a ready member.
func (b *gateBudget) describeExceededLimit(m *gateMember) string {
	what := "executions"
	if m.ReadOnly {
		what = "read-only executions"
	}
	most, bound := b.cfg.MaxPerAction[m.Action]
	space, asks := m.stream.shares[ofNamespace], m.stream.shares[ofRequester]
	switch held := b.held[budgetPoolOf(m.Claim)]; {
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
func (b *gateBudget) insideCount() int { return b.held[poolChanges] + b.held[poolReads] }

// inFlightExcept returns the executions inside, except one.
func (b *gateBudget) inFlightExcept(except *gateMember) InputInFlight {
	in := InputInFlight{Total: b.insideCount(), ByAction: maps.Clone(b.byAction), ByNamespace: make(map[string]int), SameTarget: []string{}}
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
