package operator

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution/action"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
)

// gateSlots takes and releases the slots of executions at the gate.
type gateSlots struct {
	gate *gate.Gate

	mu      sync.Mutex
	claimed map[types.NamespacedName]types.UID // executions that the gate knows
}

// enter asks the gate for a slot.
func (g *gateSlots) enter(ke *v1alpha1.KubernetesExecution, now time.Time) gate.Verdict {
	c := gateClaim(ke)
	g.mu.Lock()
	g.claimed[c.Key] = c.UID
	g.mu.Unlock()
	return g.gate.Enter(c, now)
}

// forceEnter makes the gate count a running execution, even if the gate refuses it.
func (g *gateSlots) forceEnter(ke *v1alpha1.KubernetesExecution, now time.Time) {
	if g.enter(ke, now).In {
		return
	}
	c := gateClaim(ke)
	g.gate.Forget(c.UID)
	g.gate.Restore([]gate.Claim{c}, nil)
}

// restore loads running and past executions into the gate.
func (g *gateSlots) restore(inside []gate.Claim, past []gate.Past) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range inside {
		g.claimed[c.Key] = c.UID // otherwise an execution that is deleted before its first reconcile would keep its slot
	}
	g.gate.Restore(inside, past)
}

// takeClaim removes and returns the claim of a name, unless it belongs to the current execution.
func (g *gateSlots) takeClaim(name types.NamespacedName, currentUID types.UID) (previous types.UID, found bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	previous, found = g.claimed[name]
	if !found || previous == currentUID {
		return "", false
	}
	delete(g.claimed, name)
	return previous, true
}

// release releases the slot of an execution that is over, if it still has one.
func (g *gateSlots) release(ke *v1alpha1.KubernetesExecution, now time.Time) {
	s := &ke.Status
	switch {
	case s.ExecutionResults == nil: // nothing was executed
		g.gate.Forget(ke.UID)
	case s.Reason == v1alpha1.ReasonCancelled: // a cancel is no result of the action
		g.gate.Leave(ke.UID, "", now)
	default:
		g.gate.Leave(ke.UID, s.Outcome, now)
	}
}

// gateClaim returns the claim of an execution for the gate.
func gateClaim(ke *v1alpha1.KubernetesExecution) gate.Claim {
	p := ke.Status.Plan
	c := gate.Claim{
		UID: ke.UID, Key: nameOf(ke), Action: ke.Spec.Action, Created: ke.CreationTimestamp.Time, Rollback: ke.Spec.RollbackOf != nil,
		Requester: ke.Spec.RequestedBy,
	}
	if p != nil {
		c.Action = p.Action // the request may name an alias
		c.Target, c.TargetNamespace, c.Node = gate.TargetKey(p.Target), p.Target.Namespace, p.Target.Kind == "Node"
	}
	if a, known := action.Find(c.Action); known && a.ReadOnly {
		c.ReadOnly, c.Node = true, false
	}
	c.Since = readyTime(ke) // possibly at an earlier operator
	return c
}

// readyTime returns when an execution was first ready to run. From then on it waits for the gate or
// for its Job. Zero means that it is not ready yet.
func readyTime(ke *v1alpha1.KubernetesExecution) time.Time {
	if a := ke.Status.Approval; a != nil && a.State == v1alpha1.ApprovalApproved && a.DecidedAt != nil {
		return a.DecidedAt.Time
	}
	return phaseStart(ke, v1alpha1.PhaseValidated, time.Time{})
}

// pastOf returns a finished execution for the gate.
func pastOf(ke *v1alpha1.KubernetesExecution) (gate.Past, bool) {
	s := &ke.Status
	if s.ExecutionResults == nil || s.ExecutionResults.EndTime == nil || s.Plan == nil {
		return gate.Past{}, false
	}
	p := gate.Past{Action: s.Plan.Action, Target: gate.TargetKey(s.Plan.Target), Outcome: s.Outcome, Ended: s.ExecutionResults.EndTime.Time}
	if s.Reason == v1alpha1.ReasonCancelled { // a cancel is no result of the action
		p.Outcome = ""
	}
	return p, true
}
