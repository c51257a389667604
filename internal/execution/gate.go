package execution

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A Claim is a request of an execution to act.
type Claim struct {
	UID    types.UID
	Key    types.NamespacedName // of the execution
	Action string
	// Target is the object on which one execution acts at a time, see TargetKey. Empty means no
	// target.
	Target          string
	TargetNamespace string // empty means cluster-scoped
	Node            bool   // whether it uses the node budget
	// ReadOnly marks an execution that changes nothing. It neither waits for others on its target
	// nor blocks them, and uses the read-only budget.
	ReadOnly  bool
	Requester string // who asked for it
	Rollback  bool
	Created   time.Time
	// Since is the time at which the execution began to wait at an earlier gate. Zero means the
	// time of its first Enter.
	Since time.Time
}

// TargetKey returns the Target of a claim: kind.group/namespace/name. It is empty for an action
// without a target.
func TargetKey(t v1alpha1.PlanTarget) string {
	if t.Kind == "" {
		return ""
	}
	group, _, grouped := strings.Cut(t.APIVersion, "/")
	if !grouped {
		group = ""
	}
	return t.Kind + "." + group + "/" + t.Namespace + "/" + t.Name
}

// A GateVerdict is the answer of the gate to a claim.
type GateVerdict struct {
	In bool

	// Detail is the reason for a refusal: target_busy, cooldown, budget_exceeded, circuit_open or
	// emergency_stop. Message explains it to people.
	Detail  v1alpha1.Detail
	Message string

	// After is the delay until the latest retry, unless a wake comes first.
	After time.Duration

	// Failed means that the execution is refused for good.
	Failed bool
}

// PastExecution is an execution that has ended.
type PastExecution struct {
	Action, Target string
	Outcome        v1alpha1.Outcome // empty says nothing of the action
	Ended          time.Time
}

// GateStats counts the executions at the gate.
type GateStats struct {
	Inside  int // including reserved places
	Waiting int
	Stopped bool
}

// A Gate limits concurrent executions: one per target, and at most the configured budgets in total and per
// requester. Read-only executions do not occupy their target, and have a separate budget.
//
// Waiting executions queue per target: rollbacks first, the others in order of arrival. The head
// of each queue becomes ready once only a budget blocks it, and is given the next free place. The
// place is reserved for it, and the callback of OnWake asks it to retry. This order prevents
// overtaking, polling and starvation, as long as running executions leave.
//
// A gate holds only the state that its caller reports. It lives in the memory of the leader;
// Restore loads a new gate with the running and past executions of the previous one. Waiting
// executions enter the new gate again.
//
// It is created with NewGate and safe for concurrent use. Callers pass the time, which should not run
// backwards by much.
type Gate struct {
	cfg GateConfig

	mu       sync.Mutex
	onWake   func(types.NamespacedName)
	wakes    wakeList
	stopped  bool
	reason   string // of the stop
	arrivals uint64
	members  map[types.UID]*gateMember
	reserved map[types.UID]*gateMember // members with a reserved place
	targets  map[string]*gateTarget
	budget   gateBudget
	past     gateHistory
	untimed  bool // whether restored history is not yet clamped to the present
}

// NewGate creates an empty gate.
func NewGate(cfg GateConfig) (*Gate, error) {
	cfg, err := cfg.defaultAndValidate()
	if err != nil {
		return nil, fmt.Errorf("create limiter: %w", err)
	}
	return &Gate{
		cfg:      cfg,
		members:  make(map[types.UID]*gateMember),
		reserved: make(map[types.UID]*gateMember),
		targets:  make(map[string]*gateTarget),
		budget:   newGateBudget(cfg),
		past:     newGateHistory(max(historyWindow, cfg.Window, cfg.Cooldown)),
	}, nil
}

// OnWake sets the callback that asks an execution to call Enter again. Call it before the first
// Enter. The callback runs without the lock of the gate, in the goroutine that freed the place,
// which waits for it.
func (g *Gate) OnWake(f func(types.NamespacedName)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onWake = f
}

// updateThenWake runs change with the lock held, then wakes the queued executions, except the given one.
func (g *Gate) updateThenWake(except types.NamespacedName, change func()) {
	g.mu.Lock()
	change()
	wakes, onWake := g.wakes, g.onWake
	g.wakes = nil
	g.mu.Unlock()
	if onWake == nil {
		return
	}
	for _, k := range wakes {
		if k != except {
			onWake(k)
		}
	}
}

// Restore loads the running and past executions into a new gate. Call it before the first Enter.
func (g *Gate) Restore(inside []Claim, past []PastExecution) {
	g.updateThenWake(types.NamespacedName{}, func() {
		for _, c := range inside {
			if g.members[c.UID] != nil {
				continue
			}
			m := g.addMember(c, c.Since)
			m.state = stateInside
			m.target.inside = append(m.target.inside, m)
			g.budget.addInsideCounts(m)
		}
		for _, e := range past {
			g.past.addPast(e)
		}
		g.untimed = g.untimed || len(past) > 0
	})
}

// EnterOrQueue requests a place. A refused execution stays in the queue, and an admitted one stays inside,
// however often it calls Enter. An admitted execution must Leave. A queued one must be removed with
// Forget when it no longer wants a place.
func (g *Gate) EnterOrQueue(c Claim, now time.Time) (verdict GateVerdict) {
	g.updateThenWake(c.Key, func() {
		if g.untimed {
			g.untimed = false
			g.past.clampFutureEnds(now)
		}
		m := g.members[c.UID]
		if m == nil {
			since := c.Since
			if since.IsZero() {
				since = now
			}
			m = g.addMember(c, since)
			m.target.queue.pushItem(m)
		}
		g.selectNextHead(m.target, now)
		g.reservePlaces()
		if m.state == stateReserved {
			delete(g.reserved, m.UID)
			m.state = stateInside
		}
		if m.state == stateInside {
			verdict = GateVerdict{In: true}
			return
		}
		if verdict = g.refusalFor(m, now); verdict.Failed {
			g.removeMember(m, now)
		}
	})
	return verdict
}

