package quarantine

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// stepIfLeftOver removes the changes of a session that has ended. They are present if the
// annotation was set again. If the node is stale instead, the write fails.
func (q *Quarantine) stepIfLeftOver(v *view) (Step, bool) {
	if v.mark == nil || !hasEnded(v.Status, v.mark.Session) {
		return Step{}, false
	}
	overridden := v.Status.Overridden
	if q.cfg.DryRun {
		if overridden != nil {
			return Step{Why: Overridden, Message: "a person has ended the quarantine; dry run keeps the remaining changes"}, true
		}
		return Step{Why: DryRun, Message: "dry run keeps the remaining changes of an earlier quarantine"}, true
	}
	t := v.planRelease(reasonLeftOver, false)
	if overridden == nil {
		return v.releaseStep(t, Released, "the controller removes the remaining changes of an earlier quarantine"), true
	}
	if !t.uncordoned {
		delete(t.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
	}
	o := override{UID: v.Node.UID, Session: overridden.Session, At: microTime(overridden.DetectedAt.Time), Since: v.mark.AppliedAt, Faults: overridden.Faults}
	writeAnnotation(t.node, v1alpha1.AnnotationOverridden, o.shortened())
	return Step{Node: t.node, Why: Overridden, After: AtOnce, Message: "the controller removes the remaining changes of an earlier quarantine", Settle: func(st *v1alpha1.NodeFaultStatus) {
		if t.uncordoned {
			recordAction(st, changeevent.ActionUncordon, reasonLeftOver, v.Now)
		}
	}}, true
}

// stepIfStatusBehind updates the status from the node, and records changes that a crashed process
// could not record.
func (q *Quarantine) stepIfStatusBehind(v *view) (Step, bool) {
	st := v.Status
	step := Step{After: AtOnce, Message: "the controller records its changes to the node"}
	switch {
	case v.mark != nil && !sameOwned(st.Owned, &v.mark.Owned):
		// Actions that began in the session continue.
		known := st.Owned != nil && st.Session == v.mark.Session
		step.Why, step.Settle, step.Act = v.quarantineSituation(), v.settleMark(nil), known && v.isCordoned() && v.wantsReal()
	case v.mark == nil && v.tomb.endsSession(st):
		step.Why, step.Settle, step.Node = Released, v.settleTombstone(), v.withoutOrphanTaints()
		if step.Node != nil && q.cfg.DryRun {
			step = Step{Why: DryRun, Message: "dry run keeps the remaining changes of a release"}
		}
	case v.mark == nil && v.over != nil && (st.Owned == nil || st.Owned.Session == v.over.Session) && !overriddenIn(st, v.over.Session) && !hasEnded(st, v.over.Session):
		step.Why, step.Settle = Overridden, v.settleOverride()
	case v.mark == nil && v.over == nil && !v.stop && st.Overridden != nil && !q.cfg.DryRun:
		// A person has removed the annotation, so actions are allowed again.
		step.Why, step.Settle = Observing, func(st *v1alpha1.NodeFaultStatus) { endSession(st) }
	default:
		return Step{}, false
	}
	return step, true
}

// settleMark updates the status from the mark, and records a cordon that is missing in
// the status.
func (v *view) settleMark(then func(*v1alpha1.NodeFaultStatus)) func(*v1alpha1.NodeFaultStatus) {
	m := *v.mark
	owned := m.Owned
	return func(st *v1alpha1.NodeFaultStatus) {
		if st.Session != m.Session || !isOpen(st) {
			beginSession(st, m.Session, m.Fault.toFault())
		}
		told := st.Owned != nil && st.Owned.Session == m.Session && st.Owned.Cordon
		if m.Cordon && !told {
			recordAction(st, changeevent.ActionCordon, "", m.AppliedAt.Time)
		}
		st.Owned = owned.DeepCopy()
		if then != nil {
			then(st)
		}
	}
}

// settleTombstone updates the status from the tombstone of a release.
func (v *view) settleTombstone() func(*v1alpha1.NodeFaultStatus) {
	t, o := *v.tomb, v.over
	return func(st *v1alpha1.NodeFaultStatus) {
		if t.Cordon && (st.Owned == nil || !st.Owned.Cordon) { // the cordon began and ended before it was recorded
			recordAction(st, changeevent.ActionCordon, "", t.Since.Time)
		}
		if t.Cordon {
			recordAction(st, changeevent.ActionUncordon, t.Reason, t.At.Time)
		}
		if o != nil && o.Session == t.Session { // a person has released the node permanently
			st.Owned, st.HealthySince, st.Overridden = nil, nil, v.overriddenWithFaults(o)
			return
		}
		endSession(st)
	}
}

// withoutOrphanTaints returns the node without taints of the pipeline that a release missed, or
// nil if there are none.
func (v *view) withoutOrphanTaints() *corev1.Node {
	ours := func(t corev1.Taint) bool { return v.Status.Owned != nil && hasTaint(v.Status.Owned.Taints, t) }
	if !v.tomb.Orphan || !slices.ContainsFunc(v.Node.Spec.Taints, ours) {
		return nil
	}
	node := v.Node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ours)
	return node
}

