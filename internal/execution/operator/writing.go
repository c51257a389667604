package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
)

// statusWriter writes statuses together with their change events, and has the events delivered.
type statusWriter struct {
	cfg        *Config
	executions executions
	outbox     *Outbox
	recorder   execution.Recorder
	log        *slog.Logger
	now        func() time.Time
}

// dropAcknowledgedAndCheckWrite removes acknowledged events, and reports whether the status must be
// written.
func (w *statusWriter) dropAcknowledgedAndCheckWrite(state *reconcileState, before *v1alpha1.KubernetesExecution) (needsWrite bool) {
	stepsChangedStatus := !equality.Semantic.DeepEqual(&before.Status, &state.ke.Status)
	removed, mayWait := w.outbox.RemoveAcknowledgedFromStatus(state.ke, state.now)
	if stepsChangedStatus || !removed {
		return stepsChangedStatus
	}

	// Only acknowledged events changed the status. Their removal waits for another write,
	// unless the execution is over and no event is left.
	if mayWait > 0 && (!w.isExecutionOver(state.ke) || len(state.ke.Status.PendingChangeEvents) > 0) {
		state.requeueIn(mayWait)
		state.ke.Status.PendingChangeEvents = before.Status.PendingChangeEvents
		return false
	}
	state.continueNow = true // the next step needed this write
	return true
}

// isExecutionOver reports whether no further write of an execution is expected.
func (w *statusWriter) isExecutionOver(ke *v1alpha1.KubernetesExecution) bool {
	if !ke.DeletionTimestamp.IsZero() {
		return true
	}
	return execution.IsFinal(ke.Status.Phase) && (!w.cfg.Audited || isAuditRecorded(ke))
}

// addChangeEventsAndWriteStatus writes a changed status with its change events.
func (w *statusWriter) addChangeEventsAndWriteStatus(
	ctx context.Context,
	state *reconcileState,
	before *v1alpha1.KubernetesExecution,
) error {
	if err := validateTransitions(before, state.ke); err != nil {
		return reconcile.TerminalError(err)
	}
	for _, change := range listNewPhaseChanges(before, state.ke) {
		state.addChangeEventOfPhase(change)
	}
	for _, event := range state.events {
		w.outbox.AppendToStatus(&state.ke.Status, event)
	}
	state.ke.Status.ObservedGeneration = state.ke.Generation
	return w.writeStatus(ctx, state.ke)
}

// validateTransitions returns an error if the new status contains a phase transition that is not
// allowed.
func validateTransitions(before, ke *v1alpha1.KubernetesExecution) error {
	phase := before.Status.Phase
	for _, transition := range ke.Status.PhaseTransitions[len(before.Status.PhaseTransitions):] {
		if !execution.CanTransition(phase, transition.Phase) {
			return fmt.Errorf("invalid phase transition of execution %s from %q to %q", logKey(ke), phase, transition.Phase)
		}
		phase = transition.Phase
	}
	if phase != ke.Status.Phase {
		return fmt.Errorf("execution %s is in phase %q, but its phase transitions from %q are missing",
			logKey(ke), ke.Status.Phase, phase)
	}
	return nil
}

// writeStatus writes the status without the condition of the auditor, which the auditor applies as
// another field manager.
func (w *statusWriter) writeStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	auditRecorded := takeCondition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	err := w.executions.ApplyStatus(ctx, ke, component)
	if err != nil && auditRecorded != nil { // a successful write returns it with the stored object
		ke.Status.Conditions = append(ke.Status.Conditions, *auditRecorded)
	}
	return asStaleError(err)
}

// staleError is the error of a write because the execution changed since it was read.
type staleError struct{ error }

// Unwrap returns the cause.
func (e staleError) Unwrap() error { return e.error }

// isStale reports whether a write failed because the execution changed since it was read.
func isStale(err error) bool {
	var stale staleError
	return errors.As(err, &stale)
}

// asStaleError wraps a conflict or a missing object in a staleError.
func asStaleError(err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return staleError{err}
	}
	return err
}

// publishChangeEvents passes the change events of a write to the recorder and the outbox.
func (w *statusWriter) publishChangeEvents(ctx context.Context, state *reconcileState) {
	for i := range state.events {
		w.recorder.Record(ctx, changeOf(state.ke, &state.events[i]))
	}
	w.outbox.SyncQueueFromStatus(state.ke)
}

// ensureFinalizerAndDeliverEvents sends pending change events. An execution whose events are not
// delivered soon gets the finalizer, so that its deletion does not lose them.
func (w *statusWriter) ensureFinalizerAndDeliverEvents(ctx context.Context, state *reconcileState) error {
	needsFinalizer, checkAgainIn := w.outbox.NeedsFinalizer(state.ke, state.now)
	if checkAgainIn > 0 {
		state.requeueIn(checkAgainIn)
	}
	if needsFinalizer && state.ke.DeletionTimestamp.IsZero() {
		if err := w.executions.SetFinalizer(ctx, state.ke, true); err != nil {
			return asStaleError(err)
		}
	}
	if deliverAgainIn := w.outbox.Deliver(ctx, state.ke, state.now); deliverAgainIn > 0 {
		state.requeueIn(deliverAgainIn)
	}
	return nil
}

// addFinalizerBeforeEffects sets the finalizer before an action may have an effect. Otherwise a
// deletion could lose its audit and change events.
func (w *statusWriter) addFinalizerBeforeEffects(ctx context.Context, state *reconcileState) error {
	if !w.cfg.Audited && !w.outbox.Enabled() {
		return nil
	}
	status := *state.ke.Status.DeepCopy() // SetFinalizer replaces the unwritten status with the stored one
	if err := w.executions.SetFinalizer(ctx, state.ke, true); err != nil {
		return asStaleError(err)
	}
	state.ke.Status = status
	return nil
}

// drainWriteTimeout limits the writes at the end of a process.
const drainWriteTimeout = 10 * time.Second

var errDrainWrites = errors.New("the acknowledgements of sinks could not be written in time")

// drainOutboxOnStop waits for the answers of sinks when the manager stops. It removes acknowledged
// events from the status, because another replica would send them again.
func (w *statusWriter) drainOutboxOnStop(ctx context.Context) error {
	<-ctx.Done()
	names, err := w.outbox.Drain(ctx)
	writeCtx, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), drainWriteTimeout, errDrainWrites)
	defer cancel()
	for _, name := range names {
		err = errors.Join(err, w.writeAcknowledgements(writeCtx, name))
	}
	if err != nil {
		w.log.WarnContext(ctx, "acknowledgements of sinks not stored, the events are sent again after a restart", "err", err)
	}
	return nil
}

// writeAcknowledgements removes the acknowledged events of an execution from its status.
func (w *statusWriter) writeAcknowledgements(ctx context.Context, name types.NamespacedName) error {
	ke, err := w.executions.Get(ctx, name)
	if err != nil || ke == nil {
		return err
	}
	if removed, _ := w.outbox.RemoveAcknowledgedFromStatus(ke, w.now()); !removed {
		return nil
	}
	return w.writeStatus(ctx, ke)
}
