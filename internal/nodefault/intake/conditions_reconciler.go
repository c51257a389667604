package intake

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
)

const (
	conditionWorkers = 4
	// refusedRetryDelay is the retry delay for a report that cannot be stored. Other faults of
	// the node may be gone by then.
	refusedRetryDelay = 5 * time.Minute
)

// AddConditionController adds a controller to a manager that evaluates the nodes in the
// leader and stores changes. The manager's cache must have Nodes and NodeFaults.
func AddConditionController(m manager.Manager, set *ConditionSet, store Store, log *slog.Logger) error {
	r := &conditionReconciler{
		set: set, reader: m.GetClient(), store: store, log: log, now: time.Now, short: map[string]Shortages{},
	}
	err := ctrl.NewControllerManagedBy(m).
		Named("node-conditions").
		For(&corev1.Node{}, builder.WithPredicates(uidConditionsOrResourcesChanged())).
		Watches(&v1alpha1.NodeFault{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: conditionWorkers}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("watch node conditions: %w", err)
	}
	return nil
}

// uidConditionsOrResourcesChanged returns a predicate for the evaluated fields. It filters
// heartbeats, of which each node has one every few minutes.
func uidConditionsOrResourcesChanged() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, beforeIsNode := e.ObjectOld.(*corev1.Node)
		after, afterIsNode := e.ObjectNew.(*corev1.Node)
		if !beforeIsNode || !afterIsNode {
			return false
		}
		return before.UID != after.UID ||
			!slices.EqualFunc(before.Status.Conditions, after.Status.Conditions, sameConditionIgnoringHeartbeat) ||
			!equality.Semantic.DeepEqual(before.Status.Capacity, after.Status.Capacity) ||
			!equality.Semantic.DeepEqual(before.Status.Allocatable, after.Status.Allocatable)
	}}
}

func sameConditionIgnoringHeartbeat(a, b corev1.NodeCondition) bool {
	a.LastHeartbeatTime = b.LastHeartbeatTime
	return equality.Semantic.DeepEqual(a, b)
}

// A conditionReconciler updates the faults of both sources in NodeFaults from the nodes.
type conditionReconciler struct {
	set    *ConditionSet
	reader client.Reader
	store  Store
	log    *slog.Logger
	now    func() time.Time

	mu    sync.Mutex
	short map[string]Shortages // by node
}

// Reconcile evaluates one node.
func (r *conditionReconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	var node corev1.Node
	if err := r.reader.Get(ctx, req.NamespacedName, &node); err != nil {
		r.setOrDeleteShortages(req.Name, nil)
		return ctrl.Result{}, client.IgnoreNotFound(err) // the faults of a deleted node are kept
	}
	var nf v1alpha1.NodeFault
	if err := r.reader.Get(ctx, types.NamespacedName{Name: node.Name}, &nf); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, fmt.Errorf("read NodeFault %q: %w", node.Name, err)
	}
	now := r.now()
	short := r.set.FindShortages(&node, r.getShortages(node.Name), now)
	r.setOrDeleteShortages(node.Name, short)
	reports, after := r.set.CheckNode(&node, now, short)
	changed := r.set.changedAndClearingReports(&node, nf.Spec.Faults, reports)
	if len(changed) == 0 {
		return ctrl.Result{RequeueAfter: after}, nil
	}
	err := r.store.Apply(ctx, changed)
	for i, e := range SplitReportErrors(err, len(changed)) {
		if Transient(e) {
			return ctrl.Result{}, fmt.Errorf("store faults of node %q: %w", node.Name, err)
		}
		if e != nil {
			r.log.WarnContext(ctx, "store fault failed", "node", node.Name, "check", changed[i].Fault.Check, "err", e)
			after = shorterNonZeroDelay(after, refusedRetryDelay)
		}
	}
	return ctrl.Result{RequeueAfter: after}, nil
}

func shorterNonZeroDelay(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

func (r *conditionReconciler) getShortages(node string) Shortages {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.short[node]
}

func (r *conditionReconciler) setOrDeleteShortages(node string, s Shortages) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.short, node)
	if len(s) > 0 {
		r.short[node] = s
	}
}
