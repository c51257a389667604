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
	// FindProjectName returns the name of the project that holds the Shoots.
	FindProjectName(ctx context.Context) (projectName string, err error)
	// DryRunShoot validates a manifest with a dry-run apply.
	DryRunShoot(ctx context.Context, manifest shoot.Manifest) error
}

// identifyGarden returns the identity of the place where a garden keeps its Shoots.
func identifyGarden(ctx context.Context, garden Garden) (identity string, err error) {
	if client, ok := garden.(*gardener.Client); ok {
		return client.GetShootNamespaceIdentity(ctx)
	}
	return "the memory of a worker (" + string(Mock) + ")", nil
}

// gardenOpenFunc opens the garden for an installation. Its ID is known once the database has returned it.
type gardenOpenFunc func(installation string) (Garden, error)

// newGardenOpener returns the opener of the configured garden. It fails at once if the kubeconfig
// cannot be read.
func (c Part) newGardenOpener() (gardenOpenFunc, error) {
	if c.Mode == Mock {
		m := memory.New(memory.Options{
			CreateTime: c.Mock.CreateTime,
			UpdateTime: c.Mock.UpdateTime,
			DeleteTime: c.Mock.DeleteTime,
			Latency:    c.Mock.Latency,
			FailRate:   c.Mock.FailRate,
			Versions:   c.Mock.Versions,
		})
		return func(string) (Garden, error) { return m, nil }, nil
	}
	cfg := c.Gardener
	if limit := c.Worker.CallTimeout; limit > 0 && (cfg.Timeout <= 0 || limit < cfg.Timeout) {
		cfg.Timeout = limit
	}
	trial, err := gardener.New(cfg, "trial") // reads the kubeconfig
	if err != nil {
		return nil, err
	}
	trial.Close()
	return func(installation string) (Garden, error) { return gardener.New(cfg, installation) }, nil
}
