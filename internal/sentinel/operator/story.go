package operator

import (
	"fmt"
	"strings"
	"time"
)

// Reasons of Kubernetes events.
const (
	eventLoaded            = "ConfigLoaded"
	eventChanged           = "ConfigChanged"
	eventInvalid           = "ConfigInvalid"
	eventNotLoaded         = "ConfigLoadFailed"
	eventUnanswered        = "NewConnectionFailed"
	eventFailed            = "SentinelFailed"
	eventAPIUnreachable    = "APIUnreachable"
	eventAPIReachable      = "APIReachable"
	eventBrokerUnreachable = "BrokerUnreachable"
	eventBrokerReachable   = "BrokerReachable"
)

// A reportedEvents holds the state that events about an instance have reported. Only changes are
// reported.
type reportedEvents struct {
	changes             int
	refusal             string
	pending             bool
	failure             string
	apiDown, brokerDown bool
}

// emitChanges emits events for the changes in s, and returns the new state.
func (t reportedEvents) emitChanges(
	s InstanceState, now time.Time, emit func(warning bool, reason, note string),
) reportedEvents {
	if s.Changes != t.changes {
		reason := eventChanged
		if t.changes == 0 {
			reason = eventLoaded
		}
		emit(false, reason, fmt.Sprintf("generation %d is active", s.InForce))
		t.changes = s.Changes
	}
	t.refusal = t.emitRefusalOnce(s.Refusal, emit)

	wasPending := t.pending
	t.pending = s.Pending != nil && (s.Pending.API != nil || s.Pending.Broker != nil)
	if t.pending && !wasPending {
		emit(true, eventUnanswered, buildConfigValidCondition(s).message)
	}

	lastFailure := t.failure
	t.failure = firstLineOf(s.Failure)
	if t.failure != "" && t.failure != lastFailure {
		emit(true, eventFailed, t.failure)
	}

	// Without a sentinel that has had time to connect, nothing is known about the connections.
	if s.InForce == 0 || s.Failure != nil || now.Sub(s.Begun) < settling {
		return t
	}
	t.apiDown = emitReachabilityChange(t.apiDown, s.Stats.APIErr, eventAPIUnreachable, eventAPIReachable, emit)
	t.brokerDown = emitReachabilityChange(t.brokerDown, s.Stats.BrokerErr, eventBrokerUnreachable, eventBrokerReachable, emit)
	return t
}

// emitRefusalOnce emits an event about a refused generation, once for each cause.
func (t reportedEvents) emitRefusalOnce(r *Refusal, emit func(warning bool, reason, note string)) (lastCause string) {
	if r == nil {
		return ""
	}
	cause := fmt.Sprintf("%d %s %v", r.Generation, r.Reason, r.Err)
	if cause == t.refusal {
		return cause
	}
	reason := eventNotLoaded
	if r.Reason == ReasonInvalid || r.Reason == ReasonUnopenable {
		reason = eventInvalid
	}
	emit(true, reason, fmt.Sprintf("generation %d rejected: %v", r.Generation, r.Err))
	return cause
}

// emitReachabilityChange emits an event when something becomes unreachable or reachable, and returns
// whether it is unreachable.
func emitReachabilityChange(
	wasDown bool, err error, goneReason, backReason string, emit func(warning bool, reason, note string),
) (isDown bool) {
	switch {
	case err != nil && !wasDown:
		emit(true, goneReason, firstLineOf(err))
	case err == nil && wasDown:
		emit(false, backReason, "connection restored")
	}
	return err != nil
}

// firstLineOf returns the text of an error without the stack of a panic.
func firstLineOf(err error) string {
	if err == nil {
		return ""
	}
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

// truncateText truncates a text that is too long for a condition or an event.
func truncateText(text string) string {
	const most = 1000
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "…"
}
