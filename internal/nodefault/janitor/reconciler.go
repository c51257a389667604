package janitor

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
)

const (
	// requeueSoon is the requeue delay while the cache is stale.
	requeueSoon = 25 * time.Millisecond
	// maxSteps limits the steps of one reconcile. It exceeds the steps that any action
	// can make without waiting.
	maxSteps = 8
)

// A reconciler executes the actions of one kind.
type reconciler struct {
	kind    actionKind
	cfg     Config
	client  client.Client
	live    client.Reader
	turns   *nodeActionQueue // shared by both kinds
	written *kube.WrittenVersions
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// A reconcileState is one reconcile of one action.
type reconcileState struct {
	object client.Object // its status is written
	spec   *v1alpha1.NodeActionSpec
	status *v1alpha1.NodeActionStatus
	node   *corev1.Node // nil if the node does not exist or was replaced
	now    time.Time
	after  time.Duration // requeue delay if nothing has changed; 0 means to wait for an event
}

func newReconcileState(o client.Object, now time.Time) *reconcileState {
	s := &reconcileState{object: o, now: now}
	s.spec, s.status = specAndStatus(o)
	return s
}

// requeueAfterOrAtDeadline requeues the action after a delay, or at the deadline if that is earlier.
func (s *reconcileState) requeueAfterOrAtDeadline(delay time.Duration) {
	untilDeadline := s.status.Deadline.Sub(s.now)
	s.after = max(min(delay, untilDeadline), requeueSoon)
}

// Reconcile advances an action as far as possible.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.kind.newObject()
	err := r.client.Get(ctx, req.NamespacedName, o)
	if apierrors.IsNotFound(err) {
		r.written.ForgetObject(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read %s %q: %w", r.kind.name, req.Name, err)
	}
	if r.written.WroteNewerElseForget(o) { // the cache is older than the last write
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	for range maxSteps {
		advanced, after, err := r.reconcileOnce(ctx, o)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) { // the cache is stale
			return reconcile.Result{RequeueAfter: requeueSoon}, nil
		}
		if err != nil || !advanced {
			return reconcile.Result{RequeueAfter: after}, err
		}
	}
	return reconcile.Result{RequeueAfter: requeueSoon}, nil
}

// reconcileOnce makes one step and writes the status. It reports whether the action has
// advanced; o then is the stored object.
func (r *reconciler) reconcileOnce(
	ctx context.Context, o client.Object,
) (advanced bool, after time.Duration, err error) {
	if o.GetDeletionTimestamp() != nil {
		return false, 0, nil
	}
	s := newReconcileState(o, r.now())
	if s.status.CompletionTime != nil {
		return false, s.timeLeftAfterCompletion(r.cfg.TTL), r.deleteExpired(ctx, s)
	}
	before := s.status.DeepCopy()
	s.node, err = r.getNodeUnlessReplaced(ctx, s)
	if err != nil {
		return false, 0, err
	}
	if s.status.StartTime == nil {
		return r.rejectBeginOrQueueAction(ctx, s)
	}
	if err := r.advanceStartedAction(ctx, s); err != nil {
		return false, 0, err
	}
	if equality.Semantic.DeepEqual(before, s.status) {
		return false, s.after, nil
	}
	if err := r.writeStatusAndReportEnd(ctx, s); err != nil {
		return false, 0, err
	}
	// A change of only the message is not a step.
	sentBefore := conditionStatusAndReason(before, v1alpha1.ConditionSignalSent)
	sentNow := conditionStatusAndReason(s.status, v1alpha1.ConditionSignalSent)
	advanced = sentBefore != sentNow || s.status.CompletionTime != nil
	return advanced, s.after, nil
}

// getNodeUnlessReplaced returns the node of an action. It is nil if the node is gone or was replaced by
// another with its name.
func (r *reconciler) getNodeUnlessReplaced(ctx context.Context, s *reconcileState) (*corev1.Node, error) {
	node, err := readNodeUnlessReplaced(ctx, r.client, s)
	if err == nil && node == nil { // the cache may be stale
		node, err = readNodeUnlessReplaced(ctx, r.live, s)
	}
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", s.spec.NodeName, err)
	}
	return node, nil
}

// readNodeUnlessReplaced is getNodeUnlessReplaced with one reader.
func readNodeUnlessReplaced(
	ctx context.Context, reader client.Reader, s *reconcileState,
) (*corev1.Node, error) {
	var node corev1.Node
	err := reader.Get(ctx, client.ObjectKey{Name: s.spec.NodeName}, &node)
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // one that is gone is no error
	}
	if err != nil {
		return nil, err
	}
	replaced := s.status.NodeUID != "" && s.status.NodeUID != node.UID
	if replaced {
		return nil, nil //nolint:nilnil // as above
	}
	return &node, nil
}

// writeStatusAndReportEnd writes the status, and counts and logs an action that has ended.
func (r *reconciler) writeStatusAndReportEnd(ctx context.Context, s *reconcileState) error {
	if err := r.client.Status().Update(ctx, s.object); err != nil {
		return fmt.Errorf("write status of %s %q: %w", r.kind.name, s.object.GetName(), err)
	}
	r.written.RecordWritten(s.object)
	if s.status.CompletionTime == nil {
		return nil
	}
	result := resultLabel(s.status, r.kind.final)
	r.metrics.ended.WithLabelValues(string(r.kind.action), result).Inc()
	if result == "succeeded" && s.status.StartTime != nil {
		took := s.now.Sub(s.status.StartTime.Time)
		r.metrics.took.WithLabelValues(string(r.kind.action)).Observe(took.Seconds())
	}
	r.log.InfoContext(ctx, "node action ended",
		"kind", r.kind.name,
		"object", s.object.GetName(),
		"node", s.spec.NodeName,
		"result", result,
		"message", s.status.Message,
	)
	return nil
}

// timeLeftAfterCompletion returns the rest of a duration that began at the end of the action.
func (s *reconcileState) timeLeftAfterCompletion(ttl time.Duration) time.Duration {
	return max(requeueSoon, s.status.CompletionTime.Add(ttl).Sub(s.now))
}

// deleteExpired deletes an action whose TTL has passed.
func (r *reconciler) deleteExpired(ctx context.Context, s *reconcileState) error {
	if s.status.CompletionTime.Add(r.cfg.TTL).After(s.now) {
		return nil
	}
	uid, version := s.object.GetUID(), s.object.GetResourceVersion()
	err := r.client.Delete(ctx, s.object,
		client.Preconditions{UID: &uid, ResourceVersion: &version},
		client.PropagationPolicy(metav1.DeletePropagationBackground),
	)
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", r.kind.name, s.object.GetName(), err)
	}
	return nil
}
