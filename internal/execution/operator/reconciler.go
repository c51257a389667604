package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

const (
	// requeueSoon is the requeue delay while the cache is stale.
	requeueSoon = 25 * time.Millisecond
	// maxSteps limits the steps of one reconcile. No execution needs that many without waiting.
	maxSteps = 12
)

// reconciler moves executions from phase to phase. Its newPhaseTable shows the order of the work.
type reconciler struct {
	cfg     *Config
	writer  *statusWriter
	slots   *gateSlots
	runs    *runs
	events  *eventEmitter
	targets targetWatcher
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time

	validation *validation
	approval   *approval
	launch     *launch
	running    *running
	ending     *ending
	phases     map[v1alpha1.Phase][]step

	// readStop reads the emergency stop ConfigMap.
	readStop func(context.Context) error
	// halted is true while the emergency stop also cancels running executions.
	halted *atomic.Bool

	mu       sync.Mutex
	restored bool
}

// ports connect a reconciler to its surroundings.
type ports struct {
	executions executions
	jobs       jobs
	check      checker
	identities identities
	gate       *execution.Gate
	guard      admissionGuard
	recorder   execution.Recorder
	outbox     *Outbox
	events     events.EventRecorder
	targets    targetWatcher
	metrics    *metrics
	log        *slog.Logger
	now        func() time.Time
	readStop   func(context.Context) error
	halted     *atomic.Bool
}

func newReconciler(cfg *Config, p ports) *reconciler {
	r := &reconciler{
		cfg:     cfg,
		writer:  &statusWriter{cfg: cfg, executions: p.executions, outbox: p.outbox, recorder: p.recorder, log: p.log, now: p.now},
		slots:   &gateSlots{gate: p.gate, claimed: map[types.NamespacedName]types.UID{}},
		runs:    &runs{cfg: cfg, jobs: p.jobs},
		events:  &eventEmitter{p.events, p.log},
		targets: p.targets, metrics: p.metrics, log: p.log, now: p.now, readStop: p.readStop, halted: p.halted,
	}
	check, retries := &measuredChecker{p.check, p.metrics}, &startRetries{cfg: cfg, runs: r.runs, slots: r.slots, events: r.events, log: p.log}
	r.approval = &approval{cfg: cfg, guard: p.guard, events: r.events, metrics: p.metrics, log: p.log, now: p.now}
	r.validation = &validation{cfg: cfg, check: check, guard: p.guard, runs: r.runs, targets: p.targets, events: r.events, log: p.log, now: p.now}
	r.launch = &launch{cfg: cfg, check: check, slots: r.slots, runs: r.runs, writer: r.writer, approval: r.approval, retries: retries, events: r.events, metrics: p.metrics}
	r.running = &running{
		cfg: cfg, check: check, identities: p.identities, runs: r.runs, slots: r.slots, retries: retries, targets: p.targets, events: r.events, metrics: p.metrics,
	}
	r.ending = &ending{cfg: cfg, slots: r.slots, runs: r.runs, writer: r.writer, launch: r.launch, running: r.running, metrics: p.metrics}
	r.phases = r.newPhaseTable()
	return r
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
	afterWrite   []func(context.Context) // runs after the status is written

	events []v1alpha1.PendingChangeEvent // change events of this write

	dryRun      *action.Result // result of the dry run in a Job
	continueNow bool           // the next step needs this write first
	checked     bool           // the checks ran in this step
	atGate      bool           // it has a slot at the gate or queues for one
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

// addAfterWrite adds a function that runs after the status is written.
func (t *reconcileState) addAfterWrite(do func(context.Context)) {
	t.afterWrite = append(t.afterWrite, do)
}

// Reconcile runs the steps of an execution until it waits.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if err := r.restoreGate(ctx); err != nil {
		return reconcile.Result{}, err
	}
	ke, err := r.writer.executions.Get(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read execution %s: %w", req.NamespacedName, err)
	}
	if ke == nil {
		r.forgetPreviousExecution(req.NamespacedName, "")
		return reconcile.Result{RequeueAfter: r.writer.outbox.DeliverEventsOfDeleted(ctx, req.NamespacedName, "", r.now())}, nil
	}
	r.forgetPreviousExecution(req.NamespacedName, ke.UID)
	gone := r.writer.outbox.DeliverEventsOfDeleted(ctx, req.NamespacedName, ke.UID, r.now())
	r.writer.outbox.SyncQueueFromStatus(ke)
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

