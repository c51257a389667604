// Package operator reconciles one node at a time. It takes the node out of service,
// drains and repairs it, and returns it to service.
//
// Only this package writes Nodes, and the status of NodeFaults except the fields of the
// outbox. A reconcile decides from the Node, its NodeFault and the clock, and each change
// of a node is written together with the mark that records it. So the next reconcile, by
// this process or another, continues whatever was interrupted.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	janitor "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// workers is how many nodes are reconciled concurrently. Most of the time is spent
// waiting for the API server.
const workers = 16

// tellers is how many NodeFaults the outbox processes concurrently. The number is small,
// because actions have priority over delivery records when many nodes fail at once. The
// workers do not wait for sinks.
const tellers = 4

// Config configures an operator.
type Config struct {
	// TTL is how long a finished NodeFault is kept. Zero means 24 h.
	TTL time.Duration
	// Outbox configures the delivery of change events.
	Outbox OutboxConfig
}

// Deps are the dependencies of an operator. All but Sinks, Log and Registerer are
// required.
type Deps struct {
	Rules      judge
	Quarantine *quarantine.Quarantine
	Drain      drainer
	Remedy     remediator
	Sinks      []EventSink

	Log        *slog.Logger
	Registerer prometheus.Registerer
}

// An Operator is an operator that was added to a manager.
type Operator struct{ synced atomic.Bool }

// AddToScheme registers the types that the manager of Add needs.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), janitor.AddToScheme(s), corev1.AddToScheme(s))
}

// Kinds returns the cluster-scoped kinds that a manager needs.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.Kind), corev1.SchemeGroupVersion.WithKind("Node"),
		janitor.GroupVersion.WithKind(janitor.KindReboot), janitor.GroupVersion.WithKind(janitor.KindTerminate),
	}
}

// CacheOptions returns the cache options of a manager.
func CacheOptions() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&corev1.Node{}:        {Transform: stripUnusedNodeFields},
		&v1alpha1.NodeFault{}: {Transform: cache.TransformStripManagedFields()},
	}
}

// rateLimiter returns the backoff after failed reconciles.
func rateLimiter() workqueue.TypedRateLimiter[reconcile.Request] {
	return workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](50*time.Millisecond, 15*time.Second)
}

// Add adds the controllers to a manager, which must use leader election.
func Add(m manager.Manager, cfg Config, deps Deps) (*Operator, error) {
	if cfg.TTL == 0 {
		cfg.TTL = 24 * time.Hour
	}
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Registerer == nil {
		deps.Registerer = prometheus.NewRegistry()
	}
	counted, err := newMetrics(deps.Registerer, cachedFaultLister{m.GetClient()})
	if err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}
	told, err := NewOutboxMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}
	stored := cachedFaultClient{m.GetClient(), m.GetAPIReader(), &kube.WrittenVersions{}}
	waker := &kube.Requeuer{}
	box := NewOutbox(cfg.Outbox, deps.Sinks, stored, told, func(name string) { waker.Requeue(types.NamespacedName{Name: name}) })
	r := &reconciler{
		cfg: cfg, nodes: cachedNodeClient{m.GetClient(), &kube.WrittenVersions{}}, faults: stored,
		rules: deps.Rules, quarantine: deps.Quarantine, drain: deps.Drain, remedy: deps.Remedy, enroll: box.EnrollSinks, asked: cachedActionReader{m.GetClient()}.hasStartedAction, metrics: counted, log: deps.Log, now: time.Now,
	}
	err = ctrl.NewControllerManagedBy(m).
		Named("node-fault").
		For(&v1alpha1.NodeFault{}, builder.WithPredicates(generationChangedOrSequenceDecreased())).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(nodeChangedExceptHeartbeats())).
		Watches(&janitor.RebootNode{}, handler.EnqueueRequestsFromMapFunc(requestForActionNode)).
		Watches(&janitor.TerminateNode{}, handler.EnqueueRequestsFromMapFunc(requestForActionNode)).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers, RateLimiter: rateLimiter()}).
		Complete(r)
	if err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}
	err = ctrl.NewControllerManagedBy(m).
		Named("node-fault-outbox").
		For(&v1alpha1.NodeFault{}, builder.WithPredicates(recordsAddedOrResendRequested())).
		WatchesRawSource(waker.QueueCapturingSource()).
		WithOptions(controller.Options{MaxConcurrentReconciles: tellers, RateLimiter: rateLimiter()}).
		Complete(requeueSoonOnStaleCache(box))
	if err != nil {
		return nil, fmt.Errorf("add change event outbox: %w", err)
	}
	if err := m.Add(drainOutboxOnStop(box, deps.Log)); err != nil {
		return nil, fmt.Errorf("add change event outbox: %w", err)
	}
	o := &Operator{}
	err = m.Add(everyReplicaRunnable{func(ctx context.Context) error {
		// Controllers start their watches only after the election. Reports arrive before,
		// and a new leader needs a filled cache.
		for _, o := range []client.Object{&v1alpha1.NodeFault{}, &corev1.Node{}, &janitor.RebootNode{}, &janitor.TerminateNode{}} {
			if _, err := m.GetCache().GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
				return fmt.Errorf("watch %T: %w", o, err)
			}
		}
		if m.GetCache().WaitForCacheSync(ctx) {
			o.synced.Store(true)
		}
		return nil
	}})
	return o, err
}

