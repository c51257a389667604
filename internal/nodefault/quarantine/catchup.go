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
	switch {
	case q.cfg.DryRun && overridden != nil:
		message := "a person has ended the quarantine; dry run keeps the remaining changes"
		return Step{Why: Overridden, Message: message}, true
	case q.cfg.DryRun:
		message := "dry run keeps the remaining changes of an earlier quarantine"
		return Step{Why: DryRun, Message: message}, true
	}

	const message = "the controller removes the remaining changes of an earlier quarantine"
	released := n.buildReleasedNode(reasonLeftOver, false)
	if overridden == nil {
		return n.releaseStep(released, Released, message), true
	}
	if !released.uncordoned {
		delete(released.node.Annotations, v1alpha1.AnnotationReleased) // the controller has not released it
	}
	override := overrideRecord{
		UID:     n.Node.UID,
		Session: overridden.Session,
		At:      toMicroTime(overridden.DetectedAt.Time),
		Since:   n.mark.AppliedAt,
		Faults:  overridden.Faults,
	}
	setJSONAnnotation(released.node, v1alpha1.AnnotationOverridden, override.coveringAllFaultsIfTooLarge())
	settle := func(status *v1alpha1.NodeFaultStatus) {
		if released.uncordoned {
			recordActionOnce(status, changeevent.ActionUncordon, reasonLeftOver, n.Now)
		}
	}
	return Step{Node: released.node, Why: Overridden, After: AtOnce, Message: message, Settle: settle}, true
}

// planStatusSyncIfBehindNode updates the status from the node, and records changes that a crashed
// process could not record.
func (q *Quarantine) planStatusSyncIfBehindNode(n *nodeState) (planned Step, applies bool) {
	status := n.Status
	step := Step{After: AtOnce, Message: "the controller records its changes to the node"}
	switch {
	case n.mark != nil && !sameOwnedChanges(status.Owned, &n.mark.Owned):
		step.Why, step.Settle = n.oursOrForeign(), n.statusUpdateFromMark(nil)
		// Actions that began in the session continue.
		sessionKnown := status.Owned != nil && status.Session == n.mark.Session
		step.Act = sessionKnown && n.isCordoned() && n.requiresActionNotDryRun()
	case n.mark != nil:
		return Step{}, false
	case n.release.endsOpenSessionOf(status):
		step.Why, step.Settle = Released, n.statusUpdateFromReleaseRecord()
		step.Node = n.withoutOrphanTaintsOrNil()
		if step.Node != nil && q.cfg.DryRun {
			step = Step{Why: DryRun, Message: "dry run keeps the remaining changes of a release"}
		}
	case n.override != nil && n.isOverrideNewerThanStatus():
		step.Why, step.Settle = Overridden, n.statusUpdateFromOverride()
	case n.override == nil && !n.overrideUnreadable && status.Overridden != nil && !q.cfg.DryRun:
		// A person has removed the annotation, so actions are allowed again.
		step.Why, step.Settle = Observing, endSession
	default:
		return Step{}, false
	}
	return step, true
}

// isOverrideNewerThanStatus reports whether the status does not show the override of the node yet.
func (n *nodeState) isOverrideNewerThanStatus() bool {
	status, session := n.Status, n.override.Session
	ownedByOtherSession := status.Owned != nil && status.Owned.Session != session
	return !ownedByOtherSession &&
		!isSessionOverridden(status, session) &&
		!hasSessionEnded(status, session)
}

// statusUpdateFromMark returns a function that updates the status from the mark, and records a
// cordon that is missing in the status.
func (n *nodeState) statusUpdateFromMark(
	then func(*v1alpha1.NodeFaultStatus),
) func(*v1alpha1.NodeFaultStatus) {
	mark := *n.mark
	changes := mark.Owned
	return func(status *v1alpha1.NodeFaultStatus) {
		if status.Session != mark.Session || !isSessionOpen(status) {
			beginSession(status, mark.Session, mark.Fault.toFault())
		}
		owned := status.Owned
		cordonRecorded := owned != nil && owned.Session == mark.Session && owned.Cordon
		if mark.Cordon && !cordonRecorded {
			recordActionOnce(status, changeevent.ActionCordon, "", mark.AppliedAt.Time)
		}
		status.Owned = changes.DeepCopy()
		if then != nil {
			then(status)
		}
	}
}

// statusUpdateFromReleaseRecord returns a function that updates the status from the record of a
// release.
func (n *nodeState) statusUpdateFromReleaseRecord() func(*v1alpha1.NodeFaultStatus) {
	release, override := *n.release, n.override
	return func(status *v1alpha1.NodeFaultStatus) {
		// The cordon may have begun and ended before it was recorded.
		cordonRecorded := status.Owned != nil && status.Owned.Cordon
		if release.Cordon && !cordonRecorded {
			recordActionOnce(status, changeevent.ActionCordon, "", release.Since.Time)
		}
		if release.Cordon {
			recordActionOnce(status, changeevent.ActionUncordon, release.Reason, release.At.Time)
		}
		if override != nil && override.Session == release.Session { // a person has released the node permanently
			status.Owned, status.HealthySince = nil, nil
			status.Overridden = n.overrideStatusWithFaults(override)
			return
		}
		endSession(status)
	}
}

