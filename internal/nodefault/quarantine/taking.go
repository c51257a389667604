package quarantine

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
)

// deniedFor is the delay before a denied reservation is retried.
const deniedFor = 15 * time.Second

// oursOrForeign returns the situation of a quarantined node.
func (n *nodeState) oursOrForeign() Situation {
	if n.mark != nil && n.mark.Foreign {
		return Foreign
	}
	return Ours
}

// planRecordOnlyIfDryRun only records actions, if the installation is in dry run, or if only rules in
// dry run require an action.
func (q *Quarantine) planRecordOnlyIfDryRun(n *nodeState) (planned Step, applies bool) {
	nothing := !nodefault.RequiresAction(n.Verdict.DesiredActions)
	switch {
	case q.cfg.DryRun && (!nothing || isSessionOpen(n.Status)):
	case n.mark == nil && !nothing && n.Verdict.DesiredActions.DryRun:
	default:
		return Step{}, false
	}
	step := Step{Why: DryRun, Message: "dry run: actions are reported, not performed"}
	if n.mark != nil {
		step.Message = "dry run: existing changes of the controller are kept"
	}
	if nothing {
		return q.endDryRunSessionOrRecordRelease(n, step), true
	}
	session, f, flips := n.currentOrNewSessionID(), n.openingFault(), n.Verdict.DesiredActions.Cordon && !n.isCordoned() && n.mark == nil && n.Status.Owned == nil
	step.Settle = func(st *v1alpha1.NodeFaultStatus) {
		if !isSessionOpen(st) {
			beginSession(st, session, f)
		}
		st.HealthySince = nil
		if flips {
			recordDryRunActionOnce(st, changeevent.ActionCordon, "", n.Now)
		}
	}
	return step, true
}

// endDryRunSessionOrRecordRelease ends a session without changes on the node. For a node with changes,
// which dry run keeps, it records that the node would be released.
func (q *Quarantine) endDryRunSessionOrRecordRelease(n *nodeState, step Step) Step {
	left := q.healthyTimeLeft(n)
	if left > 0 || n.Verdict.Unsure {
		step.After, step.Settle = left, n.statusUpdateOfHealthySince()
		return step
	}
	written := n.mark != nil || n.Status.Owned != nil
	ours := n.mark != nil && n.mark.Cordon && n.holds != others
	step.Settle = func(st *v1alpha1.NodeFaultStatus) {
		if ours || hasDryRunRecord(st, changeevent.ActionCordon) {
			recordDryRunActionOnce(st, changeevent.ActionUncordon, reasonHealthy, n.Now)
		}
		if !written {
			endSession(st)
		}
	}
	if !written {
		step.Why, step.Message = Released, reasonHealthy
	}
	return step
}

// currentOrNewSessionID returns the name of the open session, or of the one to open.
func (n *nodeState) currentOrNewSessionID() string {
	switch {
	case n.mark != nil:
		return n.mark.Session
	case isSessionOpen(n.Status):
		return n.Status.Session
	default:
		return nodefault.NewSessionID(n.Node.UID, n.openingFault(), n.Now)
	}
}

// planReleaseIfRecovered releases a node that needs no action any more. It waits until this has
// lasted, no remedy is in progress and no person holds the node.
func (q *Quarantine) planReleaseIfRecovered(n *nodeState) (planned Step, applies bool) {
	switch {
	case n.requiresActionNotDryRun():
		return Step{}, false
	case n.mark == nil && !isSessionOpen(n.Status) && len(n.Faults) == 0:
		return Step{Why: Released, Message: "no fault reported"}, true
	case n.mark == nil && !isSessionOpen(n.Status):
		return Step{Why: Observing, Message: "no rule requires an action"}, true
	case n.Verdict.Unsure:
		step := Step{Why: n.oursOrForeign(), Act: n.Busy && n.mark != nil, Settle: n.statusUpdateOfHealthySince(), Message: "rule evaluation failed: the health of the node is unknown; see the log of node-fault-controller"}
		return n.addMarkAndLabelWrites(step), true
	}
	step := Step{Why: Recovering, Settle: n.statusUpdateOfHealthySince(), Act: n.Busy}
	left := q.healthyTimeLeft(n)
	_, held := n.Node.Annotations[v1alpha1.AnnotationHold]
	switch {
	case n.Busy:
		step.Message = "no fault is left; waiting for the remedy (reboot, terminate or support) to finish"
	case left > 0:
		step.After, step.Message = left, "no fault is left; the node returns to service after it has been healthy for "+q.cfg.HealthyFor.String()
	case n.mark == nil: // no changes on the node
		return Step{Why: Released, Message: reasonHealthy, Settle: func(st *v1alpha1.NodeFaultStatus) { endSessionAndRecordDryRunUncordon(st, reasonHealthy, n.Now) }}, true
	case held:
		step.Why, step.Message = Held, "the node is healthy, but stays out of service until you remove its annotation "+v1alpha1.AnnotationHold
	default:
		return n.releaseStep(n.buildReleasedNode(reasonHealthy, false), Released, reasonHealthy), true
	}
	return n.addMarkAndLabelWrites(step), true
}

