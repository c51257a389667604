package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/gate"
	"github.com/fleetloop/fleetloop/internal/execution/outbox"
)

const (
	// requeueSoon is the requeue delay while the cache is stale.
	requeueSoon = 25 * time.Millisecond
	// maxSteps limits the steps of one reconcile. No execution needs that many without waiting.
	maxSteps = 12
)

// reconciler moves executions from phase to phase.
type reconciler struct {
	cfg        Config
	executions executions
	jobs       jobs
	check      checker
	identities identities
	gate       *gate.Gate
	guard      admissionGuard
	recorder   execution.Recorder
	outbox     *outbox.Outbox
	events     eventEmitter
	targets    targetWatcher
	metrics    *metrics
	log        *slog.Logger
	now        func() time.Time

	// readStop reads the emergency stop ConfigMap.
	readStop func(context.Context) error
	// halted is true while the emergency stop also cancels running executions.
	halted atomic.Bool

	mu         sync.Mutex
	restored   bool
	launched   map[types.UID]bool                 // executions whose Job this process created
	claimed    map[types.NamespacedName]types.UID // executions that the gate knows
	inlineRuns map[types.UID]inlineRun            // inline actions that this process has started or was about to start
}

// targetWatcher wakes executions when their target changes. *targetWatches implements it.
type targetWatcher interface {
	watchTarget(name types.NamespacedName, t v1alpha1.Target)
	stopWaiting(name types.NamespacedName)
}

// reconcileState is the state of one reconcile step of an execution.
type reconcileState struct {
	ke           *v1alpha1.KubernetesExecution // with the status to write
	now          time.Time
	requeueAfter time.Duration           // zero means that only a change requeues
	beforeWrite  []func()                // runs before the status is written
	afterWrite   []func(context.Context) // runs after the status is written

	events []v1alpha1.PendingChangeEvent // change events of this write

	continueNow bool // the next step needs this write first
	checked     bool // the checks ran in this step
	atGate      bool // it has a slot at the gate or queues for one
}

// requeueIn requeues the execution after d, unless it is requeued earlier.
func (t *reconcileState) requeueIn(d time.Duration) {
	if d <= 0 {
		d = requeueSoon
	}
	if t.requeueAfter == 0 || d < t.requeueAfter {
		t.requeueAfter = d
	}
}

// requeueAt requeues the execution at a time.
func (t *reconcileState) requeueAt(when time.Time) { t.requeueIn(when.Sub(t.now)) }

// addBeforeWrite adds a function that runs before the status is written.
func (t *reconcileState) addBeforeWrite(do func()) { t.beforeWrite = append(t.beforeWrite, do) }

// addAfterWrite adds a function that runs after the status is written.
func (t *reconcileState) addAfterWrite(do func(context.Context)) {
	t.afterWrite = append(t.afterWrite, do)
}

// Reconcile runs the steps of an execution until it waits.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.restoreGate(ctx); err != nil {
		return reconcile.Result{}, err
	}
	ke, err := r.executions.Get(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read execution %s: %w", req.NamespacedName, err)
	}
	if ke == nil {
		r.forgetPrevious(req.NamespacedName, "")
		return reconcile.Result{RequeueAfter: r.outbox.DeliverDeleted(ctx, req.NamespacedName, "", r.now())}, nil
	}
	r.forgetPrevious(req.NamespacedName, ke.UID)
	gone := r.outbox.DeliverDeleted(ctx, req.NamespacedName, ke.UID, r.now())
	r.outbox.SyncQueue(ke)
	for range maxSteps {
		moved, again, err := r.reconcileOnce(ctx, ke.DeepCopy())
		if stale := (staleError{}); errors.As(err, &stale) { // the object has changed since it was read
			return reconcile.Result{RequeueAfter: requeueSoon}, nil
		}
		if err != nil || moved == nil {
			if gone > 0 && (again == 0 || gone < again) {
				again = gone
			}
			return reconcile.Result{RequeueAfter: again}, err
		}
		ke = moved
	}
	return reconcile.Result{RequeueAfter: requeueSoon}, nil
}

