package executionapp

import (
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// EventOf is a change as sinks are told of it.
func EventOf(c execution.Change, cluster string) changeevent.ChangeEvent { return eventOf(c, cluster) }
