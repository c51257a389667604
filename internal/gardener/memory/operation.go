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

// nextOperationType returns the type of the operation that a change starts.
func (o operation) nextOperationType() string {
	if !o.ready {
		return opCreate
	}
	return opReconcile
}

// lastOperation returns the operation as reported in the Shoot's status.
func (o operation) lastOperation() *shoot.Operation {
	l := &shoot.Operation{Type: o.kind, State: o.state, Progress: o.step * 100 / steps, Updated: o.updated}
	switch o.state {
	case statePending:
		l.Description = "Waiting to be picked up"
	case stateSucceeded:
		l.Description = fmt.Sprintf("Shoot cluster has been successfully %s.", map[string]string{opCreate: "created", opReconcile: "reconciled"}[o.kind])
	case stateError, stateFailed:
		l.Description = "Flow failed: " + o.errors[0].Description
	default:
		l.Description = fmt.Sprintf("Step %d of %d", o.step, steps)
	}
	return l
}

// conditions returns the conditions, which are all alike: a Shoot is not healthy before
// the end of its creation.
func (o operation) conditions() []shoot.Condition {
	if o.state == statePending && !o.ready {
		return nil
	}
	status, reason, message := "True", "Healthy", "All is well."
	if !o.healthy {
		status, reason, message = "Progressing", "NotYetHealthy", "The operation has just started."
	}
	types := [...]string{"APIServerAvailable", "ControlPlaneHealthy", "ObservabilityComponentsHealthy", "EveryNodeReady", "SystemComponentsHealthy"}
	cs := make([]shoot.Condition, len(types))
	for i, t := range types {
		cs[i] = shoot.Condition{Type: t, Status: status, Reason: reason, Message: message}
	}
	return cs
}

// startOperation begins an operation, in place of one in progress.
func (g *Garden) startOperation(it *item, kind string, now time.Time) {
	total := map[string]time.Duration{opCreate: g.o.CreateTime, opReconcile: g.o.UpdateTime, opDelete: g.o.DeleteTime}[kind]
	it.op = operation{
		kind: kind, state: statePending, took: total / (steps + 1), updated: now, errors: it.op.errors,
		healthy: it.op.healthy, ready: it.op.ready,
	}
	it.op.due = now.Add(it.op.took)
	if it.op.took > 0 {
		g.bumpVersion(it)
		g.schedule.putItem(it)
		return
	}
	g.runDueSteps(it, now)
}

// runDueSteps runs all steps that are due, and publishes a version after each step that
// takes time.
func (g *Garden) runDueSteps(it *item, now time.Time) {
	for !it.op.due.IsZero() && !it.op.due.After(now) {
		at := it.op.due
		if gone := g.runStep(it, at); gone {
			return
		}
		if it.op.took > 0 || it.op.due.IsZero() || it.op.due.After(now) {
			g.bumpVersion(it)
		}
	}
	g.schedule.putItem(it)
}

// runStep runs one step at the given time, and reports whether it removed the Shoot.
func (g *Garden) runStep(it *item, at time.Time) (gone bool) {
	o := &it.op
	o.updated, o.due = at, at.Add(o.took)
	switch {
	case o.state == stateSucceeded: // the conditions turn healthy later
		o.healthy, o.due = true, time.Time{}
	case o.state == statePending, o.state == stateError:
		o.state, it.observedGeneration = stateProcessing, it.generation
	case o.step == steps/2 && it.breaks != 0:
		g.failOperation(it, at)
	case o.step < steps:
		o.step++
	case o.kind == opDelete:
		return g.removeUnlessLingering(it)
	default:
		o.state, o.errors = stateSucceeded, nil
		if o.healthy || o.took == 0 {
			o.healthy, o.due = true, time.Time{}
		}
		o.ready = true
	}
	return false
}

// failOperation makes the operation fail.
func (g *Garden) failOperation(it *item, at time.Time) {
	o := &it.op
	o.errors = []shoot.LastError{{
		Description: fmt.Sprintf("could not create the machines of Shoot %q: injected fault", it.name),
		Codes:       []string{"ERR_INFRA_RESOURCES_DEPLETED"},
	}}
	if it.breaks < 0 {
		o.state, o.due = stateFailed, time.Time{}
		return
	}
	it.breaks--
	o.state, o.due = stateError, at.Add(g.o.RetryTime)
}

// removeUnlessLingering removes a Shoot, unless a finalizer is left.
func (g *Garden) removeUnlessLingering(it *item) (removed bool) {
	if it.lingers {
		it.op.due = time.Time{}
		return false
	}
	g.schedule.dropItem(it)
	delete(g.shoots, it.name)
	g.recordChange(it, true)
	return true
}
