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

// deletedPollInterval is how often a deleted execution is checked for its end.
const deletedPollInterval = time.Second

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

	begin   sync.Once
	begunAt time.Time // when this process began to reconcile
}

// Reconcile brings the audit of all executions of a name up to date, the existing one and deleted
// ones.
func (a *auditReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	a.begin.Do(func() { a.begunAt = a.now() })
	deletionsLeft := a.recordPendingDeletions(ctx, req.NamespacedName)
	result, err := a.syncAudit(ctx, req)
	if deletionsLeft && err == nil {
		result.RequeueAfter = shorterNonZero(result.RequeueAfter, auditRetryDelay)
	}
	return result, err
}

// recordPendingDeletions records the deletion of executions of a name. It reports whether some could not
// be recorded and are left.
func (a *auditReconciler) recordPendingDeletions(ctx context.Context, name types.NamespacedName) (incomplete bool) {
	for {
		deleted, found := a.deleted.firstDeleted(name)
		if !found {
			return false
		}
		if err := a.auditor.RecordDeletion(ctx, deleted.ke, deleted.at, deleted.unseen); err != nil {
			a.log.WarnContext(ctx, "audit record of deleted execution not written, retrying",
				"execution", logKey(deleted.ke), "err", err)
			return true
		}
		a.deleted.removeFirstDeleted(name)
	}
}

// removeFinalizerOnceDelivered removes the finalizer of an execution whose audit is complete, unless a
// sink has not yet acknowledged a change event.
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
	if !deleted {
		switch {
		case ke.Status.Phase == v1alpha1.PhaseNew: // there is nothing to record yet
			return reconcile.Result{}, nil
		case isAuditRecorded(ke): // it may still have the finalizer
			return a.removeFinalizerOnceDelivered(ctx, ke)
		}
	}

	// A deleted execution is recorded in any phase, because it may have the finalizer: an inline
	// action gets it before its first phase is written.
	endedAndRecorded, err := a.auditor.Sync(ctx, ke)
	if err != nil {
		if deleted && a.now().Sub(a.deletedOrBegunAt(ke)) > auditGiveUpAfter {
			a.log.ErrorContext(ctx, "finalizer removed from deleted execution with incomplete audit",
				"execution", logKey(ke), "err", err)
			return reconcile.Result{}, wrapFinalizerErrorUnlessGone(a.executions.SetFinalizer(ctx, ke, false))
		}
		a.log.WarnContext(ctx, "audit records not written, retrying", "execution", logKey(ke), "err", err)
		return reconcile.Result{RequeueAfter: auditRetryDelay}, nil
	}
	if !endedAndRecorded && !deleted {
		return reconcile.Result{}, nil
	}

	// Before its finalizer goes, a deleted execution reports its result and delivers its events.
	if deleted && (a.isEndAwaited(ke) || hasUndeliveredEvents(ke, a.now())) {
		return reconcile.Result{RequeueAfter: deletedPollInterval}, nil
	}
	err = a.markRecordedAndRemoveFinalizer(ctx, ke)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: requeueSoon}, nil
	}
	return reconcile.Result{}, wrapFinalizerErrorUnlessGone(err)
}

// isEndAwaited reports whether the controller may still store the end of a deleted execution. It may have begun long
// after the deletion.
func (a *auditReconciler) isEndAwaited(ke *v1alpha1.KubernetesExecution) bool {
	return mayHaveUnstoredEnd(ke) && a.now().Before(a.deletedOrBegunAt(ke).Add(deletionGracePeriod+deletedEndDelay))
}

// deletedOrBegunAt returns since when this process can deal with the deletion of an execution.
func (a *auditReconciler) deletedOrBegunAt(ke *v1alpha1.KubernetesExecution) time.Time {
	if deletedAt := ke.DeletionTimestamp.Time; deletedAt.After(a.begunAt) {
		return deletedAt
	}
	return a.begunAt
}

