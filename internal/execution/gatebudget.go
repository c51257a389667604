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

	inside   [2]int         // number of members inside, by budgetPool
	byAction map[string]int // number of members inside, by action
	shares   map[shareKey]*budgetShare
	streams  map[streamKey]*memberStream
	lanes    map[laneKey]*streamLane

	nodes        int             // number of nodes in the cluster
	acted        map[string]bool // nodes with an execution inside
	cordoned     map[string]bool // nodes that executions left cordoned
	cordonsKnown bool            // whether SetCordonedNodes was called
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
	limit   int // zero means no limit
	inside  int
	streams map[*memberStream]bool // streams of members that count towards it
}

func (s *budgetShare) isFull() bool { return s.limit > 0 && s.inside >= s.limit }

// claimShares are the two shares that a claim counts towards, by shareOf.
type claimShares [2]*budgetShare

type streamKey struct {
	lane                 laneKey
	namespace, requester string
}

type memberStream struct {
	key       streamKey
	shares    claimShares
	ready     memberHeap[*gateMember]
	laneIndex int // index in its lane; outsideLane if it is in none
}

const outsideLane = -1

func (s *memberStream) isBefore(other *memberStream) bool { return s.ready[0].isBefore(other.ready[0]) }

func (s *memberStream) setHeapIndex(i int) { s.laneIndex = i }

func newGateBudget(cfg GateConfig) gateBudget {
	return gateBudget{
		cfg:      cfg,
		byAction: make(map[string]int),
		shares:   make(map[shareKey]*budgetShare),
		streams:  make(map[streamKey]*memberStream),
		lanes:    make(map[laneKey]*streamLane),
		acted:    make(map[string]bool),
		cordoned: make(map[string]bool),
	}
}

// ensureShares returns the two shares that a claim counts towards. Targets outside namespaces use a
// share without a limit.
func (b *gateBudget) ensureShares(c Claim) claimShares {
	pool := budgetPoolOf(c)
	namespace := b.ensureShare(shareKey{ofNamespace, c.TargetNamespace, pool})
	if c.TargetNamespace != "" {
		namespace.limit = b.cfg.MaxPerNamespace
	}
	requester := b.ensureShare(shareKey{ofRequester, c.Requester, pool})
	requester.limit = b.cfg.MaxPerRequester
	if c.Requester == "" && requester.limit > 0 { // to omit the requester must not gain a full second share
		requester.limit = max(1, requester.limit/2)
	}
	return claimShares{ofNamespace: namespace, ofRequester: requester}
}

func (b *gateBudget) ensureShare(key shareKey) *budgetShare {
	share := b.shares[key]
	if share == nil {
		share = &budgetShare{key: key, streams: make(map[*memberStream]bool)}
		b.shares[key] = share
	}
	return share
}

// dropUnusedShares deletes shares that have neither members inside nor streams.
func (b *gateBudget) dropUnusedShares(shares claimShares) {
	for _, share := range shares {
		if share.inside == 0 && len(share.streams) == 0 {
			delete(b.shares, share.key)
		}
	}
}

// queueReady adds a ready member to its stream.
func (b *gateBudget) queueReady(m *gateMember) {
	lane := laneKey{
		action: m.Action,
		pool:   budgetPoolOf(m.Claim),
		node:   m.Node && !b.cordoned[m.Target], // a cordoned node already counts in the node budget
	}
	key := streamKey{lane: lane, namespace: m.TargetNamespace, requester: m.Requester}
	stream := b.streams[key]
	if stream == nil {
		stream = &memberStream{key: key, shares: b.ensureShares(m.Claim), laneIndex: outsideLane}
		b.streams[key] = stream
		for _, share := range stream.shares {
			share.streams[stream] = true
		}
	}
	m.stream = stream
	stream.ready.pushItem(m)
	b.syncStreamWithLane(stream)
}

// removeReady removes a ready member from its stream.
func (b *gateBudget) removeReady(m *gateMember) {
	stream := m.stream
	stream.ready.removeAt(m.heapIndex)
	m.stream = nil
	b.syncStreamWithLane(stream)
	if len(stream.ready) > 0 {
		return
	}
	delete(b.streams, stream.key)
	for _, share := range stream.shares {
		delete(share.streams, stream)
	}
	b.dropUnusedShares(stream.shares)
}

// syncStreamWithLane moves a stream to its position in its lane, or out of the lane.
func (b *gateBudget) syncStreamWithLane(s *memberStream) {
	if len(s.ready) == 0 || s.shares[ofNamespace].isFull() || s.shares[ofRequester].isFull() {
		b.removeFromLane(s)
		return
	}
	lane := b.lanes[s.key.lane]
	if lane == nil {
		lane = &streamLane{}
		b.lanes[s.key.lane] = lane
	}
	if s.laneIndex == outsideLane {
		lane.streams.pushItem(s)
		return
	}
	lane.streams.restoreOrderAt(s.laneIndex)
}

// removeFromLane removes a stream from its lane, if it is there.
func (b *gateBudget) removeFromLane(s *memberStream) {
	if s.laneIndex == outsideLane {
		return
	}
	lane := b.lanes[s.key.lane]
	// An empty stream cannot be compared. The heap first moves the removed element to the last
	// place, which needs no comparison.
	lane.streams.removeAt(s.laneIndex)
	s.laneIndex = outsideLane
	if len(lane.streams) == 0 {
		delete(b.lanes, s.key.lane)
	}
}