// addMarkAndLabelWrites writes the mark and the label if they have changed, and restores the managed
// fields if they are empty.
func (n *nodeState) addMarkAndLabelWrites(step Step) Step {
	if n.mark == nil {
		return step
	}
	untracked := n.mark.Cordon && n.isCordoned() && !hasManagedFields(n.Node) && !n.mark.Tracked
	if untracked {
		n.mark.Tracked, n.changed = true, true
	}
	label, known := phaseLabel(n.Status.Phase)
	relabel := known && n.Node.Labels[v1alpha1.LabelPhase] != label
	if !n.changed && !relabel {
		return step
	}
	step.Node = n.Node.DeepCopy()
	if n.changed {
		step.Settle = n.statusUpdateFromMark(step.Settle)
		setJSONAnnotation(step.Node, v1alpha1.AnnotationOwned, n.mark)
	}
	if relabel {
		setPhaseLabel(step.Node, label)
	}
	if untracked {
		setManagedFieldsToOwnCordon(step.Node, n.Now)
	}
	return step
}

func setPhaseLabel(node *corev1.Node, value string) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[v1alpha1.LabelPhase] = value
}

// planQuarantineWithinBudget quarantines the node, as far as the rules require it and the budget allows it.
func (q *Quarantine) planQuarantineWithinBudget(n *nodeState) Step {
	next, cordons, more := n.markWithDesiredChanges()
	if !more {
		return n.quarantinedStep()
	}
	if n.Node.DeletionTimestamp != nil && n.mark == nil {
		return Step{Why: Observing, Message: "the node is being deleted"}
	}
	first := n.mark == nil || cordons
	release := func() {}
	if first { // further changes to a node that is out of service need no place
		given, denial := q.budget.Reserve(n.Node, n.Now)
		if denial != "" {
			return n.budgetDeniedStep(denial)
		}
		if given != nil {
			release = given
		}
	}
	next.Session, next.UID = n.currentOrNewSessionID(), n.Node.UID
	if n.mark == nil {
		next.Fault = newSessionFault(n.openingFault())
	}
	if first {
		next.AppliedAt = toMicroTime(n.Now)
	}
	step := n.cordonAndTaintStep(next, cordons)
	step.Undo = release
	return step
}

// budgetDeniedStep waits for a place in the budget.
func (n *nodeState) budgetDeniedStep(denial string) Step {
	session, f := n.currentOrNewSessionID(), n.openingFault()
	return n.addMarkAndLabelWrites(Step{Why: Denied, After: deniedFor, Message: denial, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if !isSessionOpen(st) {
			beginSession(st, session, f)
		}
		st.HealthySince = nil
		recordActionOnce(st, changeevent.ActionBudgetExhausted, denial, n.Now)
	}})
}

// cordonAndTaintStep writes the desired changes and the mark in one request.
func (n *nodeState) cordonAndTaintStep(next ownedMark, setCordon bool) Step {
	node := n.Node.DeepCopy()
	node.Spec.Unschedulable = node.Spec.Unschedulable || setCordon
	if setCordon && !hasManagedFields(node) {
		next.Tracked = true
		setManagedFieldsToOwnCordon(node, n.Now)
	}
	for _, t := range next.Taints {
		if !hasTaint(node.Spec.Taints, t) {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
	setJSONAnnotation(node, v1alpha1.AnnotationOwned, next)
	delete(node.Annotations, v1alpha1.AnnotationReleased)
	setPhaseLabel(node, "quarantined")
	n.mark = &next
	settle := n.statusUpdateFromMark(func(st *v1alpha1.NodeFaultStatus) { st.HealthySince = nil })
	return Step{Node: node, Settle: settle, After: AtOnce, Why: n.oursOrForeign(), Message: "the controller quarantines the node"}
}

// markWithDesiredChanges returns the mark with all desired changes, whether they require a cordon, and
// whether they exceed the current ones. The mark never shrinks during a session: changes
// for one fault stay until all faults are gone.
func (n *nodeState) markWithDesiredChanges() (next ownedMark, needsCordon, hasChanges bool) {
	wish := n.Verdict.DesiredActions
	if n.mark != nil {
		next = *n.mark
		next.Taints, next.Undone = slices.Clone(next.Taints), slices.Clone(next.Undone)
	}
	hasChanges = n.mark == nil && (wish.Cordon || len(wish.Taints) > 0)
	if wish.Cordon && !next.Cordon && !next.Foreign {
		needsCordon = !n.isCordoned()
		next.Cordon, next.Foreign = needsCordon, !needsCordon
		hasChanges = true
	}
	for _, t := range wish.Taints {
		if hasTaintWithKeyAndEffect(next.Taints, t) || slices.Contains(next.Undone, taintKeyAndEffect(t)) || hasTaintWithKeyAndEffect(n.Node.Spec.Taints, t) {
			continue
		}
		next.Taints = append(next.Taints, t)
		hasChanges = true
	}
	return next, needsCordon, hasChanges
}

// quarantinedStep returns the step of a node that has all desired changes.
func (n *nodeState) quarantinedStep() Step {
	step := Step{Why: n.oursOrForeign(), Act: true, Message: "the node is quarantined", Settle: func(st *v1alpha1.NodeFaultStatus) { st.HealthySince = nil }}
	switch {
	case n.mark == nil:
		// Nothing is written to the node, so the session exists only in the status.
		step.Message = "the node stays in service, as the rules require"
		if !isSessionOpen(n.Status) {
			session, f := n.currentOrNewSessionID(), n.openingFault()
			step.Act, step.After = false, AtOnce
			step.Settle = func(st *v1alpha1.NodeFaultStatus) { beginSession(st, session, f) }
		}
	case n.mark.Foreign:
		step.Message = "the node is quarantined; another client had cordoned it before, so it stays cordoned after its release"
	case !n.mark.Cordon:
		step.Message = "the node is tainted"
	}
	return n.addMarkAndLabelWrites(step)
}
