package quarantine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// planCleanupIfSessionEnded removes the changes of a session that has ended. They are present if the
// annotation was set again. If the node is stale instead, the write fails.
func (q *Quarantine) planCleanupIfSessionEnded(n *nodeState) (step Step, applies bool) {
	if n.mark == nil || !hasSessionEnded(n.Status, n.mark.Session) {
		return Step{}, false
	}
	overridden := n.Status.Overridden
	if q.cfg.DryRun {
		if overridden != nil {
			return Step{Why: Overridden, Message: "a person has ended the quarantine; dry run keeps the remaining changes"}, true
		}
		return Step{Why: DryRun, Message: "dry run keeps the remaining changes of an earlier quarantine"}, true
	}
	t := n.buildReleasedNode(reasonLeftOver, false)
	if overridden == nil {
		return n.releaseStep(t, Released, "the controller removes the remaining changes of an earlier quarantine"), true
	}
	if !t.uncordoned {
		delete(t.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
	}
	o := overrideRecord{UID: n.Node.UID, Session: overridden.Session, At: toMicroTime(overridden.DetectedAt.Time), Since: n.mark.AppliedAt, Faults: overridden.Faults}
	setJSONAnnotation(t.node, v1alpha1.AnnotationOverridden, o.withoutFaultsIfTooLarge())
	return Step{Node: t.node, Why: Overridden, After: AtOnce, Message: "the controller removes the remaining changes of an earlier quarantine", Settle: func(st *v1alpha1.NodeFaultStatus) {
		if t.uncordoned {
			recordActionOnce(st, changeevent.ActionUncordon, reasonLeftOver, n.Now)
		}
	}}, true
}

// planStatusSyncIfBehindNode updates the status from the node, and records changes that a crashed process
// could not record.
func (q *Quarantine) planStatusSyncIfBehindNode(n *nodeState) (planned Step, applies bool) {
	st := n.Status
	step := Step{After: AtOnce, Message: "the controller records its changes to the node"}
	switch {
	case n.mark != nil && !sameOwnedChanges(st.Owned, &n.mark.Owned):
		// Actions that began in the session continue.
		known := st.Owned != nil && st.Session == n.mark.Session
		step.Why, step.Settle, step.Act = n.oursOrForeign(), n.statusUpdateFromMark(nil), known && n.isCordoned() && n.requiresActionNotDryRun()
	case n.mark == nil && n.tomb.endsOpenSessionOf(st):
		step.Why, step.Settle, step.Node = Released, n.statusUpdateFromReleaseRecord(), n.withoutOrphanTaintsOrNil()
		if step.Node != nil && q.cfg.DryRun {
			step = Step{Why: DryRun, Message: "dry run keeps the remaining changes of a release"}
		}
	case n.mark == nil && n.over != nil && (st.Owned == nil || st.Owned.Session == n.over.Session) && !isSessionOverridden(st, n.over.Session) && !hasSessionEnded(st, n.over.Session):
		step.Why, step.Settle = Overridden, n.statusUpdateFromOverride()
	case n.mark == nil && n.over == nil && !n.stop && st.Overridden != nil && !q.cfg.DryRun:
		// A person has removed the annotation, so actions are allowed again.
		step.Why, step.Settle = Observing, func(st *v1alpha1.NodeFaultStatus) { endSession(st) }
	default:
		return Step{}, false
	}
	return step, true
}

// statusUpdateFromMark returns a function that updates the status from the mark, and records a cordon that is missing in
// the status.
func (n *nodeState) statusUpdateFromMark(then func(*v1alpha1.NodeFaultStatus)) func(*v1alpha1.NodeFaultStatus) {
	m := *n.mark
	owned := m.Owned
	return func(st *v1alpha1.NodeFaultStatus) {
		if st.Session != m.Session || !isSessionOpen(st) {
			beginSession(st, m.Session, m.Fault.toFault())
		}
		told := st.Owned != nil && st.Owned.Session == m.Session && st.Owned.Cordon
		if m.Cordon && !told {
			recordActionOnce(st, changeevent.ActionCordon, "", m.AppliedAt.Time)
		}
		st.Owned = owned.DeepCopy()
		if then != nil {
			then(st)
		}
	}
}

// statusUpdateFromReleaseRecord returns a function that updates the status from the record of a release.
func (n *nodeState) statusUpdateFromReleaseRecord() func(*v1alpha1.NodeFaultStatus) {
	t, o := *n.tomb, n.over
	return func(st *v1alpha1.NodeFaultStatus) {
		if t.Cordon && (st.Owned == nil || !st.Owned.Cordon) { // the cordon began and ended before it was recorded
			recordActionOnce(st, changeevent.ActionCordon, "", t.Since.Time)
		}
		if t.Cordon {
			recordActionOnce(st, changeevent.ActionUncordon, t.Reason, t.At.Time)
		}
		if o != nil && o.Session == t.Session { // a person has released the node permanently
			st.Owned, st.HealthySince, st.Overridden = nil, nil, n.overrideStatusWithFaults(o)
			return
		}
		endSession(st)
	}
}

// withoutOrphanTaintsOrNil returns the node without taints of the pipeline that a release missed, or
// nil if there are none.
func (n *nodeState) withoutOrphanTaintsOrNil() *corev1.Node {
	ours := func(t corev1.Taint) bool { return n.Status.Owned != nil && hasTaint(n.Status.Owned.Taints, t) }
	if !n.tomb.Orphan || !slices.ContainsFunc(n.Node.Spec.Taints, ours) {
		return nil
	}
	node := n.Node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ours)
	return node
}

