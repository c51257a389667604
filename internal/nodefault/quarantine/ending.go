package quarantine

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// A releasedNode is a node without the changes of the pipeline.
type releasedNode struct {
	node       *corev1.Node
	reason     string
	uncordoned bool
}

// buildReleasedNode returns a copy of the node without the changes of the pipeline, and with a
// release record.
func (n *nodeState) buildReleasedNode(reason string, recordAsOrphan bool) releasedNode {
	node := n.Node.DeepCopy()
	uncordoned := n.mark.Cordon && n.isCordoned() && n.cordonOwner != others
	if uncordoned {
		node.Spec.Unschedulable = false
	}
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
		return hasTaint(n.mark.Taints, t)
	})
	delete(node.Annotations, v1alpha1.AnnotationOwned)
	delete(node.Labels, v1alpha1.LabelPhase)
	setJSONAnnotation(node, v1alpha1.AnnotationReleased, releaseRecord{
		UID:     n.Node.UID,
		Session: n.mark.Session,
		At:      toMicroTime(n.Now),
		Since:   n.mark.AppliedAt,
		Cordon:  uncordoned,
		Reason:  nodefault.TruncateText(reason, maxReleaseReason),
		Orphan:  recordAsOrphan,
	})
	return releasedNode{node: node, reason: reason, uncordoned: uncordoned}
}

// maxReleaseReason limits the reason in a release record, in bytes.
const maxReleaseReason = 256

// releaseStep returns the step that writes a released node and ends the session.
func (n *nodeState) releaseStep(released releasedNode, situation Situation, message string) Step {
	settle := func(status *v1alpha1.NodeFaultStatus) {
		if released.uncordoned {
			recordActionOnce(status, changeevent.ActionUncordon, released.reason, n.Now)
		}
		endSession(status)
	}
	return Step{Node: released.node, Why: situation, After: AtOnce, Message: message, Settle: settle}
}

// planReleaseIfOptedOutOrControlPlane stops at nodes that are opted out or excluded. It removes
// existing changes of the pipeline once.
func (q *Quarantine) planReleaseIfOptedOutOrControlPlane(n *nodeState) (step Step, applies bool) {
	reason := ""
	switch {
	case n.Node.Labels[v1alpha1.LabelOptOut] == v1alpha1.OptedOut:
		reason = reasonOptedOut
	case !q.cfg.ControlPlane && isControlPlane(n.Node):
		reason = reasonExcluded
	default:
		return Step{}, false
	}
	switch {
	case n.mark != nil && q.cfg.DryRun:
		return Step{Why: OptedOut, Message: reason + "; dry run keeps the changes of the controller"}, true
	case n.mark != nil:
		return n.releaseStep(n.buildReleasedNode(reason, false), OptedOut, reason), true
	}
	settle := func(status *v1alpha1.NodeFaultStatus) {
		if isSessionOpenWithoutNodeChanges(status) {
			endSessionAndRecordDryRunUncordon(status, reason, n.Now)
		}
	}
	return Step{Why: OptedOut, Message: reason, Settle: settle}, true
}

func isControlPlane(node *corev1.Node) bool {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, hasRole := node.Labels[label]; hasRole {
			return true
		}
	}
	return false
}

// maxFaults is the maximum number of faults of a node.
const maxFaults = 64

