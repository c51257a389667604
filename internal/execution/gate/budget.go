package gate

import (
	"fmt"
	"maps"

	"github.com/fleetloop/fleetloop/internal/execution"
)

// A budget knows who is inside and who is ready, and whom it has room for.
//
// Those that are ready stand in streams: one for each action, namespace and
// requester, because all of a stream are held up by the same. The streams of an
// action stand in its lane, except those of a namespace or a requester that has
// all it may have. So whoever is next is the first of one of the lanes, of which
// there are a few dozen.
//
// What only reads has a budget of its own: neither holds up the other.
type budget struct {
	cfg Config

	held     [2]int // by pool
	byAction map[string]int
	shares   map[shareKey]*share
	streams  map[streamKey]*stream
	lanes    map[laneKey]*lane

	nodes    int
	acted    map[string]bool // nodes that are acted on
	cordoned map[string]bool // and those that are left cordoned
	cordons  bool            // whether it is said which are
}

// A pool is a number of places: one is for what changes something, and one for
// what only reads.
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
	node   bool // whether it takes one from the budget of nodes
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

// A share is what a namespace or a requester has of a pool.
type share struct {
	key     shareKey
	most    int // zero is any number
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
	at     int // in its lane; outside of it -1
}

func (s *stream) isBefore(o *stream) bool { return s.ready[0].isBefore(o.ready[0]) }

func (s *stream) setAt(i int) { s.at = i }

func newBudget(cfg Config) budget {
	return budget{
		cfg: cfg, byAction: make(map[string]int), shares: make(map[shareKey]*share),
		streams: make(map[streamKey]*stream), lanes: make(map[laneKey]*lane),
		acted: make(map[string]bool), cordoned: make(map[string]bool),
	}
}

// sharesOf are the two that a claim is counted in. What is outside of namespaces
// is in one that has no bound.
func (b *budget) sharesOf(c Claim) [2]*share {
	space := b.ensureShare(shareKey{ofNamespace, c.TargetNamespace, poolOf(c)})
	if c.TargetNamespace != "" {
		space.most = b.cfg.MaxPerNamespace
	}
	asks := b.ensureShare(shareKey{ofRequester, c.Requester, poolOf(c)})
	asks.most = b.cfg.MaxPerRequester
	if c.Requester == "" && asks.most > 0 { // nobody has a second share by not saying who asks
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

// dropUnusedShares lets go of shares that nobody has.
func (b *budget) dropUnusedShares(shares [2]*share) {
	for _, s := range shares {
		if s.held == 0 && len(s.streams) == 0 {
			delete(b.shares, s.key)
		}
	}
}

// addReady takes in one that is ready.
func (b *budget) addReady(m *member) {
	lane := laneKey{action: m.Action, pool: poolOf(m.Claim), node: m.Node && !b.cordoned[m.Target]}
	key := streamKey{lane: lane, namespace: m.TargetNamespace, requester: m.Requester}
	s := b.streams[key]
	if s == nil {
		s = &stream{key: key, shares: b.sharesOf(m.Claim), at: -1}
		b.streams[key] = s
		for _, of := range s.shares {
			of.streams[s] = true
		}
	}
	m.stream = s
	s.ready.pushItem(m)
	b.updateLane(s)
}

// removeReady takes it out again.
func (b *budget) removeReady(m *member) {
	s := m.stream
	s.ready.removeAt(m.at)
	m.stream = nil
	b.updateLane(s)
	if len(s.ready) > 0 {
		return
	}
	delete(b.streams, s.key)
	for _, of := range s.shares {
		delete(of.streams, s)
	}
	b.dropUnusedShares(s.shares)
}

// updateLane has a stream stand in its lane where it belongs, or outside.
func (b *budget) updateLane(s *stream) {
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
		l.streams.fixAt(s.at)
	case s.at >= 0:
		// Its first may be gone, by which it would be compared; at the end of the
		// heap nothing is.
		l.streams.removeAt(s.at)
		s.at = -1
		if len(l.streams) == 0 {
			delete(b.lanes, key)
		}
	}
}

// nextMember is the first of all for whom there is room; nil is none.
func (b *budget) nextMember() *member {
	var first *member
	for key, l := range b.lanes {
		if !b.hasRoom(key) {
			continue
		}
		if m := l.streams[0].ready[0]; first == nil || m.isBefore(first) {
			first = m
		}
	}
	return first
}

func (b *budget) hasRoom(key laneKey) bool {
	most, bound := b.cfg.MaxPerAction[key.action]
	if b.held[key.pool] >= b.cfg.MaxConcurrent || bound && b.byAction[key.action] >= most {
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

// countInside counts one as inside.
func (b *budget) countInside(m *member) {
	b.held[poolOf(m.Claim)]++
	b.byAction[m.Action]++
	if m.Node {
		b.acted[m.Target] = true
	}
	for _, s := range b.sharesOf(m.Claim) {
		s.held++
		b.updateLanes(s)
	}
}

// uncountInside counts it as outside again.
func (b *budget) uncountInside(m *member) {
	b.held[poolOf(m.Claim)]--
	if b.byAction[m.Action]--; b.byAction[m.Action] == 0 {
		delete(b.byAction, m.Action)
	}
	if m.Node {
		delete(b.acted, m.Target)
	}
	shares := b.sharesOf(m.Claim)
	for _, s := range shares {
		s.held--
		b.updateLanes(s)
	}
	b.dropUnusedShares(shares)
}

// countCordoned counts the node that one has acted on as cordoned, until it is known
// whether it is: another must not go in between.
func (b *budget) countCordoned(m *member) {
	if m.Node && b.cordons {
		b.cordoned[m.Target] = true
	}
}

// updateLanes follows a share that may have become full, or no longer is.
func (b *budget) updateLanes(s *share) {
	if s.most == 0 {
		return
	}
	for one := range s.streams {
		b.updateLane(one)
	}
}

// exceededLimit says what there is not enough of for one that is ready.
func (b *budget) exceededLimit(m *member) string {
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
	return fmt.Sprintf("limit reached: %d nodes are in use by actions or cordoned, at most %d of %d are allowed at a time (limits.max_node_percent): uncordon a node", b.nodesActedOn(), b.nodesAllowed(), b.nodes)
}

// insideCount is how many are.
func (b *budget) insideCount() int { return b.held[poolChanges] + b.held[poolReads] }

// inFlight is who is inside, but for one.
func (b *budget) inFlight(but *member) execution.InputInFlight {
	in := execution.InputInFlight{Total: b.insideCount(), ByAction: maps.Clone(b.byAction), ByNamespace: make(map[string]int), SameTarget: []string{}}
	for key, s := range b.shares {
		if key.of == ofNamespace && s.held > 0 {
			in.ByNamespace[key.name] += s.held
		}
	}
	if but == nil || but.state != stateReserved && but.state != stateInside {
		return in
	}
	in.Total--
	decrementCount(in.ByAction, but.Action)
	decrementCount(in.ByNamespace, but.TargetNamespace)
	return in
}

func decrementCount(counts map[string]int, key string) {
	if counts[key]--; counts[key] == 0 {
		delete(counts, key)
	}
}
