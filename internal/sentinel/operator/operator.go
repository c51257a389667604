// Package operator runs the sentinels of SentinelConfigs: one of them, or all of a namespace in one
// process, isolated from each other.
//
// A change of an object, or of a Secret that it references, takes effect without a restart; an
// invalid change leaves the previous configuration in force. The object's status and Kubernetes
// events report the result. Once a configuration is in force, the Kubernetes API is needed only for
// the next change and for the status: while it is down, the sentinels continue. Replicas that
// divide the resources among themselves are the exception, because they communicate through it.
//
// An Operator reads the objects and writes their status. For each it has an Instance, which runs
// the sentinel and knows nothing about Kubernetes.
package operator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/fleetloop/fleetloop/api/sentinel/v1alpha1"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// Config selects the SentinelConfigs that are run.
type Config struct {
	// Namespace is the namespace of the SentinelConfigs.
	Namespace string

	// Name is the name of a single SentinelConfig; empty means all of the namespace.
	Name string

	// Identity is the unique name of this replica among those that run the same objects. It must be
	// a DNS name.
	Identity string
}

// Deps holds the dependencies of an operator. Host, OpenAPI, OpenBroker and Leases are required.
type Deps struct {
	// Host is the cluster of the objects.
	Host *rest.Config

	// OpenAPI and OpenBroker are passed to InstanceDeps.
	OpenAPI    func(sentinel.API) (FleetAPI, error)
	OpenBroker func(sentinelconfig.Broker) (Broker, error)

	// Leases returns the leases of a group of replicas, and a function that releases their
	// resources.
	Leases func(group string) (leases shard.LeaseStore, done func(), err error)

	// Complete completes settings before they are used: it sets fields that a spec does not have.
	// Nil changes nothing.
	Complete func(*sentinelconfig.Settings)

	Log         *slog.Logger
	Registerer  prometheus.Registerer
	Tracer      trace.Tracer
	OnPublished func(sentinel.Published)
}

// An Operator runs sentinels. Create it with New and run its part once.
type Operator struct {
	cfg     Config
	log     *slog.Logger
	manager *kube.Manager
	roster  *memberSet
	secrets *secretWatch
	events  *prometheus.CounterVec

	synced  atomic.Bool
	trouble atomic.Pointer[error] // error of the last request for the objects
}

// New creates an operator. It sends no request to the host cluster yet.
func New(cfg Config, deps Deps) (*Operator, error) {
	if deps.Log == nil {
		deps.Log = slog.New(slog.DiscardHandler)
	}
	if deps.Complete == nil {
		deps.Complete = func(*sentinelconfig.Settings) {}
	}
	if cfg.Namespace == "" || cfg.Identity == "" {
		return nil, errors.New("create operator: a namespace and an identity are required")
	}
	o := &Operator{cfg: cfg, log: deps.Log, events: newEventCounter()}
	scheme := runtime.NewScheme()
	err := errors.Join(
		v1alpha1.AddToScheme(scheme),
		corev1.AddToScheme(scheme),
		authorizationv1.AddToScheme(scheme),
	)
	if err != nil {
		return nil, fmt.Errorf("create operator: %w", err)
	}
	o.manager, err = kube.NewManager(deps.Host, kube.Options{
		Scheme: scheme,
		Namespaced: []schema.GroupVersionKind{
			v1alpha1.GroupVersion.WithKind(kind),
			corev1.SchemeGroupVersion.WithKind("Secret"),
		},
		ClusterScoped: []schema.GroupVersionKind{
			authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"),
		},
		Cache: o.buildCacheOptions(),
		Log:   deps.Log,
		OnTrouble: func(err error) {
			o.trouble.Store(&err)
			o.roster.countLoadFailureOfAll()
		},
	})
	if err != nil {
		return nil, err
	}
	meta, err := metadata.NewForConfigAndClient(deps.Host, o.manager.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("create client: %w", err)
	}
	o.secrets = newSecretWatch(meta, cfg.Namespace, deps.Log)
	host := hostCluster{cached: o.manager.GetClient(), live: o.manager.GetAPIReader()}
	o.roster = newMemberSet(cfg, deps, host, &recorder{
		events:    o.manager.GetEventRecorder(component),
		permitted: host.CheckMayWriteEvents,
		log:       deps.Log,
		count:     o.events,
	})
	return o, o.addControllerAndPoller(deps)
}

const (
	kind = "SentinelConfig"
	// component is the name of the operator in events and as a field manager.
	component = "hyperfleet-sentinel"
)

