package execution

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
)

// refusalFor returns the reason why a member is not admitted now, and for how long it applies.
func (g *Gate) refusalFor(m *gateMember, now time.Time) GateVerdict {
	if closes, broken := g.past.circuitState(m, g.cfg, now); broken {
		return GateVerdict{Failed: true, Detail: v1alpha1.DetailCircuitOpen, Message: fmt.Sprintf(
			"circuit breaker open: %s failed %d times in a row on %s and is blocked until %s: find the cause of the failures first",
			m.Action, g.cfg.MaxFailures, m.Target, closes.UTC().Format(time.RFC3339))}
	}
	left := m.since.Add(g.cfg.QueueTimeout).Sub(now)
	v := GateVerdict{After: left}
	switch {
	case g.stopped:
		v.Detail, v.Message = v1alpha1.DetailEmergencyStop, "emergency stop active, no execution can start until ConfigMap emergency-stop is deleted: "+g.reason
	case m.state == stateHead:
		cooldown := g.past.cooldownLeft(m, g.cfg.Cooldown, now)
		v.Detail, v.After = v1alpha1.DetailCooldown, min(left, cooldown)
		v.Message = fmt.Sprintf("cooldown: %s ended recently on %s and can start again at %s", m.Action, m.Target, now.Add(cooldown).UTC().Format(time.RFC3339))
	case m.state == stateReady:
		v.Detail, v.Message = v1alpha1.DetailBudgetExceeded, g.budget.describeExceededLimit(m)
	case len(m.target.inside) > 0:
		v.Detail, v.Message = v1alpha1.DetailTargetBusy, fmt.Sprintf("execution %s is running on %s", m.target.inside[0].Key, m.Target)
	default:
		v.Detail, v.Message = v1alpha1.DetailTargetBusy, fmt.Sprintf("execution %s is first in the queue for %s", m.target.head.Key, m.Target)
	}
	if left <= 0 {
		v.Failed, v.After = true, 0
		v.Message = fmt.Sprintf("queue timeout: could not start within %s: %s", g.cfg.QueueTimeout, v.Message)
	}
	return v
}

// InFlight returns the executions inside, except the one with exceptUID. SameTarget lists the others on
// its target, if it has entered the gate.
func (g *Gate) InFlight(exceptUID types.UID) InputInFlight {
	g.mu.Lock()
	defer g.mu.Unlock()
	m := g.members[exceptUID]
	in := g.budget.inFlightExcept(m)
	if m != nil {
		in.SameTarget = m.target.namesInsideExcept(exceptUID)
	}
	return in
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
	var in InputPast
	for _, e := range g.past.listEndedWithin(action, target, historyWindow, now) {
		in.Count1h++
		if isFailed(e) {
			in.Failures1h++
		}
		in.LastOutcome, in.LastFinishedAt = string(e.Outcome), e.Ended.Unix()
	}
	return in
}
