package allinone

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/apiapp"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/sentinelapp"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/postgres/pgserver"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// components holds all parts of Fleetloop before they run.
type components struct {
	parts    []lifecycle.Part
	live     []func() error // each reports why a part makes no progress
	adapters adapters
	watch    *FleetWatch
	api      *fleetclient.Client
	sinks    *changes.Sinks // receive change events
	host     *hostCluster   // nil without --kube
	address  string         // of the fleet API
	console  string         // the URL of its page; empty without a console
	persons  []console.DemoPerson
	audit    string // the URL of the embedded database, which holds the audit; empty with an external one

	adapterEnv string // the file with the variables for adapters; empty with an external broker
}

// buildComponents builds the loop. On failure it closes the parts that it has built.
func buildComponents(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	dataDir string,
	env func(string) (string, bool),
) (*components, error) {
	l := &components{}
	if err := l.buildParts(ctx, p, cfg, dataDir, env); err != nil {
		return nil, errors.Join(err, lifecycle.CloseAll(l.parts...))
	}
	return l, nil
}

// migrateEmbeddedDatabase migrates the embedded database before any other part uses it.
func migrateEmbeddedDatabase(ctx context.Context, p *process.Process, cfg Config, dataDir string) error {
	err := postgres.MigrateSchema(ctx, cfg.API.Database, p.Log)
	if e, ok := errors.AsType[*postgres.IncompatibleSchemaError](err); ok {
		return fmt.Errorf("%w: %s: remove the data folder %q and run 'fleetloop up' again", postgres.ErrSchemaIncompatible, e.Reason, dataDir)
	}
	return err
}

// startAndMigrateEmbeddedPostgreSQL starts the embedded server, migrates its database, and returns the configuration
// that uses it.
func (l *components) startAndMigrateEmbeddedPostgreSQL(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	dataDir string,
) (Config, error) {
	server, err := pgserver.Start(ctx, pgserver.Config{
		Dir: filepath.Join(dataDir, "postgresql"), Temporary: cfg.usesDemoDir(),
	}, p.Log)
	if err != nil {
		return cfg, fmt.Errorf("start embedded PostgreSQL: %w", err)
	}
	l.parts = append(l.parts, lifecycle.Part{Name: "PostgreSQL", Run: server.Run, Ready: server.Ready, Close: server.Close})
	l.audit = server.DatabaseURL()
	cfg.API.Database.URL = settings.Secret(l.audit)
	if err := migrateEmbeddedDatabase(ctx, p, cfg, dataDir); err != nil {
		return cfg, err
	}
	cfg.API.Migrate = false
	return cfg, nil
}

// buildParts builds the parts from the bottom up: a later part uses earlier ones and stops first.
func (l *components) buildParts(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	dataDir string,
	env func(string) (string, bool),
) error {
	// The database.
	if cfg.API.Database.URL == "" {
		var err error
		if cfg, err = l.startAndMigrateEmbeddedPostgreSQL(ctx, p, cfg, dataDir); err != nil {
			return err
		}
	}

	// The fleet API, which knows the demo persons by their tokens, and its client.
	l.persons = newDemoPersons()
	if cfg.API.Auth.Mode == auth.ModeNone {
		cfg.API.Auth.Names = mapTokensToNames(l.persons)
	}
	cfg.API.RequiredAdapters.Clusters = cfg.Garden.withWorkerAdapter(cfg.API.RequiredAdapters.Clusters)
	apiParts, addr, err := apiapp.BuildParts(ctx, p, cfg.API)
	if err != nil {
		return err
	}
	l.parts = append(l.parts, apiParts...)
	l.address = "http://" + addr
	l.api, err = process.NewFleetClient(process.FleetClientConfig{Endpoint: l.address, UserAgent: "fleetloop-up"})
	if err != nil {
		return err
	}

	// The change events and the broker, which the components below use.
	if l.sinks, err = changes.New(cfg.sinksWithTimeline(addr), localSource, p); err != nil { //nolint:contextcheck // the sinks outlive the call
		return err
	}
	l.parts = append(l.parts, l.sinks.Part())
	broker, err := l.openExternalOrEmbeddedBroker(p, cfg.NATS, dataDir, env)
	if err != nil {
		return err
	}
	l.parts = append(l.parts, broker.Part())

	// The components of the loop, and the console that shows it.
	if l.adapters, err = newSampleAdaptersIfEnabled(p, cfg.Adapters, broker, l.api); err != nil {
		return err
	}
	l.parts = append(l.parts, l.adapters.adapterParts()...)

	l.watch = NewFleetWatch(l.api, cfg.Garden.Enabled, l.adapters.adapterStates)
	if err := l.addSentinelsOrHostCluster(ctx, p, cfg, broker, dataDir); err != nil {
		return err
	}
	if err := l.addConsole(ctx, p, cfg); err != nil {
		return err
	}
	if cfg.Garden.Enabled {
		return l.addClusterWorker(ctx, p, cfg, env)
	}
	return nil
}

