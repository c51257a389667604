package intake

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A nodeState is what a NodeFault holds of the reports about a node.
type nodeState struct {
	faults []v1alpha1.Fault
	ended  []v1alpha1.EndedFault
}

// applyReports returns the state of a node after some reports about it, and the error of each report.
func applyReports(from nodeState, reports []nodefault.Report, now time.Time) (to nodeState, errs []error) {
	to = nodeState{faults: slices.Clone(from.faults), ended: slices.Clone(from.ended)}
	errs = make([]error, len(reports))
	for i, r := range reports {
		if r.Healthy {
			errs[i] = to.endFaults(r, now)
		} else {
			errs[i] = to.addFault(r, now)
		}
	}
	return to, errs
}

// addFault adds or replaces a fault, unless a later report about it is stored.
func (s *nodeState) addFault(r nodefault.Report, now time.Time) error {
	if end := findEndByKey(s.ended, r.Fault); end != nil {
		if err := checkNotOutdated(r, &end.GeneratedAt, now); err != nil {
			return err
		}
	}
	known := findFaultByKey(s.faults, r.Fault)
	if known == nil {
		s.faults = append(s.faults, r.Fault)
		return nil
	}
	if err := checkNotOutdated(r, known.GeneratedAt, now); err != nil {
		return err
	}
	*known = replaceFaultKeepingDetectedAt(*known, r.Fault)
	return nil
}

// endFaults removes the faults that a healthy report ends, except those with a later report. It returns an error if
// there are any of these, although others may have ended.
func (s *nodeState) endFaults(r nodefault.Report, now time.Time) (outdated error) {
	s.faults = slices.DeleteFunc(s.faults, func(f v1alpha1.Fault) bool {
		if !reportEndsFault(f, r) {
			return false
		}
		if err := checkNotOutdated(r, f.GeneratedAt, now); err != nil {
			outdated = err
			return false
		}
		if r.Fault.GeneratedAt != nil {
			s.recordEnd(f, *r.Fault.GeneratedAt)
		}
		return true
	})
	return outdated
}

// recordEnd records the end of a fault. If there are too many ends, it drops the oldest.
func (s *nodeState) recordEnd(f v1alpha1.Fault, at metav1.MicroTime) {
	s.ended = slices.DeleteFunc(s.ended, func(e v1alpha1.EndedFault) bool { return isEndOf(e, f) })
	s.ended = append(s.ended, v1alpha1.EndedFault{Source: f.Source, Check: f.Check, Entity: f.Entity, GeneratedAt: at})
	for len(s.ended) > maxFaults {
		oldest := slices.MinFunc(s.ended, func(a, b v1alpha1.EndedFault) int { return a.GeneratedAt.Compare(b.GeneratedAt.Time) })
		s.ended = slices.DeleteFunc(s.ended, func(e v1alpha1.EndedFault) bool { return isEndOf(e, faultOfEnd(oldest)) })
	}
}

// maxReportDelay is the age from which a report is not rejected as outdated. It is more likely that the clock of its
// node is wrong, for example before a node has synchronized it after a reboot, than that the report was delayed so long.
const maxReportDelay = 10 * time.Minute

// checkNotOutdated returns ErrOutdated if a report was generated before last, the time of the last report about the
// same fault. Nothing is known if one of the two has no time. A last time in the future orders nothing: either clock can
// be wrong.
func checkNotOutdated(r nodefault.Report, last *metav1.MicroTime, now time.Time) error {
	at := r.Fault.GeneratedAt
	if at == nil || last == nil || !at.Before(last) || last.After(now) || now.Sub(at.Time) > maxReportDelay {
		return nil
	}
	return fmt.Errorf("%w: it was generated at %s, but the last report about this fault at %s", ErrOutdated,
		at.UTC().Format(time.RFC3339Nano), last.UTC().Format(time.RFC3339Nano))
}

// faultOfEnd returns a fault with the key of an end.
func faultOfEnd(e v1alpha1.EndedFault) v1alpha1.Fault {
	return v1alpha1.Fault{Source: e.Source, Check: e.Check, Entity: e.Entity}
}

func isEndOf(e v1alpha1.EndedFault, f v1alpha1.Fault) bool {
	return nodefault.KeyOf(faultOfEnd(e)) == nodefault.KeyOf(f)
}