// firstReadyWithRoom returns the first ready member with room in all budgets, or nil.
func (b *gateBudget) firstReadyWithRoom() *gateMember {
	var first *gateMember
	for key, lane := range b.lanes {
		if !b.laneHasRoom(key) {
			continue
		}
		firstOfLane := lane.streams[0].ready[0]
		if first == nil || firstOfLane.isBefore(first) {
			first = firstOfLane
		}
	}
	return first
}

func (b *gateBudget) laneHasRoom(key laneKey) bool {
	if b.inside[key.pool] >= b.cfg.MaxConcurrent || b.isActionAtLimit(key.action) {
		return false
	}
	return !key.node || b.countNodesInUse() < b.maxNodesInUse()
}

func (b *gateBudget) isActionAtLimit(action string) bool {
	limit, limited := b.cfg.MaxPerAction[action]
	return limited && b.byAction[action] >= limit
}

func (b *gateBudget) maxNodesInUse() int { return max(1, b.nodes*b.cfg.MaxNodePercent/100) }

func (b *gateBudget) countNodesInUse() int {
	count := len(b.cordoned)
	for node := range b.acted {
		if !b.cordoned[node] {
			count++
		}
	}
	return count
}

// addToInsideCounts counts a member as inside.
func (b *gateBudget) addToInsideCounts(m *gateMember) {
	b.inside[budgetPoolOf(m.Claim)]++
	b.byAction[m.Action]++
	if m.Node {
		b.acted[m.Target] = true
	}
	for _, share := range b.ensureShares(m.Claim) {
		share.inside++
		b.updateLanesOfShare(share)
	}
}

// removeFromInsideCounts stops counting a member as inside.
func (b *gateBudget) removeFromInsideCounts(m *gateMember) {
	b.inside[budgetPoolOf(m.Claim)]--
	decrementCount(b.byAction, m.Action)
	if m.Node {
		delete(b.acted, m.Target)
	}
	shares := b.ensureShares(m.Claim)
	for _, share := range shares {
		share.inside--
		b.updateLanesOfShare(share)
	}
	b.dropUnusedShares(shares)
}

// markNodeCordoned counts the node of a member as cordoned until SetCordonedNodes reports the actual
// state. Another execution must not start in between.
func (b *gateBudget) markNodeCordoned(m *gateMember) {
	if m.Node && b.cordonsKnown {
		b.cordoned[m.Target] = true
	}
}

// updateLanesOfShare updates the streams of a share that may have reached or left its limit.
func (b *gateBudget) updateLanesOfShare(s *budgetShare) {
	if s.limit == 0 {
		return
	}
	for stream := range s.streams {
		b.syncStreamWithLane(stream)
	}
}

// describeExceededLimit describes the limit that blocks a ready member.
func (b *gateBudget) describeExceededLimit(m *gateMember) string {
	executions := "executions"
	if m.ReadOnly {
		executions = "read-only executions"
	}
	inside := b.inside[budgetPoolOf(m.Claim)]
	namespace := m.stream.shares[ofNamespace]
	requester := m.stream.shares[ofRequester]
	switch {
	case inside >= b.cfg.MaxConcurrent:
		return fmt.Sprintf("limit reached: %d %s are running (limits.max_concurrent)", inside, executions)
	case namespace.isFull():
		return fmt.Sprintf("limit reached: %d %s are running in namespace %q (limits.max_per_namespace)",
			namespace.inside, executions, m.TargetNamespace)
	case requester.isFull() && m.Requester == "":
		return fmt.Sprintf("limit reached: %d %s without a requester are running (limits.max_per_requester): set spec.requestedBy",
			requester.inside, executions)
	case requester.isFull():
		return fmt.Sprintf("limit reached: %d %s requested by %q are running (limits.max_per_requester)",
			requester.inside, executions, m.Requester)
	case b.isActionAtLimit(m.Action):
		return fmt.Sprintf("limit reached: %d executions of %s are running (limits.max_per_action)",
			b.byAction[m.Action], m.Action)
	}
	return fmt.Sprintf("limit reached: %d nodes are in use by actions or cordoned, "+
		"at most %d of %d are allowed at a time (limits.max_node_percent): uncordon a node",
		b.countNodesInUse(), b.maxNodesInUse(), b.nodes)
}

// insideCount returns the number of members inside.
func (b *gateBudget) insideCount() int { return b.inside[poolChanges] + b.inside[poolReads] }

// inFlightExcept returns the executions inside, except one. It leaves SameTarget empty.
func (b *gateBudget) inFlightExcept(except *gateMember) InputInFlight {
	inFlight := InputInFlight{
		Total:       b.insideCount(),
		ByAction:    maps.Clone(b.byAction),
		ByNamespace: make(map[string]int),
		SameTarget:  []string{},
	}
	for key, share := range b.shares {
		if key.of == ofNamespace && share.inside > 0 {
			inFlight.ByNamespace[key.name] += share.inside // of both pools
		}
	}
	if except == nil || except.state != stateReserved && except.state != stateInside {
		return inFlight
	}
	inFlight.Total--
	decrementCount(inFlight.ByAction, except.Action)
	decrementCount(inFlight.ByNamespace, except.TargetNamespace)
	return inFlight
}

func decrementCount(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
