package execution

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// GateConfig holds the limits of a gate. Zero fields mean their defaults unless stated otherwise.
type GateConfig struct {
	MaxConcurrent   int            // inside at once, and as many again that only read; 10
	MaxPerNamespace int            // inside at once with targets in one namespace; zero is any number
	MaxPerRequester int            // inside at once of one requester, and half of it of all without one; zero is any number
	MaxPerAction    map[string]int // inside at once of an action; those that are missing may be any number

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
	Window      time.Duration // 1 h

	QueueTimeout time.Duration // how long one waits at most; 10 min
}

func (c GateConfig) defaultAndValidate() (GateConfig, error) {
	c.MaxConcurrent = cmp.Or(c.MaxConcurrent, 10)
	c.MaxNodePercent = cmp.Or(c.MaxNodePercent, 10)
	c.Window = cmp.Or(c.Window, time.Hour)
	c.QueueTimeout = cmp.Or(c.QueueTimeout, 10*time.Minute)
	var errs []error
	check := func(name string, bad bool) {
		if bad {
			errs = append(errs, fmt.Errorf("%s is out of range", name))
		}
	}
	check("MaxConcurrent", c.MaxConcurrent < 0)
	check("MaxPerNamespace", c.MaxPerNamespace < 0)
	check("MaxPerRequester", c.MaxPerRequester < 0)
	check("MaxNodePercent", c.MaxNodePercent < 0 || c.MaxNodePercent > 100)
	check("Cooldown", c.Cooldown < 0)
	check("MaxFailures", c.MaxFailures < 0)
	check("Window", c.Window < 0)
	check("QueueTimeout", c.QueueTimeout < 0)
	for action, most := range c.MaxPerAction {
		check(fmt.Sprintf("MaxPerAction[%q]", action), most < 1)
	}
	return c, errors.Join(errs...)
}