// markRecordedAndRemoveFinalizer sets the condition AuditRecorded and removes the finalizer.
func (a *auditReconciler) markRecordedAndRemoveFinalizer(ctx context.Context, ke *v1alpha1.KubernetesExecution) error {
	if ke.DeletionTimestamp.IsZero() {
		// The auditor applies only its condition, and the API server keeps the other fields.
		version, status := ke.ResourceVersion, ke.Status
		ke.Status = v1alpha1.KubernetesExecutionStatus{Conditions: []metav1.Condition{{
			Type:               v1alpha1.ConditionAuditRecorded,
			Status:             metav1.ConditionTrue,
			Reason:             "Recorded",
			Message:            "all audit records are written",
			LastTransitionTime: metav1.NewTime(a.now()),
			ObservedGeneration: ke.Generation,
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

// auditedFieldsChanged selects the updates that add to the audit of an existing execution, and the one
// after which its finalizer can go. deletedCache handles deletions.
func auditedFieldsChanged() predicate.Predicate {
	audited := updatePredicate(func(before, now *v1alpha1.KubernetesExecution) bool {
		lastEventDelivered := len(before.Status.PendingChangeEvents) > 0 && len(now.Status.PendingChangeEvents) == 0
		return lastEventDelivered ||
			before.UID != now.UID ||
			before.Status.Phase != now.Status.Phase ||
			before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
			!equality.Semantic.DeepEqual(before.Status.Approval, now.Status.Approval)
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
func (d *deletedCache) addExecution(g deletedExecution) (hadRoom bool) {
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
	d.byName[name] = d.byName[name][1:]
	if len(d.byName[name]) == 0 {
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
	type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]
	store := func(ctx context.Context, object client.Object, unseen bool, queue requestQueue) {
		ke, ok := object.(*v1alpha1.KubernetesExecution)
		if !ok {
			return
		}
		if !d.addExecution(deletedExecution{ke: ke, at: now(), unseen: unseen}) {
			log.WarnContext(ctx, "too many deleted executions await their audit records, final status of this one is not recorded",
				"execution", logKey(ke))
			return
		}
		queue.Add(reconcile.Request{NamespacedName: nameOf(ke)})
	}
	return handler.Funcs{
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue requestQueue) {
			if e.ObjectOld.GetUID() != e.ObjectNew.GetUID() {
				store(ctx, e.ObjectOld, true, queue)
			}
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue requestQueue) {
			store(ctx, e.Object, e.DeleteStateUnknown, queue)
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
	// RecordMissedDeletions records the end of executions in a namespace that are open in the audit
	// and do not exist. It returns their number.
	RecordMissedDeletions(
		ctx context.Context, namespace string,
		exists func(context.Context, types.NamespacedName, types.UID) (bool, error),
	) (recorded int, err error)
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
	var wait time.Duration
	failures := 0 // in a row
	for backoff.Sleep(ctx, wait) == nil {
		recorded, err := s.closer.RecordMissedDeletions(ctx, s.namespace, s.existsOrDeletionSeen)
		if recorded > 0 {
			s.log.InfoContext(ctx, "executions deleted while the controller was down, audit records added", "count", recorded)
		}
		if err == nil || ctx.Err() != nil {
			failures = 0
			wait = sweepInterval
			continue
		}
		failures++
		if failures == 1 { // once, because an outage may last long
			s.log.WarnContext(ctx, "search for deleted executions in the audit failed, retrying", "err", err)
			wait = sweepRetryDelay
		} else {
			wait = min(2*wait, maxSweepRetryDelay)
		}
	}
	return nil
}

// existsOrDeletionSeen reports whether an execution exists, or its deletion was observed. The order
// matters: an execution in the cache that is deleted later is observed, and one that was observed
// before is in the deletedCache.
func (s *deletionSweeper) existsOrDeletionSeen(ctx context.Context, name types.NamespacedName, uid types.UID) (bool, error) {
	ke, err := s.executions.Get(ctx, name)
	if apierrors.IsConflict(err) {
		// It was just written. If that was another execution of the name, the next search finds this one.
		return true, nil
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
