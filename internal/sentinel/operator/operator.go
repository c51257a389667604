// Package operator runs the sentinels that SentinelConfigs ask for: one of
// them, or all of a namespace in one process, each apart from the others.
//
// A change of an object, or of a Secret that it names, takes effect without a
// restart; what can not be taken leaves in force what is (see package
// instance). What became of it stands in the object's status and in Kubernetes
// events. Once a configuration is in force, the Kubernetes API is only needed
// for the next change and for the status: while it is away, the sentinels go
// on. Replicas that divide the resources among themselves are the exception:
// they have to hear of each other.
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
	"github.com/fleetloop/fleetloop/internal/sentinel/operator/instance"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// Config says which SentinelConfigs are run.
type Config struct {
	// Namespace is where they are.
	Namespace string

	// Name is that of the only one; empty means all of the namespace.
	Name string

	// Identity names this replica among others that run the same. It is what
	// no other has, and a DNS name.
	Identity string
}

// Deps are what an operator works with. Host, OpenAPI, OpenBroker and
// Leases are needed.
type Deps struct {
	// Host is the cluster with the objects.
	Host *rest.Config

	// OpenAPI and OpenBroker are those of instance.Deps.
	OpenAPI    func(sentinel.API) (instance.API, error)
	OpenBroker func(sentinelconfig.Broker) (instance.Broker, error)

	// Leases give the leases of a group of replicas, and a function that gives
	// up what that takes.
	Leases func(group string) (leases shard.Leases, done func(), err error)

	// Complete changes settings before they are used: it fills in what a spec
	// has no words for. Nil changes nothing.
	Complete func(*sentinelconfig.Settings)

	Log         *slog.Logger
	Registerer  prometheus.Registerer
	Tracer      trace.Tracer
	OnPublished func(sentinel.Published)
}

// An Operator runs sentinels. Make it with New and run its part once.
type Operator struct {
	cfg     Config
	log     *slog.Logger
	manager *kube.Manager
	roster  *memberSet
	secrets *secretWatch
	events  *prometheus.CounterVec

	synced  atomic.Bool
	trouble atomic.Pointer[error] // what the last request for the objects failed with
}

