package clusterworkerapp

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Garden is the part of Gardener that the worker uses.
type Garden interface {
	clusterworker.Garden
	poller.Viewer
	// Project returns the name of the project that holds the Shoots.
	Project(ctx context.Context) (string, error)
	// PreflightShoot validates a manifest with a dry-run apply.
	PreflightShoot(ctx context.Context, m shoot.Manifest) error
}

// gardenIdentity returns the identity of the place where a garden keeps its Shoots.
func gardenIdentity(ctx context.Context, g Garden) (string, error) {
	if client, ok := g.(*gardener.Client); ok {
		return client.GardenIdentity(ctx)
	}
	return "the memory of a worker (" + string(Mock) + ")", nil
}

// opener opens the garden for an installation. Its ID is known once the database has returned it.
type opener func(installation string) (Garden, error)

// gardenOpener returns the opener of the configured garden. It fails at once if the kubeconfig
// cannot be read.
func (c Part) gardenOpener() (opener, error) {
	if c.Mode == Mock {
		m := memory.New(memory.Options{
			CreateTime: c.Mock.CreateTime, UpdateTime: c.Mock.UpdateTime, DeleteTime: c.Mock.DeleteTime,
			Latency: c.Mock.Latency, FailRate: c.Mock.FailRate, Versions: c.Mock.Versions,
		})
		return func(string) (Garden, error) { return m, nil }, nil
	}
	cfg := c.Gardener
	if limit := c.Worker.CallTimeout; limit > 0 && (cfg.Timeout <= 0 || limit < cfg.Timeout) {
		cfg.Timeout = limit
	}
	open := func(installation string) (Garden, error) { return gardener.New(cfg, installation) }
	trial, err := gardener.New(cfg, "trial")
	if err != nil {
		return nil, err
	}
	trial.Close()
	return open, nil
}
