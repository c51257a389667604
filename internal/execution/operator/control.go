package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
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

	"github.com/fleetloop/fleetloop/api/execution/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/execution"
	"github.com/fleetloop/fleetloop/internal/kube"
)

// workers is the number of concurrent reconciles. It keeps an API server busy, because a reconcile
// mostly waits for the API server.
const workers = 16

// auditWorkers is the number of concurrent audit reconciles. Records that arrive together share one
// transaction.
const auditWorkers = 16

// targetChangeDelay is the time in which changes of a target are merged into one reconcile.
const targetChangeDelay = 50 * time.Millisecond

// newRateLimiter returns the backoff of failed reconciles. The cap is low, so that an execution
// continues soon after the cause of the failure is gone.
func newRateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 15*time.Second)
}

// addControllers registers the controllers and their watches with the manager.
func (o *Operator) addControllers(deps Deps) error {
	metrics := newMetrics(deps.Registerer)
	requeuer := &kube.Requeuer{}
	host := hostExecutions{
		client:    o.manager.GetClient(),
		namespace: o.cfg.Namespace,
		written:   &kube.WrittenVersions{},
		observe:   deps.StatusWritten,
	}
	if err := deps.Registerer.Register(newPhaseGauges(host, deps.Log)); err != nil {
		return err
	}
	outbox, err := NewOutbox(o.cfg.Outbox, OutboxDeps{
		Sinks: deps.Sinks, Event: deps.Event, Wake: requeuer.Requeue, Registerer: deps.Registerer,
	})
	if err != nil {
		return err
	}
	// Before the manager starts, this sends no request, so no context can end it.
	indexer := o.manager.GetFieldIndexer()
	if err := indexer.IndexField(context.Background(), &corev1.Pod{}, podsOfJob, controllingJobUID); err != nil {
		return fmt.Errorf("index Pods by their Job: %w", err)
	}
	targets, err := o.addTargetWatches(deps, requeuer)
	if err != nil {
		return err
	}
	stop := &emergencyStop{
		gate:        deps.Gate,
		log:         deps.Log,
		wakeRunning: func(ctx context.Context) error { return wakeRunningExecutions(ctx, host, requeuer.Requeue) },
	}
	deps.Gate.OnWake(requeuer.Requeue)

	r := newReconciler(&o.cfg, ports{
		executions: host,
		jobs:       timedJobs{jobs: o.newHostJobs(), metrics: metrics},
		check:      deps.Check,
		identities: deps.Identities,
		gate:       deps.Gate,
		guard:      deps.Guard,
		recorder:   deps.Recorder,
		outbox:     outbox,
		events:     o.manager.GetEventRecorder(component),
		targets:    targets,
		metrics:    metrics,
		log:        deps.Log,
		now:        time.Now,
		halted:     &stop.halted,
		readStop: func(ctx context.Context) error {
			name := types.NamespacedName{Namespace: o.cfg.Namespace, Name: v1alpha1.EmergencyStop}
			return stop.syncFromConfigMap(ctx, o.manager.GetClient(), name)
		},
	})
	return errors.Join(
		o.addExecutionController(r, requeuer),
		o.addEmergencyStopController(stop),
		o.addAuditControllerAndSweeper(host, deps),
		o.manager.Add(manager.RunnableFunc(r.writer.drainOutboxOnStop)),
		o.manager.Add(unelectedRunnable(o.markSyncedOnceListed)),
	)
}

// addTargetWatches registers the watches of targets, which requeue the executions that wait for them.
func (o *Operator) addTargetWatches(deps Deps, requeuer *kube.Requeuer) (*targetWatches, error) {
	metadataClient, err := metadata.NewForConfigAndClient(deps.Host, o.manager.GetHTTPClient())
	if err != nil {
		return nil, err
	}
	targets := &targetWatches{
		client:  metadataClient,
		wake:    func(name types.NamespacedName) { requeuer.RequeueAfter(name, targetChangeDelay) },
		log:     deps.Log,
		watched: map[v1alpha1.Target]*targetWatch{},
	}
	return targets, o.manager.Add(targets)
}

func (o *Operator) newHostJobs() hostJobs {
	return hostJobs{client: o.manager.GetClient(), live: o.manager.GetAPIReader(), namespace: o.cfg.Namespace}
}

// addExecutionController registers the controller that moves executions from phase to phase.
func (o *Operator) addExecutionController(r *reconciler, requeuer *kube.Requeuer) error {
	podRequests := handler.EnqueueRequestsFromMapFunc(executionRequestOfPod)
	return ctrl.NewControllerManagedBy(o.manager).
		Named("execution").
		For(&v1alpha1.KubernetesExecution{}, builder.WithPredicates(executionChanged())).
		Owns(&batchv1.Job{}, builder.WithPredicates(jobStatusChanged())).
		Watches(&corev1.Pod{}, podRequests, builder.WithPredicates(podStatusChanged())).
		WatchesRawSource(requeuer.QueueCapturingSource()).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: newRateLimiter()}).
		Complete(r)
}

// addEmergencyStopController registers the controller that applies the emergency stop.
func (o *Operator) addEmergencyStopController(stop *emergencyStop) error {
	return ctrl.NewControllerManagedBy(o.manager).
		Named("emergency-stop").
		For(&corev1.ConfigMap{}). // the cache contains only this one
		Complete(stop.newReconciler(o.manager.GetClient()))
}

