// Package gate says whose turn it is: one execution at a time for each target,
// and no more at once than the budgets allow, in all and of one requester.
// Executions that only read take no turn on their target, and have a budget of
// their own.
//
// Those that must wait stand in the queue of their target, rollbacks first and
// the others in the order in which they came. The first of each queue, once
// nothing but a budget is in its way, is given the next place that becomes
// free: it is kept for it, and whoever listens is told to try again. So nobody
// overtakes, nobody polls, and nobody waits for ever as long as those inside
// leave.
//
// A gate knows nothing but what it is told. It is in memory, of whoever leads,
// and a new one is told by Restore what the last one knew. Those that waited
// come again by themselves.
package gate

import (
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// A Claim is an execution that wants to act.
type Claim struct {
	UID    types.UID
	Key    types.NamespacedName // of the execution
	Action string
	// Target is what only one may act on, see TargetOf. Empty is nothing.
	Target          string
	TargetNamespace string // empty is outside of namespaces
	Node            bool   // whether it takes one from the budget of nodes
	// ReadOnly is that it changes nothing. It waits for nobody on its target, and
	// nobody waits for it; it has a place among those that only read.
	ReadOnly  bool
	Requester string // who asked for it
	Rollback  bool
	Created   time.Time
	// Since is when it began to wait, for one that waited at another gate. Zero
	// is its first Enter.
	Since time.Time
}

// TargetOf is the Target of a claim: kind.group/namespace/name. It is empty for
// an action without a target.
func TargetOf(t v1alpha1.PlanTarget) string {
	if t.Kind == "" {
		return ""
	}
	group, _, grouped := strings.Cut(t.APIVersion, "/")
	if !grouped {
		group = ""
	}
	return t.Kind + "." + group + "/" + t.Namespace + "/" + t.Name
}

// A Verdict is what the gate says to a claim.
type Verdict struct {
	In bool

	// Why not: target_busy, cooldown, budget_exceeded, circuit_open or
	// emergency_stop, and the same for people.
	Detail  v1alpha1.Detail
	Message string

	// After is when to ask again at the latest, if nothing wakes it.
	After time.Duration

	// Failed means that it is not let in any more.
	Failed bool
}

// Past is an execution that is over.
type Past struct {
	Action, Target string
	Outcome        v1alpha1.Outcome // empty says nothing of the action
	Ended          time.Time
}

// Stats are how many there are at the gate.
type Stats struct {
	Inside  int // those included whose place is kept
	Waiting int
	Stopped bool
}

// A Gate is made with New. It is safe for concurrent use. Time is an argument,
// and is expected not to run backwards by much.
type Gate struct {
	cfg Config

	mu       sync.Mutex
	onWake   func(types.NamespacedName)
	wakes    []types.NamespacedName
	stopped  bool
	reason   string // of the stop
	arrivals uint64
	members  map[types.UID]*member
	reserved map[types.UID]*member // those whose place is kept
	targets  map[string]*target
	budget   budget
	past     history
	untimed  bool // whether there is a past from before anybody said what time it is
}

// New makes a gate with nobody inside.
func New(cfg Config) (*Gate, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("create limiter: %w", err)
	}
	return &Gate{
		cfg:      cfg,
		members:  make(map[types.UID]*member),
		reserved: make(map[types.UID]*member),
		targets:  make(map[string]*target),
		budget:   newBudget(cfg),
		past:     newHistory(max(historyWindow, cfg.Window, cfg.Cooldown)),
	}, nil
}

// OnWake says who is told that it should try again, by another Enter. Call it
// before the first. It is called without the gate's lock, by whoever made room,
// who waits for it.
func (g *Gate) OnWake(f func(types.NamespacedName)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.onWake = f
}

// withLock does something with the lock held, and then wakes whom that concerns,
// except the one that called.
func (g *Gate) withLock(caller types.NamespacedName, do func()) {
	g.mu.Lock()
	do()
	wakes, onWake := g.wakes, g.onWake
	g.wakes = nil
	g.mu.Unlock()
	if onWake == nil {
		return
	}
	for _, k := range wakes {
		if k != caller {
			onWake(k)
		}
	}
}

// Restore tells a new gate who is inside and what went before. Call it before
// the first Enter.
func (g *Gate) Restore(inside []Claim, past []Past) {
	g.withLock(types.NamespacedName{}, func() {
		for _, c := range inside {
			if g.members[c.UID] != nil {
				continue
			}
			m := g.addMember(c, c.Since)
			m.state = stateInside
			m.target.inside = append(m.target.inside, m)
			g.budget.countInside(m)
		}
		for _, e := range past {
			g.past.addPast(e)
		}
		g.untimed = g.untimed || len(past) > 0
	})
}

// Enter asks to be let in. Whoever is not let in stands in the queue from then
// on. Whoever is inside stays so, however often it asks. One that is let in
// must Leave, any other must be forgotten when it no longer wants to go in.
func (g *Gate) Enter(c Claim, now time.Time) (v Verdict) {
	g.withLock(c.Key, func() { v = g.enterLocked(c, now) })
	return v
}

