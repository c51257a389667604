package instance

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A Reason is why a configuration is not taken.
type Reason string

// The reasons.
const (
	// ReasonInvalid is a spec that makes no sense.
	ReasonInvalid Reason = "InvalidSpec"
	// ReasonSecret is a Secret that is missing, or lacks what is needed.
	ReasonSecret Reason = "SecretMissing"
	// ReasonLoad is a host cluster that does not hand over what is needed.
	ReasonLoad Reason = "LoadFailed"
	// ReasonUnopenable is a connection that can not be made of the settings.
	ReasonUnopenable Reason = "ConnectionSetupFailed"
)

// A Refusal is why a generation is not in force.
type Refusal struct {
	Generation int64
	Reason     Reason
	Err        error

	// ResourceType is the collection that the generation asks for; empty is
	// unknown.
	ResourceType string
}

// Pending is what a generation waits for that could be in force.
type Pending struct {
	Generation int64
	Since      time.Time

	// API and Broker are why the new connection does not answer; nil where it
	// does, or where there is no new one.
	API, Broker error
}

// State is how an instance is doing. The zero value is one that was told
// nothing yet.
type State struct {
	// Seen is the generation that was looked at last, InForce the one that
	// runs; 0 is none. If they differ, Refusal or Pending may say why; if they are the
	// same, a Secret of the spec may have changed and be refused, or not answer.
	Seen, InForce int64
	Refusal       *Refusal
	Pending       *Pending

	// ResourceType is the collection that was asked for last; empty is unknown.
	ResourceType string

	// Selector is what selects the resources of the sentinel in force; empty
	// where all of them are watched.
	Selector string

	// Begun is when the sentinel in force was started, and Changes how many
	// there have been.
	Begun   time.Time
	Changes int

	// Failure is why the sentinel in force does not run just now. It will be
	// started again.
	Failure error

	// Stopped says that the instance has ended.
	Stopped bool

	// Stats are those of the sentinel in force.
	Stats sentinel.Stats

	// Live is why it makes no progress, though it should.
	Live error

	// Grouped says that the resources are divided among replicas. Members are
	// those that are known, and empty while this replica is not one of them;
	// Group is why it owns nothing.
	Grouped bool
	Members []string
	Group   error
}

// State is how the instance is doing just now.
func (i *Instance) State() State {
	i.mu.Lock()
	s, current, group := i.state, i.current, i.group
	s.Seen, s.ResourceType = i.seen, i.watches
	i.mu.Unlock()
	if current != nil {
		s.Stats, s.Live = current.sentinel.Stats(), current.sentinel.Live()
	}
	if group != nil {
		s.Grouped, s.Members, s.Group = true, group.Members(), group.Ready()
	}
	return s
}

// setState changes the state and tells of it.
func (i *Instance) setState(change func(*State)) {
	i.mu.Lock()
	change(&i.state)
	i.mu.Unlock()
	i.deps.OnChange()
}
