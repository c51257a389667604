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
	session    string
	reason     string
	uncordoned bool
}

// buildReleasedNode returns a copy of the node without the changes of the pipeline, and with a release record.
func (n *nodeState) buildReleasedNode(reason string, sessionUnknown bool) releasedNode {
	t := releasedNode{node: n.Node.DeepCopy(), session: n.mark.Session, reason: reason}
	t.uncordoned = n.mark.Cordon && n.isCordoned() && n.holds != others
	if t.uncordoned {
		t.node.Spec.Unschedulable = false
	}
	t.node.Spec.Taints = slices.DeleteFunc(t.node.Spec.Taints, func(o corev1.Taint) bool { return hasTaint(n.mark.Taints, o) })
	delete(t.node.Annotations, v1alpha1.AnnotationOwned)
	delete(t.node.Labels, v1alpha1.LabelPhase)
	setJSONAnnotation(t.node, v1alpha1.AnnotationReleased, releaseRecord{
		UID: n.Node.UID, Session: t.session, At: toMicroTime(n.Now), Since: n.mark.AppliedAt, Cordon: t.uncordoned, Reason: nodefault.TruncateText(reason, 256), Orphan: sessionUnknown,
	})
	return t
}

// releaseStep returns the step that writes a released node and ends the session.
func (n *nodeState) releaseStep(released releasedNode, situation Situation, message string) Step {
	return Step{Node: released.node, Why: situation, After: AtOnce, Message: message, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if released.uncordoned {
			recordActionOnce(st, changeevent.ActionUncordon, released.reason, n.Now)
		}
		endSession(st)
	}}
}

// planReleaseIfOptedOutOrControlPlane stops at nodes that are opted out or excluded. It removes existing
// changes of the pipeline once.
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
	return Step{Why: OptedOut, Message: reason, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if isSessionOpenWithoutNodeChanges(st) {
			endSessionAndRecordDryRunUncordon(st, reason, n.Now)
		}
	}}, true
}

func isControlPlane(node *corev1.Node) bool {
	for _, label := range []string{"node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"} {
		if _, is := node.Labels[label]; is {
			return true
		}
	}
	return false
}

// maxFaults is the maximum number of faults of a node.
const maxFaults = 64

