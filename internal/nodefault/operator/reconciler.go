package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/drain"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

const (
	// soon is the requeue delay while the cache is stale.
	soon = 20 * time.Millisecond
	// mostSteps limits the steps of one reconcile. It exceeds the steps that any node can
	// make without waiting.
	mostSteps = 8
)

// A judge evaluates the rules. It is implemented by *rules.Set.
type judge interface {
	Decide(node *corev1.Node, faults []v1alpha1.Fault, now time.Time) (nodefault.Verdict, error)
}

// A drainer drains nodes. It is implemented by *drain.Drainer.
type drainer interface {
	Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	Cancel(st *v1alpha1.NodeFaultStatus, reason string, now time.Time)
	ProgressOrWaitMessage(st *v1alpha1.NodeFaultStatus) string
}

// A remediator repairs nodes. It is implemented by *remediation.Remediator.
type remediator interface {
	Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	RecordJanitorActions(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus) error
	Cancel(ctx context.Context, st *v1alpha1.NodeFaultStatus, reason string, now time.Time) error
	BlocksRelease(st *v1alpha1.NodeFaultStatus) bool
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
	// enroll adds new sinks to a status before records are added to it.
	enroll func(st *v1alpha1.NodeFaultStatus, now time.Time)
	// asked reports whether a reboot or termination of a node was started, regardless of
	// who requested it.
	asked   func(ctx context.Context, node string) (bool, error)
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// A reconcileState is the state of a node in one reconcile.
type reconcileState struct {
	node  *corev1.Node // nil if it does not exist
	fault *v1alpha1.NodeFault

	now     time.Time
	before  *v1alpha1.NodeFault // as stored
	verdict nodefault.Verdict
}

// Reconcile advances a node as far as possible.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	s, err := r.readNodeAndCreateFaultIfNeeded(ctx, req.Name)
	if err != nil || s == nil {
		return requeueSoonIfStale(0, err)
	}
	for range mostSteps {
		moved, after, err := r.reconcileNodeOnce(ctx, s)
		if err != nil || !moved {
			return requeueSoonIfStale(after, err)
		}
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// requeueSoonIfStale returns the result of a reconcile. A stale read is not an error.
func requeueSoonIfStale(after time.Duration, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errBehind), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// readNodeAndCreateFaultIfNeeded reads the state of a node. It returns nil if there is nothing to do.
func (r *reconciler) readNodeAndCreateFaultIfNeeded(ctx context.Context, name string) (*reconcileState, error) {
	node, err := r.nodes.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	fault, err := r.faults.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if fault == nil {
		// A mark on a node, or a reboot that anyone requested, is recorded even without a
		// fault.
		needed := node != nil && hasOwnedAnnotation(node)
		if !needed {
			if needed, err = r.asked(ctx, name); err != nil {
				return nil, err
			}
		}
		if !needed {
			return nil, nil //nolint:nilnil // there is nothing to do, and nothing wrong
		}
		if fault, err = r.faults.Create(ctx, name); err != nil {
			return nil, err
		}
	}
	return &reconcileState{node: node, fault: fault.DeepCopy()}, nil
}

// reconcileNodeOnce makes one step and writes the results: first the Node, if it must change,
// and then the NodeFault. It reports whether something was written, and the requeue delay
// if not.
func (r *reconciler) reconcileNodeOnce(ctx context.Context, s *reconcileState) (wroteFault bool, after time.Duration, err error) {
	if dropped, err := r.dropFaultsOfDeletedNode(ctx, s); dropped || err != nil {
		return dropped, 0, err
	}
	s.now, s.before = r.now(), s.fault.DeepCopy()
	before, st := s.before, &s.fault.Status
	r.enroll(st, s.now)
	s.verdict, err = r.rules.Decide(s.node, s.fault.Spec.Faults, s.now)
	if err != nil { // the verdict has the results of the other rules and is marked as unsure
		r.log.WarnContext(ctx, "rule evaluation failed", "node", s.fault.Name, "err", err)
		r.metrics.ruleErrors.Inc()
	}
	step, err := r.quarantine.Step(quarantine.StepInput{
		Now: s.now, Node: s.node, Status: st, Verdict: s.verdict, Faults: s.fault.Spec.Faults, Busy: r.remedy.BlocksRelease(st),
	})
	if err != nil {
		return false, 0, fmt.Errorf("decide for node %q: %w", s.fault.Name, err)
	}
	if err := r.writeNodeOrUndoReservation(ctx, s, step); err != nil {
		return false, 0, errors.Join(err, r.recordPersistentRejection(ctx, s, step, err))
	}
	if why, is := cancelReason(step.Why); is { // recorded with the data of the session, before the session ends
		r.drain.Cancel(st, why, s.now)
	}
	step.Settle(st)
	after, err = r.drainAndRepair(ctx, s, step)
	if err != nil {
		return false, 0, err
	}
	st.ObservedGeneration = s.fault.Generation
	r.setPhaseMessageAndConditions(&before.Status, st, step, s.now)
	st.Budget = nil
	if s.node != nil && (st.Owned != nil || st.Phase == v1alpha1.PhasePending) {
		st.Budget = r.quarantine.LimitOf(s.node)
	}
	if st.LastSequence == before.Status.LastSequence { // no new record for the sinks
		st.SinkDeliveries = before.Status.SinkDeliveries
	}
	if equality.Semantic.DeepEqual(&before.Status, st) {
		kept, err := r.deleteFaultAfterTTL(ctx, s)
		return false, shortestDelay(after, step.After, s.verdict.After, kept), err
	}
	if err := r.faults.WriteStatus(ctx, before, s.fault); err != nil {
		return false, 0, err
	}
	r.logAndCountNewRecords(ctx, &before.Status, s.fault)
	return true, 0, nil
}

// dropFaultsOfDeletedNode removes the faults of a deleted node, so that they are not attributed to a new
// node of the same name.
func (r *reconciler) dropFaultsOfDeletedNode(ctx context.Context, s *reconcileState) (dropped bool, err error) {
	faults, st := s.fault.Spec.Faults, &s.fault.Status
	switch gone := st.Phase == v1alpha1.PhaseGone; {
	case len(faults) == 0 || s.node != nil && s.node.UID == st.NodeUID:
		return false, nil
	case st.NodeUID == "" && (s.node == nil || !gone): // the node may have just been created
		return false, nil
	case s.node == nil && !gone: // the deletion is recorded together with the faults
		return false, nil
	case s.node != nil && r.remedy.BlocksRelease(st): // until the remedy ends, sources would report the faults of the new node again
		return false, nil
	}
	keep := slices.DeleteFunc(slices.Clone(faults), func(f v1alpha1.Fault) bool {
		return s.node == nil || f.DetectedAt.Time.Before(s.minFaultTimeOfCurrentNode())
	})
	if len(keep) == len(faults) {
		return false, nil
	}
	if err := r.faults.KeepOnlyFaults(ctx, s.fault, keep); err != nil {
		return false, err
	}
	return true, nil
}

// minFaultTimeOfCurrentNode returns the time from which a fault belongs to the node and not to an earlier node
// of the same name. The creation time of a node has a precision of a second. Of that second, the
// faults that a reconcile has seen together with the earlier node belong to that node.
func (s *reconcileState) minFaultTimeOfCurrentNode() time.Time {
	created, st := s.node.CreationTimestamp.Time, &s.fault.Status
	if st.NodeUID != "" && st.NodeUID != s.node.UID && st.ObservedGeneration == s.fault.Generation {
		return created.Add(time.Second)
	}
	return created
}

// writeNodeOrUndoReservation writes the Node if it has changed. It cancels the reservation if the write
// was rejected.
func (r *reconciler) writeNodeOrUndoReservation(ctx context.Context, s *reconcileState, step quarantine.Step) error {
	if step.Node == nil {
		return nil
	}
	if err := r.nodes.Write(ctx, s.node, step.Node); err != nil {
		if isCertainlyRejected(err) {
			step.Undo()
		}
		return err
	}
	s.node = step.Node
	return nil
}

// isCertainlyRejected reports whether a write was certainly rejected. Without a response, or if the
// API server itself got none, the write may have succeeded.
func isCertainlyRejected(err error) bool {
	unknown := []metav1.StatusReason{metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError}
	return !slices.Contains(unknown, apierrors.ReasonForError(err))
}

// recordPersistentRejection records in the NodeFault that the API server rejects a write of the
// Node, and why. The rest of the status is unchanged, because nothing was done.
func (r *reconciler) recordPersistentRejection(ctx context.Context, s *reconcileState, step quarantine.Step, refusal error) error {
	if !isPersistentRejection(refusal) {
		return nil
	}
	st := &s.fault.Status
	switch taken := step.Why == quarantine.Ours || step.Why == quarantine.Foreign; {
	case taken && st.Owned == nil:
		st.Phase = v1alpha1.PhasePending
	case st.Phase == "":
		st.Phase = v1alpha1.PhaseObserved
	}
	if st.Phase != s.before.Status.Phase {
		st.PhaseChangedAt = &metav1.Time{Time: s.now.Truncate(time.Second)}
	}
	st.Message = nodefault.TruncateText("the API server rejects a change to the Node, and the controller retries: "+refusal.Error(), maxMessage)
	if equality.Semantic.DeepEqual(&s.before.Status, st) {
		return nil
	}
	if err := r.faults.WriteStatus(ctx, s.before, s.fault); err != nil {
		return err
	}
	r.logAndCountNewRecords(ctx, &s.before.Status, s.fault)
	return nil
}

// isPersistentRejection reports whether a rejection is permanent until a person changes a role, a
// policy or a webhook of the cluster.
func isPersistentRejection(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	switch code := status.Status().Code; code {
	case http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests:
		return false
	default:
		return code >= http.StatusBadRequest && code <= http.StatusInternalServerError
	}
}

// drainAndRepair drains and repairs a quarantined node, or stops doing so. It returns the
// requeue delay.
func (r *reconciler) drainAndRepair(ctx context.Context, s *reconcileState, step quarantine.Step) (again time.Duration, err error) {
	st := &s.fault.Status
	var after time.Duration
	pretends := step.Why == quarantine.DryRun && st.DesiredActions != nil && st.DesiredActions.DryRun
	if !r.completeDrainIfNoPods(ctx, s, step) && (step.Act || pretends) && (st.DesiredActions != nil && st.DesiredActions.Drain || st.Drain != nil) {
		wait, err := r.drain.Step(ctx, s.node, st, s.now)
		if err != nil {
			return 0, fmt.Errorf("drain node %q: %w", s.fault.Name, err)
		}
		after = shortestDelay(after, wait)
	}
	wait, err := r.advanceCancelOrRecordRemedy(ctx, s, step)
	if err != nil {
		return 0, fmt.Errorf("repair node %q: %w", s.fault.Name, err)
	}
	return shortestDelay(after, wait), nil
}

// completeDrainIfNoPods completes the drain of a newly quarantined node without pods to evict,
// and reports whether it did. The drain is then recorded with the cordon. All other
// drains begin at the next reconcile, also if the pods are unknown now.
func (r *reconciler) completeDrainIfNoPods(ctx context.Context, s *reconcileState, step quarantine.Step) (completed bool) {
	st := &s.fault.Status
	taken := step.Node != nil && (step.Why == quarantine.Ours || step.Why == quarantine.Foreign) && !step.Act && st.Owned != nil && st.DesiredActions != nil
	if !taken || !st.DesiredActions.Drain || st.DesiredActions.DryRun || st.Drain != nil {
		return false
	}
	then := st.DeepCopy()
	if _, err := r.drain.Step(ctx, s.node, then, s.now); err != nil || then.Drain == nil || then.Drain.State != v1alpha1.DrainCompleted {
		return false
	}
	*st = *then
	return true
}

// advanceCancelOrRecordRemedy continues the remedies of a node. Without step.Act no remedy starts, and a
// running one continues to its end. If a person has overridden the quarantine or opted
// the node out, the remedy is cancelled.
func (r *reconciler) advanceCancelOrRecordRemedy(ctx context.Context, s *reconcileState, step quarantine.Step) (again time.Duration, err error) {
	st := &s.fault.Status
	if why, is := cancelReason(step.Why); is && (step.Why == quarantine.Overridden || step.Why == quarantine.OptedOut) {
		if err := r.remedy.Cancel(ctx, st, why, s.now); err != nil {
			return 0, err
		}
	}
	if step.Act || r.remedy.BlocksRelease(st) {
		return r.remedy.Step(ctx, s.node, st, s.now)
	}
	return 0, r.remedy.RecordJanitorActions(ctx, s.node, st)
}

// hasOwnedAnnotation reports whether the pipeline has marked a node as quarantined.
func hasOwnedAnnotation(node *corev1.Node) bool {
	_, is := node.Annotations[v1alpha1.AnnotationOwned]
	return is
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
	case quarantine.Recovering, quarantine.Released, quarantine.Held:
		return "the node is healthy again", true
	case quarantine.Observing:
		return "no rule requires the action any more", true
	case quarantine.Denied, quarantine.DryRun, quarantine.Ours, quarantine.Foreign:
	}
	return "", false
}

// deleteFaultAfterTTL deletes a finished NodeFault after its TTL, and returns the delay until then.
func (r *reconciler) deleteFaultAfterTTL(ctx context.Context, s *reconcileState) (again time.Duration, err error) {
	st := &s.fault.Status
	over := st.Phase == v1alpha1.PhaseHealthy || st.Phase == v1alpha1.PhaseGone || st.Phase == v1alpha1.PhaseObserved
	never := s.node == nil && st.NodeUID == "" // the node of its faults was never observed
	if !over || len(s.fault.Spec.Faults) > 0 && !never || st.Overridden != nil || st.PhaseChangedAt == nil || s.node != nil && hasOwnedAnnotation(s.node) {
		return 0, nil
	}
	if left := st.PhaseChangedAt.Add(r.cfg.TTL).Sub(s.now); left > 0 {
		return left, nil
	}
	if st.UndeliveredChangeEvents > 0 { // keep it until its change events are delivered or expired
		return r.cfg.TTL, nil
	}
	if asked, err := r.asked(ctx, s.fault.Name); err != nil || asked {
		return r.cfg.TTL, err
	}
	return 0, r.faults.Delete(ctx, s.fault)
}

// logAndCountNewRecords logs and counts the new records, once they are written.
func (r *reconciler) logAndCountNewRecords(ctx context.Context, before *v1alpha1.NodeFaultStatus, f *v1alpha1.NodeFault) {
	for i := range f.Status.History {
		h := &f.Status.History[i]
		if h.Sequence <= before.LastSequence {
			continue
		}
		r.metrics.actions.WithLabelValues(h.Action, outcomeLabel(h)).Inc()
		if opened := f.Status.TriggeredBy; h.Action == changeevent.ActionCordon && !h.DryRun && opened != nil {
			r.metrics.toCordon.Observe(max(0, h.At.Sub(opened.DetectedAt.Time).Seconds()))
		}
		r.log.InfoContext(ctx, "node change recorded", "by", h.Source, "action", h.Action, "node", f.Name, "session", h.Session, "check", h.Check, "error_codes", h.ErrorCodes,
			"agent", h.Agent, "reason", h.Reason, "outcome", h.Outcome, "dry_run", h.DryRun, "change_id", h.ID)
	}
	if before.Phase != f.Status.Phase {
		r.log.InfoContext(ctx, "node fault phase changed", "node", f.Name, "phase", string(f.Status.Phase), "previous_phase", string(before.Phase), "message", f.Status.Message)
	}
}

func outcomeLabel(record *v1alpha1.Record) string {
	if record.DryRun {
		return "dry_run"
	}
	return record.Outcome
}

// shortestDelay returns the shortest delay. Zero and drain.Never mean no delay.
func shortestDelay(waits ...time.Duration) time.Duration {
	var first time.Duration
	for _, w := range waits {
		if w > 0 && w != drain.Never && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}
