package janitor

import (
	"context"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
)

// workers is how many objects of a kind are reconciled concurrently. Most of the time is
// spent waiting for a provider.
const workers = 8

// rateLimiter returns the backoff after failed reconciles.
func rateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	const soonest, latest = 50 * time.Millisecond, 15 * time.Second
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](soonest, latest)
}

// setupController registers the reconciler for its objects, their nodes, and the objects
// of the other kind that they wait for.
func (r *reconciler) setupController(m manager.Manager) error {
	other := client.Object(&v1alpha1.TerminateNode{})
	if r.kind.action == ActionTerminate {
		other = &v1alpha1.RebootNode{}
	}
	onNode := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.requestsForUnfinishedOfOwnKind(ctx, o.GetName())
	})
	onSameNode := handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, o client.Object) []reconcile.Request {
		return r.requestsForUnfinishedOfOwnKind(ctx, nodeNameOf(o))
	})
	// Not for status updates of this controller.
	specOrAnnotationsChanged := predicate.Or[client.Object](
		predicate.GenerationChangedPredicate{},
		predicate.AnnotationChangedPredicate{},
	)
	return ctrl.NewControllerManagedBy(m).
		Named("janitor-"+string(r.kind.action)).
		For(r.kind.newObject(), builder.WithPredicates(specOrAnnotationsChanged)).
		Watches(r.kind.newObject(), onSameNode, builder.WithPredicates(actionEndedOrDeleted())).
		Watches(other, onSameNode, builder.WithPredicates(actionEndedOrDeleted())).
		Watches(&corev1.Node{}, onNode, builder.WithPredicates(nodeUIDBootIDOrReadinessChanged())).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: rateLimiter()}).
		Complete(r)
}

// requestsForUnfinishedOfOwnKind returns requests for the unfinished objects of the reconciler's
// kind on a node.
func (r *reconciler) requestsForUnfinishedOfOwnKind(ctx context.Context, node string) []reconcile.Request {
	all, err := listActionsOnNode(ctx, r.client, node)
	if err != nil {
		return nil // each object is reconciled again after a while
	}
	var found []reconcile.Request
	for _, o := range all {
		if kindOf(o) == r.kind.name && !hasEndedOrIsDeleting(o) {
			found = append(found, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
		}
	}
	return found
}

// actionEndedOrDeleted returns a predicate for actions that ended or were deleted, so that the
// next action can start.
func actionEndedOrDeleted() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return !hasEndedOrIsDeleting(e.ObjectOld) && hasEndedOrIsDeleting(e.ObjectNew)
		},
	}
}

// nodeUIDBootIDOrReadinessChanged returns a predicate for changes that actions wait for: a new
// boot, readiness, and a new or deleted node.
func nodeUIDBootIDOrReadinessChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, beforeIsNode := e.ObjectOld.(*corev1.Node)
			after, afterIsNode := e.ObjectNew.(*corev1.Node)
			if !beforeIsNode || !afterIsNode {
				return false
			}
			return before.UID != after.UID ||
				before.Status.NodeInfo.BootID != after.Status.NodeInfo.BootID ||
				isReady(before) != isReady(after)
		},
	}
}

func isReady(n *corev1.Node) bool {
	return slices.ContainsFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}
