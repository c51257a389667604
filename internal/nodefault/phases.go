package nodefault

import (
	"slices"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

// A Transition is one way from a phase to another.
type Transition struct {
	From, To v1alpha1.Phase
	When     string // in the words of docs/states/node-fault.md
}

// Transitions are the usual ways. A phase follows from what is seen at a look,
// whatever the one before saw, so other ways are possible too; but what is done
// to a node (see Acts) begins in these alone.
func Transitions() []Transition {
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
		{observed, quarantined, "a rule wants it, and the node was cordoned in one write with what says that it is ours"},
		{observed, pending, "a rule wants it, and the budget has no place"},
		{observed, v1alpha1.PhaseDryRun, "a rule wants it, and it is only told"},
		{pending, quarantined, "there is a place"},
		{quarantined, draining, "it is its turn to be drained"},
		{quarantined, remediating, "it needs no drain, or was drained at once"},
		{quarantined, stuck, "there is nothing to try: a person has to look"},
		{draining, remediating, "no pod is left"},
		{draining, quarantined, "no pod is left, and there is no remedy"},
		{draining, stuck, "the time is over, and pods are left"},
		{remediating, quarantined, "the reboot is proven, and the faults have to go"},
		{remediating, stuck, "all attempts have failed"},
		{remediating, gone, "the node was terminated"},
		{quarantined, recovering, "the faults are gone"},
		{draining, recovering, "the faults are gone"},
		{remediating, recovering, "the faults are gone, and nothing is under way"},
		{stuck, recovering, "the faults are gone"},
		{stuck, remediating, "another remedy is wished for"},
		{recovering, draining, "a fault is back"},
		{recovering, remediating, "a fault is back"},
		{recovering, stuck, "a fault is back, and nothing is left to try"},
		{recovering, held, "a person wants the node kept"},
		{held, draining, "a fault is back"},
		{held, remediating, "a fault is back"},
		{held, stuck, "a fault is back, and nothing is left to try"},
		{held, healthy, "nobody wants it kept any more"},
		{recovering, healthy, "it has lasted: what was ours is taken off in one write"},
		{quarantined, overridden, "a person has uncordoned the node"},
		{draining, overridden, "a person has uncordoned the node"},
		{overridden, quarantined, "a new fault came, or the annotation was taken away"},
	}
}

// Acts says whether something is done to the node in a phase beside keeping it
// cordoned, or was and did not help.
func Acts(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseDraining || p == v1alpha1.PhaseRemediating || p == v1alpha1.PhaseStuck
}

// CanPass says whether a phase can follow another.
func CanPass(from, to v1alpha1.Phase) bool {
	return from == to || !Acts(to) || slices.ContainsFunc(Transitions(), func(t Transition) bool { return t.From == from && t.To == to })
}
