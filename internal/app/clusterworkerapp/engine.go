package clusterworkerapp

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// engine is the worker with its poller and its reporter. They need the ID of the database and the
// name of the project. Run reads both, because neither database nor Gardener may be available when
// the process starts.
type engine struct {
	cfg      Part
	stop     time.Duration // limit for its shutdown
	store    *pgstore.Store
	listener *pgstore.Listener // nil with listen=off
	open     gardenOpenFunc
	fleet    clusterworker.ReportReceiver // nil without reports
	recorder clusterworker.Recorder
	log      *slog.Logger
	metrics  prometheus.Registerer

	// The health checks run at the same time as Run, so they read its state from these.
	worker         atomic.Pointer[clusterworker.Worker] // nil until it has started
	startupBlocked atomic.Pointer[error]                // why Run has not started the worker yet; nil if Gardener is the reason
}

// errNoInstallationID means that a running engine has not read its installation ID yet.
var errNoInstallationID = errors.New("the cluster-worker has not read the installation ID from its database yet")

// Ready reports why clusters cannot be claimed, or nil. An unavailable Gardener is no reason,
// because a restart of this process would not help.
func (e *engine) Ready() error {
	if w := e.worker.Load(); w != nil {
		return w.Ready()
	}
	if reason := e.startupBlocked.Load(); reason != nil {
		return *reason
	}
	if e.listener != nil {
		return e.listener.Ready()
	}
	return nil
}

// DescribeOutageOrEmpty returns why clusters wait although the process works, or an empty text.
func (e *engine) DescribeOutageOrEmpty() string {
	if w := e.worker.Load(); w != nil {
		return w.DescribeOutageOrEmpty()
	}
	return ""
}

// CheckLive reports why the process makes no progress, or nil.
func (e *engine) CheckLive() error {
	if w := e.worker.Load(); w != nil {
		return w.CheckLive()
	}
	return nil
}

// Run connects to the database and to Gardener, and then runs the worker until ctx ends.
func (e *engine) Run(ctx context.Context) error {
	target, err := e.registerAndConnect(ctx)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // it was told to stop before it could begin
	}
	if err != nil {
		return err
	}
	parts, err := e.buildPartsAndSetWorker(ctx, target)
	if err != nil {
		return err
	}
	return lifecycle.Run(ctx, lifecycle.Options{StopTimeout: e.stop}, parts...)
}

// A syncTarget is where the worker keeps the Shoots of its database.
type syncTarget struct {
	installation string
	garden       Garden
	project      string
}

// registerAndConnect registers the worker in the database, and returns the garden of its Shoots. It retries while the
// database or Gardener is unavailable.
func (e *engine) registerAndConnect(ctx context.Context) (syncTarget, error) {
	e.startupBlocked.Store(&errNoInstallationID)
	installation, err := retryUntilSuccess(ctx, e.log, "read installation id", e.store.GetInstallationID)
	if err != nil {
		return syncTarget{}, err
	}
	// Register before the first request to Gardener: clusters are also deleted while it is unavailable.
	if _, err := retryUntilSuccess(ctx, e.log, "register cluster-worker", e.registerClusterWorker); err != nil {
		return syncTarget{}, err
	}
	garden, err := e.open(installation)
	if err != nil {
		return syncTarget{}, err
	}
	verify := func(ctx context.Context) (string, error) { return e.recordOrVerifyGarden(ctx, garden) }
	if _, err := retryUntilSuccess(ctx, e.log, "check garden", verify); err != nil {
		return syncTarget{}, err
	}
	e.startupBlocked.Store(nil)
	project, err := retryUntilSuccess(ctx, e.log, "read Gardener project name", garden.FindProjectName)
	return syncTarget{installation, garden, project}, err
}

// retryUntilSuccess retries attempt until it succeeds. It logs each distinct failure once.
func retryUntilSuccess[T any](
	ctx context.Context, log *slog.Logger, step string, attempt func(context.Context) (T, error),
) (result T, err error) {
	var lastLogged string
	policy := backoff.Policy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}
	err = backoff.Retry(ctx, policy, func(ctx context.Context) error {
		var err error
		result, err = attempt(ctx)
		if err != nil && err.Error() != lastLogged && ctx.Err() == nil {
			lastLogged = err.Error()
			log.WarnContext(ctx, "cluster-worker startup blocked, retrying", "step", step, "err", err)
		}
		return err
	})
	return result, err
}

// registerClusterWorker records that this installation has a cluster-worker.
func (e *engine) registerClusterWorker(ctx context.Context) (struct{}, error) {
	return struct{}{}, e.store.RegisterClusterWorker(ctx)
}

// recordOrVerifyGarden verifies that the garden of this worker is the one that holds the Shoots of the
// database. In another garden all Shoots would be missing: the worker would create them again and
// count deletions as complete.
func (e *engine) recordOrVerifyGarden(ctx context.Context, garden Garden) (recorded string, err error) {
	configured, err := identifyGarden(ctx, garden)
	if err != nil {
		e.startupBlocked.Store(nil) // Gardener is unavailable
		return "", err
	}
	recorded, err = e.store.RecordGardenIfNone(ctx, configured, e.cfg.MoveToGarden)
	if err == nil && recorded != configured {
		err = newGardenMismatchError(recorded, configured)
	}
	if err != nil {
		e.startupBlocked.Store(&err)
	}
	return recorded, err
}