func (g *Gate) enterLocked(c Claim, now time.Time) Verdict {
	if g.untimed {
		g.untimed = false
		g.past.clampEnds(now)
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
	g.promoteHead(m.target, now)
	g.reservePlaces()
	switch m.state {
	case stateInside:
		return Verdict{In: true}
	case stateReserved:
		delete(g.reserved, m.UID)
		m.state = stateInside
		return Verdict{In: true}
	case stateQueued, stateHead, stateReady:
	}
	v := g.refusalFor(m, now)
	if v.Failed {
		g.removeMember(m, now)
	}
	return v
}

// addMember makes a member of a claim, in no queue yet.
func (g *Gate) addMember(c Claim, since time.Time) *member {
	name := c.Target
	if name == "" || c.ReadOnly {
		name = "execution " + string(c.UID) // nobody else's
	}
	t := g.targets[name]
	if t == nil {
		t = &target{name: name}
		g.targets[name] = t
	}
	g.arrivals++
	m := &member{Claim: c, since: since, arrival: g.arrivals, target: t, state: stateQueued}
	g.members[c.UID] = m
	return m
}

// Deadline is until when the turn of one may come that waits since some time.
// Who is kept from beginning by something that the gate knows nothing of should
// wait no longer than that either.
func (g *Gate) Deadline(since time.Time) time.Time { return since.Add(g.cfg.QueueTimeout) }

// Leave says that one that was inside has ended.
func (g *Gate) Leave(uid types.UID, outcome v1alpha1.Outcome, now time.Time) {
	g.withLock(types.NamespacedName{}, func() {
		m := g.members[uid]
		if m == nil {
			return
		}
		if m.state == stateInside {
			g.past.addPast(Past{Action: m.Action, Target: m.Target, Outcome: outcome, Ended: now})
			g.past.dropExpired(now)
			g.budget.countCordoned(m)
		}
		g.removeMember(m, now)
	})
}

// Forget says that one no longer wants to go in, or has left without having
// done anything.
func (g *Gate) Forget(uid types.UID) {
	g.withLock(types.NamespacedName{}, func() {
		if m := g.members[uid]; m != nil {
			g.removeMember(m, time.Time{})
		}
	})
}

// removeMember takes a member away, and lets others have its place. Without a time,
// whoever is next finds out by itself whether it is time.
func (g *Gate) removeMember(m *member, now time.Time) {
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
		g.budget.uncountInside(m)
		t.removeInside(m)
	}
	g.promoteHead(t, now)
	if t.isEmpty() {
		delete(g.targets, t.name)
	}
	g.reservePlaces()
}

// Stop lets nobody in until Resume. Those inside are not touched.
func (g *Gate) Stop(reason string) {
	g.withLock(types.NamespacedName{}, func() {
		g.stopped, g.reason = true, reason
		g.revokeReserved()
	})
}

// revokeReserved takes back the places that are kept: nobody is in them yet.
func (g *Gate) revokeReserved() {
	for uid, m := range g.reserved {
		delete(g.reserved, uid)
		g.budget.uncountInside(m)
		m.target.removeInside(m)
		m.target.head, m.state = m, stateReady
		g.budget.addReady(m)
		g.promoteHead(m.target, time.Time{}) // one that goes first may have come meanwhile
	}
}

// Resume ends a Stop.
func (g *Gate) Resume() {
	g.withLock(types.NamespacedName{}, func() {
		if !g.stopped {
			return
		}
		g.stopped, g.reason = false, ""
		g.reservePlaces()
		for _, m := range g.members { // what they were told is no longer so
			if m.state != stateInside && m.state != stateReserved {
				g.queueWake(m)
			}
		}
	})
}

// SetNodes says how many nodes there are. Before it is said one may be acted on.
func (g *Gate) SetNodes(total int) {
	g.withLock(types.NamespacedName{}, func() {
		if total < g.budget.nodes {
			g.revokeReserved()
		}
		g.budget.nodes = total
		g.reservePlaces()
	})
}

// SetCordoned says which targets are nodes that executions have cordoned, and
// nobody has made schedulable again. They count as acted on, and whoever wants
// to act on one of them takes no other from the budget: it may be the way back.
// Once it has been said, a node that was acted on counts as cordoned until the
// next time.
func (g *Gate) SetCordoned(targets []string) {
	cordoned := make(map[string]bool, len(targets))
	for _, t := range targets {
		cordoned[t] = true
	}
	g.withLock(types.NamespacedName{}, func() {
		g.budget.cordons = true
		if maps.Equal(cordoned, g.budget.cordoned) {
			return
		}
		g.revokeReserved()
		var moved []*member
		for _, t := range g.targets { // only those on nodes are looked at closer
			if m := t.head; m != nil && m.Node && m.state == stateReady {
				g.budget.removeReady(m)
				moved = append(moved, m)
			}
		}
		g.budget.cordoned = cordoned
		for _, m := range moved {
			g.budget.addReady(m)
		}
		g.reservePlaces()
	})
}

// Stats are how many there are now.
func (g *Gate) Stats() Stats {
	g.mu.Lock()
	defer g.mu.Unlock()
	return Stats{Inside: g.budget.insideCount(), Waiting: len(g.members) - g.budget.insideCount(), Stopped: g.stopped}
}
