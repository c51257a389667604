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

// Options are the options of a manager.
type Options struct {
	Scheme *runtime.Scheme

	// Namespaced and ClusterScoped are the namespaced and cluster-scoped kinds in use.
	// The API discovery of the server is not used: it would cost requests and memory,
	// and a process could not start before its CRDs exist.
	Namespaced, ClusterScoped []schema.GroupVersionKind

	// Leader makes controllers run in one replica at a time. With the zero value they
	// run in all replicas, each with its share of the work.
	Leader Leader

	Cache cache.Options
	Log   *slog.Logger

	// OnTrouble is called with each error of the lists and watches that fill the cache.
	// It must not block. It may be nil.
	OnTrouble func(error)
}

// A Leader is the Lease of a leader election. A replica that loses it ends with an
// error, as it cannot know which of its requests are still in progress.
type Leader struct {
	Namespace, Name string
	// Lease is how long the others wait for a leader that stopped renewing. Zero means
	// 15 s.
	Lease time.Duration
}

// unlimitedSyncTimeout is how long a controller waits for its first list: practically
// without limit. A waiting process reports that it is not ready; ending it would not
// help.
const unlimitedSyncTimeout = 10 * 365 * 24 * time.Hour

// NewManager returns a manager without listeners: the process serves metrics and
// health. It sends no request before it runs. With a leader election, clients of its
// GetConfig refuse to write after its leadership has expired.
func NewManager(cfg *rest.Config, o Options) (*Manager, error) {
	RedirectLibraryLogs(o.Log)
	base, giveUp := context.WithCancel(context.Background())
	skipNameValidation := true   // for several managers in a process
	noLimit := time.Duration(-1) // the lifecycle part limits the shutdown
	options := manager.Options{
		Scheme: o.Scheme,
		Cache:  o.newRetryingCacheOptions(),
		Logger: NewLibraryLogger(o.Log),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			return newRESTMapper(o.Namespaced, o.ClusterScoped), nil
		},
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		HealthProbeBindAddress:  "0",
		PprofBindAddress:        "0",
		GracefulShutdownTimeout: &noLimit,
		BaseContext:             func() context.Context { return base },
		NewCache: func(cfg *rest.Config, o cache.Options) (cache.Cache, error) {
			c, err := cache.New(cfg, o)
			return abandonableCache{c, base}, err
		},
		Controller: config.Controller{
			SkipNameValidation: &skipNameValidation,
			CacheSyncTimeout:   unlimitedSyncTimeout,
		},
	}
	fenced, err := o.Leader.enableLeaderElection(cfg, &options)
	if err != nil {
		giveUp()
		return nil, fmt.Errorf("create controller manager: %w", err)
	}
	m, err := manager.New(fenced, options)
	if err != nil {
		giveUp()
		return nil, fmt.Errorf("create controller manager: %w", err)
	}
	return &Manager{
		Manager:      m,
		base:         base,
		giveUp:       giveUp,
		log:          o.Log,
		electionLock: options.LeaderElectionResourceLockInterface,
	}, nil
}

// An abandonableCache counts as filled once the manager gives up: a starting manager waits
// for its cache until then, and for nothing else.
type abandonableCache struct {
	cache.Cache

	base context.Context //nolint:containedctx // of all that the manager runs
}

// WaitForCacheSync waits until the cache is filled or the manager gives up.
func (c abandonableCache) WaitForCacheSync(ctx context.Context) bool {
	return c.Cache.WaitForCacheSync(ctx) || c.base.Err() != nil
}

// A Manager runs once, by Start.
type Manager struct {
	manager.Manager

	base   context.Context //nolint:containedctx // of all that it runs
	giveUp context.CancelFunc

	log          *slog.Logger
	electionLock resourcelock.Interface // nil without leader election
}

// Start runs the manager until ctx ends. It then stops in order. A manager whose cache
// has never been filled would wait for that first, so it gives up at once, as no work
// has begun.
func (m *Manager) Start(ctx context.Context) error {
	var waiting sync.WaitGroup
	defer waiting.Wait()
	defer m.giveUp() // ends the waits

	// Give up if ctx ends before the cache is filled.
	var filled atomic.Bool
	waiting.Go(func() {
		filled.Store(m.GetCache().WaitForCacheSync(m.base) && m.base.Err() == nil)
	})
	stop := context.AfterFunc(ctx, func() {
		if !filled.Load() {
			m.giveUp()
		}
	})
	defer stop()

	// Run, and log when this replica wins and loses the election.
	var leads atomic.Bool
	waiting.Go(func() { leads.Store(m.awaitAndLogLeadership(ctx)) })
	err := m.Manager.Start(ctx)
	m.giveUp()
	waiting.Wait()
	if leads.Load() {
		m.log.InfoContext(ctx, "leader election lost",
			"lease", m.electionLock.Describe(), "holder", m.electionLock.Identity())
	}
	return err
}