// settleOverride updates the status from an override. An override through Release was
// already recorded as a release.
func (v *view) settleOverride() func(*v1alpha1.NodeFaultStatus) {
	o, byRelease := v.over, v.tomb != nil && v.over.Session == v.tomb.Session
	return func(st *v1alpha1.NodeFaultStatus) {
		known := st.Session == o.Session
		if !known {
			endSession(st)
			st.Session = o.Session
		}
		if known && !byRelease {
			recordAction(st, changeevent.ActionOverrideDetected, reasonUncordoned, o.At.Time)
		}
		st.Owned, st.HealthySince, st.Overridden = nil, nil, v.overriddenWithFaults(o)
	}
}

// overriddenWithFaults returns the status of an override with the faults that it covers.
func (v *view) overriddenWithFaults(o *override) *v1alpha1.Overridden {
	r := o.overridden()
	for _, f := range v.Faults {
		key := nodefault.KeyOf(f)
		if o.All && o.coversFault(key, f.DetectedAt.Time) {
			r.Faults = append(r.Faults, key)
		}
	}
	return r
}

// stepIfMarkLost restores a lost annotation from the status and the managed fields. If the
// status does not know of the cordon, the mark is written before anything else, so that
// each later write finds a prepared status. Otherwise the following step writes it.
func (q *Quarantine) stepIfMarkLost(v *view) (Step, bool) {
	if v.mark != nil || q.cfg.DryRun {
		return Step{}, false
	}
	st := v.Status
	mine := v.isCordoned() && v.holds == us
	switch {
	case st.Owned != nil && isOpen(st):
		v.mark = &mark{UID: v.Node.UID, Owned: *st.Owned.DeepCopy(), Fault: openerOf(*st.TriggeredBy)}
		// A requested cordon that was not set by the pipeline was set by others.
		v.mark.Foreign = !st.Owned.Cordon && st.DesiredActions != nil && st.DesiredActions.Cordon
		if v.isCordoned() && !mine {
			v.mark.Foreign, v.mark.Cordon = true, false
		}
		for _, t := range v.Verdict.DesiredActions.Taints {
			if !hasTaintOf(st.Owned.Taints, t) { // the person who removed the annotation may have removed the taint
				v.mark.Undone = append(v.mark.Undone, taintName(t))
			}
		}
		v.changed = true
	case mine:
		f := v.openingFault()
		v.mark = &mark{UID: v.Node.UID, Fault: openerOf(f), Owned: v1alpha1.Owned{Session: v.sessionName(), Cordon: true, AppliedAt: microTime(v.Now)}}
		if !v.since.IsZero() {
			v.mark.AppliedAt = microTime(v.since)
		}
		v.changed = true
		return v.flushMark(Step{Why: Ours, After: AtOnce, Message: "the controller restores the annotation that marks its cordon"}), true
	}
	return Step{}, false
}

// openingFault returns the fault that opened the session, or that will open it.
func (v *view) openingFault() v1alpha1.Fault {
	switch {
	case isOpen(v.Status):
		return *v.Status.TriggeredBy.DeepCopy()
	case v.Verdict.Opened != nil:
		return *v.Verdict.Opened.DeepCopy()
	default:
		return v1alpha1.Fault{Source: unknownSource, Check: unknownCheck, DetectedAt: metav1.NewMicroTime(v.Now)}
	}
}
