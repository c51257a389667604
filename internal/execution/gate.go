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
	group, _, hasGroup := strings.Cut(t.APIVersion, "/")
	if !hasGroup { // the core group has no name: the text is only a version, such as v1
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

	mu         sync.Mutex
	onWake     func(types.NamespacedName)
	wakes      wakeList // executions to wake when the lock is released
	stopped    bool
	stopReason string
	arrivals   uint64 // number of members so far
	members    map[types.UID]*gateMember
	reserved   map[types.UID]*gateMember // members with a reserved place
	targets    map[string]*gateTarget
	budget     gateBudget
	past       gateHistory

	// pastUnclamped is true while restored executions may have ended after the present.
	pastUnclamped bool
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

// unlockAndWake releases the lock, then wakes the executions in the wake list.
func (g *Gate) unlockAndWake() { g.unlockAndWakeExcept(types.NamespacedName{}) }

// unlockAndWakeExcept is unlockAndWake without the given execution. The callback runs without the lock,
// because it may call the gate.
func (g *Gate) unlockAndWakeExcept(except types.NamespacedName) {
	wakes, onWake := g.wakes, g.onWake
	g.wakes = nil
	g.mu.Unlock()
	if onWake == nil {
		return
	}
	for _, execution := range wakes {
		if execution != except {
			onWake(execution)
		}
	}
}

// Restore loads the running and past executions into a new gate. Call it before the first Enter.
func (g *Gate) Restore(inside []Claim, past []PastExecution) {
	g.mu.Lock()
	defer g.unlockAndWake()
	for _, claim := range inside {
		if g.members[claim.UID] != nil {
			continue
		}
		member := g.registerQueuedMember(claim, claim.Since)
		member.state = stateInside
		member.target.inside = append(member.target.inside, member)
		g.budget.addToInsideCounts(member)
	}
	for _, ended := range past {
		g.past.addPast(ended)
	}
	if len(past) > 0 {
		g.pastUnclamped = true
	}
}

// EnterOrQueue requests a place. A refused execution stays in the queue, and an admitted one stays inside,
// however often it calls Enter. An admitted execution must Leave. A queued one must be removed with
// Forget when it no longer wants a place.
func (g *Gate) EnterOrQueue(c Claim, now time.Time) GateVerdict {
	g.mu.Lock()
	defer g.unlockAndWakeExcept(c.Key)
	if g.pastUnclamped {
		g.past.clampFutureEnds(now)
		g.pastUnclamped = false
	}
	member := g.members[c.UID]
	if member == nil {
		since := c.Since
		if since.IsZero() {
			since = now
		}
		member = g.registerQueuedMember(c, since)
		member.target.queue.pushItem(member)
	}

	// The passage of time may have ended a cooldown, so the member may become ready now.
	g.selectNextHead(member.target, now)
	g.reservePlaces()
	if member.state == stateReserved {
		delete(g.reserved, member.UID)
		member.state = stateInside
	}
	if member.state == stateInside {
		return GateVerdict{In: true}
	}

	refusal := g.buildRefusalVerdict(member, now)
	if refusal.Failed {
		g.removeMember(member, now)
	}
	return refusal
}

// registerQueuedMember creates the member of a claim, outside any queue.
func (g *Gate) registerQueuedMember(c Claim, since time.Time) *gateMember {
	targetName := c.Target
	if targetName == "" || c.ReadOnly {
		targetName = "execution " + string(c.UID) // unique to this execution, so that it waits for no other
	}
	target := g.targets[targetName]
	if target == nil {
		target = &gateTarget{name: targetName}
		g.targets[targetName] = target
	}
	g.arrivals++
	member := &gateMember{Claim: c, since: since, arrival: g.arrivals, target: target, state: stateQueued}
	g.members[c.UID] = member
	return member
}

// QueueDeadline returns the time until which an execution that waits since the given time may be
// admitted. An execution that is blocked for a reason outside the gate should not wait longer than
// that either.
func (g *Gate) QueueDeadline(since time.Time) time.Time { return since.Add(g.cfg.QueueTimeout) }

// Leave removes an execution that was inside and has ended.
func (g *Gate) Leave(uid types.UID, outcome v1alpha1.Outcome, now time.Time) {
	g.mu.Lock()
	defer g.unlockAndWake()
	member := g.members[uid]
	if member == nil {
		return
	}
	if member.state == stateInside {
		g.past.addPast(PastExecution{Action: member.Action, Target: member.Target, Outcome: outcome, Ended: now})
		g.past.dropExpired(now)
		g.budget.markNodeCordoned(member)
	}
	g.removeMember(member, now)
}

// Forget removes an execution that no longer wants a place, or that left without acting.
func (g *Gate) Forget(uid types.UID) {
	g.mu.Lock()
	defer g.unlockAndWake()
	if member := g.members[uid]; member != nil {
		g.removeMember(member, time.Time{})
	}
}

// removeMember removes a member and gives its place to others. With a zero time, the next member
// checks its cooldown on its own next Enter.
func (g *Gate) removeMember(m *gateMember, now time.Time) {
	delete(g.members, m.UID)
	delete(g.reserved, m.UID)
	target := m.target
	switch m.state {
	case stateQueued:
		target.queue.removeAt(m.heapIndex)
	case stateHead:
		target.head = nil
	case stateReady:
		g.budget.removeReady(m)
		target.head = nil
	case stateReserved, stateInside:
		g.budget.removeFromInsideCounts(m)
		target.removeInside(m)
	}
	g.selectNextHead(target, now)
	if target.isEmpty() {
		delete(g.targets, target.name)
	}
	g.reservePlaces()
}

// Stop blocks all admissions until Resume. Executions that are inside continue.
func (g *Gate) Stop(reason string) {
	g.mu.Lock()
	defer g.unlockAndWake()
	g.stopped = true
	g.stopReason = reason
	g.revokeReserved()
}

// revokeReserved takes back the reserved places, which are not in use yet.
func (g *Gate) revokeReserved() {
	for uid, member := range g.reserved {
		delete(g.reserved, uid)
		g.budget.removeFromInsideCounts(member)
		member.target.removeInside(member)
		member.target.head = member
		member.state = stateReady
		g.budget.queueReady(member)
		// A member that goes first, such as a rollback, may have arrived since the reservation.
		g.selectNextHead(member.target, time.Time{})
	}
}

// Resume ends a Stop.
func (g *Gate) Resume() {
	g.mu.Lock()
	defer g.unlockAndWake()
	if !g.stopped {
		return
	}
	g.stopped = false
	g.stopReason = ""
	g.reservePlaces()
	// The stop was the reason shown to all that wait. They ask again to show the present one.
	for _, member := range g.members {
		if member.state != stateInside && member.state != stateReserved {
			g.wakes.addMember(member)
		}
	}
}

// SetNodeCount sets the number of nodes in the cluster. Until the first call, one node may be acted on.
func (g *Gate) SetNodeCount(total int) {
	g.mu.Lock()
	defer g.unlockAndWake()
	if total < g.budget.nodes {
		g.revokeReserved() // the reserved places may exceed the smaller budget
	}
	g.budget.nodes = total
	g.reservePlaces()
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
	g.mu.Lock()
	defer g.unlockAndWake()
	g.budget.cordonsKnown = true
	if maps.Equal(cordoned, g.budget.cordoned) {
		return
	}
	g.revokeReserved()

	// Whether a ready member uses the node budget depends on the cordoned nodes. Those on nodes
	// leave their lanes before the change and join the right ones after it.
	var readyOnNodes []*gateMember
	for _, target := range g.targets {
		if head := target.head; head != nil && head.Node && head.state == stateReady {
			g.budget.removeReady(head)
			readyOnNodes = append(readyOnNodes, head)
		}
	}
	g.budget.cordoned = cordoned
	for _, member := range readyOnNodes {
		g.budget.queueReady(member)
	}
	g.reservePlaces()
}

// Stats returns the current number of executions at the gate.
func (g *Gate) Stats() GateStats {
	g.mu.Lock()
	defer g.mu.Unlock()
	inside := g.budget.insideCount()
	return GateStats{Inside: inside, Waiting: len(g.members) - inside, Stopped: g.stopped}
}