// addMember creates the member of a claim, outside any queue.
func (g *Gate) addMember(c Claim, since time.Time) *gateMember {
	name := c.Target
	if name == "" || c.ReadOnly {
		name = "execution " + string(c.UID) // unique to this execution
	}
	t := g.targets[name]
	if t == nil {
		t = &gateTarget{name: name}
		g.targets[name] = t
	}
	g.arrivals++
	m := &gateMember{Claim: c, since: since, arrival: g.arrivals, target: t, state: stateQueued}
	g.members[c.UID] = m
	return m
}

// QueueDeadline returns the time until which an execution that waits since the given time may be
// admitted. An execution that is blocked for a reason outside the gate should not wait longer than
// that either.
func (g *Gate) QueueDeadline(since time.Time) time.Time { return since.Add(g.cfg.QueueTimeout) }

// Leave removes an execution that was inside and has ended.
func (g *Gate) Leave(uid types.UID, outcome v1alpha1.Outcome, now time.Time) {
	g.updateThenWake(types.NamespacedName{}, func() {
		m := g.members[uid]
		if m == nil {
			return
		}
		if m.state == stateInside {
			g.past.addPast(PastExecution{Action: m.Action, Target: m.Target, Outcome: outcome, Ended: now})
			g.past.dropExpired(now)
			g.budget.markNodeCordoned(m)
		}
		g.removeMember(m, now)
	})
}

// Forget removes an execution that no longer wants a place, or that left without acting.
func (g *Gate) Forget(uid types.UID) {
	g.updateThenWake(types.NamespacedName{}, func() {
		if m := g.members[uid]; m != nil {
			g.removeMember(m, time.Time{})
		}
	})
}

// removeMember removes a member and gives its place to others. With a zero time, the next member
// checks its cooldown on its own next Enter.
func (g *Gate) removeMember(m *gateMember, now time.Time) {
	delete(g.members, m.UID)
	delete(g.reserved, m.UID)
	t := m.target
	switch m.state {
	case stateQueued:
		t.queue.removeAt(m.at)
	case stateReady:
		g.budget.removeReady(m)
		t.head = nil
	case stateHead:
		t.head = nil
	case stateReserved, stateInside:
		g.budget.subtractInsideCounts(m)
		t.removeInside(m)
	}
	g.selectNextHead(t, now)
	if t.isEmpty() {
		delete(g.targets, t.name)
	}
	g.reservePlaces()
}

// Stop blocks all admissions until Resume. Executions that are inside continue.
func (g *Gate) Stop(reason string) {
	g.updateThenWake(types.NamespacedName{}, func() {
		g.stopped, g.reason = true, reason
		g.revokeReserved()
	})
}

// revokeReserved takes back the reserved places, which are not in use yet.
func (g *Gate) revokeReserved() {
	for uid, m := range g.reserved {
		delete(g.reserved, uid)
		g.budget.subtractInsideCounts(m)
		m.target.removeInside(m)
		m.target.head, m.state = m, stateReady
		g.budget.queueReady(m)
		g.selectNextHead(m.target, time.Time{}) // one that goes first may have come meanwhile
	}
}

// Resume ends a Stop.
func (g *Gate) Resume() {
	g.updateThenWake(types.NamespacedName{}, func() {
		if !g.stopped {
			return
		}
		g.stopped, g.reason = false, ""
		g.reservePlaces()
		for _, m := range g.members { // the reason they were refused no longer applies
			if m.state != stateInside && m.state != stateReserved {
				g.wakes.addMember(m)
			}
		}
	})
}

// SetNodeCount sets the number of nodes in the cluster. Until the first call, one node may be acted on.
func (g *Gate) SetNodeCount(total int) {
	g.updateThenWake(types.NamespacedName{}, func() {
		if total < g.budget.nodes {
			g.revokeReserved()
		}
		g.budget.nodes = total
		g.reservePlaces()
	})
}

// SetCordonedNodes sets the targets that are nodes cordoned by executions and still unschedulable. They
// count as acted on. An execution on one of them uses no further place of the node budget, because
// it may be the rollback. After the first call, a node that was acted on counts as cordoned until
// the next call.
func (g *Gate) SetCordonedNodes(nodeTargets []string) {
	cordoned := make(map[string]bool, len(nodeTargets))
	for _, t := range nodeTargets {
		cordoned[t] = true
	}
	g.updateThenWake(types.NamespacedName{}, func() {
		g.budget.cordons = true
		if maps.Equal(cordoned, g.budget.cordoned) {
			return
		}
		g.revokeReserved()
		var moved []*gateMember
		for _, t := range g.targets { // only members that act on nodes can change lanes
			if m := t.head; m != nil && m.Node && m.state == stateReady {
				g.budget.removeReady(m)
				moved = append(moved, m)
			}
		}
		g.budget.cordoned = cordoned
		for _, m := range moved {
			g.budget.queueReady(m)
		}
		g.reservePlaces()
	})
}

// Stats returns the current number of executions at the gate.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return GateStats{Inside: g.budget.insideCount(), Waiting: len(g.members) - g.budget.insideCount(), Stopped: g.stopped}
}
