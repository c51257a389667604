package clusterworkerapp

import (
	"cmp"
	"context"
	"errors"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/pgstore"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/postgres"
)

// RegisterMetrics registers the metrics of the worker for the metrics reference. It runs nothing.
func RegisterMetrics(reg prometheus.Registerer) error {
	return errors.Join(
		Part{}.buildAndDiscardTrialWorker(reg),
		registerListenerMetrics(pgstore.NewListener(postgres.Config{}, slog.New(slog.DiscardHandler)), reg),
	)
}

// buildAndDiscardTrialWorker builds a worker without dependencies, so that invalid settings fail before a database
// or a Gardener is needed.
func (c Part) buildAndDiscardTrialWorker(reg prometheus.Registerer) error {
	const name, longest = "trial", 21
	store, garden := pgstore.New(nil), memory.New(memory.Options{})
	c.MaxShootNameLen = cmp.Or(c.MaxShootNameLen, longest)
	maker, makerErr := c.newManifestMaker(name, name)
	_, workerErr := clusterworker.New(c.Worker, clusterworker.Deps{
		Store: store, Garden: garden, Maker: maker, Installation: name, Owner: name, ClusterCounter: store, Registerer: reg,
	})
	status := c.Status
	status.Owner = name
	observer, pollerErr := poller.New(status, poller.Deps{Store: &store.Observations, Viewer: garden, Registerer: reg})
	if err := errors.Join(makerErr, workerErr, pollerErr); err != nil {
		return err
	}
	if _, err := newChangeOutbox(&store.Outbox, nil, slog.New(slog.DiscardHandler), reg); err != nil {
		return err
	}
	deps := clusterworker.ReporterDeps{Store: store, Fleet: nopFleet{}, Observer: observer, Registerer: reg}
	_, err := clusterworker.NewReporter(c.Reports, deps)
	return err
}

// nopFleet discards reports.
type nopFleet struct{}

// Report discards a report.
func (nopFleet) Report(context.Context, string, string, v1.Report) (bool, error) { return false, nil }
