package clusterworkerapp

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/clusterworker/poller"
	"github.com/fleetloop/fleetloop/internal/gardener"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// A Garden is what the worker does with Gardener, and what it sees of it.
type Garden interface {
	clusterworker.Garden
	poller.Viewer
	// Project is the name of the project that the Shoots are in.
	Project(ctx context.Context) (string, error)
	// PreflightShoot has a manifest checked as if it were applied.
	PreflightShoot(ctx context.Context, m shoot.Manifest) error
}

// describePlace names where the Shoots are that a garden has.
func describePlace(ctx context.Context, g Garden) (string, error) {
	if client, ok := g.(*gardener.Client); ok {
		return client.Garden(ctx)
	}
	return "the memory of a worker (" + string(Mock) + ")", nil
}

// An opener opens the garden for an installation, which is known once the
// database has said it.
type opener func(installation string) (Garden, error)

// gardenOpener says how to open the garden that is configured. A kubeconfig that can
// not be read is found at once.
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
