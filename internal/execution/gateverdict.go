package execution

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// buildRefusalVerdict returns the reason why a member is not admitted now, and for how long it applies.
func (g *Gate) buildRefusalVerdict(m *gateMember, now time.Time) GateVerdict {
	if openUntil, open := g.past.circuitOpenUntil(m, g.cfg, now); open {
		message := fmt.Sprintf(
			"circuit breaker open: %s failed %d times in a row on %s and is blocked until %s: find the cause of the failures first",
			m.Action, g.cfg.MaxFailures, m.Target, openUntil.UTC().Format(time.RFC3339),
		)
		return GateVerdict{Failed: true, Detail: v1alpha1.DetailCircuitOpen, Message: message}
	}
	queueTimeLeft := m.since.Add(g.cfg.QueueTimeout).Sub(now)
	refusal := GateVerdict{After: queueTimeLeft}
	switch {
	case g.stopped:
		refusal.Detail = v1alpha1.DetailEmergencyStop
		refusal.Message = "emergency stop active, no execution can start until ConfigMap emergency-stop is deleted: " +
			g.stopReason
	case m.state == stateHead:
		cooldown := g.past.cooldownLeft(m, g.cfg.Cooldown, now)
		refusal.After = min(queueTimeLeft, cooldown)
		refusal.Detail = v1alpha1.DetailCooldown
		refusal.Message = fmt.Sprintf("cooldown: %s ended recently on %s and can start again at %s",
			m.Action, m.Target, now.Add(cooldown).UTC().Format(time.RFC3339))
	case m.state == stateReady:
		refusal.Detail = v1alpha1.DetailBudgetExceeded
		refusal.Message = g.budget.describeExceededLimit(m)
	case len(m.target.inside) > 0:
		refusal.Detail = v1alpha1.DetailTargetBusy
		refusal.Message = fmt.Sprintf("execution %s is running on %s", m.target.inside[0].Key, m.Target)
	default: // it is queued behind the head
		refusal.Detail = v1alpha1.DetailTargetBusy
		refusal.Message = fmt.Sprintf("execution %s is first in the queue for %s", m.target.head.Key, m.Target)
	}
	if queueTimeLeft <= 0 {
		refusal.Failed = true
		refusal.After = 0
		refusal.Message = fmt.Sprintf("queue timeout: could not start within %s: %s", g.cfg.QueueTimeout, refusal.Message)
	}
	return refusal
}

// InFlight returns the executions inside, except the one with exceptUID. SameTarget lists the others on
// its target, if it has entered the gate.
func (g *Gate) InFlight(exceptUID types.UID) InputInFlight {
	g.mu.Lock()
	defer g.mu.Unlock()
	member := g.members[exceptUID]
	inFlight := g.budget.inFlightExcept(member)
	if member != nil {
		inFlight.SameTarget = member.target.namesInsideExcept(exceptUID)
	}
	return inFlight
}

// namesInsideExcept returns the names of the executions inside, except one. It is never nil.
func (t *gateTarget) namesInsideExcept(exceptUID types.UID) []string {
	names := make([]string, 0, len(t.inside))
	for _, m := range t.inside {
		if m.UID != exceptUID {
			names = append(names, m.Key.Name)
		}
	}
	return names
}

// History summarizes the executions of an action on a target in the hour before now.
func (g *Gate) History(action, target string, now time.Time) InputPast {
	g.mu.Lock()
	defer g.mu.Unlock()
	var summary InputPast
	for _, ended := range g.past.listEndedWithin(action, target, historyWindow, now) {
		summary.Count1h++
		if isFailed(ended) {
			summary.Failures1h++
		}
		// The list is ordered by end, so the last one remains.
		summary.LastOutcome = string(ended.Outcome)
		summary.LastFinishedAt = ended.Ended.Unix()
	}
	return summary
}
