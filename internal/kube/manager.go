package kube

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"sync/atomic"
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
func NewManager(cfg *rest.Config, o Options) (*Manager, error) {
	TakeLogs(o.Log)
	base, giveUp := context.WithCancel(context.Background())
	yes, forever := true, time.Duration(-1)
	options := manager.Options{
		Scheme: o.Scheme,
		Cache:  o.cacheOptions(),
		Logger: Logger(o.Log),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return newRESTMapper(o.Namespaced, o.ClusterScoped), nil
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		PprofBindAddress:        "0",
		GracefulShutdownTimeout: &forever, // the part has its bound
		BaseContext:             func() context.Context { return base },
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(cfg, o)
			return yielding{c, base}, err
		},
		Controller: config.Controller{
			SkipNameValidation: &yes, // of several managers in a process
			CacheSyncTimeout:   whileNothingAnswers,
		},
	}
	var m manager.Manager
	err := o.Leader.configureElection(cfg, &options)
	if err == nil {
		m, err = manager.New(cfg, options)
	}
	if err != nil {
		giveUp()
		return nil, fmt.Errorf("create controller manager: %w", err)
	}
	return &Manager{Manager: m, base: base, giveUp: giveUp, log: o.Log, turn: options.LeaderElectionResourceLockInterface}, nil
}

// A yielding cache counts as filled when everything is given up: a manager that
// starts waits for its cache until then, and for nothing else.
type yielding struct {
	cache.Cache

	base context.Context //nolint:containedctx // of all that the manager runs
}

// WaitForCacheSync waits until the cache is filled, or given up.
func (y yielding) WaitForCacheSync(ctx context.Context) bool {
	return y.Cache.WaitForCacheSync(ctx) || y.base.Err() != nil
}

// A Manager is run once, by Start.
type Manager struct {
	manager.Manager

	base   context.Context //nolint:containedctx // of all that it runs
	giveUp context.CancelFunc

	log  *slog.Logger
	turn resourcelock.Interface // nil is that there are no turns
}

// Start runs the manager until ctx ends. One that is told to stop does so in
// order, but for one whose cache has never been filled, which would wait for that
// first: then everything is let go at once, and nothing has begun.
func (m *Manager) Start(ctx context.Context) error {
	var filled atomic.Bool
	var waiting sync.WaitGroup
	waiting.Go(func() { filled.Store(m.GetCache().WaitForCacheSync(m.base) && m.base.Err() == nil) })
	defer waiting.Wait()
	defer m.giveUp()
	stop := context.AfterFunc(ctx, func() {
		if !filled.Load() {
			m.giveUp()
		}
	})
	defer stop()
	var leads atomic.Bool
	waiting.Go(func() { leads.Store(m.waitForLeadership(ctx)) })
	err := m.Manager.Start(ctx)
	m.giveUp()
	waiting.Wait()
	if leads.Load() {
		m.log.InfoContext(ctx, "leader election lost", "lease", m.turn.Describe(), "holder", m.turn.Identity())
	}
	return err
}

// waitForLeadership waits for the turn of this replica, and says when it has come, which
// else only the Lease tells. It reports whether it has.
func (m *Manager) waitForLeadership(ctx context.Context) bool {
	if m.turn == nil {
		return false
	}
	select {
	case <-m.base.Done():
		return false
	case <-m.Elected():
	}
	m.log.InfoContext(ctx, "leader election won", "lease", m.turn.Describe(), "holder", m.turn.Identity())
	return true
}

// cacheOptions are the options of a cache that waits for a host cluster that is away.
func (o Options) cacheOptions() cache.Options {
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

// configureElection has a manager wait for its turn, if there are turns, and give it up when
// it is told to stop.
func (l Leader) configureElection(cfg *rest.Config, o *manager.Options) error {
	if l.Name == "" {
		return nil
	}
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

func newRESTMapper(namespaced, clusterScoped []schema.GroupVersionKind) meta.RESTMapper {
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
func Part(name string, m *Manager, ready func() error) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: m.Start, Ready: ready}
}
