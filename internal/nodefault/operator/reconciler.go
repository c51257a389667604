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
	"github.com/fleetloop/fleetloop/internal/nodefault/rules"
)

const (
	// soon is when a node is looked at again of which something newer is on its
	// way.
	soon = 20 * time.Millisecond
	// mostSteps is more than any node can go without waiting for something.
	mostSteps = 8
)

// A judge says what the rules want. It is a *rules.Set.
type judge interface {
	Decide(node *corev1.Node, faults []v1alpha1.Fault, now time.Time) (rules.Verdict, error)
}

// A drainer is a *drain.Drainer.
type drainer interface {
	Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	Cancel(st *v1alpha1.NodeFaultStatus, reason string, now time.Time)
	Message(st *v1alpha1.NodeFaultStatus) string
}

// A remediator is a *remediation.Remediator.
type remediator interface {
	Step(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus, now time.Time) (time.Duration, error)
	Observe(ctx context.Context, node *corev1.Node, st *v1alpha1.NodeFaultStatus) error
	Cancel(ctx context.Context, st *v1alpha1.NodeFaultStatus, reason string, now time.Time) error
	Busy(st *v1alpha1.NodeFaultStatus) bool
}

// A reconciler looks at one node at a time, and is the only one who writes to it.
type reconciler struct {
	cfg        Config
	nodes      nodes
	faults     faults
	rules      judge
	quarantine *quarantine.Quarantine
	drain      drainer
	remedy     remediator
	// enroll gives sinks a place in a status before records are added to it.
	enroll func(st *v1alpha1.NodeFaultStatus, now time.Time)
	// asked says whether a reboot or an end of a node is on record, whoever asked
	// for it.
	asked   func(ctx context.Context, node string) (bool, error)
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// A turn is what is known of a node at one look.
type turn struct {
	node  *corev1.Node // nil is none
	fault *v1alpha1.NodeFault

	now     time.Time
	before  *v1alpha1.NodeFault // as it is stored
	verdict rules.Verdict
}

// Reconcile moves a node on as far as it goes.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	t, err := r.readState(ctx, req.Name)
	if err != nil || t == nil {
		return resultOf(0, err)
	}
	for range mostSteps {
		moved, after, err := r.reconcileOnce(ctx, t)
		if err != nil || !moved {
			return resultOf(after, err)
		}
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// resultOf is the result of a look. What was read and is no longer so is no error.
func resultOf(after time.Duration, err error) (reconcile.Result, error) {
	switch {
	case errors.Is(err, errBehind), apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return reconcile.Result{RequeueAfter: soon}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: after}, nil
}

// readState gives what there is to look at: nil is nothing.
func (r *reconciler) readState(ctx context.Context, name string) (*turn, error) {
	node, err := r.nodes.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	fault, err := r.faults.Get(ctx, name)
	if err != nil {
		return nil, err
	}
	if fault == nil {
		// Something of ours on a node, or a reboot that somebody asked for, is told
		// although no fault is known.
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
	return &turn{node: node, fault: fault.DeepCopy()}, nil
}

// reconcileOnce looks once and writes what came of it: to the Node, if it must, and then
// to the NodeFault. It reports whether something was written, and when to look
// again if not.
func (r *reconciler) reconcileOnce(ctx context.Context, t *turn) (moved bool, after time.Duration, err error) {
	if dropped, err := r.dropOld(ctx, t); dropped || err != nil {
		return dropped, 0, err
	}
	t.now, t.before = r.now(), t.fault.DeepCopy()
	before, st := t.before, &t.fault.Status
	r.enroll(st, t.now)
	t.verdict, err = r.rules.Decide(t.node, t.fault.Spec.Faults, t.now)
	if err != nil { // the others have spoken, and the verdict says that it is unsure
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
		return false, 0, errors.Join(err, r.explainRefusal(ctx, t, s, err))
	}
	if why, is := endReason(s.Why); is { // told with what it was about, and before the end
		r.drain.Cancel(st, why, t.now)
	}
	s.Settle(st)
	after, err = r.drainAndRepair(ctx, t, s)
	if err != nil {
		return false, 0, err
	}
	st.ObservedGeneration = t.fault.Generation
	r.describeNode(&before.Status, st, s, t.now)
	if st.LastSequence == before.Status.LastSequence { // nothing was added that a sink is owed
		st.SinkDeliveries = before.Status.SinkDeliveries
	}
	if equality.Semantic.DeepEqual(&before.Status, st) {
		kept, err := r.cleanUp(ctx, t)
		return false, soonerOf(after, s.After, t.verdict.After, kept), err
	}
	if err := r.faults.WriteStatus(ctx, before, t.fault); err != nil {
		return false, 0, err
	}
	r.reportChanges(ctx, &before.Status, t.fault)
	return true, 0, nil
}

// dropOld takes the faults of a node away that is no more, so that they are not
// taken for those of the next one of its name.
func (r *reconciler) dropOld(ctx context.Context, t *turn) (bool, error) {
	faults, st := t.fault.Spec.Faults, &t.fault.Status
	switch gone := st.Phase == v1alpha1.PhaseGone; {
	case len(faults) == 0 || t.node != nil && t.node.UID == st.NodeUID:
		return false, nil
	case st.NodeUID == "" && (t.node == nil || !gone): // it may have just come
		return false, nil
	case t.node == nil && !gone: // that it went is told with them
		return false, nil
	case t.node != nil && r.remedy.Busy(st): // until then a source would report again what it finds on the new one
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

// writeNode writes the Node if it has to be, and takes the reservation back if it
// was not.
func (r *reconciler) writeNode(ctx context.Context, t *turn, s quarantine.Step) error {
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

// isRefused says whether a write was not made. An answer that did not come may hide
// one that was, and so may an API server that did not get one itself.
func isRefused(err error) bool {
	unknown := []metav1.StatusReason{metav1.StatusReasonUnknown, metav1.StatusReasonTimeout, metav1.StatusReasonServerTimeout, metav1.StatusReasonInternalError}
	return !slices.Contains(unknown, apierrors.ReasonForError(err))
}

// explainRefusal says in the NodeFault that the API server refuses the write of a Node,
// and why. Nothing else of the status changes: nothing was done.
func (r *reconciler) explainRefusal(ctx context.Context, t *turn, s quarantine.Step, refusal error) error {
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
	st.Message = nodefault.Cut("the API server rejects a change to the Node, and the controller retries: "+refusal.Error(), maxMessage)
	if equality.Semantic.DeepEqual(&t.before.Status, st) {
		return nil
	}
	if err := r.faults.WriteStatus(ctx, t.before, t.fault); err != nil {
		return err
	}
	r.reportChanges(ctx, &t.before.Status, t.fault)
	return nil
}

// isPersistent says whether somebody has to see to it that a write is not refused again:
// a role, a policy or a webhook of the cluster.
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

// drainAndRepair has the pods of a node in quarantine go and the node be repaired, or stops
// that. It gives when to look again.
func (r *reconciler) drainAndRepair(ctx context.Context, t *turn, s quarantine.Step) (time.Duration, error) {
	st := &t.fault.Status
	var after time.Duration
	pretends := s.Why == quarantine.DryRun && st.DesiredActions != nil && st.DesiredActions.DryRun
	if !r.drainedAtOnce(ctx, t, s) && (s.Act || pretends) && (st.DesiredActions != nil && st.DesiredActions.Drain || st.Drain != nil) {
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

// drainedAtOnce says that a node that was just taken has nothing that would have
// to go: that is written down with its cordon. Any other is drained from the next
// look on, and so is one of which that cannot be said now.
func (r *reconciler) drainedAtOnce(ctx context.Context, t *turn, s quarantine.Step) bool {
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

// repairNode goes on with the remedies. Without leave to act none is begun, and what
// is under way is followed to its end, unless a person has taken the node.
func (r *reconciler) repairNode(ctx context.Context, t *turn, s quarantine.Step) (time.Duration, error) {
	st := &t.fault.Status
	if why, is := endReason(s.Why); is && (s.Why == quarantine.Overridden || s.Why == quarantine.OptedOut) {
		if err := r.remedy.Cancel(ctx, st, why, t.now); err != nil {
			return 0, err
		}
	}
	if s.Act || r.remedy.Busy(st) {
		return r.remedy.Step(ctx, t.node, st, t.now)
	}
	return 0, r.remedy.Observe(ctx, t.node, st)
}

// hasMark says whether something on a node says that it is ours.
func hasMark(node *corev1.Node) bool {
	_, is := node.Annotations[v1alpha1.AnnotationOwned]
	return is
}

// endReason is why what was begun is not gone on with, if it is not.
func endReason(why quarantine.Situation) (string, bool) {
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

// cleanUp deletes what says nothing any more, and gives when that is.
func (r *reconciler) cleanUp(ctx context.Context, t *turn) (time.Duration, error) {
	st := &t.fault.Status
	over := st.Phase == v1alpha1.PhaseHealthy || st.Phase == v1alpha1.PhaseGone || st.Phase == v1alpha1.PhaseObserved
	never := t.node == nil && st.NodeUID == "" // nobody has seen the node that its faults are of
	if !over || len(t.fault.Spec.Faults) > 0 && !never || st.Overridden != nil || st.PhaseChangedAt == nil || t.node != nil && hasMark(t.node) {
		return 0, nil
	}
	if left := st.PhaseChangedAt.Add(r.cfg.TTL).Sub(t.now); left > 0 {
		return left, nil
	}
	if st.UndeliveredChangeEvents > 0 { // its sinks are waited for, until what they are to be told is too old
		return r.cfg.TTL, nil
	}
	if asked, err := r.asked(ctx, t.fault.Name); err != nil || asked {
		return r.cfg.TTL, err
	}
	return 0, r.faults.Delete(ctx, t.fault)
}

// reportChanges logs and counts what was done, once it is written down.
func (r *reconciler) reportChanges(ctx context.Context, before *v1alpha1.NodeFaultStatus, f *v1alpha1.NodeFault) {
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

// soonerOf is the first of some waits; those of 0, and those for ever, are none.
func soonerOf(waits ...time.Duration) time.Duration {
	var first time.Duration
	for _, w := range waits {
		if w > 0 && w != drain.Never && (first == 0 || w < first) {
			first = w
		}
	}
	return first
}