// reportEndsFault reports whether a healthy report ends a fault. A report with ObserveOnly does
// not end a fault without it.
func reportEndsFault(f v1alpha1.Fault, r nodefault.Report) bool {
	return f.Source == r.Fault.Source && f.Check == r.Fault.Check &&
		CoversEntities(r.Fault.Entity, f.Entity) && (f.ObserveOnly || !r.Fault.ObserveOnly)
}

// replaceFaultKeepingDetectedAt returns a fault that is reported again. It keeps the earliest DetectedAt;
// otherwise a rule with a minimum duration would never match. A report with ObserveOnly
// does not replace a fault without it, because monitors mark repeats in a burst that way.
func replaceFaultKeepingDetectedAt(stored, reported v1alpha1.Fault) v1alpha1.Fault {
	if reported.ObserveOnly && !stored.ObserveOnly {
		return stored
	}
	if stored.DetectedAt.Before(&reported.DetectedAt) {
		reported.DetectedAt = stored.DetectedAt
	}
	if isRecent := generatedWithin(stored, reported, repeatPrecision); isRecent {
		unchanged := reported
		unchanged.GeneratedAt = stored.GeneratedAt
		if equality.Semantic.DeepEqual(stored, unchanged) {
			return stored
		}
	}
	return reported
}

// repeatPrecision limits how often a fault is written only because it was reported again.
const repeatPrecision = 10 * time.Second

// generatedWithin reports whether a fault was reported again at most some time after the stored report.
func generatedWithin(stored, reported v1alpha1.Fault, limit time.Duration) bool {
	return stored.GeneratedAt != nil && reported.GeneratedAt != nil && reported.GeneratedAt.Sub(stored.GeneratedAt.Time) < limit
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
		i := indexOfLeastImportantFault(known, kept)
		removed = append(removed, kept[i])
		kept = slices.Delete(kept, i, i+1)
	}
	return kept, removed
}

// indexOfLeastImportantFault returns the index of the fault to remove.
func indexOfLeastImportantFault(known, faults []v1alpha1.Fault) (index int) {
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

// A faultChange is what must be stored about one fault.
type faultChange struct {
	// id has the source, the check and the entity of the fault.
	id v1alpha1.Fault
	// fault is nil if the fault is removed.
	fault *v1alpha1.Fault
	// end is the last end of the fault, or nil.
	end *v1alpha1.EndedFault
}

// withoutTimes returns the change for a CRD that does not have the times of reports.
func (c faultChange) withoutTimes() faultChange {
	c.end = nil
	if c.fault != nil {
		c.fault = c.fault.DeepCopy()
		c.fault.GeneratedAt = nil
	}
	return c
}

// diffStates returns the changes from one state to another. Removals come first, so that there is room for new faults,
// and among them the ends that are dropped, so that there is room for new ends.
func diffStates(from, to nodeState) []faultChange {
	known := slices.Concat(from.faults, to.faults)
	for _, e := range from.ended {
		known = append(known, faultOfEnd(e))
	}
	var dropped, removed, written []faultChange
	seen := map[string]bool{}
	for _, id := range known {
		was, fault := findFaultByKey(from.faults, id), findFaultByKey(to.faults, id)
		hadEnd, end := findEndByKey(from.ended, id), findEndByKey(to.ended, id)
		isSame := equality.Semantic.DeepEqual(was, fault) && equality.Semantic.DeepEqual(hadEnd, end)
		if isSame || seen[nodefault.KeyOf(id)] {
			continue
		}
		seen[nodefault.KeyOf(id)] = true
		c := faultChange{id: id, fault: fault, end: end}
		isNew := was == nil && fault != nil
		switch {
		case hadEnd != nil && end == nil && !isNew:
			dropped = append(dropped, c)
		case fault == nil:
			removed = append(removed, c)
		default:
			written = append(written, c)
		}
	}
	return slices.Concat(dropped, removed, written)
}

func findEndByKey(ended []v1alpha1.EndedFault, like v1alpha1.Fault) *v1alpha1.EndedFault {
	for i := range ended {
		if isEndOf(ended[i], like) {
			return &ended[i]
		}
	}
	return nil
}

func findFaultByKey(faults []v1alpha1.Fault, like v1alpha1.Fault) *v1alpha1.Fault {
	for i := range faults {
		if nodefault.KeyOf(faults[i]) == nodefault.KeyOf(like) {
			return &faults[i]
		}
	}
	return nil
}
