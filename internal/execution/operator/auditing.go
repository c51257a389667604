package operator

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/backoff"
)

const (
	// auditComponent is the field manager of the status fields that the auditor writes.
	auditComponent = component + "-audit"
	// auditGiveUpAfter limits how long a deleted execution keeps its finalizer while the audit
	// cannot be written.
	auditGiveUpAfter = 5 * time.Minute
	// auditRetryDelay is the delay before a failed audit write is retried.
	auditRetryDelay = 10 * time.Second
)

// deletedEndDelay is how long after the deletion grace period the audit waits for the end of a
// deleted execution.
const deletedEndDelay = 10 * time.Second

// auditReconciler writes audit records for each status change and then removes the finalizer of the
// execution. No other step waits for it.
type auditReconciler struct {
	executions executions
	auditor    auditor
	deleted    deletedCache
	log        *slog.Logger
	now        func() time.Time
}

// Reconcile brings the audit of all executions of a name up to date, the existing one and deleted
// ones.
func (a *auditReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	left := a.recordPendingDeletions(ctx, req.NamespacedName)
	res, err := a.syncAudit(ctx, req)
	if left && err == nil && (res.RequeueAfter == 0 || res.RequeueAfter > auditRetryDelay) {
		res.RequeueAfter = auditRetryDelay
	}
	return res, err
}

// recordPendingDeletions records the deletion of executions of a name. It reports whether some could not be
// recorded and are left.
func (a *auditReconciler) recordPendingDeletions(ctx context.Context, name types.NamespacedName) (incomplete bool) {
	for g, ok := a.deleted.firstDeleted(name); ok; g, ok = a.deleted.firstDeleted(name) {
		if err := a.auditor.RecordDeletion(ctx, g.ke, g.at, g.unseen); err != nil {
			a.log.WarnContext(ctx, "audit record of deleted execution not written, retrying", "execution", logKey(g.ke), "err", err)
			return true
		}
		a.deleted.removeFirstDeleted(name)
	}
	return false
}

// removeFinalizerOnceDelivered removes the finalizer of an execution whose audit is complete, unless a sink has
// not yet acknowledged a change event.
func (a *auditReconciler) removeFinalizerOnceDelivered(ctx context.Context, ke *v1alpha1.KubernetesExecution) (reconcile.Result, error) {
	if len(ke.Status.PendingChangeEvents) > 0 {
		return reconcile.Result{}, nil // auditedFieldsChanged selects the update that removes the last one
	}
	err := a.executions.SetFinalizer(ctx, ke, false)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	return reconcile.Result{}, wrapFinalizerErrorUnlessGone(err)
}

// syncAudit brings the audit of the existing execution up to date.
func (a *auditReconciler) syncAudit(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	ke, err := a.executions.Get(ctx, req.NamespacedName)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	if err != nil || ke == nil {
		return reconcile.Result{}, err
	}
	ke = ke.DeepCopy()
	deleted := !ke.DeletionTimestamp.IsZero()
	if ke.Status.Phase == v1alpha1.PhaseNew && !deleted { // a deleted one may have the finalizer: an inline action gets it before its first phase is written
		return reconcile.Result{}, nil
	}
	if isAuditRecorded(ke) && !deleted { // it may still have the finalizer
		return a.removeFinalizerOnceDelivered(ctx, ke)
	}
	done, err := a.auditor.Sync(ctx, ke)
	if err != nil {
		if deleted && a.now().Sub(ke.DeletionTimestamp.Time) > auditGiveUpAfter {
			a.log.ErrorContext(ctx, "finalizer removed from deleted execution with incomplete audit", "execution", logKey(ke), "err", err)
			return reconcile.Result{}, wrapFinalizerErrorUnlessGone(a.executions.SetFinalizer(ctx, ke, false))
		}
		a.log.WarnContext(ctx, "audit records not written, retrying", "execution", logKey(ke), "err", err)
		return reconcile.Result{RequeueAfter: auditRetryDelay}, nil
	}
	if !done && !deleted {
		return reconcile.Result{}, nil
	}
	if deleted && mayStillReportResult(ke, a.now().Add(-deletedEndDelay)) {
		return reconcile.Result{RequeueAfter: requeueSoon * 40}, nil // the running action reports its result first
	}
	if deleted && hasUndeliveredEvents(ke, a.now()) {
		return reconcile.Result{RequeueAfter: requeueSoon * 40}, nil
	}
	err = a.markRecordedAndRemoveFinalizer(ctx, ke)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	return reconcile.Result{}, wrapFinalizerErrorUnlessGone(err)
}

