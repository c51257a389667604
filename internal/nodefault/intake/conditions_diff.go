package intake

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// changedAndClearingReports returns the reports that change the known faults of a node. It adds healthy
// reports for faults of the two sources that will not be reported again.
func (s *ConditionSet) changedAndClearingReports(
	node *corev1.Node, faults []v1alpha1.Fault, reports []nodefault.Report,
) []nodefault.Report {
	var out []nodefault.Report
	reported := map[string]bool{}
	for _, r := range reports {
		reported[nodefault.KeyOf(r.Fault)] = true
		known := findFaultByKey(faults, r.Fault)
		changed := known == nil || !equalIgnoringTimeAndConditionMessage(*known, r.Fault)
		if r.Healthy {
			changed = known != nil
		}
		if changed {
			out = append(out, r)
		}
	}
	for _, f := range faults {
		if !reported[nodefault.KeyOf(f)] && s.isNoLongerCheckedOrOfOldNode(node, f) {
			out = append(out, nodefault.Report{Node: node.Name, Healthy: true, Fault: f})
		}
	}
	return out
}

// equalIgnoringTimeAndConditionMessage reports whether a fault need not be written. The messages
// of conditions contain times, ages and counts, so a different message alone is not a change.
func equalIgnoringTimeAndConditionMessage(was, f v1alpha1.Fault) bool {
	if f.Source == SourceConditions {
		was.Message = f.Message
	}
	was.DetectedAt = f.DetectedAt // the earliest time is kept
	return equality.Semantic.DeepEqual(was, f)
}

// isNoLongerCheckedOrOfOldNode reports whether a fault of the two sources is no longer checked,
// or belongs to another node with the same name.
func (s *ConditionSet) isNoLongerCheckedOrOfOldNode(node *corev1.Node, f v1alpha1.Fault) bool {
	var checked bool
	switch f.Source {
	case SourceConditions:
		_, checked = s.conditions[corev1.NodeConditionType(f.Check)]
		if !checked && s.connector {
			checked = slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
				return string(c.Type) == f.Check
			})
		}
	case SourceResources:
		checked = slices.ContainsFunc(s.resources, func(r NodeResource) bool { return string(r.Resource) == f.Check })
	default:
		return false
	}
	return !checked || f.DetectedAt.Time.Before(node.CreationTimestamp.Time)
}