// awaitAndLogLeadership waits until this replica is the leader, and logs that, which
// otherwise only the Lease shows. It reports whether the replica became the leader.
func (m *Manager) awaitAndLogLeadership(ctx context.Context) (elected bool) {
	if m.electionLock == nil {
		return false
	}
	select {
	case <-m.base.Done():
		return false
	case <-m.Elected():
	}
	m.log.InfoContext(ctx, "leader election won",
		"lease", m.electionLock.Describe(), "holder", m.electionLock.Identity())
	return true
}

// newRetryingCacheOptions returns the options of a cache that waits for an unavailable host
// cluster.
func (o Options) newRetryingCacheOptions() cache.Options {
	options := o.Cache
	options.NewInformer = func(
		lw toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
	) toolscache.SharedIndexInformer {
		retrying := NewRetryingListWatcher(lw, o.Log, o.OnTrouble)
		return toolscache.NewSharedIndexInformer(retrying, example, resync, indexers)
	}
	if o.OnTrouble != nil {
		options.DefaultWatchErrorHandler = func(ctx context.Context, r *toolscache.Reflector, err error) {
			o.OnTrouble(err)
			toolscache.DefaultWatchErrorHandler(ctx, r, err)
		}
	}
	return options
}

// enableLeaderElection configures the leader election, if it is in use, and the release of
// the Lease on shutdown. It returns the config of the manager, whose clients do not write
// after the leadership has expired.
func (l Leader) enableLeaderElection(cfg *rest.Config, options *manager.Options) (fencedConfig *rest.Config, err error) {
	if l.Name == "" {
		return cfg, nil
	}
	lease := cmp.Or(l.Lease, 15*time.Second)
	renew, retry := lease*2/3, lease*2/15 // the same proportions as in Kubernetes' own controllers
	options.LeaderElection = true
	options.LeaderElectionID, options.LeaderElectionNamespace = l.Name, l.Namespace
	options.LeaderElectionReleaseOnCancel = true
	options.LeaseDuration, options.RenewDeadline, options.RetryPeriod = &lease, &renew, &retry
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("name this replica: %w", err)
	}
	// There is no event recorder: it would require permissions on an API group that
	// nothing else here uses.
	identity := resourcelock.ResourceLockConfig{Identity: host + "_" + string(uuid.NewUUID())}
	lock, err := resourcelock.NewFromKubeconfig(
		resourcelock.LeasesResourceLock, l.Namespace, l.Name, identity, cfg, renew)
	if err != nil {
		return nil, err
	}
	fence := &leaderFence{validFor: renew}
	options.LeaderElectionResourceLockInterface = fencedLock{lock, fence}
	return fence.newFencedConfig(cfg), nil
}

// newRESTMapper returns a mapper of the kinds in use.
func newRESTMapper(namespaced, clusterScoped []schema.GroupVersionKind) meta.RESTMapper {
	var versions []schema.GroupVersion
	for _, kind := range slices.Concat(namespaced, clusterScoped) {
		versions = append(versions, kind.GroupVersion())
	}
	mapper := meta.NewDefaultRESTMapper(versions)
	for _, kind := range namespaced {
		addKindAndList(mapper, kind, meta.RESTScopeNamespace)
	}
	for _, kind := range clusterScoped {
		addKindAndList(mapper, kind, meta.RESTScopeRoot)
	}
	return mapper
}

// addKindAndList adds a kind and its list, of which only the scope is looked up.
func addKindAndList(mapper *meta.DefaultRESTMapper, kind schema.GroupVersionKind, scope meta.RESTScope) {
	mapper.Add(kind, scope)
	mapper.Add(kind.GroupVersion().WithKind(kind.Kind+"List"), scope)
}

// NewManagerPart returns a manager as a part of a process. ready returns why it is not ready.
func NewManagerPart(name string, m *Manager, ready func() error) lifecycle.Part {
	return lifecycle.Part{Name: name, Run: m.Start, Ready: ready}
}