// markRecordedAndRemoveFinalizer sets the condition AuditRecorded and removes the finalizer.
func (a *auditReconciler) markRecordedAndRemoveFinalizer(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	if ke.DeletionTimestamp.IsZero() {
		version, status := ke.ResourceVersion, ke.Status
		ke.Status = v1alpha1.KubernetesExecutionStatus{Conditions: []metav1.Condition{{
			Type: v1alpha1.ConditionAuditRecorded, Status: metav1.ConditionTrue, Reason: "Recorded",
			Message: "all audit records are written", LastTransitionTime: metav1.NewTime(a.now()), ObservedGeneration: ke.Generation,
		}}}
		if err := a.executions.ApplyStatus(ctx, ke, auditComponent); err != nil {
			ke.ResourceVersion, ke.Status = version, status
			return err
		}
		if len(ke.Status.PendingChangeEvents) > 0 {
			return nil // auditedFieldsChanged selects the update that removes the last one
		}
	}
	return a.executions.SetFinalizer(ctx, ke, false)
}

// wrapFinalizerErrorUnlessGone returns nil if the object no longer exists, and wraps any other error.
func wrapFinalizerErrorUnlessGone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("remove finalizer: %w", err)
	}
	return nil
}

// auditedFieldsChanged selects the updates that add to the audit of an existing execution. deletedCache
// handles deletions.
func auditedFieldsChanged() predicate.Predicate {
	audited := updatePredicate(func(before, now *v1alpha1.KubernetesExecution) bool {
		return before.UID != now.UID || before.Status.Phase != now.Status.Phase || !equality.Semantic.DeepEqual(before.Status.Approval, now.Status.Approval) ||
			before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() || len(before.Status.PendingChangeEvents) > 0 && len(now.Status.PendingChangeEvents) == 0
	})
	audited.DeleteFunc = func(event.DeleteEvent) bool { return false }
	return audited
}

// maxDeleted limits the deleted executions in memory to as many as the cache held while they
// existed.
const maxDeleted = 10000

// deletedCache holds deleted executions whose audit is not yet complete. An execution without
// effects has no finalizer, so that its deletion is not delayed; its last state is only here. The
// zero value is empty and ready to use.
type deletedCache struct {
	mu     sync.Mutex
	byName map[types.NamespacedName][]deletedExecution // executions of a name in the order of their deletion
	count  int
}

// deletedExecution is the last known state of a deleted execution.
type deletedExecution struct {
	ke     *v1alpha1.KubernetesExecution
	at     time.Time // when the deletion was noticed
	unseen bool      // the deletion was inferred, not observed
}

// addExecution stores an execution. It returns false if the cache is full.
func (d *deletedCache) addExecution(g deletedExecution) (stored bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.count >= maxDeleted {
		return false
	}
	if d.byName == nil {
		d.byName = map[types.NamespacedName][]deletedExecution{}
	}
	name := nameOf(g.ke)
	d.byName[name] = append(d.byName[name], g)
	d.count++
	return true
}

// firstDeleted returns the execution of a name that was deleted first.
func (d *deletedCache) firstDeleted(name types.NamespacedName) (first deletedExecution, found bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if list := d.byName[name]; len(list) > 0 {
		return list[0], true
	}
	return deletedExecution{}, false
}

// removeFirstDeleted removes the execution of a name that was deleted first.
func (d *deletedCache) removeFirstDeleted(name types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.count--
	if d.byName[name] = d.byName[name][1:]; len(d.byName[name]) == 0 {
		delete(d.byName, name)
	}
}

// hasExecution reports whether the cache holds an execution.
func (d *deletedCache) hasExecution(name types.NamespacedName, uid types.UID) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, g := range d.byName[name] {
		if g.ke.UID == uid {
			return true
		}
	}
	return false
}

