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

// A takenOff is a node without the changes of the pipeline.
type takenOff struct {
	node       *corev1.Node
	session    string
	reason     string
	uncordoned bool
}

// planRelease removes exactly the changes of the pipeline from a node, and adds a tombstone.
func (v *view) planRelease(reason string, orphan bool) takenOff {
	t := takenOff{node: v.Node.DeepCopy(), session: v.mark.Session, reason: reason}
	t.uncordoned = v.mark.Cordon && v.isCordoned() && v.holds != others
	if t.uncordoned {
		t.node.Spec.Unschedulable = false
	}
	t.node.Spec.Taints = slices.DeleteFunc(t.node.Spec.Taints, func(o corev1.Taint) bool { return hasTaint(v.mark.Taints, o) })
	delete(t.node.Annotations, v1alpha1.AnnotationOwned)
	delete(t.node.Labels, v1alpha1.LabelPhase)
	writeAnnotation(t.node, v1alpha1.AnnotationReleased, tombstone{
		UID: v.Node.UID, Session: t.session, At: microTime(v.Now), Since: v.mark.AppliedAt, Cordon: t.uncordoned, Reason: nodefault.TruncateText(reason, 256), Orphan: orphan,
	})
	return t
}

// releaseStep returns the step that writes a released node and ends the session.
func (v *view) releaseStep(t takenOff, why Situation, message string) Step {
	return Step{Node: t.node, Why: why, After: AtOnce, Message: message, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if t.uncordoned {
			recordAction(st, changeevent.ActionUncordon, t.reason, v.Now)
		}
		endSession(st)
	}}
}

