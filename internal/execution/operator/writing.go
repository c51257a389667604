package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
// written. Acknowledgements wait for another write, unless the execution is over.
func (w *statusWriter) dropAcknowledgedAndCheckWrite(t *reconcileState, before *v1alpha1.KubernetesExecution) (needsWrite bool) {
	other := !equality.Semantic.DeepEqual(&before.Status, &t.ke.Status)
	settled, wait := w.outbox.RemoveAcknowledged(t.ke, t.now)
	over := !t.ke.DeletionTimestamp.IsZero() || execution.IsFinal(t.ke.Status.Phase) && (!w.cfg.Audited || isAuditRecorded(t.ke))
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

// writeTransition writes a changed status with its change events.
func (w *statusWriter) writeTransition(ctx context.Context, t *reconcileState, before *v1alpha1.KubernetesExecution) error {
	if err := validateTransitions(before, t.ke); err != nil {
		return reconcile.TerminalError(err)
	}
	for _, p := range listNewPhaseChanges(before, t.ke) {
		t.addChangeEventOfPhase(p)
	}
	for _, e := range t.events {
		w.outbox.AppendToStatus(&t.ke.Status, e)
	}
	t.ke.Status.ObservedGeneration = t.ke.Generation
	return w.writeStatus(ctx, t.ke)
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

// writeStatus writes the status without the condition of the auditor.
func (w *statusWriter) writeStatus(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	auditors := takeCondition(&ke.Status, v1alpha1.ConditionAuditRecorded)
	err := w.executions.ApplyStatus(ctx, ke, component)
	if err != nil && auditors != nil {
		ke.Status.Conditions = append(ke.Status.Conditions, *auditors)
	}
	return asStaleError(err)
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

// publishChangeEvents passes the change events of a write to the recorder and the outbox.
func (w *statusWriter) publishChangeEvents(ctx context.Context, t *reconcileState) {
	for i := range t.events {
		w.recorder.Record(ctx, changeOf(t.ke, &t.events[i]))
	}
	w.outbox.SyncQueueFromStatus(t.ke)
}

// ensureFinalizerAndDeliverEvents sends pending change events. An execution whose events are not delivered soon gets
// the finalizer, so that its deletion does not lose them.
func (w *statusWriter) ensureFinalizerAndDeliverEvents(ctx context.Context, t *reconcileState) error {
	hold, again := w.outbox.NeedsFinalizer(t.ke, t.now)
	if again > 0 {
		t.requeueIn(again)
	}
	if hold && t.ke.DeletionTimestamp.IsZero() {
		if err := w.executions.SetFinalizer(ctx, t.ke, true); err != nil {
			return asStaleError(err)
		}
	}
	if again := w.outbox.Deliver(ctx, t.ke, t.now); again > 0 {
		t.requeueIn(again)
	}
	return nil
}

// addFinalizerBeforeEffects sets the finalizer before an action may have an effect. Otherwise a deletion could
// lose its audit and change events.
func (w *statusWriter) addFinalizerBeforeEffects(ctx context.Context, t *reconcileState) error {
	if !w.cfg.Audited && !w.outbox.Enabled() {
		return nil
	}
	status := *t.ke.Status.DeepCopy()
	if err := w.executions.SetFinalizer(ctx, t.ke, true); err != nil {
		return asStaleError(err)
	}
	t.ke.Status = status
	return nil
}

// drainWriteTimeout limits the writes at the end of a process.
const drainWriteTimeout = 10 * time.Second

var errDrainWrites = errors.New("the acknowledgements of sinks could not be written in time")

// drainOutboxOnStop waits for the answers of sinks when the manager stops. It removes acknowledged events
// from the status, because another replica would send them again.
func (w *statusWriter) drainOutboxOnStop(ctx context.Context) error {
	<-ctx.Done()
	names, err := w.outbox.Drain(ctx)
	write, cancel := context.WithTimeoutCause(context.WithoutCancel(ctx), drainWriteTimeout, errDrainWrites)
	defer cancel()
	for _, name := range names {
		ke, failed := w.executions.Get(write, name)
		if failed == nil && ke != nil {
			if settled, _ := w.outbox.RemoveAcknowledged(ke, w.now()); settled {
				failed = w.writeStatus(write, ke)
			}
		}
		err = errors.Join(err, failed)
	}
	if err != nil {
		w.log.WarnContext(ctx, "acknowledgements of sinks not stored, the events are sent again after a restart", "err", err)
	}
	return nil
}