func newGardenMismatchError(recorded, configured string) error {
	return fmt.Errorf("garden mismatch: the Shoots of this database are in %q, but this worker is configured for %q: "+
		"correct GARDENER_MODE, GARDENER_KUBECONFIG or GARDENER_NAMESPACE, "+
		"or set CLUSTER_WORKER_RECREATE_SHOOTS=true to create all Shoots again in the new garden", recorded, configured)
}

// buildPartsAndSetWorker builds the parts that Run runs, and gives the worker to the health checks.
func (e *engine) buildPartsAndSetWorker(ctx context.Context, target syncTarget) ([]lifecycle.Part, error) {
	owner := newUniqueOwnerName()
	statusPoller, reporter, err := e.buildPollerAndReporter(target.garden, owner)
	if err != nil {
		return nil, err
	}
	worker, err := e.buildWorker(target, owner, reporter)
	if err != nil {
		return nil, err
	}
	e.worker.Store(worker)
	e.log.InfoContext(ctx, "syncing clusters to Gardener",
		"mode", e.cfg.Mode,
		"project", target.project,
		"namespace", e.cfg.Gardener.Namespace,
		"installation", target.installation,
		"owner", owner,
		"provider", e.cfg.Shoots.ProviderType,
	)
	parts := []lifecycle.Part{
		{Name: "sync", Run: worker.Run},
		{Name: "status poller", Run: statusPoller.Run},
	}
	if reporter != nil {
		parts = append(parts, lifecycle.Part{Name: "reports", Run: reporter.Run})
	}
	return parts, nil
}

// newUniqueOwnerName returns a name that is unique among all processes that use the database.
func newUniqueOwnerName() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "cluster-worker"
	}
	return fmt.Sprintf("%s-%d-%s", host, os.Getpid(), rand.Text()[:8])
}

// buildWorker builds the sync.
func (e *engine) buildWorker(target syncTarget, owner string, reporter *clusterworker.Reporter) (*clusterworker.Worker, error) {
	maker, err := e.cfg.newManifestMaker(target.installation, target.project)
	if err != nil {
		return nil, err
	}
	cfg := e.cfg.Worker
	cfg.StopTimeout = e.stop * 3 / 4 // the rest is for the parts that stop before and after
	deps := clusterworker.Deps{
		Store:          e.store,
		Garden:         target.garden,
		Maker:          maker,
		Installation:   target.installation,
		Owner:          owner,
		Recorder:       e.recorder,
		ClusterCounter: e.store,
		Outages:        e.store,
		Log:            e.log,
		Registerer:     e.metrics,
	}
	if e.listener != nil {
		deps.Waker = e.listener
	}
	if reporter != nil {
		deps.Store = reportingStore{e.store, reporter}
	}
	return clusterworker.New(cfg, deps)
}

// newManifestMaker returns the builder of Shoot manifests.
func (c Part) newManifestMaker(installationID, project string) (*manifest.Maker, error) {
	shoots := c.Shoots
	shoots.Namespace = c.Gardener.Namespace
	return manifest.New(shoots, installationID, project, c.MaxShootNameLen)
}

// reportingStore is a store that wakes the reporter after results are written.
type reportingStore struct {
	*pgstore.Store
	reporter *clusterworker.Reporter
}

// WriteResults writes results and wakes the reporter.
func (t reportingStore) WriteResults(ctx context.Context, results []clusterworker.Result) ([]string, error) {
	lost, err := t.Store.WriteResults(ctx, results)
	t.reporter.WakeRun()
	return lost, err
}

// buildPollerAndReporter builds the poller that reads the Shoots, and the reporter of their status if there
// is a fleet API.
func (e *engine) buildPollerAndReporter(garden Garden, owner string) (*poller.Poller, *clusterworker.Reporter, error) {
	cfg := e.cfg.Status
	cfg.Owner = owner
	deps := poller.Deps{
		Store:      &e.store.Observations,
		Viewer:     garden,
		Remover:    garden,
		Recorder:   e.recorder,
		Log:        e.log,
		Registerer: e.metrics,
	}
	// The poller and the reporter need each other. The reporter exists before the poller runs.
	var reporter *clusterworker.Reporter
	if e.fleet != nil {
		deps.Wrote = func() { reporter.WakeRun() }
	}
	statusPoller, err := poller.New(cfg, deps)
	if err != nil || e.fleet == nil {
		return statusPoller, nil, err
	}
	reporter, err = clusterworker.NewReporter(e.cfg.Reports, clusterworker.ReporterDeps{
		Store:      e.store,
		Fleet:      e.fleet,
		Observer:   statusPoller,
		Pools:      e.store,
		Log:        e.log,
		Registerer: e.metrics,
	})
	return statusPoller, reporter, err
}
