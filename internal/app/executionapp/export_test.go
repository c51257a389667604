package executionapp

import (
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/job"
)

// EventOf converts a change to a change event.
func EventOf(c execution.Change, cluster string) changeevent.ChangeEvent { return eventOf(c, cluster) }

// JobsOf is how the operator makes Jobs.
func JobsOf(c Part) job.Options { return c.operatorConfig(0).Job }

// Check refuses settings of the runner that make no Job.
func (c RunnerConfig) Check() error { return c.validateSettings() }
