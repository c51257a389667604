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

// A story holds the state that events about an instance have reported. Only changes are reported.
type story struct {
	changes             int
	refusal             string
	pending             bool
	failure             string
	apiDown, brokerDown bool
}

// goOn emits events for the changes in s, and returns the new story.
func (t story) goOn(s InstanceState, now time.Time, tell func(warning bool, reason, note string)) story {
	if s.Changes != t.changes {
		reason := eventChanged
		if t.changes == 0 {
			reason = eventLoaded
		}
		tell(false, reason, fmt.Sprintf("generation %d is active", s.InForce))
		t.changes = s.Changes
	}
	t.refusal = t.emitRefusal(s.Refusal, tell)
	if pending := s.Pending != nil && (s.Pending.API != nil || s.Pending.Broker != nil); pending != t.pending {
		if t.pending = pending; pending {
			tell(true, eventUnanswered, validCondition(s).message)
		}
	}
	if failure := firstLine(s.Failure); failure != t.failure {
		if t.failure = failure; failure != "" {
			tell(true, eventFailed, failure)
		}
	}
	if s.InForce == 0 || s.Failure != nil || now.Sub(s.Begun) < settling {
		return t
	}
	t.apiDown = emitReachability(t.apiDown, s.Stats.APIErr, eventAPIUnreachable, eventAPIReachable, tell)
	t.brokerDown = emitReachability(t.brokerDown, s.Stats.BrokerErr, eventBrokerUnreachable, eventBrokerReachable, tell)
	return t
}

// emitRefusal emits an event about a refused generation, once for each cause.
func (t story) emitRefusal(r *Refusal, tell func(warning bool, reason, note string)) string {
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
	tell(true, reason, fmt.Sprintf("generation %d rejected: %v", r.Generation, r.Err))
	return cause
}

// emitReachability emits an event when something becomes unreachable or reachable, and returns
// whether it is unreachable.
func emitReachability(down bool, err error, gone, back string, tell func(warning bool, reason, note string)) bool {
	switch {
	case err != nil && !down:
		tell(true, gone, firstLine(err))
	case err == nil && down:
		tell(false, back, "connection restored")
	}
	return err != nil
}

// firstLine returns the text of an error without the stack of a panic.
func firstLine(err error) string {
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
