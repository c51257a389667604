package clusterworkerapp

import (
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// Move has the health port take effect.
func (c *Config) Move() { c.applyHealthPort() }

// EventOf converts a change to a change event.
func EventOf(c clusterworker.Change) changeevent.ChangeEvent { return eventOf(c) }
