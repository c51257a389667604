package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// Options are how a manager sees the host cluster.
type Options struct {
	Scheme *runtime.Scheme

	// Namespaced and ClusterScoped are the kinds that are used, in namespaces and
	// outside of them. The server is not asked what it has: that would cost
	// requests and memory, and a process could not start before its CRDs are
	// there.
	Namespaced, ClusterScoped []schema.GroupVersionKind

	// Leader has controllers run in one replica at a time. The zero value is
	// all at once, each with work of its own.
	Leader Leader

	Cache cache.Options
	Log   *slog.Logger

	// OnTrouble is called with each error of the lists and watches that fill
	// the cache. It must not block. Nil is nobody.
	OnTrouble func(error)
}

// A Leader is the Lease that says which replica works. The one that loses it
// ends, with an error: it cannot know what it still has under way.
type Leader struct {
	Namespace, Name string
	// Lease is how long the others wait for one that went without a word. Zero
	// is 15 s.
	Lease time.Duration
}

// whileNothingAnswers is how long a controller waits for its first list: for
// ever. Who waits is not ready, and says so; to end would not help.
const whileNothingAnswers = 10 * 365 * 24 * time.Hour

// NewManager makes a manager that listens nowhere: metrics and health are served
// by the process. It asks nothing of the host cluster before it runs.
func NewManager(cfg *rest.Config, o Options) (manager.Manager, error) {
	TakeLogs(o.Log)
	yes, forever := true, time.Duration(-1)
	options := manager.Options{
		Scheme: o.Scheme,
		Cache:  o.patient(),
		Logger: Logger(o.Log),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return mapper(o.Namespaced, o.ClusterScoped), nil
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		PprofBindAddress:        "0",
		GracefulShutdownTimeout: &forever, // the part has its bound
		Controller: config.Controller{
			SkipNameValidation: &yes, // of several managers in a process
			CacheSyncTimeout:   whileNothingAnswers,
		},
	}
	if o.Leader.Name != "" {
		if err := o.Leader.elect(cfg, &options); err != nil {
			return nil, fmt.Errorf("make manager: %w", err)
		}
	}
	m, err := manager.New(cfg, options)
	if err != nil {
		return nil, fmt.Errorf("make manager: %w", err)
	}
	return m, nil
}

// patient are the options of a cache that waits for a host cluster that is away.
func (o Options) patient() cache.Options {
	c := o.Cache
	c.NewInformer = func(lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, by toolscache.Indexers) toolscache.SharedIndexInformer {
		return toolscache.NewSharedIndexInformer(Patient(lw, o.Log, o.OnTrouble), example, resync, by)
	}
	if o.OnTrouble != nil {
		c.DefaultWatchErrorHandler = func(ctx context.Context, r *toolscache.Reflector, err error) {
			o.OnTrouble(err)
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}
	return c
}

// elect has a manager wait for its turn, and give it up when it is told to stop.
func (l Leader) elect(cfg *rest.Config, o *manager.Options) error {
	lease := cmp.Or(l.Lease, 15*time.Second)
	renew, retry := lease*2/3, lease*2/15 // the proportions that Kubernetes' own controllers have
	o.LeaderElection = true
	o.LeaderElectionID, o.LeaderElectionNamespace = l.Name, l.Namespace
	o.LeaderElectionReleaseOnCancel = true
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod = &lease, &renew, &retry
	host, err := os.Hostname()
	if err != nil {
		return fmt.Errorf("name this replica: %w", err)
	}
	// It has no recorder: the one of Kubernetes events would need rights on an API
	// group that nothing else of ours uses.
	o.LeaderElectionResourceLockInterface, err = resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, l.Namespace, l.Name,
		resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}, cfg, renew)
	return err
}

func mapper(namespaced, clusterScoped []schema.GroupVersionKind) meta.RESTMapper {
	var versions []schema.GroupVersion
	for _, kind := range slices.Concat(namespaced, clusterScoped) {
		versions = append(versions, kind.GroupVersion())
	}
	m := meta.NewDefaultRESTMapper(versions)
	add := func(kinds []schema.GroupVersionKind, scope meta.RESTScope) {
		for _, kind := range kinds {
			m.Add(kind, scope)
			m.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), scope) // asked for its scope alone
		}
	}
	add(namespaced, meta.RESTScopeNamespace)
	add(clusterScoped, meta.RESTScopeRoot)
	return m
}

// Part is a manager as a part of a process. It is ready when ready says so.
func Part(name string, m manager.Manager, ready func() error) lifecycle.Part {
	return lifecycle.Part{
		Name:  name,
		Run:   func(ctx context.Context) error { return m.Start(ctx) },
		Ready: ready,
	}
}
