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

// quarantineSituation returns the situation of a quarantined node.
func (v *view) quarantineSituation() Situation {
	if v.mark != nil && v.mark.Foreign {
		return Foreign
	}
	return Ours
}

// stepIfDryRun only records actions, if the installation is in dry run, or if only rules in
// dry run require an action.
func (q *Quarantine) stepIfDryRun(v *view) (Step, bool) {
	nothing := !nodefault.RequiresAction(v.Verdict.DesiredActions)
	switch {
	case q.cfg.DryRun && (!nothing || isOpen(v.Status)):
	case v.mark == nil && !nothing && v.Verdict.DesiredActions.DryRun:
	default:
		return Step{}, false
	}
	step := Step{Why: DryRun, Message: "dry run: actions are reported, not performed"}
	if v.mark != nil {
		step.Message = "dry run: existing changes of the controller are kept"
	}
	if nothing {
		return q.pretendRecovery(v, step), true
	}
	session, f, flips := v.sessionName(), v.openingFault(), v.Verdict.DesiredActions.Cordon && !v.isCordoned() && v.mark == nil && v.Status.Owned == nil
	step.Settle = func(st *v1alpha1.NodeFaultStatus) {
		if !isOpen(st) {
			beginSession(st, session, f)
		}
		st.HealthySince = nil
		if flips {
			tellDry(st, changeevent.ActionCordon, "", v.Now)
		}
	}
	return step, true
}