// stepIfExcluded stops at nodes that are opted out or excluded. It removes existing
// changes of the pipeline once.
func (q *Quarantine) stepIfExcluded(v *view) (Step, bool) {
	reason := ""
	switch {
	case v.Node.Labels[v1alpha1.LabelOptOut] == v1alpha1.OptedOut:
		reason = reasonOptedOut
	case !q.cfg.ControlPlane && isControlPlane(v.Node):
		reason = reasonExcluded
	default:
		return Step{}, false
	}
	switch {
	case v.mark != nil && q.cfg.DryRun:
		return Step{Why: OptedOut, Message: reason + "; dry run keeps the changes of the controller"}, true
	case v.mark != nil:
		return v.releaseStep(v.planRelease(reason, false), OptedOut, reason), true
	}
	return Step{Why: OptedOut, Message: reason, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if unwritten(st) {
			closeUnwritten(st, reason, v.Now)
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

// stepIfUndone ends the session if a person has undone it: the node was uncordoned, or it
// had only taints and they were removed. It removes the remaining changes, too.
func (q *Quarantine) stepIfUndone(v *view) (Step, bool) {
	if v.mark == nil {
		return Step{}, false
	}
	reason := ""
	switch {
	case !v.isCordoned() && (v.mark.Cordon || v.mark.Foreign):
		reason = reasonUncordoned
	case !v.mark.Cordon && !v.mark.Foreign && len(v.mark.Taints) > 0 && !slices.ContainsFunc(v.mark.Taints, func(t corev1.Taint) bool { return hasTaint(v.Node.Spec.Taints, t) }):
		reason = reasonUntainted
	default:
		v.adoptChanges()
		return Step{}, false
	}
	// The person knew of the fault that opened the session, even if it is over by now.
	o := override{UID: v.Node.UID, Session: v.mark.Session, At: microTime(v.Now), Since: v.mark.AppliedAt, Faults: []string{nodefault.KeyOf(v.mark.Fault.toFault())}}
	for _, f := range v.Faults[:min(len(v.Faults), maxFaults)] {
		if key := nodefault.KeyOf(f); !slices.Contains(o.Faults, key) {
			o.Faults = append(o.Faults, key)
		}
	}
	step := Step{Why: Overridden, Message: reason + ": the quarantine ends, and does not restart for the same faults", Settle: func(st *v1alpha1.NodeFaultStatus) {
		recordAction(st, changeevent.ActionOverrideDetected, reason, v.Now)
		st.Owned, st.HealthySince, st.Overridden = nil, nil, o.overridden()
	}}
	if !q.cfg.DryRun {
		t := v.planRelease(reason, false)
		delete(t.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
		writeAnnotation(t.node, v1alpha1.AnnotationOverridden, o.shortened())
		step.Node, step.After = t.node, AtOnce
	}
	return step, true
}

// adoptChanges updates the mark with the changes of others. A taint that was removed or
// changed no longer belongs to the pipeline and is not restored. A cordon that others
// have set again belongs to them.
func (v *view) adoptChanges() {
	m := *v.mark
	m.Taints = nil
	for _, t := range v.mark.Taints {
		if hasTaint(v.Node.Spec.Taints, t) {
			m.Taints = append(m.Taints, t)
			continue
		}
		m.Undone = append(slices.Clone(m.Undone), taintName(t))
		v.changed = true
	}
	if m.Cordon && v.holds == others {
		m.Cordon, m.Foreign = false, true
		v.changed = true
	}
	v.mark = &m
}

// stepIfOverridden leaves a node alone that a person has overridden. This ends with a new
// fault, the removal of the annotation, the override TTL, or when the node is healthy.
func (q *Quarantine) stepIfOverridden(v *view) (Step, bool) {
	st := v.Status
	switch {
	case v.mark != nil:
		return Step{}, false
	case v.stop:
		return Step{Why: Overridden, Message: "a person has set the annotation fleetloop.io/node-fault-overridden", Settle: func(st *v1alpha1.NodeFaultStatus) {
			if unwritten(st) {
				endSession(st)
			}
		}}, true
	case v.over == nil:
		if q.cfg.DryRun && st.Overridden != nil {
			return Step{Why: Overridden, Message: "a person has ended the quarantine"}, true
		}
		return Step{}, false
	}
	forgotten, after := q.overrideEndReason(v)
	if forgotten == "" || q.cfg.DryRun {
		return Step{Why: Overridden, After: after, Message: "a person has ended the quarantine: it restarts with a new fault, or after " + q.cfg.OverrideTTL.String(), Settle: v.settleHealth()}, true
	}
	node := v.Node.DeepCopy()
	delete(node.Annotations, v1alpha1.AnnotationOverridden)
	return Step{Node: node, Why: Released, After: AtOnce, Message: forgotten, Settle: endSession}, true
}

// overrideEndReason returns why an override has ended, or otherwise how long it still lasts.
func (q *Quarantine) overrideEndReason(v *view) (why string, after time.Duration) {
	if hasEnded(v.Status, v.over.Session) && v.Status.Overridden == nil {
		return "the override has ended before", 0
	}
	left := v.over.At.Add(q.cfg.OverrideTTL).Sub(v.Now)
	if left <= 0 {
		return fmt.Sprintf("the override is older than %s", q.cfg.OverrideTTL), 0
	}
	if v.wantsReal() {
		for _, f := range v.Verdict.Matched {
			key := nodefault.KeyOf(f)
			known := overriddenIn(v.Status, v.over.Session) && slices.Contains(v.Status.Overridden.Faults, key)
			if !known && !v.over.coversFault(key, f.DetectedAt.Time) {
				return "new fault after the override: " + key, 0
			}
		}
		return "", left
	}
	if healthy := q.healthyTimeLeft(v); healthy > 0 || v.Verdict.Unsure {
		return "", min(left, max(healthy, time.Second))
	}
	return reasonHealthy, 0
}

// wantsReal reports whether the rules require actions that are not in dry run.
func (v *view) wantsReal() bool {
	return nodefault.RequiresAction(v.Verdict.DesiredActions) && !v.Verdict.DesiredActions.DryRun
}

// healthyTimeLeft returns how long it takes until a node counts as healthy.
func (q *Quarantine) healthyTimeLeft(v *view) time.Duration {
	since := v.Now
	if h := v.Status.HealthySince; h != nil && h.Time.Before(v.Now) { // ignored if the clock was set back
		since = h.Time
	}
	return max(0, since.Add(q.cfg.HealthyFor).Sub(v.Now))
}

// settleHealth records since when no relevant fault is left.
func (v *view) settleHealth() func(*v1alpha1.NodeFaultStatus) {
	healthy := !v.wantsReal() && !v.Verdict.Unsure
	return func(st *v1alpha1.NodeFaultStatus) { noteHealth(st, healthy, v.Now) }
}

func noteHealth(st *v1alpha1.NodeFaultStatus, healthy bool, now time.Time) {
	switch {
	case !healthy:
		st.HealthySince = nil
	case st.HealthySince == nil, st.HealthySince.After(now): // the clock was set back
		since := metav1.NewTime(now)
		st.HealthySince = &since
	}
}

// phaseLabel returns the value of the label for a phase, if the phase has one.
func phaseLabel(p v1alpha1.Phase) (label string, known bool) {
	switch p {
	case v1alpha1.PhaseQuarantined, v1alpha1.PhaseDraining, v1alpha1.PhaseRemediating,
		v1alpha1.PhaseRecovering, v1alpha1.PhaseHeld, v1alpha1.PhaseStuck:
		return strings.ToLower(string(p)), true
	case v1alpha1.PhaseObserved, v1alpha1.PhasePending, v1alpha1.PhaseDryRun, v1alpha1.PhaseOverridden,
		v1alpha1.PhaseHealthy, v1alpha1.PhaseGone:
	}
	return "", false
}
