package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

const (
	// requeueSoon is the requeue delay while the cache is stale.
	requeueSoon = 20 * time.Millisecond
	// maxSteps limits the steps of one reconcile. It exceeds the steps that any node can
	// make without waiting.
	maxSteps = 8
)

// A judge evaluates the rules. It is implemented by *rules.Set.
type judge interface {
	Decide(node *corev1.Node, faults []v1alpha1.Fault, now time.Time) (nodefault.Verdict, error)
}

// A drainer drains nodes. It is implemented by *drain.Drainer.
type drainer interface {
	Step(ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	Cancel(status *v1alpha1.NodeFaultStatus, reason string, now time.Time)
	ProgressOrWaitMessage(status *v1alpha1.NodeFaultStatus) string
}

// A remediator repairs nodes. It is implemented by *remediation.Remediator.
type remediator interface {
	Step(ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	RecordJanitorActions(ctx context.Context, node *corev1.Node, status *v1alpha1.NodeFaultStatus) error
	Cancel(ctx context.Context, status *v1alpha1.NodeFaultStatus, reason string, now time.Time) error
	BlocksRelease(status *v1alpha1.NodeFaultStatus) bool
}

// A reconciler reconciles one node at a time. Nothing else writes to that node.
type reconciler struct {
	cfg        Config
	nodes      nodes
	faults     faults
	rules      judge
	quarantine *quarantine.Quarantine
	drain      drainer
	remedy     remediator
	// enrollSinks adds new sinks to a status before records are added to it.
	enrollSinks func(status *v1alpha1.NodeFaultStatus, now time.Time)
	// hasStartedAction reports whether a reboot or termination of a node was started,
	// regardless of who requested it.
	hasStartedAction func(ctx context.Context, node string) (bool, error)

	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// A reconcileState is the state of a node in one reconcile.
type reconcileState struct {
	node  *corev1.Node // nil if it does not exist
	fault *v1alpha1.NodeFault

	now    time.Time           // the time of the current step
	before *v1alpha1.NodeFault // the NodeFault as stored before the current step
}

// Reconcile advances a node as far as possible.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.readNodeAndCreateFaultIfNeeded(ctx, req.Name)
	if err != nil || s == nil {
		return requeueSoonIfStale(0, err)
	}
	for range maxSteps {
		wroteFault, after, err := r.reconcileNodeOnce(ctx, s)
		if err != nil || !wroteFault {
			return requeueSoonIfStale(after, err)
		}
	}
	return reconcile.Result{RequeueAfter: requeueSoon}, nil
}

// requeueSoonIfStale returns the result of a reconcile. A stale read is not an error.
func requeueSoonIfStale(after time.Duration, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errStaleCache), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// readNodeAndCreateFaultIfNeeded reads the state of a node. It returns nil if there is nothing to do.
func (r *reconciler) readNodeAndCreateFaultIfNeeded(
	ctx context.Context, name string,
) (*reconcileState, error) {
	node, err := r.nodes.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	fault, err := r.faults.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if fault != nil {
		return &reconcileState{node: node, fault: fault.DeepCopy()}, nil
	}

	// A mark on a node, or a reboot that anyone requested, is recorded even without a fault.
	needed := node != nil && hasOwnedAnnotation(node)
	if !needed {
		needed, err = r.hasStartedAction(ctx, name)
		if err != nil {
			return nil, err
		}
	}
	if !needed {
		return nil, nil //nolint:nilnil // there is nothing to do, and nothing wrong
	}
	fault, err = r.faults.Create(ctx, name)
	if err != nil {
		return nil, err
	}
	return &reconcileState{node: node, fault: fault.DeepCopy()}, nil
}

// reconcileNodeOnce makes one step and writes the results: first the Node, if it must change,
// and then the NodeFault. It reports whether something was written, and the requeue delay
// if not.
func (r *reconciler) reconcileNodeOnce(
	ctx context.Context, s *reconcileState,
) (wroteFault bool, after time.Duration, err error) {
	dropped, err := r.dropFaultsOfDeletedNode(ctx, s)
	if dropped || err != nil {
		return dropped, 0, err
	}
	s.now, s.before = r.now(), s.fault.DeepCopy()
	status := &s.fault.Status
	r.enrollSinks(status, s.now)

	// Decide whether the node must be in quarantine.
	verdict := r.evaluateRules(ctx, s)
	step, err := r.quarantine.Step(quarantine.StepInput{
		Now:     s.now,
		Node:    s.node,
		Status:  status,
		Verdict: verdict,
		Faults:  s.fault.Spec.Faults,
		Busy:    r.remedy.BlocksRelease(status),
	})
	if err != nil {
		return false, 0, fmt.Errorf("decide for node %q: %w", s.fault.Name, err)
	}

	// Write the Node before anything relies on its quarantine.
	if err := r.writeNodeOrUndoReservation(ctx, s, step); err != nil {
		return false, 0, errors.Join(err, r.recordRejectionIfPersistent(ctx, s, step, err))
	}

	// Drain and repair the node. A cancelled drain is recorded with the data of the session, so
	// before Settle, which may end the session.
	if reason, cancels := drainCancelReason(step, verdict); cancels {
		r.drain.Cancel(status, reason, s.now)
	}
	step.Settle(status)
	after, err = r.drainAndRepair(ctx, s, step)
	if err != nil {
		return false, 0, err
	}

	// Write the status, or delete a NodeFault that is no longer needed.
	r.completeStatus(s, step)
	if equality.Semantic.DeepEqual(&s.before.Status, status) {
		untilDeletion, err := r.deleteFaultAfterTTL(ctx, s)
		return false, shortestDelay(after, step.After, verdict.After, untilDeletion), err
	}
	if err := r.faults.WriteStatus(ctx, s.before, s.fault); err != nil {
		return false, 0, err
	}
	r.logAndCountNewRecords(ctx, &s.before.Status, s.fault)
	return true, 0, nil
}

// evaluateRules returns the verdict of the rules about a node. If a rule fails, the verdict has
// the results of the other rules and is marked as unsure.
func (r *reconciler) evaluateRules(ctx context.Context, s *reconcileState) nodefault.Verdict {
	verdict, err := r.rules.Decide(s.node, s.fault.Spec.Faults, s.now)
	if err != nil {
		r.log.WarnContext(ctx, "rule evaluation failed", "node", s.fault.Name, "err", err)
		r.metrics.ruleErrors.Inc()
	}
	return verdict
}

// completeStatus sets the fields of the status that follow from the results of the stages.
func (r *reconciler) completeStatus(s *reconcileState, step quarantine.Step) {
	before, status := &s.before.Status, &s.fault.Status
	status.ObservedGeneration = s.fault.Generation
	r.setPhaseMessageAndConditions(before, status, step, s.now)
	status.Budget = nil
	if s.node != nil && (status.Owned != nil || status.Phase == v1alpha1.PhasePending) {
		status.Budget = r.quarantine.LimitOf(s.node)
	}
	if status.LastSequence == before.LastSequence { // no new record for the sinks
		status.SinkDeliveries = before.SinkDeliveries
	}
}

// drainAndRepair drains and repairs a quarantined node, or stops doing so. It returns the
// requeue delay.
func (r *reconciler) drainAndRepair(
	ctx context.Context, s *reconcileState, step quarantine.Step,
) (after time.Duration, err error) {
	var drainDelay time.Duration
	completed := r.completeDrainIfNoPods(ctx, s, step)
	if !completed && needsDrainStep(&s.fault.Status, step) {
		drainDelay, err = r.drain.Step(ctx, s.node, &s.fault.Status, s.now)
		if err != nil {
			return 0, fmt.Errorf("drain node %q: %w", s.fault.Name, err)
		}
	}
	remedyDelay, err := r.cancelAdvanceOrRecordRemedy(ctx, s, step)
	if err != nil {
		return 0, fmt.Errorf("repair node %q: %w", s.fault.Name, err)
	}
	return shortestDelay(drainDelay, remedyDelay), nil
}

// needsDrainStep reports whether the drainer must look at a node: to begin, continue or end a
// drain, or to record what a drain would do in a dry run.
func needsDrainStep(status *v1alpha1.NodeFaultStatus, step quarantine.Step) bool {
	desired := status.DesiredActions
	dryRun := step.Why == quarantine.DryRun && desired != nil && desired.DryRun
	if !step.Act && !dryRun {
		return false
	}
	return status.Drain != nil || desired != nil && desired.Drain
}

// completeDrainIfNoPods completes the drain of a newly quarantined node without pods to evict,
// and reports whether it did. The drain is then recorded with the cordon. All other
// drains begin at the next reconcile, also if the pods are unknown now.
func (r *reconciler) completeDrainIfNoPods(
	ctx context.Context, s *reconcileState, step quarantine.Step,
) (completed bool) {
	status := &s.fault.Status
	desired := status.DesiredActions
	newlyQuarantined := step.Node != nil && !step.Act && status.Owned != nil && isQuarantined(step.Why)
	mustDrain := desired != nil && desired.Drain && !desired.DryRun && status.Drain == nil
	if !newlyQuarantined || !mustDrain {
		return false
	}

	// Try it on a copy, because the status must not show a drain that has only begun.
	tried := status.DeepCopy()
	_, err := r.drain.Step(ctx, s.node, tried, s.now)
	if err != nil || tried.Drain == nil || tried.Drain.State != v1alpha1.DrainCompleted {
		return false
	}
	*status = *tried
	return true
}

// isQuarantined reports whether a node in a situation is out of service by a decision of the
// pipeline.
func isQuarantined(why quarantine.Situation) bool {
	return why == quarantine.Ours || why == quarantine.Foreign
}

// cancelAdvanceOrRecordRemedy continues the remedies of a node. Without step.Act no remedy
// starts, and a running one continues to its end. If a person has overridden the quarantine,
// released the node or opted it out, the remedy is cancelled.
func (r *reconciler) cancelAdvanceOrRecordRemedy(
	ctx context.Context, s *reconcileState, step quarantine.Step,
) (after time.Duration, err error) {
	status := &s.fault.Status
	unwanted := step.Why == quarantine.Overridden || step.Why == quarantine.OptedOut || step.Why == quarantine.Released
	if unwanted {
		reason, _ := cancelReason(step.Why)
		if err := r.remedy.Cancel(ctx, status, reason, s.now); err != nil {
			return 0, err
		}
	}
	if step.Act || r.remedy.BlocksRelease(status) {
		return r.remedy.Step(ctx, s.node, status, s.now)
	}
	return 0, r.remedy.RecordJanitorActions(ctx, s.node, status)
}

// cancelReason returns why actions in progress are cancelled, and whether they are.
func cancelReason(why quarantine.Situation) (reason string, cancels bool) {
	switch why {
	case quarantine.Overridden:
		return "a person has uncordoned the node", true
	case quarantine.OptedOut:
		return "the node was opted out", true
	case quarantine.Gone:
		return "the node was deleted", true
	case quarantine.Released:
		return "the node was released", true
	case quarantine.Recovering, quarantine.Held:
		return "the node is healthy again", true
	case quarantine.Observing:
		return "no rule requires the action any more", true
	case quarantine.Denied, quarantine.DryRun, quarantine.Ours, quarantine.Foreign:
		// Actions in progress continue.
	}
	return "", false
}

// drainCancelReason is cancelReason for a drain. While the rules do not tell whether the drain is
// still required, it would keep its drain slot without progress, so it ends until they do.
func drainCancelReason(step quarantine.Step, verdict nodefault.Verdict) (reason string, cancels bool) {
	reason, cancels = cancelReason(step.Why)
	required := nodefault.RequiresAction(verdict.DesiredActions) && !verdict.DesiredActions.DryRun
	if !cancels && verdict.Unsure && !required && !step.Act {
		return "the rules could not be evaluated", true
	}
	return reason, cancels
}

// shortestDelay returns the shortest delay. Zero and drain.Never mean no delay.
func shortestDelay(waits ...time.Duration) time.Duration {
	var shortest time.Duration
	for _, wait := range waits {
		if wait <= 0 || wait == drain.Never {
			continue
		}
		if shortest == 0 || wait < shortest {
			shortest = wait
		}
	}
	return shortest
}
