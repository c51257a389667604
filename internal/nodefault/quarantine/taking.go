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
	required := nodefault.RequiresAction(n.Verdict.DesiredActions)
	inDryRun := q.cfg.DryRun && (required || isSessionOpen(n.Status))
	onlyDryRunRules := n.mark == nil && required && n.Verdict.DesiredActions.DryRun
	if !inDryRun && !onlyDryRunRules {
		return Step{}, false
	}
	step := Step{Why: DryRun, Message: "dry run: actions are reported, not performed"}
	if n.mark != nil {
		step.Message = "dry run: existing changes of the controller are kept"
	}
	if !required {
		return q.endDryRunSessionIfRecovered(n, step), true
	}
	session, opening := n.currentOrNewSessionID(), n.openingFault()
	wouldCordon := n.Verdict.DesiredActions.Cordon && !n.isCordoned() && n.mark == nil && n.Status.Owned == nil
	step.Settle = func(status *v1alpha1.NodeFaultStatus) {
		if !isSessionOpen(status) {
			beginSession(status, session, opening)
		}
		status.HealthySince = nil
		if wouldCordon {
			recordDryRunActionOnce(status, changeevent.ActionCordon, "", n.Now)
		}
	}
	return step, true
}

// endDryRunSessionIfRecovered ends a session without changes on the node. For a node with changes,
// which dry run keeps, it records that the node would be released.
func (q *Quarantine) endDryRunSessionIfRecovered(n *nodeState, step Step) Step {
	left := q.healthyTimeLeft(n)
	if left > 0 || n.Verdict.Unsure {
		step.After, step.Settle = left, n.statusUpdateOfHealthySince()
		return step
	}
	hasChanges := n.mark != nil || n.Status.Owned != nil
	hasOurCordon := n.mark != nil && n.mark.Cordon && n.cordonOwner != others
	step.Settle = func(status *v1alpha1.NodeFaultStatus) {
		if hasOurCordon || hasDryRunRecord(status, changeevent.ActionCordon) {
			recordDryRunActionOnce(status, changeevent.ActionUncordon, reasonHealthy, n.Now)
		}
		if !hasChanges {
			endSession(status)
		}
	}
	if !hasChanges {
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

// planRecoveryIfNoActionRequired releases a node that needs no action any more. It waits until this has
// lasted, no remedy is in progress and no person holds the node.
func (q *Quarantine) planRecoveryIfNoActionRequired(n *nodeState) (planned Step, applies bool) {
	outOfService := n.mark != nil || isSessionOpen(n.Status)
	switch {
	case n.requiresActionNotDryRun():
		return Step{}, false
	case !outOfService && len(n.Faults) == 0:
		return Step{Why: Released, Message: "no fault reported"}, true
	case !outOfService:
		return Step{Why: Observing, Message: "no rule requires an action"}, true
	case n.Verdict.Unsure:
		return n.addMarkAndLabelWrites(Step{
			Why:    n.oursOrForeign(),
			Act:    n.Busy && n.mark != nil,
			Settle: n.statusUpdateOfHealthySince(),
			Message: "rule evaluation failed: the health of the node is unknown; " +
				"see the log of node-fault-controller",
		}), true
	}

	step := Step{Why: Recovering, Settle: n.statusUpdateOfHealthySince(), Act: n.Busy}
	healthyTimeLeft := q.healthyTimeLeft(n)
	_, held := n.Node.Annotations[v1alpha1.AnnotationHold]
	switch {
	case n.Busy:
		step.Message = "no fault is left; waiting for the remedy (reboot, terminate or support) to finish"
	case healthyTimeLeft > 0:
		step.After = healthyTimeLeft
		step.Message = "no fault is left; the node returns to service after it has been healthy for " + q.cfg.HealthyFor.String()
	case n.mark == nil: // no changes on the node
		settle := func(status *v1alpha1.NodeFaultStatus) {
			endSessionAndRecordDryRunUncordon(status, reasonHealthy, n.Now)
		}
		return Step{Why: Released, Message: reasonHealthy, Settle: settle}, true
	case held:
		step.Why = Held
		step.Message = "the node is healthy, but stays out of service until you remove its annotation " + v1alpha1.AnnotationHold
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

// planQuarantineWithinBudget quarantines the node, as far as the rules require it and the budget
// allows it.
func (q *Quarantine) planQuarantineWithinBudget(n *nodeState) Step {
	next, needsCordon, hasChanges := n.markWithDesiredChanges()
	if !hasChanges {
		return n.quarantinedStep()
	}
	if n.Node.DeletionTimestamp != nil && n.mark == nil {
		return Step{Why: Observing, Message: "the node is being deleted"}
	}

	// Reserve a place in the budget. Further changes to a node that is out of service need none.
	takesOutOfService := n.mark == nil || needsCordon
	undo := func() {}
	if takesOutOfService {
		release, denial := q.budget.Reserve(n.Node, n.Now)
		if denial != "" {
			return n.budgetDeniedStep(denial)
		}
		if release != nil {
			undo = release
		}
	}

	// Write the changes together with the mark that records them.
	next.Session, next.UID = n.currentOrNewSessionID(), n.Node.UID
	if n.mark == nil {
		next.Fault = newSessionFault(n.openingFault())
	}
	if takesOutOfService {
		next.AppliedAt = toMicroTime(n.Now)
	}
	step := n.cordonAndTaintStep(next, needsCordon)
	step.Undo = undo
	return step
}

// budgetDeniedStep waits for a place in the budget.
func (n *nodeState) budgetDeniedStep(denial string) Step {
	session, opening := n.currentOrNewSessionID(), n.openingFault()
	settle := func(status *v1alpha1.NodeFaultStatus) {
		if !isSessionOpen(status) {
			beginSession(status, session, opening)
		}
		status.HealthySince = nil
		recordActionOnce(status, changeevent.ActionBudgetExhausted, denial, n.Now)
	}
	return n.addMarkAndLabelWrites(Step{Why: Denied, After: deniedFor, Message: denial, Settle: settle})
}

// cordonAndTaintStep writes the desired changes and the mark in one request.
func (n *nodeState) cordonAndTaintStep(next ownedMark, setCordon bool) Step {
	node := n.Node.DeepCopy()
	node.Spec.Unschedulable = node.Spec.Unschedulable || setCordon
	if setCordon && !hasManagedFields(node) {
		next.Tracked = true
		setManagedFieldsToOwnCordon(node, n.Now)
	}
	for _, taint := range next.Taints {
		if !hasTaint(node.Spec.Taints, taint) {
			node.Spec.Taints = append(node.Spec.Taints, taint)
		}
	}
	setJSONAnnotation(node, v1alpha1.AnnotationOwned, next)
	delete(node.Annotations, v1alpha1.AnnotationReleased)
	setPhaseLabel(node, "quarantined")
	n.mark = &next
	return Step{
		Node:    node,
		Why:     n.oursOrForeign(),
		After:   AtOnce,
		Message: "the controller quarantines the node",
		Settle:  n.statusUpdateFromMark(clearHealthySince),
	}
}

func clearHealthySince(status *v1alpha1.NodeFaultStatus) { status.HealthySince = nil }

// markWithDesiredChanges returns the mark with all desired changes, whether they require a cordon, and
// whether they exceed the current ones. The mark never shrinks during a session: changes
// for one fault stay until all faults are gone.
func (n *nodeState) markWithDesiredChanges() (next ownedMark, needsCordon, hasChanges bool) {
	desired := n.Verdict.DesiredActions
	if n.mark != nil {
		next = *n.mark
		next.Taints, next.Undone = slices.Clone(next.Taints), slices.Clone(next.Undone)
	}
	hasChanges = n.mark == nil && (desired.Cordon || len(desired.Taints) > 0)
	if desired.Cordon && !next.Cordon && !next.Foreign {
		needsCordon = !n.isCordoned()
		next.Cordon, next.Foreign = needsCordon, !needsCordon
		hasChanges = true
	}
	for _, taint := range desired.Taints {
		removedByPerson := slices.Contains(next.Undone, taintKeyAndEffect(taint))
		exists := hasTaintWithKeyAndEffect(next.Taints, taint) ||
			hasTaintWithKeyAndEffect(n.Node.Spec.Taints, taint)
		if removedByPerson || exists {
			continue
		}
		next.Taints = append(next.Taints, taint)
		hasChanges = true
	}
	return next, needsCordon, hasChanges
}

// quarantinedStep returns the step of a node that has all desired changes.
func (n *nodeState) quarantinedStep() Step {
	step := Step{
		Why:     n.oursOrForeign(),
		Act:     true,
		Message: "the node is quarantined",
		Settle:  clearHealthySince,
	}
	switch {
	case n.mark == nil:
		// Nothing is written to the node, so the session exists only in the status.
		step.Message = "the node stays in service, as the rules require"
		if !isSessionOpen(n.Status) {
			session, opening := n.currentOrNewSessionID(), n.openingFault()
			step.Act, step.After = false, AtOnce
			step.Settle = func(status *v1alpha1.NodeFaultStatus) { beginSession(status, session, opening) }
		}
	case n.mark.Foreign:
		step.Message = "the node is quarantined; another client had cordoned it before, so it stays cordoned after its release"
	case !n.mark.Cordon:
		step.Message = "the node is tainted"
	}
	return n.addMarkAndLabelWrites(step)
}
