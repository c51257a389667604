package operator

import (
	"time"

	"github.com/fleetloop/fleetloop/internal/sentinel"
)

// A RefusalReason is why a configuration is refused.
type RefusalReason string

// The reasons.
const (
	// ReasonInvalid means that the spec is invalid.
	ReasonInvalid RefusalReason = "InvalidSpec"
	// ReasonSecret means that a Secret is missing, or lacks a required key.
	ReasonSecret RefusalReason = "SecretMissing"
	// ReasonLoad means that the host cluster did not return the required objects.
	ReasonLoad RefusalReason = "LoadFailed"
	// ReasonUnopenable means that a connection cannot be created from the settings.
	ReasonUnopenable RefusalReason = "ConnectionSetupFailed"
)

// A Refusal is why a generation is not in force.
type Refusal struct {
	Generation int64
	Reason     RefusalReason
	Err        error

	// ResourceType is the collection of the generation; empty means unknown.
	ResourceType string
}

// PendingConnections describes the wait of a valid generation for its connections.
type PendingConnections struct {
	Generation int64
	Since      time.Time

	// API and Broker are the errors of new connections. Nil means that the connection responds, or
	// that no new one exists.
	API, Broker error
}

// InstanceState is the state of an instance. The zero value is that of an instance without any
// configuration.
type InstanceState struct {
	// Seen is the last generation that was processed, InForce the running one; 0 means none. If
	// they differ, Refusal or Pending may have the reason. If they are equal, a Secret of the spec
	// may have changed and been refused, or its connection may not respond.
	Seen, InForce int64
	Refusal       *Refusal
	Pending       *PendingConnections

	// ResourceType is the last requested collection; empty means unknown.
	ResourceType string

	// Selector selects the resources of the sentinel in force; empty means all.
	Selector string

	// Begun is when the sentinel in force was started, and Changes the number of sentinels so far.
	Begun   time.Time
	Changes int

	// Failure is why the sentinel in force does not run now. It will be restarted.
	Failure error

	// Stopped says that the instance has stopped.
	Stopped bool

	// Stats holds the stats of the sentinel in force.
	Stats sentinel.Stats

	// Live is why the sentinel makes no progress, although it should.
	Live error

	// Grouped says that the resources are divided among replicas. Members holds the known members,
	// and is empty while this replica is not a member; Group is why it owns nothing.
	Grouped bool
	Members []string
	Group   error
}

// CurrentState returns the current state of the instance.
func (i *Instance) CurrentState() InstanceState {
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

// updateState changes the state and calls OnChange.
func (i *Instance) updateState(change func(*InstanceState)) {
	i.mu.Lock()
	change(&i.state)
	i.mu.Unlock()
	i.deps.OnChange()
}