// pretendRecovery ends a session without changes on the node. For a node with changes,
// which dry run keeps, it records that the node would be released.
func (q *Quarantine) pretendRecovery(v *view, step Step) Step {
	left := q.healthyTimeLeft(v)
	if left > 0 || v.Verdict.Unsure {
		step.After, step.Settle = left, v.settleHealth()
		return step
	}
	written := v.mark != nil || v.Status.Owned != nil
	ours := v.mark != nil && v.mark.Cordon && v.holds != others
	step.Settle = func(st *v1alpha1.NodeFaultStatus) {
		if ours || toldDry(st, changeevent.ActionCordon) {
			tellDry(st, changeevent.ActionUncordon, reasonHealthy, v.Now)
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

// sessionName returns the name of the open session, or of the one to open.
func (v *view) sessionName() string {
	switch {
	case v.mark != nil:
		return v.mark.Session
	case isOpen(v.Status):
		return v.Status.Session
	default:
		return nodefault.NewSession(v.Node.UID, v.openingFault(), v.Now)
	}
}

// stepIfRecovered releases a node that needs no action any more. It waits until this has
// lasted, no remedy is in progress and no person holds the node.
func (q *Quarantine) stepIfRecovered(v *view) (Step, bool) {
	switch {
	case v.wantsReal():
		return Step{}, false
	case v.mark == nil && !isOpen(v.Status) && len(v.Faults) == 0:
		return Step{Why: Released, Message: "no fault reported"}, true
	case v.mark == nil && !isOpen(v.Status):
		return Step{Why: Observing, Message: "no rule requires an action"}, true
	case v.Verdict.Unsure:
		step := Step{Why: v.quarantineSituation(), Act: v.Busy && v.mark != nil, Settle: v.settleHealth(), Message: "rule evaluation failed: the health of the node is unknown; see the log of node-fault-controller"}
		return v.flushMark(step), true
	}
	step := Step{Why: Recovering, Settle: v.settleHealth(), Act: v.Busy}
	left := q.healthyTimeLeft(v)
	_, held := v.Node.Annotations[v1alpha1.AnnotationHold]
	switch {
	case v.Busy:
		step.Message = "no fault is left; waiting for the remedy (reboot, terminate or support) to finish"
	case left > 0:
		step.After, step.Message = left, "no fault is left; the node returns to service after it has been healthy for "+q.cfg.HealthyFor.String()
	case v.mark == nil: // no changes on the node
		return Step{Why: Released, Message: reasonHealthy, Settle: func(st *v1alpha1.NodeFaultStatus) { closeUnwritten(st, reasonHealthy, v.Now) }}, true
	case held:
		step.Why, step.Message = Held, "the node is healthy, but stays out of service until you remove its annotation "+v1alpha1.AnnotationHold
	default:
		return v.releaseStep(v.planRelease(reasonHealthy, false), Released, reasonHealthy), true
	}
	return v.flushMark(step), true
}

// flushMark writes the mark and the label if they have changed, and restores the managed
// fields if they are empty.
func (v *view) flushMark(step Step) Step {
	if v.mark == nil {
		return step
	}
	untracked := v.mark.Cordon && v.isCordoned() && !isTracked(v.Node) && !v.mark.Tracked
	if untracked {
		v.mark.Tracked, v.changed = true, true
	}
	label, known := phaseLabel(v.Status.Phase)
	relabel := known && v.Node.Labels[v1alpha1.LabelPhase] != label
	if !v.changed && !relabel {
		return step
	}
	step.Node = v.Node.DeepCopy()
	if v.changed {
		step.Settle = v.settleMark(step.Settle)
		writeAnnotation(step.Node, v1alpha1.AnnotationOwned, v.mark)
	}
	if relabel {
		setPhaseLabel(step.Node, label)
	}
	if untracked {
		setCordonManager(step.Node, v.Now)
	}
	return step
}

func setPhaseLabel(node *corev1.Node, value string) {
	if node.Labels == nil {
		node.Labels = map[string]string{}
	}
	node.Labels[v1alpha1.LabelPhase] = value
}

// quarantineStep quarantines the node, as far as the rules require it and the budget allows it.
func (q *Quarantine) quarantineStep(v *view) Step {
	next, cordons, more := v.grownMark()
	if !more {
		return v.unchangedStep()
	}
	if v.Node.DeletionTimestamp != nil && v.mark == nil {
		return Step{Why: Observing, Message: "the node is being deleted"}
	}
	first := v.mark == nil || cordons
	release := func() {}
	if first { // further changes to a node that is out of service need no place
		given, denial := q.budget.Reserve(v.Node, v.Now)
		if denial != "" {
			return v.deniedStep(denial)
		}
		if given != nil {
			release = given
		}
	}
	next.Session, next.UID = v.sessionName(), v.Node.UID
	if v.mark == nil {
		next.Fault = openerOf(v.openingFault())
	}
	if first {
		next.AppliedAt = microTime(v.Now)
	}
	step := v.cordonAndTaintStep(next, cordons)
	step.Undo = release
	return step
}

// deniedStep waits for a place in the budget.
func (v *view) deniedStep(denial string) Step {
	session, f := v.sessionName(), v.openingFault()
	return v.flushMark(Step{Why: Denied, After: deniedFor, Message: denial, Settle: func(st *v1alpha1.NodeFaultStatus) {
		if !isOpen(st) {
			beginSession(st, session, f)
		}
		st.HealthySince = nil
		recordAction(st, changeevent.ActionBudgetExhausted, denial, v.Now)
	}})
}

// cordonAndTaintStep writes the desired changes and the mark in one request.
func (v *view) cordonAndTaintStep(next mark, cordon bool) Step {
	node := v.Node.DeepCopy()
	node.Spec.Unschedulable = node.Spec.Unschedulable || cordon
	if cordon && !isTracked(node) {
		next.Tracked = true
		setCordonManager(node, v.Now)
	}
	for _, t := range next.Taints {
		if !hasTaint(node.Spec.Taints, t) {
			node.Spec.Taints = append(node.Spec.Taints, t)
		}
	}
	writeAnnotation(node, v1alpha1.AnnotationOwned, next)
	delete(node.Annotations, v1alpha1.AnnotationReleased)
	setPhaseLabel(node, "quarantined")
	v.mark = &next
	settle := v.settleMark(func(st *v1alpha1.NodeFaultStatus) { st.HealthySince = nil })
	return Step{Node: node, Settle: settle, After: AtOnce, Why: v.quarantineSituation(), Message: "the controller quarantines the node"}
}

// grownMark returns the mark with all desired changes, whether they require a cordon, and
// whether they exceed the current ones. The mark never shrinks during a session: changes
// for one fault stay until all faults are gone.
func (v *view) grownMark() (next mark, cordons, more bool) {
	wish := v.Verdict.DesiredActions
	if v.mark != nil {
		next = *v.mark
		next.Taints, next.Undone = slices.Clone(next.Taints), slices.Clone(next.Undone)
	}
	more = v.mark == nil && (wish.Cordon || len(wish.Taints) > 0)
	if wish.Cordon && !next.Cordon && !next.Foreign {
		cordons = !v.isCordoned()
		next.Cordon, next.Foreign = cordons, !cordons
		more = true
	}
	for _, t := range wish.Taints {
		if hasTaintOf(next.Taints, t) || slices.Contains(next.Undone, taintName(t)) || hasTaintOf(v.Node.Spec.Taints, t) {
			continue
		}
		next.Taints = append(next.Taints, t)
		more = true
	}
	return next, cordons, more
}

// unchangedStep returns the step of a node that has all desired changes.
func (v *view) unchangedStep() Step {
	step := Step{Why: v.quarantineSituation(), Act: true, Message: "the node is quarantined", Settle: func(st *v1alpha1.NodeFaultStatus) { st.HealthySince = nil }}
	switch {
	case v.mark == nil:
		// Nothing is written to the node, so the session exists only in the status.
		step.Message = "the node stays in service, as the rules require"
		if !isOpen(v.Status) {
			session, f := v.sessionName(), v.openingFault()
			step.Act, step.After = false, AtOnce
			step.Settle = func(st *v1alpha1.NodeFaultStatus) { beginSession(st, session, f) }
		}
	case v.mark.Foreign:
		step.Message = "the node is quarantined; another client had cordoned it before, so it stays cordoned after its release"
	case !v.mark.Cordon:
		step.Message = "the node is tainted"
	}
	return v.flushMark(step)
}