// reconcileOnce runs the steps of a phase and writes the status. It returns the stored execution if
// the next phase can run now, and nil if the execution waits.
func (r *reconciler) reconcileOnce(ctx context.Context, ke *v1alpha1.KubernetesExecution) (continueWith *v1alpha1.KubernetesExecution, requeueAfter time.Duration, err error) {
	t := &reconcileState{ke: ke, now: r.now()}
	before := ke.DeepCopy()
	if r.cfg.DryRun {
		ke.Spec.DryRunMode = v1alpha1.DryRunOnly
	}
	if r.halted.Load() && ke.Status.Phase == v1alpha1.PhaseExecuting {
		ke.Spec.Cancel = true
	}
	if err := r.runPhase(ctx, t); err != nil {
		return nil, 0, err
	}
	if !r.writer.dropAcknowledgedAndCheckWrite(t, before) {
		return nil, t.requeueAfter, r.writer.ensureFinalizerAndDeliverEvents(ctx, t)
	}
	if err := r.writer.writeTransition(ctx, t, before); err != nil {
		return nil, 0, err
	}
	r.releaseUnusedGateSlot(t)
	r.writer.publishChangeEvents(ctx, t)
	for _, do := range t.afterWrite {
		do(ctx)
	}
	if before.Status.Phase != t.ke.Status.Phase {
		r.reportTransitionAndLeaveGate(ctx, before, t.ke)
	}
	if err := r.writer.ensureFinalizerAndDeliverEvents(ctx, t); err != nil {
		return nil, 0, err
	}
	switch {
	case before.Status.Phase == v1alpha1.PhaseNew && t.ke.Status.Phase == v1alpha1.PhaseValidating: // checked and waiting
	case before.Status.Phase != t.ke.Status.Phase, t.continueNow:
		return t.ke, 0, nil
	}
	return nil, t.requeueAfter, nil
}

// reportTransitionAndLeaveGate updates metrics, logs, events and the gate after a transition is written.
func (r *reconciler) reportTransitionAndLeaveGate(ctx context.Context, before, ke *v1alpha1.KubernetesExecution) {
	s, now := &ke.Status, r.now()
	r.metrics.countTransitions(before, ke)
	r.log.InfoContext(ctx, "phase", "execution", logKey(ke), "action", canonicalAction(ke.Spec.Action), "target", s.Target,
		"from", string(before.Status.Phase), "to", string(s.Phase), "reason", string(s.Reason), "detail", string(s.ReasonDetail), "message", s.Message)
	done := execution.IsFinal(s.Phase) || s.Phase == v1alpha1.PhaseRollbackReady
	if done || isBeforeValidated(before.Status.Phase) && !isBeforeValidated(s.Phase) {
		r.targets.stopWaiting(nameOf(ke))
	}
	if done {
		r.slots.releaseSlot(ke, now)
		r.runs.forgetRuns(ke.UID)
	}
	for _, p := range listNewPhaseChanges(before, ke) {
		r.events.emitPhaseChange(p, ke)
	}
}

// isBeforeValidated reports whether the checks of a phase have not passed yet.
func isBeforeValidated(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseNew || p == v1alpha1.PhaseValidating
}

// releaseUnusedGateSlot releases the gate slot of an execution that neither runs nor queues, after that
// is written. Before the write it may still run, by an earlier write whose response was lost: the
// object that was read may be older.
func (r *reconciler) releaseUnusedGateSlot(t *reconcileState) {
	p := t.ke.Status.Phase
	if t.atGate || p == v1alpha1.PhaseExecuting || p == v1alpha1.PhaseRollbackReady || execution.IsFinal(p) {
		return
	}
	r.runs.inline.Delete(t.ke.UID)
	r.slots.gate.Forget(t.ke.UID)
}

// forgetPreviousExecution drops the state of a name, unless it belongs to the execution that has the name
// now. An empty UID means that no such execution exists.
func (r *reconciler) forgetPreviousExecution(name types.NamespacedName, currentUID types.UID) {
	previous, known := r.slots.takePreviousClaim(name, currentUID)
	if known || currentUID == "" {
		r.targets.stopWaiting(name)
	}
	if known {
		r.runs.forgetRuns(previous)
		r.slots.gate.Forget(previous)
	}
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
	all, err := r.writer.executions.List(ctx)
	if err != nil {
		return fmt.Errorf("list executions: %w", err)
	}
	withJob, err := r.runs.jobs.ActionJobNames(ctx) // the cache may not have all of them yet
	if err != nil {
		return err
	}
	var inside []execution.Claim
	var past []execution.PastExecution
	for i := range all {
		ke := &all[i]
		switch {
		case execution.IsFinal(ke.Status.Phase), ke.Status.Phase == v1alpha1.PhaseRollbackReady:
			if p, ok := newGatePast(ke); ok {
				past = append(past, p)
			}
		case ke.Status.Phase == v1alpha1.PhaseExecuting:
			inside = append(inside, newGateClaim(ke))
		case ke.Status.Plan != nil && withJob[actionJobName(ke)]: // another operator created its Job just before it ended
			r.runs.launched.Store(ke.UID, true)
			inside = append(inside, newGateClaim(ke))
		}
	}
	r.slots.restore(inside, past)
	r.restored = true
	return nil
}

// wakeRunningExecutions wakes all executions in phase executing.
func wakeRunningExecutions(ctx context.Context, from executions, wake func(types.NamespacedName)) error {
	all, err := from.List(ctx)
	if err != nil {
		return fmt.Errorf("list executions: %w", err)
	}
	for i := range all {
		if all[i].Status.Phase == v1alpha1.PhaseExecuting {
			wake(nameOf(&all[i]))
		}
	}
	return nil
}
