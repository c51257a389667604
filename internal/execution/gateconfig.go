package execution

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// GateConfig holds the limits of a gate. Zero fields mean their defaults unless stated otherwise.
type GateConfig struct {
	// MaxConcurrent is the number of executions that may be inside at a time; default 10. As many
	// read-only executions may be inside in addition.
	MaxConcurrent int

	// MaxPerNamespace is the number of executions that may be inside at a time with targets in the
	// same namespace. Zero means no limit.
	MaxPerNamespace int

	// MaxPerRequester is the number of executions that may be inside at a time for one requester.
	// All executions without a requester together have half of it. Zero means no limit.
	MaxPerRequester int

	// MaxPerAction is the number of executions that may be inside at a time, by action. An action
	// that is not in the map has no limit.
	MaxPerAction map[string]int

	// MaxNodePercent limits the percentage of nodes that are acted on or still cordoned at a time;
	// default 10. One node is always allowed.
	MaxNodePercent int

	// Cooldown is the pause between the end of an action on a target and its next start there. Zero
	// means no pause. Rollbacks and read-only actions do not wait for it.
	Cooldown time.Duration

	// MaxFailures is the number of consecutive failures within Window that block an action on a
	// target. The block ends when the failures are older than Window. Cancelled executions in
	// between do not count. Zero means no limit. Rollbacks and read-only actions are never blocked.
	MaxFailures int
	Window      time.Duration // default 1 h

	// QueueTimeout is how long an execution may wait for a place; default 10 min.
	QueueTimeout time.Duration
}

func (c GateConfig) defaultAndValidate() (GateConfig, error) {
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 10)
	c.MaxNodePercent = cmp.Or(c.MaxNodePercent, 10)
	c.Window = cmp.Or(c.Window, time.Hour)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 10*time.Minute)
	fields := []struct {
		name       string
		outOfRange bool
	}{
		{"MaxConcurrent", c.MaxConcurrent < 0},
		{"MaxPerNamespace", c.MaxPerNamespace < 0},
		{"MaxPerRequester", c.MaxPerRequester < 0},
		{"MaxNodePercent", c.MaxNodePercent < 0 || c.MaxNodePercent > 100},
		{"Cooldown", c.Cooldown < 0},
		{"MaxFailures", c.MaxFailures < 0},
		{"Window", c.Window < 0},
		{"QueueTimeout", c.QueueTimeout < 0},
	}
	var errs []error
	for _, field := range fields {
		if field.outOfRange {
			errs = append(errs, fmt.Errorf("%s is out of range", field.name))
		}
	}
	for action, limit := range c.MaxPerAction {
		if limit < 1 {
			errs = append(errs, fmt.Errorf("MaxPerAction[%q] is out of range", action))
		}
	}
	return c, errors.Join(errs...)
}
