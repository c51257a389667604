package clusterworkerapp

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/backoff"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/bridge"
	"github.com/fleetloop/fleetloop/internal/clusterworker/manifest"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A fleetAPI is what the fleet API offers the worker.
type fleetAPI interface {
	Report(ctx context.Context, collection, id string, report v1.Report) (stored bool, err error)
}

// An engine is the worker with its poller and its bridge. What they need to be
// made, the database's id and the project's name, is asked for when it runs,
// since neither database nor Gardener may be there when the process starts.
type engine struct {
	cfg      Part
	stop     time.Duration // that it has to stop
	store    *pgstore.Store
	listener *pgstore.Listener // nil with listen=off
	open     opener
	fleet    fleetAPI // nil where nothing is reported
	recorder clusterworker.Recorder
	log      *slog.Logger
	metrics  prometheus.Registerer

	running atomic.Pointer[clusterworker.Worker]
	waits   atomic.Pointer[error]
}

// errWaits is why an engine that has begun to run is not at work yet.
var errWaits = errors.New("the cluster-worker has not read the installation ID from its database yet")

// Ready says why clusters can not be claimed, or nil. A Gardener that does not
// answer is no reason: nothing that could be done to this process would help.
func (e *engine) Ready() error {
	if w := e.running.Load(); w != nil {
		return w.Ready()
	}
	if waits := e.waits.Load(); waits != nil {
		return *waits
	}
	if e.listener != nil {
		return e.listener.Ready()
	}
	return nil
}

// Warning says why clusters wait although the process can do its work, empty if none
// does.
func (e *engine) Warning() string {
	if w := e.running.Load(); w != nil {
		return w.Warning()
	}
	return ""
}

// Live says why the process makes no progress, or nil.
func (e *engine) Live() error {
	if w := e.running.Load(); w != nil {
		return w.Live()
	}
	return nil
}

// Run makes the parts and runs them until ctx ends.
func (e *engine) Run(ctx context.Context) error {
	parts, err := e.buildParts(ctx)
	switch {
	case ctx.Err() != nil:
		return nil //nolint:nilerr // it was told to stop before it could begin
	case err != nil:
		return err
	}
	return lifecycle.Run(ctx, lifecycle.Options{StopTimeout: e.stop}, parts...)
}

// patiently asks until there is an answer, and tells once why there is none.
func patiently[T any](ctx context.Context, e *engine, what string, ask func(context.Context) (T, error)) (answer T, err error) {
	var said string
	err = backoff.Retry(ctx, backoff.Policy{Initial: 200 * time.Millisecond, Max: 5 * time.Second}, func(ctx context.Context) error {
		a, err := ask(ctx)
		if err != nil {
			if err.Error() != said && ctx.Err() == nil {
				said = err.Error()
				e.log.WarnContext(ctx, "cluster-worker startup blocked, retrying", "step", what, "err", err)
			}
			return err
		}
		answer = a
		return nil
	})
	return answer, err
}

// buildParts makes what runs.
func (e *engine) buildParts(ctx context.Context) ([]lifecycle.Part, error) {
	e.waits.Store(&errWaits)
	installation, err := patiently(ctx, e, "read installation id", e.store.Installation)
	if err != nil {
		return nil, err
	}
	// Before Gardener is asked for anything: while it is away, clusters are deleted too.
	if _, err := patiently(ctx, e, "register cluster-worker", e.registerWorker); err != nil {
		return nil, err
	}
	garden, err := e.open(installation)
	if err != nil {
		return nil, err
	}
	if _, err := patiently(ctx, e, "check garden", func(ctx context.Context) (string, error) { return e.settleGarden(ctx, garden) }); err != nil {
		return nil, err
	}
	e.waits.Store(nil)
	project, err := patiently(ctx, e, "read Gardener project name", garden.Project)
	if err != nil {
		return nil, err
	}
	maker, err := e.cfg.newMaker(installation, project)
	if err != nil {
		return nil, err
	}
	owner := newOwnerName()
	observer, reports, err := e.observers(garden, owner)
	if err != nil {
		return nil, err
	}
	worker, err := e.newWorker(garden, maker, owner, reports)
	if err != nil {
		return nil, err
	}
	e.running.Store(worker)
	e.log.InfoContext(ctx, "syncing clusters to Gardener", "mode", e.cfg.Mode, "project", project, "namespace", e.cfg.Gardener.Namespace,
		"installation", installation, "owner", owner, "provider", e.cfg.Shoots.ProviderType)
	parts := []lifecycle.Part{{Name: "sync", Run: worker.Run}, {Name: "status poller", Run: observer.Run}}
	if reports != nil {
		parts = append(parts, lifecycle.Part{Name: "reports", Run: reports.Run})
	}
	return parts, nil
}