// statusUpdateFromOverride returns a function that updates the status from an override. An override through Release was
// already recorded as a release.
func (n *nodeState) statusUpdateFromOverride() func(*v1alpha1.NodeFaultStatus) {
	o, byRelease := n.over, n.tomb != nil && n.over.Session == n.tomb.Session
	return func(st *v1alpha1.NodeFaultStatus) {
		known := st.Session == o.Session
		if !known {
			endSession(st)
			st.Session = o.Session
		}
		if known && !byRelease {
			recordActionOnce(st, changeevent.ActionOverrideDetected, reasonUncordoned, o.At.Time)
		}
		st.Owned, st.HealthySince, st.Overridden = nil, nil, n.overrideStatusWithFaults(o)
	}
}

// overrideStatusWithFaults returns the status of an override with the faults that it covers.
func (n *nodeState) overrideStatusWithFaults(o *overrideRecord) *v1alpha1.Overridden {
	r := o.toStatus()
	for _, f := range n.Faults {
		key := nodefault.KeyOf(f)
		if o.All && o.coversFault(key, f.DetectedAt.Time) {
			r.Faults = append(r.Faults, key)
		}
	}
	return r
}

// restoreMarkIfLost restores a lost annotation from the status and the managed fields. If the
// status does not know of the cordon, the mark is written before anything else, so that
// each later write finds a prepared status. Otherwise the following step writes it.
func (q *Quarantine) restoreMarkIfLost(n *nodeState) (step Step, applies bool) {
	if n.mark != nil || q.cfg.DryRun {
		return Step{}, false
	}
	st := n.Status
	mine := n.isCordoned() && n.holds == us
	switch {
	case st.Owned != nil && isSessionOpen(st):
		n.mark = &ownedMark{UID: n.Node.UID, Owned: *st.Owned.DeepCopy(), Fault: newSessionFault(*st.TriggeredBy)}
		// A requested cordon that was not set by the pipeline was set by others.
		n.mark.Foreign = !st.Owned.Cordon && st.DesiredActions != nil && st.DesiredActions.Cordon
		if n.isCordoned() && !mine {
			n.mark.Foreign, n.mark.Cordon = true, false
		}
		for _, t := range n.Verdict.DesiredActions.Taints {
			if !hasTaintWithKeyAndEffect(st.Owned.Taints, t) { // the person who removed the annotation may have removed the taint
				n.mark.Undone = append(n.mark.Undone, taintKeyAndEffect(t))
			}
		}
		n.changed = true
	case mine:
		f := n.openingFault()
		n.mark = &ownedMark{UID: n.Node.UID, Fault: newSessionFault(f), Owned: v1alpha1.Owned{Session: n.currentOrNewSessionID(), Cordon: true, AppliedAt: toMicroTime(n.Now)}}
		if !n.since.IsZero() {
			n.mark.AppliedAt = toMicroTime(n.since)
		}
		n.changed = true
		return n.addMarkAndLabelWrites(Step{Why: Ours, After: AtOnce, Message: "the controller restores the annotation that marks its cordon"}), true
	}
	return Step{}, false
}

// openingFault returns the fault that opened the session, or that will open it.
func (n *nodeState) openingFault() v1alpha1.Fault {
	switch {
	case isSessionOpen(n.Status):
		return *n.Status.TriggeredBy.DeepCopy()
	case n.Verdict.Opened != nil:
		return *n.Verdict.Opened.DeepCopy()
	default:
		return v1alpha1.Fault{Source: unknownSource, Check: unknownCheck, DetectedAt: metav1.NewMicroTime(n.Now)}
	}
}