// buildCacheOptions restricts the cache to the objects that are run, so that others need neither
// permissions nor memory.
func (o *Operator) buildCacheOptions() cache.Options {
	configs := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	if o.cfg.Name != "" {
		configs.Field = fields.OneTermEqualSelector(metav1.ObjectNameField, o.cfg.Name)
	}
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.cfg.Namespace: {}},
		ByObject:          map[client.Object]cache.ByObject{&v1alpha1.SentinelConfig{}: configs},
		// Nothing else is read through the cache, so nothing else is watched.
		ReaderFailOnMissingInformer: true,
	}
}

// workers is the number of concurrent reconciles. An object that waits for its sentinel to stop
// does not block others.
const workers = 16

// specOrUIDChanged accepts changes of the spec, and a new object with the same name. If the
// deletion was missed, the new object arrives as one update, and its generation may be the same.
func specOrUIDChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Predicate(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	}))
}

// addControllerAndPoller adds to the manager the controller that calls the reconciler, and the poller
// for a missing object.
func (o *Operator) addControllerAndPoller(deps Deps) error {
	reconciler := &reconciler{
		objects:  o.roster.host,
		roster:   o.roster,
		secrets:  o.secrets,
		complete: deps.Complete,
		log:      o.log,
	}
	err := ctrl.NewControllerManagedBy(o.manager).
		Named("sentinelconfig").
		For(&v1alpha1.SentinelConfig{}, builder.WithPredicates(specOrUIDChanged())).
		WatchesRawSource(source.Channel(o.secrets.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(reconciler)
	if err != nil {
		return fmt.Errorf("create controller: %w", err)
	}
	err = o.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		// This waits until the objects have been listed.
		if _, err := o.manager.GetCache().GetInformer(ctx, &v1alpha1.SentinelConfig{}); err != nil && ctx.Err() == nil {
			return fmt.Errorf("list SentinelConfigs: %w", err)
		}
		o.synced.Store(ctx.Err() == nil)
		o.reportMissingObjectUntilDone(ctx)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("create operator: %w", err)
	}
	return nil
}

// reportMissingObjectUntilDone counts and logs that the configured object does not exist, at the interval at
// which other failed loads are retried. It returns when ctx ends.
func (o *Operator) reportMissingObjectUntilDone(ctx context.Context) {
	if o.cfg.Name == "" {
		<-ctx.Done()
		return
	}
	key := types.NamespacedName{Namespace: o.cfg.Namespace, Name: o.cfg.Name}
	ticker := time.NewTicker(retryLoad)
	defer ticker.Stop()
	wasMissing := false
	for ctx.Err() == nil {
		_, err := o.roster.host.Get(ctx, key)
		isMissing := apierrors.IsNotFound(err)
		if isMissing {
			o.roster.countLoadFailureOf(key)
		}
		if isMissing && !wasMissing {
			o.log.WarnContext(ctx, "sentinelconfig not found, waiting for it",
				"config", o.cfg.Name, "namespace", o.cfg.Namespace)
		}
		wasMissing = isMissing
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Part returns the operator as a part of a process.
func (o *Operator) Part() lifecycle.Part {
	return lifecycle.Part{Name: "operator", Run: o.runManagerAndMembers, Ready: o.Ready}
}

// runManagerAndMembers runs the manager until ctx ends, and then stops the members, which the
// reconciler has started.
func (o *Operator) runManagerAndMembers(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if reg := o.roster.deps.Registerer; reg != nil {
		configs := configs{o.roster.countServedAndUnservedConfigs}
		if err := errors.Join(reg.Register(configs), reg.Register(o.events)); err != nil {
			return fmt.Errorf("run operator: %w", err)
		}
		defer func() {
			reg.Unregister(configs)
			reg.Unregister(o.events)
		}()
	}
	o.secrets.setRunContext(within)
	o.roster.setRunContext(within)
	err := o.manager.Start(within)
	cancel()
	o.secrets.waitForWatches()
	o.roster.stopAllAndWait()
	return err
}

var errNotAsked = errors.New("no response from the Kubernetes API yet")

// Ready returns why the operator cannot work now. With one SentinelConfig this is the state of its
// sentinel. With several, the operator is ready when it knows them, because no sentinel represents
// the others. A later outage of the Kubernetes API changes nothing, except for replicas that divide
// resources.
func (o *Operator) Ready() error {
	if !o.synced.Load() {
		if err := o.trouble.Load(); err != nil {
			return *err
		}
		return errNotAsked
	}
	if o.cfg.Name == "" {
		return nil
	}
	return o.roster.checkMemberReady(o.cfg.Name)
}

// Live returns an error if the sentinel, or all of several sentinels, make no progress. The status
// of each object shows its own lack of progress.
func (o *Operator) Live() error { return o.roster.checkAnyLive() }