// registerWorker records that this installation has a cluster-worker.
func (e *engine) registerWorker(ctx context.Context) (struct{}, error) {
	return struct{}{}, e.store.Register(ctx)
}

// settleGarden makes sure that the Shoots of the database are in the garden that this
// worker has: in any other they would all be missing, and be made once more; and
// those that are to be deleted would count as gone.
func (e *engine) settleGarden(ctx context.Context, garden Garden) (string, error) {
	ours, err := describePlace(ctx, garden)
	if err != nil {
		e.waits.Store(nil) // it is Gardener that is away
		return "", err
	}
	holds, err := e.store.TakeGarden(ctx, ours, e.cfg.MoveToGarden)
	if err == nil && holds != ours {
		err = elsewhere(holds, ours)
	}
	if err != nil {
		e.waits.Store(&err)
	}
	return holds, err
}

func elsewhere(holds, ours string) error {
	return fmt.Errorf("garden mismatch: the Shoots of this database are in %q, but this worker is configured for %q: correct GARDENER_MODE, GARDENER_KUBECONFIG or GARDENER_NAMESPACE, or set CLUSTER_WORKER_RECREATE_SHOOTS=true to create all Shoots again in the new garden", holds, ours)
}

// newMaker makes what makes Shoots of clusters.
func (c Part) newMaker(installation, project string) (*manifest.Maker, error) {
	shoots := c.Shoots
	shoots.Namespace = c.Gardener.Namespace
	return manifest.New(shoots, installation, project, c.MaxShootNameLen)
}

// newWorker makes the sync.
func (e *engine) newWorker(garden Garden, maker *manifest.Maker, owner string, reports *bridge.Bridge) (*clusterworker.Worker, error) {
	cfg := e.cfg.Worker
	cfg.StopTimeout = e.stop * 3 / 4 // the rest is for whoever stops before and after
	deps := clusterworker.Deps{
		Store: e.store, Garden: garden, Maker: maker, Installation: e.store.Installation, Owner: owner,
		Recorder: e.recorder, Tallier: e.store, Outages: e.store, Log: e.log, Registerer: e.metrics,
	}
	if e.listener != nil {
		deps.Waker = e.listener
	}
	if reports != nil {
		deps.Store = eventEmitter{e.store, reports}
	}
	return clusterworker.New(cfg, deps)
}

// eventEmitter is a store that has the reports look after results were written.
type eventEmitter struct {
	*pgstore.Store
	reports *bridge.Bridge
}

// Complete writes results.
func (t eventEmitter) Complete(ctx context.Context, results []clusterworker.Result) ([]string, error) {
	lost, err := t.Store.Complete(ctx, results)
	t.reports.Nudge()
	return lost, err
}

// observers makes what observes the Shoots, and what reports on them where
// there is somebody to report to.
func (e *engine) observers(garden Garden, owner string) (*poller.Poller, *bridge.Bridge, error) {
	cfg := e.cfg.Status
	cfg.Owner = owner
	deps := poller.Deps{
		Store: e.store, Viewer: garden, Remover: garden, Recorder: e.recorder, Log: e.log, Registerer: e.metrics,
	}
	var reports *bridge.Bridge
	if e.fleet != nil {
		deps.Wrote = func() { reports.Nudge() }
	}
	observer, err := poller.New(cfg, deps)
	if err != nil || e.fleet == nil {
		return observer, nil, err
	}
	reports, err = bridge.New(e.cfg.Reports, bridge.Deps{Store: e.store, Fleet: e.fleet, Observer: observer, Pools: e.store, Log: e.log, Registerer: e.metrics})
	return observer, reports, err
}

// newOwnerName names this process among all that ever work on the database.
func newOwnerName() string {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return fmt.Sprintf("%s-%d-%s", cmp.Or(host, "cluster-worker"), os.Getpid(), rand.Text()[:8])
}
