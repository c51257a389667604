package intake

import (
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// applyReportsToFaults returns the faults of a node after some reports about it.
func applyReportsToFaults(faults []v1alpha1.Fault, reports []nodefault.Report) []v1alpha1.Fault {
	out := slices.Clone(faults)
	for _, r := range reports {
		if r.Healthy {
			out = slices.DeleteFunc(out, func(f v1alpha1.Fault) bool { return reportEndsFault(f, r) })
			continue
		}
		i := slices.IndexFunc(out, func(f v1alpha1.Fault) bool {
			return nodefault.KeyOf(f) == nodefault.KeyOf(r.Fault)
		})
		if i < 0 {
			out = append(out, r.Fault)
			continue
		}
		out[i] = mergeRepeatedFault(out[i], r.Fault)
	}
	return out
}

// reportEndsFault reports whether a healthy report ends a fault. A report with ObserveOnly does
// not end a fault without it.
func reportEndsFault(f v1alpha1.Fault, r nodefault.Report) bool {
	return f.Source == r.Fault.Source && f.Check == r.Fault.Check &&
		CoversEntities(r.Fault.Entity, f.Entity) && (f.ObserveOnly || !r.Fault.ObserveOnly)
}

// mergeRepeatedFault returns a fault that is reported again. It keeps the earliest DetectedAt;
// otherwise a rule with a minimum duration would never match. A report with ObserveOnly
// does not replace a fault without it, because monitors mark repeats in a burst that way.
func mergeRepeatedFault(stored, reported v1alpha1.Fault) v1alpha1.Fault {
	if reported.ObserveOnly && !stored.ObserveOnly {
		return stored
	}
	if stored.DetectedAt.Before(&reported.DetectedAt) {
		reported.DetectedAt = stored.DetectedAt
	}
	return reported
}

// maxFaults is the maximum number of faults of a node, as in the schema.
const maxFaults = 64

// removeFaultsOverMaximum removes faults that exceed the maximum of a node. known holds the existing
// faults. An actionable fault displaces the last non-actionable fault of the source with
// the most of them, so that a noisy source hides nothing. Any other new fault is removed
// itself.
func removeFaultsOverMaximum(known, faults []v1alpha1.Fault) (kept, removed []v1alpha1.Fault) {
	kept = slices.Clone(faults)
	for len(kept) > maxFaults {
		i := indexToRemove(known, kept)
		removed = append(removed, kept[i])
		kept = slices.Delete(kept, i, i+1)
	}
	return kept, removed
}

// indexToRemove returns the index of the fault to remove.
func indexToRemove(known, faults []v1alpha1.Fault) (index int) {
	noise := map[string]int{} // non-actionable faults by source
	for _, f := range faults {
		if !isActionable(f) {
			noise[f.Source]++
		}
	}
	least := len(faults) - 1 // if all are actionable, existing faults stay
	for i, f := range faults {
		switch best := faults[least]; {
		case isActionable(f):
		case findFaultByKey(known, f) == nil: // the last of the new faults
			least = i
		case isActionable(best), findFaultByKey(known, best) != nil && noise[f.Source] >= noise[best.Source]:
			least = i
		}
	}
	return least
}

// isActionable reports whether a fault may require an action regardless of the rules.
func isActionable(f v1alpha1.Fault) bool {
	return !f.ObserveOnly && (f.Fatal || f.QuarantineOverride == v1alpha1.OverrideForce || f.DrainOverride == v1alpha1.OverrideForce)
}

// A faultChange is one fault that must be written or removed.
type faultChange struct {
	fault v1alpha1.Fault
	gone  bool
}

// diffFaults returns the changes from one list of faults to another. Removals come first,
// so that there is room for new faults.
func diffFaults(from, to []v1alpha1.Fault) []faultChange {
	var out []faultChange
	for _, f := range from {
		if findFaultByKey(to, f) == nil {
			out = append(out, faultChange{fault: f, gone: true})
		}
	}
	for _, f := range to {
		if was := findFaultByKey(from, f); was == nil || !equality.Semantic.DeepEqual(*was, f) {
			out = append(out, faultChange{fault: f})
		}
	}
	return out
}

func findFaultByKey(faults []v1alpha1.Fault, like v1alpha1.Fault) *v1alpha1.Fault {
	for i := range faults {
		if nodefault.KeyOf(faults[i]) == nodefault.KeyOf(like) {
			return &faults[i]
		}
	}
	return nil
}
