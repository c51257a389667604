package operator

import (
	"context"
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

	// The steps of the phases, in the order in which an execution passes them.
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
	restored bool // whether restoreGate has succeeded
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
		cfg: cfg,
		writer: &statusWriter{
			cfg: cfg, executions: p.executions, outbox: p.outbox, recorder: p.recorder, log: p.log, now: p.now,
		},
		slots:    &gateSlots{gate: p.gate, claimed: map[types.NamespacedName]types.UID{}},
		runs:     &runs{cfg: cfg, jobs: p.jobs},
		events:   &eventEmitter{recorder: p.events, log: p.log},
		targets:  p.targets,
		metrics:  p.metrics,
		log:      p.log,
		now:      p.now,
		readStop: p.readStop,
		halted:   p.halted,
	}
	check := &measuredChecker{checker: p.check, metrics: p.metrics}
	retries := &startRetries{cfg: cfg, runs: r.runs, slots: r.slots, events: r.events, log: p.log}

	r.validation = &validation{
		cfg: cfg, check: check, guard: p.guard, runs: r.runs,
		targets: p.targets, events: r.events, log: p.log, now: p.now,
	}
	r.approval = &approval{
		cfg: cfg, guard: p.guard, events: r.events, metrics: p.metrics, log: p.log, now: p.now,
	}
	r.launch = &launch{
		cfg: cfg, check: check, slots: r.slots, runs: r.runs, writer: r.writer,
		approval: r.approval, retries: retries, events: r.events, metrics: p.metrics,
	}
	r.running = &running{
		cfg: cfg, check: check, identities: p.identities, runs: r.runs, slots: r.slots,
		retries: retries, targets: p.targets, events: r.events, metrics: p.metrics,
	}
	r.ending = &ending{
		cfg: cfg, slots: r.slots, runs: r.runs, writer: r.writer,
		launch: r.launch, running: r.running, metrics: p.metrics,
	}
	r.phases = r.newPhaseTable()
	return r
}

// targetWatcher wakes executions when their target changes. *targetWatches implements it.
type targetWatcher interface {
	watchTarget(name types.NamespacedName, t v1alpha1.Target)
	stopWaiting(name types.NamespacedName)
}

// reconcileState is what the steps of a phase share until the status is written.
type reconcileState struct {
	ke  *v1alpha1.KubernetesExecution // with the status to write
	now time.Time

	requeueAfter time.Duration                 // zero means that only a change requeues
	events       []v1alpha1.PendingChangeEvent // change events of this write
	// afterWrite holds metrics, logs and events that must not report a status whose write fails.
	afterWrite []func(context.Context)

	dryRun      *action.Result // result of the dry run in a Job
	continueNow bool           // the next step needs this write first
	checked     bool           // the checks ran in this step
	atGate      bool           // it has a slot at the gate or queues for one
}

// requeueIn requeues the execution after a delay, unless it is requeued earlier.
func (s *reconcileState) requeueIn(delay time.Duration) {
	if delay <= 0 {
		delay = requeueSoon
	}
	if s.requeueAfter == 0 || delay < s.requeueAfter {
		s.requeueAfter = delay
	}
}

// requeueAt requeues the execution at a time, unless it is requeued earlier.
func (s *reconcileState) requeueAt(when time.Time) { s.requeueIn(when.Sub(s.now)) }

// addAfterWrite adds a function that runs after the status is written.
func (s *reconcileState) addAfterWrite(do func(context.Context)) {
	s.afterWrite = append(s.afterWrite, do)
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

	// An execution of the same name may have been deleted before. Its events are still delivered.
	var currentUID types.UID
	if ke != nil {
		currentUID = ke.UID
	}
	r.forgetPreviousExecution(req.NamespacedName, currentUID)
	requeueForDeleted := r.writer.outbox.DeliverEventsOfDeleted(ctx, req.NamespacedName, currentUID, r.now())
	if ke == nil {
		return reconcile.Result{RequeueAfter: requeueForDeleted}, nil
	}

	r.writer.outbox.SyncQueueFromStatus(ke)
	for range maxSteps {
		written, requeueAfter, err := r.reconcileOnce(ctx, ke.DeepCopy())
		if isStale(err) {
			return reconcile.Result{RequeueAfter: requeueSoon}, nil
		}
		if err != nil || written == nil {
			return reconcile.Result{RequeueAfter: shorterNonZero(requeueAfter, requeueForDeleted)}, err
		}
		ke = written
	}
	return reconcile.Result{RequeueAfter: requeueSoon}, nil
}