// withoutOrphanTaintsOrNil returns the node without taints of the pipeline that a release missed, or
// nil if there are none.
func (n *nodeState) withoutOrphanTaintsOrNil() *corev1.Node {
	ours := func(t corev1.Taint) bool {
		return n.Status.Owned != nil && hasTaint(n.Status.Owned.Taints, t)
	}
	if !n.release.Orphan || !slices.ContainsFunc(n.Node.Spec.Taints, ours) {
		return nil
	}
	node := n.Node.DeepCopy()
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, ours)
	return node
}

// statusUpdateFromOverride returns a function that updates the status from an override. An
// override through Release was already recorded as a release.
func (n *nodeState) statusUpdateFromOverride() func(*v1alpha1.NodeFaultStatus) {
	override := n.override
	byRelease := n.release != nil && n.release.Session == override.Session
	return func(status *v1alpha1.NodeFaultStatus) {
		sessionKnown := status.Session == override.Session
		if !sessionKnown {
			endSession(status)
			status.Session = override.Session
		}
		if sessionKnown && !byRelease {
			recordActionOnce(status, changeevent.ActionOverrideDetected, reasonUncordoned, override.At.Time)
		}
		status.Owned, status.HealthySince = nil, nil
		status.Overridden = n.overrideStatusWithFaults(override)
	}
}

// overrideStatusWithFaults returns the status of an override with the faults that it covers.
func (n *nodeState) overrideStatusWithFaults(override *overrideRecord) *v1alpha1.Overridden {
	overridden := override.toStatus()
	for _, f := range n.Faults {
		key := nodefault.KeyOf(f)
		if override.All && override.coversFault(key, f.DetectedAt.Time) {
			overridden.Faults = append(overridden.Faults, key)
		}
	}
	return overridden
}

// restoreMarkInStateOrPlanWrite restores a lost annotation from the status and the managed fields. If the
// status does not know of the cordon, the mark is written before anything else, so that
// each later write finds a prepared status. Otherwise the following step writes it.
func (q *Quarantine) restoreMarkInStateOrPlanWrite(n *nodeState) (step Step, applies bool) {
	if n.mark != nil || q.cfg.DryRun {
		return Step{}, false
	}
	hasOurCordon := n.isCordoned() && n.cordonOwner == us
	switch {
	case n.Status.Owned != nil && isSessionOpen(n.Status):
		n.mark = n.newMarkFromStatus(hasOurCordon)
		n.changed = true
		return Step{}, false
	case hasOurCordon:
		n.mark = n.newMarkFromOwnCordon()
		n.changed = true
		return n.addMarkAndLabelWrites(Step{
			Why:     Ours,
			After:   AtOnce,
			Message: "the controller restores the annotation that marks its cordon",
		}), true
	}
	return Step{}, false
}

// newMarkFromStatus returns the mark of the changes in the status.
func (n *nodeState) newMarkFromStatus(hasOurCordon bool) *ownedMark {
	status := n.Status
	mark := &ownedMark{
		UID:   n.Node.UID,
		Owned: *status.Owned.DeepCopy(),
		Fault: newSessionFault(*status.TriggeredBy),
	}
	// A requested cordon that was not set by the pipeline was set by others.
	mark.Foreign = !status.Owned.Cordon && status.DesiredActions != nil && status.DesiredActions.Cordon
	if n.isCordoned() && !hasOurCordon {
		mark.Foreign, mark.Cordon = true, false
	}
	// The person who removed the annotation may have removed a taint, too.
	for _, taint := range n.Verdict.DesiredActions.Taints {
		if !hasTaintWithKeyAndEffect(status.Owned.Taints, taint) {
			mark.Undone = append(mark.Undone, taintKeyAndEffect(taint))
		}
	}
	return mark
}

// newMarkFromOwnCordon returns the mark of a cordon that only the managed fields show.
func (n *nodeState) newMarkFromOwnCordon() *ownedMark {
	appliedAt := n.Now
	if !n.cordonedAt.IsZero() {
		appliedAt = n.cordonedAt
	}
	return &ownedMark{
		UID:   n.Node.UID,
		Fault: newSessionFault(n.openingFault()),
		Owned: v1alpha1.Owned{
			Session:   n.currentOrNewSessionID(),
			Cordon:    true,
			AppliedAt: toMicroTime(appliedAt),
		},
	}
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