// New makes an operator. It asks nothing of the host cluster yet.
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
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), authorizationv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("create operator: %w", err)
	}
	var err error
	o.manager, err = kube.NewManager(deps.Host, kube.Options{
		Scheme: scheme,
		Namespaced: []schema.GroupVersionKind{
			v1alpha1.GroupVersion.WithKind(kind), corev1.SchemeGroupVersion.WithKind("Secret"),
		},
		ClusterScoped: []schema.GroupVersionKind{authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview")},
		Cache:         o.cacheOptions(),
		Log:           deps.Log,
		OnTrouble: func(err error) {
			o.trouble.Store(&err)
			o.roster.notLoaded()
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
	o.roster = newRoster(cfg, deps, host, &recorder{
		events: o.manager.GetEventRecorder(component), permitted: host.MayWriteEvents, log: deps.Log, count: o.events,
	})
	return o, o.startController(deps)
}

const (
	kind = "SentinelConfig"
	// component is how events and field managers call us.
	component = "hyperfleet-sentinel"
)

// cacheOptions sees no more than the objects that are run: rights on others are not
// needed, nor memory for them.
func (o *Operator) cacheOptions() cache.Options {
	by := cache.ByObject{Transform: cache.TransformStripManagedFields()}
	if o.cfg.Name != "" {
		by.Field = fields.OneTermEqualSelector(metav1.ObjectNameField, o.cfg.Name)
	}
	return cache.Options{
		DefaultNamespaces: map[string]cache.Config{o.cfg.Namespace: {}},
		ByObject:          map[client.Object]cache.ByObject{&v1alpha1.SentinelConfig{}: by},
		// Nothing else is read through the cache, so nothing else is watched.
		ReaderFailOnMissingInformer: true,
	}
}

// workers is how many objects are looked at at a time. One that waits for its
// sentinel to stop holds up no other.
const workers = 16

// specChanged lets through another spec, and another life of a name. That is told as
// one change, of a generation that may be the same, where the end of the one
// before was missed.
func specChanged() predicate.Predicate {
	return predicate.Or(predicate.GenerationChangedPredicate{}, predicate.Predicate(predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool { return e.ObjectOld.GetUID() != e.ObjectNew.GetUID() },
	}))
}

// startController has the reconciler called for what changes.
func (o *Operator) startController(deps Deps) error {
	err := ctrl.NewControllerManagedBy(o.manager).
		Named("sentinelconfig").
		For(&v1alpha1.SentinelConfig{}, builder.WithPredicates(specChanged())).
		WatchesRawSource(source.Channel(o.secrets.changed, &handler.EnqueueRequestForObject{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: workers}).
		Complete(&reconciler{objects: o.roster.host, roster: o.roster, secrets: o.secrets, complete: deps.Complete, log: o.log})
	if err != nil {
		return fmt.Errorf("create controller: %w", err)
	}
	err = o.manager.Add(manager.RunnableFunc(func(ctx context.Context) error {
		// It waits until the objects have been listed.
		if _, err := o.manager.GetCache().GetInformer(ctx, &v1alpha1.SentinelConfig{}); err != nil && ctx.Err() == nil {
			return fmt.Errorf("list SentinelConfigs: %w", err)
		}
		o.synced.Store(ctx.Err() == nil)
		o.watchForMissing(ctx)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("create operator: %w", err)
	}
	return nil
}

// watchForMissing counts and logs that the object which is asked for by name is
// not there, as often as anything else that can not be loaded is tried. It
// returns when ctx ends.
func (o *Operator) watchForMissing(ctx context.Context) {
	if o.cfg.Name == "" {
		<-ctx.Done()
		return
	}
	key := types.NamespacedName{Namespace: o.cfg.Namespace, Name: o.cfg.Name}
	ticker := time.NewTicker(retryLoad)
	defer ticker.Stop()
	missing := false
	for ctx.Err() == nil {
		_, err := o.roster.host.Get(ctx, key)
		if was := missing; apierrors.IsNotFound(err) {
			missing = true
			o.roster.countNotLoaded(key)
			if !was {
				o.log.WarnContext(ctx, "sentinelconfig not found, waiting for it", "config", o.cfg.Name, "namespace", o.cfg.Namespace)
			}
		} else {
			missing = false
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Part is the operator as a part of a process.
func (o *Operator) Part() lifecycle.Part {
	return lifecycle.Part{Name: "operator", Run: o.runManager, Ready: o.Ready}
}

func (o *Operator) runManager(ctx context.Context) error {
	within, cancel := context.WithCancel(ctx)
	defer cancel()
	if reg := o.roster.deps.Registerer; reg != nil {
		configs := configs{o.roster.countObjects}
		if err := errors.Join(reg.Register(configs), reg.Register(o.events)); err != nil {
			return fmt.Errorf("run operator: %w", err)
		}
		defer func() {
			reg.Unregister(configs)
			reg.Unregister(o.events)
		}()
	}
	o.secrets.allowWatches(within)
	o.roster.allowStarts(within)
	err := o.manager.Start(within)
	cancel()
	o.secrets.waitForWatches()
	o.roster.waitForMembers()
	return err
}

var errNotAsked = errors.New("no response from the Kubernetes API yet")

// Ready reports why the operator does not do its work just now. Of one
// SentinelConfig that is what its sentinel says; of several, none speaks for
// the others, and the operator is ready when it knows them. That the Kubernetes
// API goes away later changes nothing, but for replicas that divide resources.
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
	return o.roster.checkReady(o.cfg.Name)
}

// Live reports whether progress is made: that of the sentinel, or of any of
// several. Those of them that make none say so in their status.
func (o *Operator) Live() error { return o.roster.checkLive() }
