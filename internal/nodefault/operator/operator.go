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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	janitor "github.com/fleetloop/fleetloop/api/janitor/v1alpha1"
	"github.com/fleetloop/fleetloop/api/nodefault/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault/quarantine"
)

// nodeWorkers is how many nodes are reconciled concurrently. Most of the time is spent
// waiting for the API server.
const nodeWorkers = 16

// outboxWorkers is how many NodeFaults the outbox processes concurrently. The number is small,
// because actions have priority over delivery records when many nodes fail at once. The
// workers do not wait for sinks.
const outboxWorkers = 4

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
type Operator struct {
	synced atomic.Bool // whether the cache has all nodes, NodeFaults and requested actions
}

// AddToScheme registers the types that the manager of Add needs.
func AddToScheme(s *runtime.Scheme) error {
	return errors.Join(v1alpha1.AddToScheme(s), janitor.AddToScheme(s), corev1.AddToScheme(s))
}

// Kinds returns the cluster-scoped kinds that a manager needs.
func Kinds() []schema.GroupVersionKind {
	return []schema.GroupVersionKind{
		v1alpha1.GroupVersion.WithKind(v1alpha1.Kind),
		corev1.SchemeGroupVersion.WithKind("Node"),
		janitor.GroupVersion.WithKind(janitor.KindReboot),
		janitor.GroupVersion.WithKind(janitor.KindTerminate),
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
	nodeMetrics, err := newMetrics(deps.Registerer, cachedFaultLister{m.GetClient()})
	if err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}
	outboxMetrics, err := NewOutboxMetrics(deps.Registerer)
	if err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}

	// Both controllers write NodeFaults, so they share the record of what was written.
	faults := cachedFaultClient{client: m.GetClient(), live: m.GetAPIReader(), written: &kube.WrittenVersions{}}
	requeuer := &kube.Requeuer{}
	requeueFault := func(name string) { requeuer.Requeue(types.NamespacedName{Name: name}) }
	outbox := NewOutbox(cfg.Outbox, deps.Sinks, faults, outboxMetrics, requeueFault)
	nodes := &reconciler{
		cfg:              cfg,
		nodes:            cachedNodeClient{client: m.GetClient(), written: &kube.WrittenVersions{}},
		faults:           faults,
		rules:            deps.Rules,
		quarantine:       deps.Quarantine,
		drain:            deps.Drain,
		remedy:           deps.Remedy,
		enrollSinks:      outbox.EnrollMissingSinks,
		hasStartedAction: cachedActionReader{m.GetClient()}.hasStartedAction,
		metrics:          nodeMetrics,
		log:              deps.Log,
		now:              time.Now,
	}

	if err := addNodeController(m, nodes); err != nil {
		return nil, fmt.Errorf("add node controller: %w", err)
	}
	if err := addOutboxController(m, outbox, requeuer); err != nil {
		return nil, fmt.Errorf("add change event outbox: %w", err)
	}
	if err := m.Add(outboxDrainer{outbox: outbox, log: deps.Log}); err != nil {
		return nil, fmt.Errorf("add change event outbox: %w", err)
	}
	o := &Operator{}
	if err := m.Add(cacheFiller{cache: m.GetCache(), filled: &o.synced}); err != nil {
		return nil, fmt.Errorf("add node cache: %w", err)
	}
	return o, nil
}

// addNodeController adds the controller that takes nodes out of service and repairs them.
func addNodeController(m manager.Manager, r *reconciler) error {
	return ctrl.NewControllerManagedBy(m).
		Named("node-fault").
		For(&v1alpha1.NodeFault{}, builder.WithPredicates(generationChangedOrSequenceDecreased())).
		Watches(&corev1.Node{}, &handler.EnqueueRequestForObject{}, builder.WithPredicates(specMetadataBootOrReadyChanged())).
		Watches(&janitor.RebootNode{}, handler.EnqueueRequestsFromMapFunc(requestForActionNode)).
		Watches(&janitor.TerminateNode{}, handler.EnqueueRequestsFromMapFunc(requestForActionNode)).
		WithOptions(controller.Options{MaxConcurrentReconciles: nodeWorkers, RateLimiter: rateLimiter()}).
		Complete(r)
}

// addOutboxController adds the controller that delivers change events.
func addOutboxController(m manager.Manager, outbox *Outbox, requeuer *kube.Requeuer) error {
	return ctrl.NewControllerManagedBy(m).
		Named("node-fault-outbox").
		For(&v1alpha1.NodeFault{}, builder.WithPredicates(recordsAddedOrResendRequested())).
		WatchesRawSource(requeuer.QueueCapturingSource()).
		WithOptions(controller.Options{MaxConcurrentReconciles: outboxWorkers, RateLimiter: rateLimiter()}).
		Complete(outboxReconciler{outbox})
}

// An outboxReconciler reconciles an outbox. A stale cache causes a short requeue rather than an
// error.
type outboxReconciler struct{ outbox *Outbox }

// Reconcile calls Reconcile of the outbox.
func (r outboxReconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	result, err := r.outbox.Reconcile(ctx, req)
	return requeueSoonIfStale(result.RequeueAfter, err)
}

// An outboxDrainer waits for the responses of sinks when the manager stops. Otherwise the
// next leader would send pending events again.
type outboxDrainer struct {
	outbox *Outbox
	log    *slog.Logger
}

// Start blocks until ctx has ended and the outbox has stopped. A manager runs it in the leader.
func (d outboxDrainer) Start(ctx context.Context) error {
	<-ctx.Done()
	d.log.InfoContext(ctx, "waiting for pending change events")
	if err := d.outbox.StopAwaitAndWriteResults(ctx); err != nil {
		d.log.WarnContext(ctx, "store delivery results failed, the next process sends these events again", "err", err)
	}
	return nil
}

// A cacheFiller fills the cache of each replica. Controllers start their watches only after the
// election, but reports arrive before, and a new leader needs a filled cache.
type cacheFiller struct {
	cache  cache.Cache
	filled *atomic.Bool // set when all objects are listed
}

// Start starts the watches and waits until all objects are listed.
func (f cacheFiller) Start(ctx context.Context) error {
	watched := []client.Object{
		&v1alpha1.NodeFault{},
		&corev1.Node{},
		&janitor.RebootNode{},
		&janitor.TerminateNode{},
	}
	for _, o := range watched {
		if _, err := f.cache.GetInformer(ctx, o, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", o, err)
		}
	}
	if f.cache.WaitForCacheSync(ctx) {
		f.filled.Store(true)
	}
	return nil
}

// NeedLeaderElection returns false, so that all replicas fill their caches.
func (cacheFiller) NeedLeaderElection() bool { return false }

// Ready returns an error until nodes and NodeFaults are listed. A replica that waits for
// the election is ready.
func (o *Operator) Ready() error {
	if o.synced.Load() {
		return nil
	}
	return errors.New(
		"nodes and NodeFaults not listed yet: check that the CRDs are installed and that the ServiceAccount may list nodes and nodefaults",
	)
}

// requestForActionNode returns the request for the node of a RebootNode or TerminateNode.
func requestForActionNode(_ context.Context, o client.Object) []reconcile.Request {
	var node string
	switch action := o.(type) {
	case *janitor.RebootNode:
		node = action.Spec.NodeName
	case *janitor.TerminateNode:
		node = action.Spec.NodeName
	}
	return []reconcile.Request{{NamespacedName: types.NamespacedName{Name: node}}}
}