// reconcileOnce runs one step and writes the status. It returns the stored execution if the next
// step can run now, as after a phase change, and nil if the execution waits.
func (r *reconciler) reconcileOnce(ctx context.Context, ke *v1alpha1.KubernetesExecution) (continueWith *v1alpha1.KubernetesExecution, again time.Duration, err error) {
	t := &reconcileState{ke: ke, now: r.now()}
	before := ke.DeepCopy()
	if r.cfg.DryRun {
		ke.Spec.DryRunMode = v1alpha1.DryRunOnly
	}
	if r.halted.Load() && ke.Status.Phase == v1alpha1.PhaseExecuting {
		ke.Spec.Cancel = true
	}
	if err := r.handleExecution(ctx, t); err != nil {
		return nil, 0, err
	}
	if !r.settleAndCheckWrite(t, before) {
		return nil, t.requeueAfter, r.holdAndDeliverEvents(ctx, t)
	}
	if err := validateTransitions(before, t.ke); err != nil {
		return nil, 0, reconcile.TerminalError(err)
	}
	r.addEventsToStatus(t, before)
	t.ke.Status.ObservedGeneration = t.ke.Generation
	if err := r.writeStatus(ctx, t.ke); err != nil {
		return nil, 0, err
	}
	r.releaseUnusedGateSlot(t)
	for i := range t.events {
		r.recorder.Record(ctx, outbox.ChangeOf(t.ke, &t.events[i]))
	}
	r.outbox.SyncQueue(t.ke)
	for _, do := range t.afterWrite {
		do(ctx)
	}
	if before.Status.Phase != t.ke.Status.Phase {
		r.publishTransition(ctx, before, t.ke)
	}
	if err := r.holdAndDeliverEvents(ctx, t); err != nil {
		return nil, 0, err
	}
	switch {
	case before.Status.Phase == v1alpha1.PhaseNew && t.ke.Status.Phase == v1alpha1.PhaseValidating: // checked and waiting
	case before.Status.Phase != t.ke.Status.Phase, t.continueNow:
		return t.ke, 0, nil
	}
	return nil, t.requeueAfter, nil
}

// settleAndCheckWrite reports whether the status differs from the stored one. Acknowledgements of sinks wait
// for another write, unless the execution is over.
func (r *reconciler) settleAndCheckWrite(t *reconcileState, before *v1alpha1.KubernetesExecution) bool {
	other := !equality.Semantic.DeepEqual(&before.Status, &t.ke.Status)
	settled, wait := r.outbox.RemoveAcknowledged(t.ke, t.now)
	over := !t.ke.DeletionTimestamp.IsZero() || execution.Ended(t.ke.Status.Phase) && (!r.cfg.Audited || isRecorded(t.ke))
	switch {
	case other || !settled:
		return other
	case wait > 0 && (!over || len(t.ke.Status.PendingChangeEvents) > 0):
		t.requeueIn(wait)
		t.ke.Status.PendingChangeEvents = before.Status.PendingChangeEvents
		return false
	}
	t.continueNow = true // the next step needed this write
	return true
}

// addEventsToStatus adds the change events of this write to the status.
func (r *reconciler) addEventsToStatus(t *reconcileState, before *v1alpha1.KubernetesExecution) {
	for _, do := range t.beforeWrite {
		do()
	}
	for _, p := range phaseChanges(before, t.ke) {
		r.recordPhaseChange(t, p)
	}
	for _, e := range t.events {
		r.outbox.Append(&t.ke.Status, e)
	}
}

// holdAndDeliverEvents sends pending change events. An execution whose events are not delivered soon gets
// the finalizer, so that its deletion does not lose them.
func (r *reconciler) holdAndDeliverEvents(ctx context.Context, t *reconcileState) error {
	hold, again := r.outbox.NeedsFinalizer(t.ke, t.now)
	if again > 0 {
		t.requeueIn(again)
	}
	if hold && t.ke.DeletionTimestamp.IsZero() {
		if err := r.executions.SetFinalizer(ctx, t.ke, true); err != nil {
			return asStaleError(err)
		}
	}
	if again := r.outbox.Deliver(ctx, t.ke, t.now); again > 0 {
		t.requeueIn(again)
	}
	return nil
}

// releaseUnusedGateSlot releases the gate slot of an execution that neither runs nor queues, after that
// is written. Before the write it may still run, by an earlier write whose response was lost: the
// object that was read may be older.
func (r *reconciler) releaseUnusedGateSlot(t *reconcileState) {
	p := t.ke.Status.Phase
	if t.atGate || p == v1alpha1.PhaseExecuting || p == v1alpha1.PhaseRollbackReady || execution.Ended(p) {
		return
	}
	r.mu.Lock()
	delete(r.inlineRuns, t.ke.UID)
	r.mu.Unlock()
	r.gate.Forget(t.ke.UID)
}