// newDeletionHandler returns a handler that stores deleted executions and enqueues them. If a watch was
// interrupted, a deletion and a recreation under the same name arrive as one update with another
// UID.
func (d *deletedCache) newDeletionHandler(log *slog.Logger, now func() time.Time) handler.EventHandler {
	went := func(ctx context.Context, o client.Object, unseen bool, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		ke, ok := o.(*v1alpha1.KubernetesExecution)
		if !ok {
			return
		}
		if !d.addExecution(deletedExecution{ke: ke, at: now(), unseen: unseen}) {
			log.WarnContext(ctx, "too many deleted executions await their audit records, final status of this one is not recorded", "execution", logKey(ke))
			return
		}
		q.Add(reconcile.Request{NamespacedName: nameOf(ke)})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				went(ctx, e.ObjectOld, true, q)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, q workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			went(ctx, e.Object, e.DeleteStateUnknown, q)
		},
	}
}

const (
	// sweepInterval is how often the audit is searched for deleted executions. Nearly all deletions
	// are observed; the search finds those that happened while no controller ran.
	sweepInterval = time.Hour
	// sweepRetryDelay is the first delay after a failed search. It doubles up to
	// maxSweepRetryDelay, so that a search that is too slow does not overload the database.
	sweepRetryDelay    = 15 * time.Second
	maxSweepRetryDelay = 10 * time.Minute
)

// missedDeletionRecorder closes executions in the audit whose end was missed.
type missedDeletionRecorder interface {
	// RecordMissedDeletions records the end of executions in a namespace that are open in the audit and do not
	// exist. It returns their number.
	RecordMissedDeletions(ctx context.Context, namespace string, exists func(context.Context, types.NamespacedName, types.UID) (bool, error)) (recorded int, err error)
}

// deletionSweeper searches the audit for executions that were deleted while no controller ran. Only the
// leading replica runs it, because the other replicas observe the same deletions.
type deletionSweeper struct {
	namespace  string
	closer     missedDeletionRecorder
	executions executions
	live       liveExecutions
	deleted    *deletedCache
	log        *slog.Logger
}

// liveExecutions reads executions from the host cluster without a cache.
type liveExecutions interface {
	// UID returns the UID of the execution of a name; empty means none.
	UID(ctx context.Context, name types.NamespacedName) (types.UID, error)
}

// Start searches periodically until ctx ends.
func (s *deletionSweeper) Start(ctx context.Context) error {
	failing, again := false, sweepRetryDelay
	for wait := time.Duration(0); backoff.Sleep(ctx, wait) == nil; {
		closed, err := s.closer.RecordMissedDeletions(ctx, s.namespace, s.existsOrDeletionSeen)
		wait = sweepInterval
		if closed > 0 {
			s.log.InfoContext(ctx, "executions deleted while the controller was down, audit records added", "count", closed)
		}
		if err == nil || ctx.Err() != nil {
			failing, again = false, sweepRetryDelay
			continue
		}
		wait, again = again, min(2*again, maxSweepRetryDelay)
		if !failing {
			s.log.WarnContext(ctx, "search for deleted executions in the audit failed, retrying", "err", err)
		}
		failing = true
	}
	return nil
}

// existsOrDeletionSeen reports whether an execution exists, or its deletion was observed. The order
// matters: an execution in the cache that is deleted later is observed, and one that was observed
// before is in the deletedCache.
func (s *deletionSweeper) existsOrDeletionSeen(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	ke, err := s.executions.Get(ctx, name)
	if apierrors.IsConflict(err) {
		return true, nil // it was just written; if that was another execution of the name, the next search finds this one
	}
	if err != nil {
		return false, err
	}
	if ke != nil && ke.UID == uid {
		return true, nil
	}
	live, err := s.live.UID(ctx, name)
	if err != nil {
		return false, err
	}
	return live == uid || s.deleted.hasExecution(name, uid), nil
}

// uncachedUIDReader implements liveExecutions for a host cluster.
type uncachedUIDReader struct{ reader client.Reader }

// UID reads only the metadata of an execution.
func (h uncachedUIDReader) UID(ctx context.Context, name types.NamespacedName) (types.UID, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, requestTimeout, errNoAnswer)
	defer cancel()
	var ke metav1.PartialObjectMetadata
	ke.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind(v1alpha1.Kind))
	err := h.reader.Get(ctx, name, &ke)
	if apierrors.IsNotFound(err) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read execution %s: %w", name, err)
	}
	return ke.UID, nil
}
