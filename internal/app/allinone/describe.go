package allinone

import (
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/app/executionapp"
	"github.com/fleetloop/fleetloop/internal/app/nodefaultapp"
	"github.com/fleetloop/fleetloop/internal/broker/nats/natsserver"
	"github.com/fleetloop/fleetloop/internal/console"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/postgres"
	"github.com/fleetloop/fleetloop/internal/sampleadapter"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/operator"
	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// RegisterAllMetrics registers the metrics of every component once, for the metrics reference. It runs
// nothing.
func RegisterAllMetrics(reg prometheus.Registerer) error {
	noEnv := func(string) (string, bool) { return "", false }
	cfg := OverriddenDefaults()
	if _, err := settings.Load(&cfg, settings.Source{}); err != nil {
		return err
	}
	log := slog.New(slog.DiscardHandler)
	broker, err := newEmbeddedBroker(natsserver.Config{}, noEnv, log, func(string) error { return nil })
	if err != nil {
		return err
	}
	api, err := fleetclient.New(fleetclient.Config{Endpoint: "http://localhost"})
	if err != nil {
		return err
	}

	// Components that register their metrics when they are built.
	_, apiErr := fleetapi.New(cfg.API.API, fleetapi.Deps{
		Store:      pgstore.New(nil),
		Timeline:   pgstore.NewTimelineStore(nil),
		Log:        log,
		Metrics:    reg,
		ListenAddr: "127.0.0.1:0",
	})
	_, maintainerErr := pgstore.NewPartitionMaintainer(nil, 0, log, reg)
	_, sentinelErr := sentinel.New(
		sentinel.Config{ResourceType: v1.CollectionClusters},
		sentinel.Deps{API: api.Raw(), Publisher: broker, Registerer: reg},
	)
	_, adapterErr := sampleadapter.New(
		sampleadapter.Config{Name: "reference"},
		sampleadapter.Deps{Consumer: broker, Fleet: api.Reporter(), Registerer: reg},
	)
	if err := errors.Join(apiErr, maintainerErr, sentinelErr, adapterErr); err != nil {
		return err
	}

	return errors.Join(
		operator.RegisterPlaceholderMetrics(reg),
		shard.RegisterMetrics(reg),
		clusterworkerapp.RegisterMetrics(reg),
		executionapp.RegisterMetrics(reg),
		changes.RegisterMetrics(reg),
		nodefaultapp.RegisterMetrics(reg),
		postgres.RegisterStandbyMetrics(reg),
		console.RegisterMetrics(reg),
	)
}
