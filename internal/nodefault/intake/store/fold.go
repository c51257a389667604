package store

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
)

// foldReports is what the faults of a node are after some reports about it.
func foldReports(faults []v1alpha1.Fault, reports []nodefault.Report) []v1alpha1.Fault {
	out := slices.Clone(faults)
	for _, r := range reports {
		if r.Healthy {
			out = slices.DeleteFunc(out, func(f v1alpha1.Fault) bool { return endsFault(f, r) })
			continue
		}
		i := slices.IndexFunc(out, func(f v1alpha1.Fault) bool { return nodefault.KeyOf(f) == nodefault.KeyOf(r.Fault) })
		if i < 0 {
			out = append(out, r.Fault)
			continue
		}
		out[i] = renewFault(out[i], r.Fault)
	}
	return out
}

// endsFault says whether a healthy report ends a fault. One that is only to be known
// of ends none that something is done about.
func endsFault(f v1alpha1.Fault, r nodefault.Report) bool {
	return f.Source == r.Fault.Source && f.Check == r.Fault.Check &&
		intake.Covers(r.Fault.Entity, f.Entity) && (f.ObserveOnly || !r.Fault.ObserveOnly)
}

// renewFault is a fault that is told again. It has lasted since it was first told:
// a rule that waits would else wait for ever. One that is only to be known of
// does not take the place of one that something is done about: monitors mark the
// repeats in a burst like that.
func renewFault(was, told v1alpha1.Fault) v1alpha1.Fault {
	if told.ObserveOnly && !was.ObserveOnly {
		return was
	}
	if was.DetectedAt.Before(&told.DetectedAt) {
		told.DetectedAt = was.DetectedAt
	}
	return told
}

// mostFaults is how many faults a node can have, as the schema says.
const mostFaults = 64

// fitFaults leaves out faults that a node has no place for beside was, which it has
// already. A fault that counts displaces one that does not: the last of the
// source that has the most of those, so that a chatty source hides nothing.
// Any other new one is left out itself.
func fitFaults(was, faults []v1alpha1.Fault) (kept, left []v1alpha1.Fault) {
	kept = slices.Clone(faults)
	for len(kept) > mostFaults {
		i := leastOf(was, kept)
		left = append(left, kept[i])
		kept = slices.Delete(kept, i, i+1)
	}
	return kept, left
}

// leastOf is the place of the fault that is to be left out.
func leastOf(was, faults []v1alpha1.Fault) int {
	noise := map[string]int{} // of each source
	for _, f := range faults {
		if !isActionable(f) {
			noise[f.Source]++
		}
	}
	least := len(faults) - 1 // all count: what was there before stays
	for i, f := range faults {
		switch best := faults[least]; {
		case isActionable(f):
		case findFault(was, f) == nil: // the last of the new ones
			least = i
		case isActionable(best), findFault(was, best) != nil && noise[f.Source] >= noise[best.Source]:
			least = i
		}
	}
	return least
}

// isActionable says whether something may be done about a fault whatever the rules
// say of it.
func isActionable(f v1alpha1.Fault) bool {
	return !f.ObserveOnly && (f.Fatal || f.QuarantineOverride == v1alpha1.OverrideForce || f.DrainOverride == v1alpha1.OverrideForce)
}

// A change is one fault that is to be written, or taken away.
type change struct {
	fault v1alpha1.Fault
	gone  bool
}

// diffFaults are what makes one list of faults of another. What goes goes first, so
// that there is room for what comes.
func diffFaults(from, to []v1alpha1.Fault) []change {
	var out []change
	for _, f := range from {
		if findFault(to, f) == nil {
			out = append(out, change{fault: f, gone: true})
		}
	}
	for _, f := range to {
		if was := findFault(from, f); was == nil || !equality.Semantic.DeepEqual(*was, f) {
			out = append(out, change{fault: f})
		}
	}
	return out
}

func findFault(faults []v1alpha1.Fault, like v1alpha1.Fault) *v1alpha1.Fault {
	for i := range faults {
		if nodefault.KeyOf(faults[i]) == nodefault.KeyOf(like) {
			return &faults[i]
		}
	}
	return nil
}