// drainOutboxOnStop waits for the responses of sinks when the manager stops. Otherwise the
// next leader would send pending events again.
func drainOutboxOnStop(box *Outbox, log *slog.Logger) manager.RunnableFunc {
	return func(ctx context.Context) error {
		<-ctx.Done()
		log.InfoContext(ctx, "waiting for pending change events")
		if err := box.StopAndAwaitInFlight(ctx); err != nil {
			log.WarnContext(ctx, "store delivery results failed, the next process sends these events again", "err", err)
		}
		return nil
	}
}

// everyReplicaRunnable runs on each replica.
type everyReplicaRunnable struct{ manager.RunnableFunc }

// NeedLeaderElection returns false.
func (everyReplicaRunnable) NeedLeaderElection() bool { return false }

// Ready returns an error until nodes and NodeFaults are listed. A replica that waits for
// the election is ready.
func (o *Operator) Ready() error {
	if o.synced.Load() {
		return nil
	}
	return errors.New("nodes and NodeFaults not listed yet: check that the CRDs are installed and that the ServiceAccount may list nodes and nodefaults")
}

// requeueSoonOnStaleCache wraps the outbox so that a stale cache causes a short requeue rather
// than an error.
func requeueSoonOnStaleCache(box *Outbox) reconcile.Reconciler {
	return reconcile.Func(func(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
		got, err := box.Reconcile(ctx, req)
		return requeueSoonIfStale(got.RequeueAfter, err)
	})
}

func requestForActionNode(_ context.Context, o client.Object) []reconcile.Request {
	var name string
	switch a := o.(type) {
	case *janitor.RebootNode:
		name = a.Spec.NodeName
	case *janitor.TerminateNode:
		name = a.Spec.NodeName
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: name}}}
}

// nodeChangedExceptHeartbeats returns a predicate for relevant changes of a Node, which excludes heartbeats.
func nodeChangedExceptHeartbeats() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*corev1.Node)
		now, isOne := e.ObjectNew.(*corev1.Node)
		cleared := len(before.ManagedFields) > 0 && len(now.ManagedFields) == 0
		return ok && isOne && (before.UID != now.UID || cleared || !equality.Semantic.DeepEqual(before.Spec, now.Spec) ||
			before.Status.NodeInfo.BootID != now.Status.NodeInfo.BootID || readyConditionStatus(before) != readyConditionStatus(now) ||
			!equality.Semantic.DeepEqual(before.Labels, now.Labels) || !equality.Semantic.DeepEqual(before.Annotations, now.Annotations))
	}}
}

func readyConditionStatus(n *corev1.Node) corev1.ConditionStatus {
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	return ""
}

// generationChangedOrSequenceDecreased returns a predicate for changed faults, and for status changes by others.
// Writes of the outbox are filtered.
func generationChangedOrSequenceDecreased() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodeFault)
		now, isOne := e.ObjectNew.(*v1alpha1.NodeFault)
		return ok && isOne && (before.Generation != now.Generation || before.UID != now.UID || before.Status.LastSequence > now.Status.LastSequence)
	}}
}

// recordsAddedOrResendRequested returns a predicate for new records and for resend requests.
func recordsAddedOrResendRequested() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, ok := e.ObjectOld.(*v1alpha1.NodeFault)
		now, isOne := e.ObjectNew.(*v1alpha1.NodeFault)
		return ok && isOne && (before.Status.LastSequence != now.Status.LastSequence || before.UID != now.UID ||
			before.Annotations[v1alpha1.AnnotationResend] != now.Annotations[v1alpha1.AnnotationResend])
	}}
}