// addAuditControllerAndSweeper registers the controller that writes the audit and the search for
// executions that it missed, if auditing is enabled.
func (o *Operator) addAuditControllerAndSweeper(host executions, deps Deps) error {
	if !o.cfg.Audited {
		return nil
	}
	audit := &auditReconciler{executions: host, auditor: deps.Auditor, log: deps.Log, now: time.Now}
	deletions := audit.deleted.newDeletionHandler(deps.Log, time.Now)
	err := ctrl.NewControllerManagedBy(o.manager).
		Named("audit").
		For(&v1alpha1.KubernetesExecution{}, builder.WithPredicates(auditedFieldsChanged())).
		Watches(&v1alpha1.KubernetesExecution{}, deletions).
		WithOptions(controller.Options{MaxConcurrentReconciles: auditWorkers, RateLimiter: newRateLimiter()}).
		Complete(audit)
	if err != nil {
		return err
	}
	return o.manager.Add(&deletionSweeper{
		namespace:  o.cfg.Namespace,
		closer:     deps.Auditor,
		executions: host,
		live:       uncachedUIDReader{o.manager.GetAPIReader()},
		deleted:    &audit.deleted,
		log:        deps.Log,
	})
}

// markSyncedOnceListed marks the operator as synced once the executions have been listed.
func (o *Operator) markSyncedOnceListed(ctx context.Context) error {
	if _, err := o.manager.GetCache().GetInformer(ctx, &v1alpha1.KubernetesExecution{}); err != nil && ctx.Err() == nil {
		return fmt.Errorf("list executions: %w", err)
	}
	o.synced.Store(ctx.Err() == nil)
	<-ctx.Done()
	return nil
}

// unelectedRunnable runs in every replica, without leader election.
type unelectedRunnable func(context.Context) error

// Start calls u.
func (u unelectedRunnable) Start(ctx context.Context) error { return u(ctx) }

// NeedLeaderElection returns false.
func (unelectedRunnable) NeedLeaderElection() bool { return false }

var _ manager.LeaderElectionRunnable = unelectedRunnable(nil)

// updatePredicate selects the updates of objects of one type that changed accordingly.
func updatePredicate[T client.Object](changed func(before, now T) bool) predicate.Funcs {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, oldIsT := e.ObjectOld.(T)
		now, newIsT := e.ObjectNew.(T)
		return oldIsT && newIsT && changed(before, now)
	}}
}

// executionChanged selects changes of the spec, deletions, recreations under the same name, and
// completion of the audit. It ignores the status writes of the operator.
func executionChanged() predicate.Predicate {
	return updatePredicate(func(before, now *v1alpha1.KubernetesExecution) bool {
		return before.Generation != now.Generation ||
			before.UID != now.UID ||
			before.DeletionTimestamp.IsZero() != now.DeletionTimestamp.IsZero() ||
			isAuditRecorded(before) != isAuditRecorded(now)
	})
}

// jobStatusChanged selects changes of a Job's status, and its deletion.
func jobStatusChanged() predicate.Predicate {
	return updatePredicate(func(before, now *batchv1.Job) bool {
		return !equality.Semantic.DeepEqual(before.Status, now.Status)
	})
}

// podStatusChanged selects changes of a Pod's status.
func podStatusChanged() predicate.Predicate {
	return updatePredicate(func(before, now *corev1.Pod) bool {
		return !equality.Semantic.DeepEqual(before.Status, now.Status)
	})
}

// executionRequestOfPod maps a Pod to the execution that its annotation names. Whether the Pod counts for
// that execution depends on the Job that controls it.
func executionRequestOfPod(_ context.Context, o client.Object) []reconcile.Request {
	name := o.GetAnnotations()[v1alpha1.AnnotationExecution]
	if name == "" || metav1.GetControllerOf(o) == nil {
		return nil
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Namespace: o.GetNamespace(), Name: name}}}
}

// emergencyStop applies the emergency stop ConfigMap to the gate and to running executions.
type emergencyStop struct {
	gate        *execution.Gate
	halted      atomic.Bool                 // true while it also cancels running executions
	wakeRunning func(context.Context) error // wakes the running executions
	log         *slog.Logger
}

// newReconciler returns a reconciler for the ConfigMap. The cache behind c contains no other
// ConfigMap.
func (e *emergencyStop) newReconciler(c client.Reader) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		return reconcile.Result{}, e.syncFromConfigMap(ctx, c, req.NamespacedName)
	})
}

// syncFromConfigMap reads the ConfigMap and stops or resumes the gate accordingly.
func (e *emergencyStop) syncFromConfigMap(ctx context.Context, c client.Reader, name types.NamespacedName) error {
	var stop corev1.ConfigMap
	err := c.Get(ctx, name, &stop)
	if apierrors.IsNotFound(err) {
		e.halted.Store(false)
		e.gate.Resume()
		return nil
	}
	if err != nil {
		return fmt.Errorf("read the emergency stop: %w", err)
	}
	reason := stop.Data[v1alpha1.StopReason]
	if reason == "" {
		reason = "no reason given"
	}
	if by := stop.Data[v1alpha1.StopBy]; by != "" {
		reason += " (set by " + by + ")"
	}
	e.log.WarnContext(ctx, "emergency stop active, no execution starts", "reason", reason)
	e.gate.Stop(reason)
	halt := stop.Data[v1alpha1.StopRunning] == "true"
	haltedBefore := e.halted.Swap(halt)
	if halt && !haltedBefore { // each running execution cancels itself in its next reconcile
		return e.wakeRunning(ctx)
	}
	return nil
}