// planOverrideOrUpdateMark ends the session if a person has undone it: the node was
// uncordoned, or it had only taints and they were removed. It removes the remaining changes, too.
func (q *Quarantine) planOverrideOrUpdateMark(n *nodeState) (planned Step, applies bool) {
	if n.mark == nil {
		return Step{}, false
	}
	reason := n.reasonOfManualUndo()
	if reason == "" {
		n.updateMarkFromExternalChanges()
		return Step{}, false
	}
	override := n.newOverrideOfCurrentFaults()
	step := Step{
		Why:     Overridden,
		Message: reason + ": the quarantine ends, and does not restart for the same faults",
		Settle: func(status *v1alpha1.NodeFaultStatus) {
			recordActionOnce(status, changeevent.ActionOverrideDetected, reason, n.Now)
			status.Owned, status.HealthySince, status.Overridden = nil, nil, override.toStatus()
		},
	}
	if !q.cfg.DryRun {
		released := n.buildReleasedNode(reason, false)
		delete(released.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
		setJSONAnnotation(released.node, v1alpha1.AnnotationOverridden, override.coveringAllFaultsIfTooLarge())
		step.Node, step.After = released.node, AtOnce
	}
	return step, true
}

// reasonOfManualUndo returns how a person has undone the quarantine of a node, or "".
func (n *nodeState) reasonOfManualUndo() string {
	wasCordoned := n.mark.Cordon || n.mark.Foreign
	if wasCordoned {
		if !n.isCordoned() {
			return reasonUncordoned
		}
		return ""
	}
	hasOwnTaint := slices.ContainsFunc(n.mark.Taints, func(t corev1.Taint) bool {
		return hasTaint(n.Node.Spec.Taints, t)
	})
	if len(n.mark.Taints) > 0 && !hasOwnTaint {
		return reasonUntainted
	}
	return ""
}

// newOverrideOfCurrentFaults returns an override of the faults that a person knew of. Among them is
// the fault that opened the session, even if it is over by now.
func (n *nodeState) newOverrideOfCurrentFaults() overrideRecord {
	opening := nodefault.KeyOf(n.mark.Fault.toFault())
	override := overrideRecord{
		UID:     n.Node.UID,
		Session: n.mark.Session,
		At:      toMicroTime(n.Now),
		Since:   n.mark.AppliedAt,
		Faults:  []string{opening},
	}
	for _, f := range n.Faults[:min(len(n.Faults), maxFaults)] {
		if key := nodefault.KeyOf(f); !slices.Contains(override.Faults, key) {
			override.Faults = append(override.Faults, key)
		}
	}
	return override
}

// updateMarkFromExternalChanges updates the mark with the changes of others. A taint that was
// removed or changed no longer belongs to the pipeline and is not restored. A cordon that others
// have set again belongs to them.
func (n *nodeState) updateMarkFromExternalChanges() {
	mark := *n.mark
	mark.Taints = nil
	for _, taint := range n.mark.Taints {
		if hasTaint(n.Node.Spec.Taints, taint) {
			mark.Taints = append(mark.Taints, taint)
			continue
		}
		mark.Undone = append(slices.Clone(mark.Undone), taintKeyAndEffect(taint))
		n.changed = true
	}
	if mark.Cordon && n.cordonOwner == others {
		mark.Cordon, mark.Foreign = false, true
		n.changed = true
	}
	n.mark = &mark
}

// planWaitOrEndOverride leaves a node alone that a person has overridden. This ends with a new
// fault, the removal of the annotation, the override TTL, or when the node is healthy.
func (q *Quarantine) planWaitOrEndOverride(n *nodeState) (step Step, applies bool) {
	switch {
	case n.mark != nil:
		return Step{}, false
	case n.overrideUnreadable:
		settle := func(status *v1alpha1.NodeFaultStatus) {
			if isSessionOpenWithoutNodeChanges(status) {
				endSession(status)
			}
		}
		message := "a person has set the annotation fleetloop.io/node-fault-overridden"
		return Step{Why: Overridden, Message: message, Settle: settle}, true
	case n.override == nil && q.cfg.DryRun && n.Status.Overridden != nil:
		return Step{Why: Overridden, Message: "a person has ended the quarantine"}, true
	case n.override == nil:
		return Step{}, false
	}
	endReason, timeLeft := q.overrideEndReason(n)
	if endReason == "" || q.cfg.DryRun {
		return Step{
			Why:     Overridden,
			After:   timeLeft,
			Message: "a person has ended the quarantine: it restarts with a new fault, or after " + q.cfg.OverrideTTL.String(),
			Settle:  n.statusUpdateOfHealthySince(),
		}, true
	}
	node := n.Node.DeepCopy()
	delete(node.Annotations, v1alpha1.AnnotationOverridden)
	return Step{Node: node, Why: Released, After: AtOnce, Message: endReason, Settle: endSession}, true
}

// overrideEndReason returns why an override has ended, or otherwise how long it still lasts.
func (q *Quarantine) overrideEndReason(n *nodeState) (reason string, timeLeft time.Duration) {
	if hasSessionEnded(n.Status, n.override.Session) && n.Status.Overridden == nil {
		return "the override has ended before", 0
	}
	left := n.override.At.Add(q.cfg.OverrideTTL).Sub(n.Now)
	if left <= 0 {
		return fmt.Sprintf("the override is older than %s", q.cfg.OverrideTTL), 0
	}
	if n.requiresActionNotDryRun() {
		for _, f := range n.Verdict.Matched {
			key := nodefault.KeyOf(f)
			known := isSessionOverridden(n.Status, n.override.Session) &&
				slices.Contains(n.Status.Overridden.Faults, key)
			if !known && !n.override.coversFault(key, f.DetectedAt.Time) {
				return "new fault after the override: " + key, 0
			}
		}
		return "", left
	}
	if healthy := q.healthyTimeLeft(n); healthy > 0 || n.Verdict.Unsure {
		return "", min(left, max(healthy, time.Second))
	}
	return reasonHealthy, 0
}

// requiresActionNotDryRun reports whether the rules require actions that are not in dry run.
func (n *nodeState) requiresActionNotDryRun() bool {
	return nodefault.RequiresAction(n.Verdict.DesiredActions) && !n.Verdict.DesiredActions.DryRun
}

// healthyTimeLeft returns how long it takes until a node counts as healthy.
func (q *Quarantine) healthyTimeLeft(n *nodeState) time.Duration {
	since := n.Now
	if h := n.Status.HealthySince; h != nil && h.Time.Before(n.Now) { // ignored if the clock was set back
		since = h.Time
	}
	return max(0, since.Add(q.cfg.HealthyFor).Sub(n.Now))
}

// statusUpdateOfHealthySince returns a function that records since when no relevant fault is left.
func (n *nodeState) statusUpdateOfHealthySince() func(*v1alpha1.NodeFaultStatus) {
	healthy := !n.requiresActionNotDryRun() && !n.Verdict.Unsure
	return func(status *v1alpha1.NodeFaultStatus) { setOrClearHealthySince(status, healthy, n.Now) }
}

func setOrClearHealthySince(status *v1alpha1.NodeFaultStatus, healthy bool, now time.Time) {
	switch {
	case !healthy:
		status.HealthySince = nil
	case status.HealthySince == nil, status.HealthySince.After(now): // the clock was set back
		since := metav1.NewTime(now)
		status.HealthySince = &since
	}
}

// phaseLabel returns the value of the label for a phase, if the phase has one.
func phaseLabel(p v1alpha1.Phase) (label string, hasLabel bool) {
	switch p {
	case v1alpha1.PhaseQuarantined, v1alpha1.PhaseDraining, v1alpha1.PhaseRemediating,
		v1alpha1.PhaseRecovering, v1alpha1.PhaseHeld, v1alpha1.PhaseStuck:
		return strings.ToLower(string(p)), true
	case v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseOverridden,
		v1alpha1.PhaseHealthy, v1alpha1.PhaseGone:
	}
	return "", false
}
