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
	Message(st *v1alpha1.NodeFaultStatus) string
}

// A remediator repairs nodes. It is implemented by *remediation.Remediator.
type remediator interface {
	Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	RecordActions(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus) error
	Cancel(ctx context.Context, st *v1alpha1.NodeFaultStatus, reason string, now time.Time) error
	Busy(st *v1alpha1.NodeFaultStatus) bool
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

// A nodeTurn is the state of a node in one reconcile.
type nodeTurn struct {
	node  *corev1.Node // nil if it does not exist
	fault *v1alpha1.NodeFault

	now     time.Time
	before  *v1alpha1.NodeFault // as stored
	verdict nodefault.Verdict
}

// Reconcile advances a node as far as possible.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	t, err := r.readOrCreateState(ctx, req.Name)
	if err != nil || t == nil {
		return resultOf(0, err)
	}
	for range mostSteps {
		moved, after, err := r.reconcileNodeOnce(ctx, t)
		if err != nil || !moved {
			return resultOf(after, err)
		}
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// resultOf returns the result of a reconcile. A stale read is not an error.
func resultOf(after time.Duration, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errBehind), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// readOrCreateState reads the state of a node. It returns nil if there is nothing to do.
func (r *reconciler) readOrCreateState(ctx context.Context, name string) (*nodeTurn, error) {
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
		needed := node != nil && hasMark(node)
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
	return &nodeTurn{node: node, fault: fault.DeepCopy()}, nil
}

// reconcileNodeOnce makes one step and writes the results: first the Node, if it must change,
// and then the NodeFault. It reports whether something was written, and the requeue delay
// if not.
func (r *reconciler) reconcileNodeOnce(ctx context.Context, t *nodeTurn) (moved bool, after time.Duration, err error) {
	if dropped, err := r.dropOutdatedFaults(ctx, t); dropped || err != nil {
		return dropped, 0, err
	}
	t.now, t.before = r.now(), t.fault.DeepCopy()
	before, st := t.before, &t.fault.Status
	r.enroll(st, t.now)
	t.verdict, err = r.rules.Decide(t.node, t.fault.Spec.Faults, t.now)
	if err != nil { // the verdict has the results of the other rules and is marked as unsure
		r.log.WarnContext(ctx, "rule evaluation failed", "node", t.fault.Name, "err", err)
		r.metrics.ruleErrors.Inc()
	}
	s, err := r.quarantine.Step(quarantine.Look{
		Now: t.now, Node: t.node, Status: st, Verdict: t.verdict, Faults: t.fault.Spec.Faults, Busy: r.remedy.Busy(st),
	})
	if err != nil {
		return false, 0, fmt.Errorf("decide for node %q: %w", t.fault.Name, err)
	}
	if err := r.writeNode(ctx, t, s); err != nil {
		return false, 0, errors.Join(err, r.recordRejection(ctx, t, s, err))
	}
	if why, is := endReason(s.Why); is { // recorded with the data of the session, before the session ends
		r.drain.Cancel(st, why, t.now)
	}
	s.Settle(st)
	after, err = r.advanceOrStopRepair(ctx, t, s)
	if err != nil {
		return false, 0, err
	}
	st.ObservedGeneration = t.fault.Generation
	r.updatePhase(&before.Status, st, s, t.now)
	st.Budget = nil
	if t.node != nil && (st.Owned != nil || st.Phase == v1alpha1.PhasePending) {
		st.Budget = r.quarantine.LimitOf(t.node)
	}
	if st.LastSequence == before.Status.LastSequence { // no new record for the sinks
		st.SinkDeliveries = before.Status.SinkDeliveries
	}
	if equality.Semantic.DeepEqual(&before.Status, st) {
		kept, err := r.deleteFinishedFault(ctx, t)
		return false, soonerOf(after, s.After, t.verdict.After, kept), err
	}
	if err := r.faults.WriteStatus(ctx, before, t.fault); err != nil {
		return false, 0, err
	}
	r.logAndCountChanges(ctx, &before.Status, t.fault)
	return true, 0, nil
}

// dropOutdatedFaults removes the faults of a deleted node, so that they are not attributed to a new
// node of the same name.
func (r *reconciler) dropOutdatedFaults(ctx context.Context, t *nodeTurn) (dropped bool, err error) {
	faults, st := t.fault.Spec.Faults, &t.fault.Status
	switch gone := st.Phase == v1alpha1.PhaseGone; {
	case len(faults) == 0 || t.node != nil && t.node.UID == st.NodeUID:
		return false, nil
	case st.NodeUID == "" && (t.node == nil || !gone): // the node may have just been created
		return false, nil
	case t.node == nil && !gone: // the deletion is recorded together with the faults
		return false, nil
	case t.node != nil && r.remedy.Busy(st): // until the remedy ends, sources would report the faults of the new node again
		return false, nil
	}
	keep := slices.DeleteFunc(slices.Clone(faults), func(f v1alpha1.Fault) bool {
		return t.node == nil || f.DetectedAt.Time.Before(t.node.CreationTimestamp.Time)
	})
	if len(keep) == len(faults) {
		return false, nil
	}
	if err := r.faults.Keep(ctx, t.fault, keep); err != nil {
		return false, err
	}
	return true, nil
}

// writeNode writes the Node if it has changed. It cancels the reservation if the write
// was rejected.
func (r *reconciler) writeNode(ctx context.Context, t *nodeTurn, s quarantine.Step) error {
	if s.Node == nil {
		return nil
	}
	if err := r.nodes.Write(ctx, t.node, s.Node); err != nil {
		if isRefused(err) {
			s.Undo()
		}
		return err
	}
	t.node = s.Node
	return nil
}

// isRefused reports whether a write was certainly rejected. Without a response, or if the
// API server itself got none, the write may have succeeded.
func isRefused(err error) bool {
	unknown := []metav1.StatusReason{metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError}
	return !slices.Contains(unknown, apierrors.ReasonForError(err))
}

// recordRejection records in the NodeFault that the API server rejects a write of the
// Node, and why. The rest of the status is unchanged, because nothing was done.
func (r *reconciler) recordRejection(ctx context.Context, t *nodeTurn, s quarantine.Step, refusal error) error {
	if !isPersistent(refusal) {
		return nil
	}
	st := &t.fault.Status
	switch taken := s.Why == quarantine.Ours || s.Why == quarantine.Foreign; {
	case taken && st.Owned == nil:
		st.Phase = v1alpha1.PhasePending
	case st.Phase == "":
		st.Phase = v1alpha1.PhaseObserved
	}
	if st.Phase != t.before.Status.Phase {
		st.PhaseChangedAt = &metav1.Time{Time: t.now.Truncate(time.Second)}
	}
	st.Message = nodefault.TruncateText("the API server rejects a change to the Node, and the controller retries: "+refusal.Error(), maxMessage)
	if equality.Semantic.DeepEqual(&t.before.Status, st) {
		return nil
	}
	if err := r.faults.WriteStatus(ctx, t.before, t.fault); err != nil {
		return err
	}
	r.logAndCountChanges(ctx, &t.before.Status, t.fault)
	return nil
}

// isPersistent reports whether a rejection is permanent until a person changes a role, a
// policy or a webhook of the cluster.
func isPersistent(err error) bool {
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

// advanceOrStopRepair drains and repairs a quarantined node, or stops doing so. It returns the
// requeue delay.
func (r *reconciler) advanceOrStopRepair(ctx context.Context, t *nodeTurn, s quarantine.Step) (again time.Duration, err error) {
	st := &t.fault.Status
	var after time.Duration
	pretends := s.Why == quarantine.DryRun && st.DesiredActions != nil && st.DesiredActions.DryRun
	if !r.tryDrainAtOnce(ctx, t, s) && (s.Act || pretends) && (st.DesiredActions != nil && st.DesiredActions.Drain || st.Drain != nil) {
		wait, err := r.drain.Step(ctx, t.node, st, t.now)
		if err != nil {
			return 0, fmt.Errorf("drain node %q: %w", t.fault.Name, err)
		}
		after = soonerOf(after, wait)
	}
	wait, err := r.repairNode(ctx, t, s)
	if err != nil {
		return 0, fmt.Errorf("repair node %q: %w", t.fault.Name, err)
	}
	return soonerOf(after, wait), nil
}

// tryDrainAtOnce completes the drain of a newly quarantined node without pods to evict,
// and reports whether it did. The drain is then recorded with the cordon. All other
// drains begin at the next reconcile, also if the pods are unknown now.
func (r *reconciler) tryDrainAtOnce(ctx context.Context, t *nodeTurn, s quarantine.Step) (completed bool) {
	st := &t.fault.Status
	taken := s.Node != nil && (s.Why == quarantine.Ours || s.Why == quarantine.Foreign) && !s.Act && st.Owned != nil && st.DesiredActions != nil
	if !taken || !st.DesiredActions.Drain || st.DesiredActions.DryRun || st.Drain != nil {
		return false
	}
	then := st.DeepCopy()
	if _, err := r.drain.Step(ctx, t.node, then, t.now); err != nil || then.Drain == nil || then.Drain.State != v1alpha1.DrainCompleted {
		return false
	}
	*st = *then
	return true
}

// repairNode continues the remedies of a node. Without s.Act no remedy starts, and a
// running one continues to its end. If a person has overridden the quarantine or opted
// the node out, the remedy is cancelled.
func (r *reconciler) repairNode(ctx context.Context, t *nodeTurn, s quarantine.Step) (again time.Duration, err error) {
	st := &t.fault.Status
	if why, is := endReason(s.Why); is && (s.Why == quarantine.Overridden || s.Why == quarantine.OptedOut) {
		if err := r.remedy.Cancel(ctx, st, why, t.now); err != nil {
			return 0, err
		}
	}
	if s.Act || r.remedy.Busy(st) {
		return r.remedy.Step(ctx, t.node, st, t.now)
	}
	return 0, r.remedy.RecordActions(ctx, t.node, st)
}

// hasMark reports whether the pipeline has marked a node as quarantined.
func hasMark(node *corev1.Node) bool {
	_, is := node.Annotations[v1alpha1.AnnotationOwned]
	return is
}

// endReason returns why actions in progress are cancelled, and whether they are.
func endReason(why quarantine.Situation) (reason string, ended bool) {
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

// deleteFinishedFault deletes a finished NodeFault after its TTL, and returns the delay until then.
func (r *reconciler) deleteFinishedFault(ctx context.Context, t *nodeTurn) (again time.Duration, err error) {
	st := &t.fault.Status
	over := st.Phase == v1alpha1.PhaseHealthy || st.Phase == v1alpha1.PhaseGone || st.Phase == v1alpha1.PhaseObserved
	never := t.node == nil && st.NodeUID == "" // the node of its faults was never observed
	if !over || len(t.fault.Spec.Faults) > 0 && !never || st.Overridden != nil || st.PhaseChangedAt == nil || t.node != nil && hasMark(t.node) {
		return 0, nil
	}
	if left := st.PhaseChangedAt.Add(r.cfg.TTL).Sub(t.now); left > 0 {
		return left, nil
	}
	if st.UndeliveredChangeEvents > 0 { // keep it until its change events are delivered or expired
		return r.cfg.TTL, nil
	}
	if asked, err := r.asked(ctx, t.fault.Name); err != nil || asked {
		return r.cfg.TTL, err
	}
	return 0, r.faults.Delete(ctx, t.fault)
}

// logAndCountChanges logs and counts the new records, once they are written.
func (r *reconciler) logAndCountChanges(ctx context.Context, before *v1alpha1.NodeFaultStatus, f *v1alpha1.NodeFault) {
	for i := range f.Status.History {
		h := &f.Status.History[i]
		if h.Sequence <= before.LastSequence {
			continue
		}
		r.metrics.actions.WithLabelValues(h.Action, outcomeOf(h)).Inc()
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

func outcomeOf(h *v1alpha1.Record) string {
	if h.DryRun {
		return "dry_run"
	}
	return h.Outcome
}

// soonerOf returns the shortest delay. Zero and drain.Never mean no delay.
func soonerOf(waits ...time.Duration) time.Duration {
	var first time.Duration
	for _, w := range waits {
		if w > 0 && w != drain.Never && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}
