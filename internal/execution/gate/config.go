package gate

import (
	"cmp"
	"errors"
	"fmt"
	"time"
)

// Config is what the gate lets in. Fields that are zero mean their default,
// unless they say otherwise.
type Config struct {
	MaxConcurrent   int            // inside at once, and as many again that only read; 10
	MaxPerNamespace int            // inside at once with targets in one namespace; zero is any number
	MaxPerRequester int            // inside at once of one requester; zero is any number
	MaxPerAction    map[string]int // inside at once of an action; those that are missing may be any number

	// MaxNodePercent is how many of all nodes may be acted on at once, those
	// that are still cordoned included; 10. One may always be.
	MaxNodePercent int

	// Cooldown is how long an action leaves a target alone after it has ended
	// there. Zero is not at all. Rollbacks do not wait for it, nor does what only
	// reads.
	Cooldown time.Duration

	// MaxFailures is after how many failures in a row, all within Window, an
	// action is no longer tried on a target until they are older than that. What
	// was cancelled in between does not count. Zero is never. Rollbacks, and what
	// only reads, are tried all the same.
	MaxFailures int
	Window      time.Duration // 1 h

	QueueTimeout time.Duration // how long one waits at most; 10 min
}

func (c Config) withDefaults() (Config, error) {
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