// planOverrideIfManuallyUndone ends the session if a person has undone it: the node was uncordoned, or it
// had only taints and they were removed. It removes the remaining changes, too.
func (q *Quarantine) planOverrideIfManuallyUndone(n *nodeState) (planned Step, applies bool) {
	if n.mark == nil {
		return Step{}, false
	}
	reason := ""
	switch {
	case !n.isCordoned() && (n.mark.Cordon || n.mark.Foreign):
		reason = reasonUncordoned
	case !n.mark.Cordon && !n.mark.Foreign && len(n.mark.Taints) > 0 && !slices.ContainsFunc(n.mark.Taints, func(t corev1.Taint) bool { return hasTaint(n.Node.Spec.Taints, t) }):
		reason = reasonUntainted
	default:
		n.updateMarkFromExternalChanges()
		return Step{}, false
	}
	// The person knew of the fault that opened the session, even if it is over by now.
	o := overrideRecord{UID: n.Node.UID, Session: n.mark.Session, At: toMicroTime(n.Now), Since: n.mark.AppliedAt, Faults: []string{nodefault.KeyOf(n.mark.Fault.toFault())}}
	for _, f := range n.Faults[:min(len(n.Faults), maxFaults)] {
		if key := nodefault.KeyOf(f); !slices.Contains(o.Faults, key) {
			o.Faults = append(o.Faults, key)
		}
	}
	step := Step{Why: Overridden, Message: reason + ": the quarantine ends, and does not restart for the same faults", Settle: func(st *v1alpha1.NodeFaultStatus) {
		recordActionOnce(st, changeevent.ActionOverrideDetected, reason, n.Now)
		st.Owned, st.HealthySince, st.Overridden = nil, nil, o.toStatus()
	}}
	if !q.cfg.DryRun {
		t := n.buildReleasedNode(reason, false)
		delete(t.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
		setJSONAnnotation(t.node, v1alpha1.AnnotationOverridden, o.withoutFaultsIfTooLarge())
		step.Node, step.After = t.node, AtOnce
	}
	return step, true
}

// updateMarkFromExternalChanges updates the mark with the changes of others. A taint that was removed or
// changed no longer belongs to the pipeline and is not restored. A cordon that others
// have set again belongs to them.
func (n *nodeState) updateMarkFromExternalChanges() {
	m := *n.mark
	m.Taints = nil
	for _, t := range n.mark.Taints {
		if hasTaint(n.Node.Spec.Taints, t) {
			m.Taints = append(m.Taints, t)
			continue
		}
		m.Undone = append(slices.Clone(m.Undone), taintKeyAndEffect(t))
		n.changed = true
	}
	if m.Cordon && n.holds == others {
		m.Cordon, m.Foreign = false, true
		n.changed = true
	}
	n.mark = &m
}

// planWaitOrEndOverride leaves a node alone that a person has overridden. This ends with a new
// fault, the removal of the annotation, the override TTL, or when the node is healthy.
func (q *Quarantine) planWaitOrEndOverride(n *nodeState) (step Step, applies bool) {
	st := n.Status
	switch {
	case n.mark != nil:
		return Step{}, false
	case n.stop:
		return Step{Why: Overridden, Message: "a person has set the annotation fleetloop.io/node-fault-overridden", Settle: func(st *v1alpha1.NodeFaultStatus) {
			if isSessionOpenWithoutNodeChanges(st) {
				endSession(st)
			}
		}}, true
	case n.over == nil:
		if q.cfg.DryRun && st.Overridden != nil {
			return Step{Why: Overridden, Message: "a person has ended the quarantine"}, true
		}
		return Step{}, false
	}
	forgotten, after := q.overrideEndReason(n)
	if forgotten == "" || q.cfg.DryRun {
		return Step{Why: Overridden, After: after, Message: "a person has ended the quarantine: it restarts with a new fault, or after " + q.cfg.OverrideTTL.String(), Settle: n.statusUpdateOfHealthySince()}, true
	}
	node := n.Node.DeepCopy()
	delete(node.Annotations, v1alpha1.AnnotationOverridden)
	return Step{Node: node, Why: Released, After: AtOnce, Message: forgotten, Settle: endSession}, true
}

// overrideEndReason returns why an override has ended, or otherwise how long it still lasts.
func (q *Quarantine) overrideEndReason(n *nodeState) (reason string, timeLeft time.Duration) {
	if hasSessionEnded(n.Status, n.over.Session) && n.Status.Overridden == nil {
		return "the override has ended before", 0
	}
	left := n.over.At.Add(q.cfg.OverrideTTL).Sub(n.Now)
	if left <= 0 {
		return fmt.Sprintf("the override is older than %s", q.cfg.OverrideTTL), 0
	}
	if n.requiresActionNotDryRun() {
		for _, f := range n.Verdict.Matched {
			key := nodefault.KeyOf(f)
			known := isSessionOverridden(n.Status, n.over.Session) && slices.Contains(n.Status.Overridden.Faults, key)
			if !known && !n.over.coversFault(key, f.DetectedAt.Time) {
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
	return func(st *v1alpha1.NodeFaultStatus) { setOrClearHealthySince(st, healthy, n.Now) }
}

func setOrClearHealthySince(st *v1alpha1.NodeFaultStatus, healthy bool, now time.Time) {
	switch {
	case !healthy:
		st.HealthySince = nil
	case st.HealthySince == nil, st.HealthySince.After(now): // the clock was set back
		since := metav1.NewTime(now)
		st.HealthySince = &since
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
