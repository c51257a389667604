package nodefault

import (
	"slices"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A Transition is a change from one phase to another.
type Transition struct {
	From, To v1alpha1.Phase
	When     string // the wording of docs/states/node-fault.md
}

// UsualPhaseTransitions returns the usual transitions. A phase follows from the observed state,
// regardless of the phase before, so other transitions are possible, too. But actions on
// a node (see IsRepairOrStuck) begin only with these.
func UsualPhaseTransitions() []Transition {
	const (
		observed    = v1alpha1.PhaseObserved
		pending     = v1alpha1.PhasePending
		quarantined = v1alpha1.PhaseQuarantined
		draining    = v1alpha1.PhaseDraining
		remediating = v1alpha1.PhaseRemediating
		recovering  = v1alpha1.PhaseRecovering
		held        = v1alpha1.PhaseHeld
		overridden  = v1alpha1.PhaseOverridden
		stuck       = v1alpha1.PhaseStuck
		healthy     = v1alpha1.PhaseHealthy
		gone        = v1alpha1.PhaseGone
	)
	return []Transition{
		{observed, quarantined, "the node was cordoned"},
		{observed, pending, "the budget is exhausted"},
		{observed, v1alpha1.PhaseDryRun, "the matching rules are in dry run"},
		{pending, quarantined, "the budget allows the cordon"},
		{quarantined, draining, "a drain slot is free"},
		{quarantined, remediating, "no drain is needed, or no pods must be evicted"},
		{quarantined, stuck, "no remedy is configured, or it is support"},
		{draining, remediating, "all pods have left the node"},
		{draining, quarantined, "all pods have left the node, and there is no remedy"},
		{draining, stuck, "the deadline has passed, and pods are left"},
		{remediating, quarantined, "the reboot is verified, and the faults persist for now"},
		{remediating, stuck, "all attempts failed"},
		{remediating, gone, "the node was terminated"},
		{quarantined, recovering, "no fault is left"},
		{draining, recovering, "no fault is left"},
		{remediating, recovering, "no fault is left, and no remedy is in progress"},
		{stuck, recovering, "no fault is left"},
		{stuck, remediating, "the rules require another remedy"},
		{recovering, draining, "a fault has returned"},
		{recovering, remediating, "a fault has returned"},
		{recovering, stuck, "a fault has returned, and no remedy is left"},
		{recovering, held, "an annotation blocks the release"},
		{held, draining, "a fault has returned"},
		{held, remediating, "a fault has returned"},
		{held, stuck, "a fault has returned, and no remedy is left"},
		{held, healthy, "the annotation was removed"},
		{recovering, healthy, "the node was healthy for long enough, and was released"},
		{quarantined, overridden, "a person uncordoned the node"},
		{draining, overridden, "a person uncordoned the node"},
		{overridden, quarantined, "a new fault was reported, or the annotation was removed"},
	}
}

// IsRepairOrStuck reports whether a phase acts on the node beyond the cordon, or follows failed
// actions.
func IsRepairOrStuck(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseDraining || p == v1alpha1.PhaseRemediating || p == v1alpha1.PhaseStuck
}

// CanTransition reports whether a phase can follow another.
func CanTransition(from, to v1alpha1.Phase) bool {
	if from == to || !IsRepairOrStuck(to) {
		return true
	}
	return slices.ContainsFunc(UsualPhaseTransitions(), func(t Transition) bool {
		return t.From == from && t.To == to
	})
}