// validateTransitions returns an error if the new status contains a phase transition that is not
// allowed.
func validateTransitions(before, ke *v1alpha1.KubernetesExecution) error {
	from := before.Status.Phase
	for _, passed := range ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):] {
		if !execution.CanTransition(from, passed.Phase) {
			return fmt.Errorf("invalid phase transition of execution %s from %q to %q", logKey(ke), from, passed.Phase)
		}
		from = passed.Phase
	}
	if from != ke.Status.Phase {
		return fmt.Errorf("execution %s is in phase %q, but its phase transitions from %q are missing", logKey(ke), ke.Status.Phase, from)
	}
	return nil
}

// handleExecution handles the deletion or the phase of an execution.
func (r *reconciler) handleExecution(ctx context.Context, t *reconcileState) error {
	if !t.ke.DeletionTimestamp.IsZero() {
		return r.handleDeletion(ctx, t)
	}
	return r.handlePhase(ctx, t)
}

// handlePhase runs the step of the current phase.
func (r *reconciler) handlePhase(ctx context.Context, t *reconcileState) error {
	switch t.ke.Status.Phase {
	case v1alpha1.PhaseNew:
		return r.acceptAndValidate(ctx, t)
	case v1alpha1.PhaseValidating:
		return r.validateExecution(ctx, t)
	case v1alpha1.PhaseValidated:
		return r.proceedValidated(ctx, t)
	case v1alpha1.PhaseWaitingApproval:
		return r.launchOnceApproved(ctx, t)
	case v1alpha1.PhaseExecuting:
		return r.advanceRunningAction(ctx, t)
	case v1alpha1.PhaseRollbackReady:
		return r.awaitFinalize(ctx, t)
	case v1alpha1.PhaseCompleted, v1alpha1.PhaseFailed:
		return r.cleanUpEnded(ctx, t)
	}
	return reconcile.TerminalError(fmt.Errorf("execution %s is in phase %q, which this version does not support", logKey(t.ke), t.ke.Status.Phase))
}

// staleError is the error of a write because the execution changed since it was read.
type staleError struct{ error }

// Unwrap returns the cause.
func (e staleError) Unwrap() error { return e.error }

// asStaleError wraps a conflict or a missing object in a staleError.
func asStaleError(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return staleError{err}
	}
	return err
}

// writeStatus writes the status without the condition of the auditor.
func (r *reconciler) writeStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	auditors := takeCondition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	err := r.executions.ApplyStatus(ctx, ke, component)
	if err != nil && auditors != nil {
		ke.Status.Conditions = append(ke.Status.Conditions, *auditors)
	}
	return asStaleError(err)
}

// restoreGate loads running and past executions into the gate before the first reconcile.
func (r *reconciler) restoreGate(ctx context.Context) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.restored {
		return nil
	}
	if err := r.readStop(ctx); err != nil {
		return err
	}
	all, err := r.executions.List(ctx)
	if err != nil {
		return fmt.Errorf("list executions: %w", err)
	}
	running, err := r.jobs.ActionJobNames(ctx) // the cache may not have all of them yet
	if err != nil {
		return err
	}
	var inside []gate.Claim
	var past []gate.Past
	for i := range all {
		ke := &all[i]
		switch {
		case execution.Ended(ke.Status.Phase), ke.Status.Phase == v1alpha1.PhaseRollbackReady:
			if p, ok := pastOf(ke); ok {
				past = append(past, p)
			}
		case ke.Status.Phase == v1alpha1.PhaseExecuting:
			inside = append(inside, r.gateClaim(ke))
		case ke.Status.Plan != nil: // another operator may have created its Job just before it ended
			if running[runName(ke)] {
				r.launched[ke.UID] = true
				inside = append(inside, r.gateClaim(ke))
			}
		}
	}
	for _, c := range inside {
		r.claimed[c.Key] = c.UID // otherwise an execution that is deleted before its first reconcile would keep its slot
	}
	r.gate.Restore(inside, past)
	r.restored = true
	return nil
}

// wakeRunning wakes all executions in phase executing.
func (r *reconciler) wakeRunning(ctx context.Context, wake func(types.NamespacedName)) error {
	all, err := r.executions.List(ctx)
	if err != nil {
		return fmt.Errorf("list executions: %w", err)
	}
	for i := range all {
		if all[i].Status.Phase == v1alpha1.PhaseExecuting {
			wake(types.NamespacedName{Namespace: all[i].Namespace, Name: all[i].Name})
		}
	}
	return nil
}
