package janitor

import (
	"context"
	"errors"
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
	// soon is the requeue delay while the cache is stale.
	soon = 25 * time.Millisecond
	// mostSteps limits the steps of one reconcile. It exceeds the steps that any action
	// can make without waiting.
	mostSteps = 8
)

// A reconciler executes the actions of one kind.
type reconciler struct {
	kind    kind
	cfg     Config
	client  client.Client
	live    client.Reader
	turns   *turns
	written *kube.Written
	metrics *metrics
	log     *slog.Logger
	now     func() time.Time
}

// A turn is one reconcile of one action.
type turn struct {
	object client.Object // its status is written
	spec   *v1alpha1.NodeActionSpec
	status *v1alpha1.NodeActionStatus
	node   *corev1.Node // nil if the node does not exist or was replaced
	now    time.Time
	again  time.Duration // requeue delay if nothing has changed; 0 means to wait for an event
}

func newTurn(o client.Object, now time.Time) *turn {
	t := &turn{object: o, now: now}
	t.spec, t.status = specAndStatus(o)
	return t
}

// requeueAfter requeues the action after d, or at the deadline if that is earlier.
func (t *turn) requeueAfter(d time.Duration) {
	if left := t.status.Deadline.Sub(t.now); left < d {
		d = left
	}
	t.again = max(d, soon)
}

// Reconcile advances an action as far as possible.
func (r *reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	o := r.kind.empty()
	err := r.client.Get(ctx, req.NamespacedName, o)
	if apierrors.IsNotFound(err) {
		r.written.Forget(req.NamespacedName)
		return reconcile.Result{}, nil
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read %s %q: %w", r.kind.name, req.Name, err)
	}
	if r.written.HasNewerThan(o) { // the cache is older than the last write
		return reconcile.Result{RequeueAfter: soon}, nil
	}
	for range mostSteps {
		moved, again, err := r.reconcileOnce(ctx, o)
		if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
			return reconcile.Result{RequeueAfter: soon}, nil
		}
		if err != nil || !moved {
			return reconcile.Result{RequeueAfter: again}, err
		}
	}
	return reconcile.Result{RequeueAfter: soon}, nil
}

// reconcileOnce makes one step and writes the status. It reports whether the action has
// advanced; o then is the stored object.
func (r *reconciler) reconcileOnce(ctx context.Context, o client.Object) (moved bool, again time.Duration, err error) {
	if o.GetDeletionTimestamp() != nil {
		return false, 0, nil
	}
	t := newTurn(o, r.now())
	if t.status.CompletionTime != nil {
		return false, t.timeLeft(r.cfg.TTL), r.deleteExpired(ctx, t)
	}
	before := t.status.DeepCopy()
	t.node, err = r.getNode(ctx, t)
	if err != nil {
		return false, 0, err
	}
	if t.status.StartTime == nil {
		return r.tryBeginAction(ctx, t)
	}
	if err := r.advanceAction(ctx, t); err != nil {
		return false, 0, err
	}
	if equality.Semantic.DeepEqual(before, t.status) {
		return false, t.again, nil
	}
	if err := r.writeStatus(ctx, t); err != nil {
		return false, 0, err
	}
	// A change of only the message is not a step.
	moved = statusAndReason(before, v1alpha1.ConditionSignalSent) != statusAndReason(t.status, v1alpha1.ConditionSignalSent) || t.status.CompletionTime != nil
	return moved, t.again, nil
}

// getNode returns the node of an action. It is nil if the node is gone or was replaced by
// another with its name.
func (r *reconciler) getNode(ctx context.Context, t *turn) (*corev1.Node, error) {
	var n corev1.Node
	name := client.ObjectKey{Name: t.spec.NodeName}
	err := r.client.Get(ctx, name, &n)
	if apierrors.IsNotFound(err) || err == nil && r.isReplaced(t, &n) { // the cache may be stale
		n = corev1.Node{}
		err = r.live.Get(ctx, name, &n)
	}
	if apierrors.IsNotFound(err) || err == nil && r.isReplaced(t, &n) {
		return nil, nil //nolint:nilnil // one that is gone is no error
	}
	if err != nil {
		return nil, fmt.Errorf("read node %q: %w", t.spec.NodeName, err)
	}
	return &n, nil
}

func (*reconciler) isReplaced(t *turn, n *corev1.Node) bool {
	return t.status.NodeUID != "" && t.status.NodeUID != n.UID
}

// writeStatus writes the status, and counts and logs an action that has ended.
func (r *reconciler) writeStatus(ctx context.Context, t *turn) error {
	if err := r.client.Status().Update(ctx, t.object); err != nil {
		return fmt.Errorf("write status of %s %q: %w", r.kind.name, t.object.GetName(), err)
	}
	r.written.Note(t.object)
	if t.status.CompletionTime == nil {
		return nil
	}
	result := resultLabel(t.status, r.kind.final)
	r.metrics.ended.WithLabelValues(string(r.kind.action), result).Inc()
	if result == "succeeded" && t.status.StartTime != nil {
		r.metrics.took.WithLabelValues(string(r.kind.action)).Observe(t.now.Sub(t.status.StartTime.Time).Seconds())
	}
	r.log.InfoContext(ctx, "node action ended", "kind", r.kind.name, "object", t.object.GetName(), "node", t.spec.NodeName, "result", result, "message", t.status.Message)
	return nil
}

// timeLeft returns the rest of a duration that began at the end of the action.
func (t *turn) timeLeft(d time.Duration) time.Duration {
	return max(soon, t.status.CompletionTime.Add(d).Sub(t.now))
}

// deleteExpired deletes an action whose TTL has passed.
func (r *reconciler) deleteExpired(ctx context.Context, t *turn) error {
	if t.status.CompletionTime.Add(r.cfg.TTL).After(t.now) {
		return nil
	}
	uid, version := t.object.GetUID(), t.object.GetResourceVersion()
	err := r.client.Delete(ctx, t.object, client.Preconditions{UID: &uid, ResourceVersion: &version}, client.PropagationPolicy(metav1.DeletePropagationBackground))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete %s %q: %w", r.kind.name, t.object.GetName(), err)
	}
	return nil
}

// errNoAnswer is the cause of a timeout of a call.
var errNoAnswer = errors.New("the provider did not respond in time")
