package memory

import (
	"fmt"
	"time"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Types of operations.
const (
	opCreate    = "Create"
	opReconcile = "Reconcile"
	opDelete    = "Delete"
)

// States of an operation.
const (
	statePending    = "Pending"
	stateProcessing = "Processing"
	stateSucceeded  = "Succeeded"
	stateError      = "Error"
	stateFailed     = "Failed"
)

// steps is the number of steps of an operation. Before the first the operation is
// pending. After the last step of a creation the conditions follow.
const steps = 10

// An operation is the current or last operation of a Shoot.
type operation struct {
	kind    string
	state   string
	step    int
	took    time.Duration // per step
	updated time.Time
	due     time.Time // time of the next step, zero without a further step
	errors  []shoot.LastError
	healthy bool // the conditions are true
	ready   bool // a creation succeeded
}

// nextType returns the type of the operation that a change starts.
func (o operation) nextType() string {
	if !o.ready {
		return opCreate
	}
	return opReconcile
}

// toLastOperation returns the operation as reported in the Shoot's status.
func (o operation) toLastOperation() *shoot.Operation {
	l := &shoot.Operation{Type: o.kind, State: o.state, Progress: o.step * 100 / steps, Updated: o.updated}
	switch o.state {
	case statePending:
		l.Description = "Waiting to be picked up"
	case stateSucceeded:
		l.Description = fmt.Sprintf(
			"Shoot cluster has been successfully %s.",
			map[string]string{opCreate: "created", opReconcile: "reconciled"}[o.kind],
		)
	case stateError, stateFailed:
		l.Description = "Flow failed: " + o.errors[0].Description
	default:
		l.Description = fmt.Sprintf("Step %d of %d", o.step, steps)
	}
	return l
}

// buildConditions returns the conditions, which are all alike: a Shoot is not healthy before
// the end of its creation.
func (o operation) buildConditions() []shoot.Condition {
	if o.state == statePending && !o.ready {
		return nil
	}
	status, reason, message := "True", "Healthy", "All is well."
	if !o.healthy {
		status, reason, message = "Progressing", "NotYetHealthy", "The operation has just started."
	}
	types := [...]string{
		"APIServerAvailable",
		"ControlPlaneHealthy",
		"ObservabilityComponentsHealthy",
		"EveryNodeReady",
		"SystemComponentsHealthy",
	}
	cs := make([]shoot.Condition, len(types))
	for i, t := range types {
		cs[i] = shoot.Condition{Type: t, Status: status, Reason: reason, Message: message}
	}
	return cs
}
