package clusterworkerapp

import (
	"context"
	"errors"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// probeEvery is the interval at which the pool checks the database. It is long, because the
// listener notices a lost connection at once.
const probeEvery = 10 * time.Second

// userAgent is the User-Agent of requests.
const userAgent = "fleetloop-cluster-worker"

// Overrides replaces configured dependencies of the worker. The zero value replaces none.
type Overrides struct {
	// Garden replaces the configured garden.
	Garden Garden
	// Fleet replaces the configured fleet API as the receiver of reports.
	Fleet *fleetclient.Client
	// Sinks replaces the configured sinks. The caller closes them.
	Sinks *changes.Sinks
}

// BuildParts returns the parts of the cluster-worker in order of dependency. checkLive reports why it makes
// no progress.
func BuildParts(
	ctx context.Context, p *process.Process, cfg Part, stopTimeout time.Duration, overrides Overrides,
) (parts []lifecycle.Part, checkLive func() error, err error) {
	if err := cfg.validateWithTrialWorker(); err != nil {
		return nil, nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, lifecycle.CloseAll(parts...))
			parts, checkLive = nil, nil
		}
	}()
	e := &engine{cfg: cfg, stop: stopTimeout, log: p.Log, metrics: p.Metrics}
	sinks := overrides.Sinks
	if sinks == nil {
		sinks, err = changes.New(cfg.sinksConfigWithDefaults(), changeevent.SourceClusterWorker, p, changes.LeaveRetriesToSender) //nolint:contextcheck // the sinks outlive the call
		if err != nil {
			return nil, nil, err
		}
		parts = append(parts, sinks.Part())
	}
	if e.open, err = overrides.gardenOpenerOrConfigured(cfg); err != nil {
		return parts, nil, err
	}
	if e.fleet, err = overrides.fleetClientOrNil(cfg.API); err != nil {
		return parts, nil, err
	}
	if cfg.Mode == Mock && overrides.Garden == nil {
		p.Log.WarnContext(ctx, "gardener mode is mock, no real clusters are created", "hint", "set GARDENER_MODE=real")
	}
	database, err := e.initStoreAndListener(cfg, p, sinks) //nolint:contextcheck // the pool outlives the call
	if err != nil {
		return parts, nil, err
	}
	parts = append(parts, database...)
	outbox, err := newChangeOutbox(&e.store.Outbox, sinks, p.Log, p.Metrics)
	if err != nil {
		return parts, nil, err
	}
	e.recorder = outboxWakingLogger{p.Log, outbox.WakeRun}
	parts = append(parts,
		lifecycle.Part{Name: "cluster-worker change events", Run: outbox.Run},
		lifecycle.Part{Name: "cluster-worker", Run: e.Run, Ready: e.Ready, Warning: e.DescribeOutageOrEmpty},
	)
	return parts, e.CheckLive, nil
}

// initStoreAndListener sets the store and the listener, and returns the parts that access the database.
func (e *engine) initStoreAndListener(cfg Part, p *process.Process, sinks *changes.Sinks) ([]lifecycle.Part, error) {
	cfg.Database.ProbeEvery = probeEvery
	pool, err := postgres.New(cfg.Database, p.Log)
	if err != nil {
		return nil, err
	}
	e.store = pgstore.New(pool, toEventSinks(sinks)...)
	schema := postgres.NewSchemaWaiter(pool, p.Log)
	parts := []lifecycle.Part{
		{Name: "cluster-worker database", Run: pool.Run, Ready: pool.Ready, Close: func() error { pool.Close(); return nil }},
		{Name: "cluster-worker schema", Run: schema.Run, Ready: schema.Ready},
	}
	if cfg.Listen == clusterworker.ListenOff {
		return parts, nil
	}
	e.listener = pgstore.NewListener(cfg.Database, p.Log)
	if err := registerListenerMetrics(e.listener, p.Metrics); err != nil {
		return nil, errors.Join(err, lifecycle.CloseAll(parts...))
	}
	return append(parts, lifecycle.Part{Name: "cluster-worker listener", Run: e.listener.Run, Ready: e.listener.Ready}), nil
}

// gardenOpenerOrConfigured returns the function that opens the garden, which needs the ID of the installation.
func (o Overrides) gardenOpenerOrConfigured(cfg Part) (gardenOpenFunc, error) {
	if o.Garden != nil {
		return func(string) (Garden, error) { return o.Garden, nil }, nil
	}
	return cfg.newGardenOpener()
}

// fleetClientOrNil returns the client for reports, or nil without a fleet API.
func (o Overrides) fleetClientOrNil(cfg APIConfig) (clusterworker.ReportReceiver, error) {
	if o.Fleet != nil {
		return o.Fleet.Reporter(), nil
	}
	if cfg.Endpoint == "" {
		return nil, nil //nolint:nilnil // nobody to report to is no error
	}
	api, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint:  cfg.Endpoint,
		Token:     cfg.Token,
		TokenFile: cfg.TokenFile,
		CAFile:    cfg.CAFile,
		Timeout:   cfg.Timeout,
		UserAgent: userAgent,
	})
	if err != nil {
		return nil, err
	}
	return api.Reporter(), nil
}