// addClusterWorker adds the parts that sync clusters to Gardener.
func (l *components) addClusterWorker(ctx context.Context, p *process.Process, cfg Config, env func(string) (string, bool)) error {
	overrides := clusterworkerapp.Overrides{Fleet: l.api, Sinks: l.sinks}
	parts, live, err := newClusterWorkerParts(ctx, p, cfg, overrides, env)
	if err != nil {
		return err
	}
	l.parts = append(l.parts, parts...)
	l.live = append(l.live, live)
	return nil
}

// checkLive reports why parts make no progress, or nil.
func (l *components) checkLive() error {
	var errs []error
	for _, live := range l.live {
		errs = append(errs, live())
	}
	return errors.Join(errs...)
}

// addSentinelsOrHostCluster adds the sentinels: two fixed ones, or a host cluster whose SentinelConfigs define
// them.
func (l *components) addSentinelsOrHostCluster(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	broker *sentinelapp.Broker,
	dataDir string,
) error {
	if cfg.Kube == kubeEmbedded {
		return l.startAndAddHostCluster(ctx, p, cfg, broker, dataDir)
	}
	sentinels, liveChecks, err := newSentinels(p, cfg.Sentinel, broker, l.api, l.watch.RecordPublished)
	l.parts = append(l.parts, sentinels...)
	l.live = append(l.live, liveChecks...)
	return err
}

// startAndAddHostCluster starts the host cluster, and adds the controllers that run on it: those of sentinels, executions
// and node faults.
func (l *components) startAndAddHostCluster(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	broker *sentinelapp.Broker,
	dataDir string,
) error {
	if broker.Type != sentinelapp.NATS {
		return errBroker
	}
	var err error
	if l.host, err = startHostCluster(ctx, p, dataDir, l.persons); err != nil {
		return err
	}
	l.parts = append(l.parts, l.host.clusterPart())

	// A constructor may return parts with an error. They are added before the check, so that buildComponents closes them.
	if err := l.host.ensureSentinelConfigs(ctx, cfg.Sentinel, l.api.Endpoint()); err != nil {
		return err
	}
	sentinels, live, err := l.host.newSentinelOperatorParts(p, broker, l.watch.RecordPublished) //nolint:contextcheck // they outlive the call
	l.parts = append(l.parts, sentinels...)
	if err != nil {
		return err
	}
	l.live = append(l.live, live)

	executions, err := l.host.setUpExecutions(ctx, p, cfg.API.Database.URL, l.sinks)
	l.parts = append(l.parts, executions...)
	if err != nil {
		return err
	}
	nodeFaults, err := l.host.setUpNodeFaults(ctx, p, l.sinks)
	l.parts = append(l.parts, nodeFaults...)
	return err
}

// demoParts returns the parts for --demo, which create the fleet, follow it and paint it.
func (l *components) demoParts(cfg DemoConfig, screen screen, endRun context.CancelCauseFunc) []lifecycle.Part {
	parts := []lifecycle.Part{
		{Name: "watch", Run: l.watch.Run},
		{Name: "demo fleet", Run: func(ctx context.Context) error { return l.createDemoFleetThenMaybeEndRun(ctx, cfg, endRun) }},
	}
	return slices.Concat(parts, screen.liveViewOrProgressParts(l.watch))
}

// errFleetReady ends a run with --exit-when-ready.
var errFleetReady = errors.New("the demo fleet is Ready")

// errNotReadyInTime is the error of --exit-when-ready after its timeout.
var errNotReadyInTime = errors.New("the demo fleet is not Ready")

// createDemoFleetThenMaybeEndRun creates the demo fleet and, with --exit-when-ready, ends the run by endRun.
func (l *components) createDemoFleetThenMaybeEndRun(ctx context.Context, cfg DemoConfig, endRun context.CancelCauseFunc) error {
	err := l.createDemoFleetAndWaitReady(ctx, cfg)
	if ctx.Err() != nil {
		return nil //nolint:nilerr // the run is ending, and err is a consequence
	}
	switch {
	case errors.Is(err, errNotReadyInTime):
		endRun(err)
	case err != nil:
		return err
	case cfg.ExitWhenReady:
		endRun(errFleetReady)
	}
	<-ctx.Done() // a part that returns earlier counts as failed
	return nil
}

// createDemoFleetAndWaitReady creates the demo fleet and returns when all of it is Ready. With --exit-when-ready it
// returns errNotReadyInTime after the timeout.
func (l *components) createDemoFleetAndWaitReady(ctx context.Context, cfg DemoConfig) error {
	if cfg.ExitWhenReady {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, cfg.Timeout, errNotReadyInTime)
		defer cancel()
	}
	fleet := DemoFleet{Clusters: cfg.Clusters, Pace: cfg.Pace}
	err := CreateDemoFleet(ctx, l.api, fleet)
	if err == nil {
		err = l.watch.WaitDemoReady(ctx, fleet.Size())
	}
	// The timeout may also appear as the error of a request.
	if errors.Is(context.Cause(ctx), errNotReadyInTime) {
		return fmt.Errorf("%w within %s", errNotReadyInTime, cfg.Timeout)
	}
	return err
}