// reconcileOnce runs the steps of a phase and writes the status. It returns the stored execution if
// the next phase can run now, and nil if the execution waits.
func (r *reconciler) reconcileOnce(ctx context.Context, ke *v1alpha1.KubernetesExecution) (
	continueWith *v1alpha1.KubernetesExecution, requeueAfter time.Duration, err error,
) {
	state := &reconcileState{ke: ke, now: r.now()}
	before := ke.DeepCopy()
	r.overrideRequest(ke)
	if err := r.runPhase(ctx, state); err != nil {
		return nil, 0, err
	}
	if !r.writer.dropAcknowledgedAndCheckWrite(state, before) {
		return nil, state.requeueAfter, r.writer.ensureFinalizerAndDeliverEvents(ctx, state)
	}
	if err := r.writer.addChangeEventsAndWriteStatus(ctx, state, before); err != nil {
		return nil, 0, err
	}

	// The status is written. The rest follows from it.
	r.releaseUnusedGateSlot(state)
	r.writer.publishChangeEvents(ctx, state)
	for _, report := range state.afterWrite {
		report(ctx)
	}
	phaseChanged := before.Status.Phase != state.ke.Status.Phase
	if phaseChanged {
		r.reportTransition(ctx, before, state.ke)
		r.releaseAfterTransition(before, state.ke)
	}
	if err := r.writer.ensureFinalizerAndDeliverEvents(ctx, state); err != nil {
		return nil, 0, err
	}

	// The steps of phase new include those of phase validating. They ran, and wait for something.
	checksWait := before.Status.Phase == v1alpha1.PhaseNew && state.ke.Status.Phase == v1alpha1.PhaseValidating
	if (phaseChanged || state.continueNow) && !checksWait {
		return state.ke, 0, nil
	}
	return nil, state.requeueAfter, nil
}

// overrideRequest applies the dry-run mode of the controller and the emergency stop to a request. Only
// the status is written, so the override stays in memory.
func (r *reconciler) overrideRequest(ke *v1alpha1.KubernetesExecution) {
	if r.cfg.DryRun {
		ke.Spec.DryRunMode = v1alpha1.DryRunOnly
	}
	if r.halted.Load() && ke.Status.Phase == v1alpha1.PhaseExecuting {
		ke.Spec.Cancel = true
	}
}

// reportTransition updates metrics, logs and Kubernetes events after a transition is written.
func (r *reconciler) reportTransition(ctx context.Context, before, ke *v1alpha1.KubernetesExecution) {
	status := &ke.Status
	r.metrics.countTransitions(before, ke)
	r.log.InfoContext(ctx, "phase",
		"execution", logKey(ke), "action", canonicalAction(ke.Spec.Action), "target", status.Target,
		"from", string(before.Status.Phase), "to", string(status.Phase),
		"reason", string(status.Reason), "detail", string(status.ReasonDetail), "message", status.Message)
	for _, change := range listNewPhaseChanges(before, ke) {
		r.events.emitPhaseChange(change, ke)
	}
}

// releaseAfterTransition releases what an execution no longer needs after a written transition: the
// watch of its target, its gate slot and the memory of its runs.
func (r *reconciler) releaseAfterTransition(before, ke *v1alpha1.KubernetesExecution) {
	actionOver := execution.IsFinal(ke.Status.Phase) || ke.Status.Phase == v1alpha1.PhaseRollbackReady
	checksOver := isBeforeValidated(before.Status.Phase) && !isBeforeValidated(ke.Status.Phase)
	if actionOver || checksOver {
		r.targets.stopWaiting(nameOf(ke))
	}
	if actionOver {
		r.slots.releaseSlotAndRecordOutcome(ke, r.now())
		r.runs.forgetRuns(ke.UID)
	}
}

// isBeforeValidated reports whether the checks of a phase have not passed yet.
func isBeforeValidated(p v1alpha1.Phase) bool {
	return p == v1alpha1.PhaseNew || p == v1alpha1.PhaseValidating
}

// releaseUnusedGateSlot releases the gate slot of an execution that neither runs nor queues. Call it
// after the write: before, the execution may run by an earlier write whose response was lost, and the
// object that was read may be older.
func (r *reconciler) releaseUnusedGateSlot(state *reconcileState) {
	phase := state.ke.Status.Phase
	actionStarted := phase == v1alpha1.PhaseExecuting || phase == v1alpha1.PhaseRollbackReady || execution.IsFinal(phase)
	if state.atGate || actionStarted {
		return
	}
	r.runs.inline.Delete(state.ke.UID)
	r.slots.gate.Forget(state.ke.UID)
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
	if err := r.readStop(ctx); err != nil { // first, so that an active stop admits no execution
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
			if ended, ok := newGatePast(ke); ok {
				past = append(past, ended)
			}
		case ke.Status.Phase == v1alpha1.PhaseExecuting:
			inside = append(inside, newGateClaim(ke))
		case ke.Status.Plan != nil && withJob[actionJobName(ke)]:
			// Another operator created its Job and ended before it wrote the status.
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
