package allinone

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fleetloop/fleetloop/internal/app/clusterworkerapp"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
	"github.com/fleetloop/fleetloop/internal/gardener/memory"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// GardenConfig sets whether clusters become Shoots, and the timing of the garden in memory.
// GARDENER_MODE=real replaces it by a real Gardener.
type GardenConfig struct {
	Enabled bool          `key:"enabled" flag:"gardener" default:"true" doc:"sync clusters to an in-memory Gardener, or to an external one with GARDENER_MODE=real and GARDENER_KUBECONFIG"`
	Time    time.Duration `key:"create_duration" flag:"gardener-create-duration" default:"3s" validate:"min=0" doc:"time that the in-memory Gardener takes to create a cluster; an update or deletion takes half"`
}

const (
	// The third Shoot of a demo fails at first, to show its recovery.
	failingShoot  = 3
	shootFailures = 2
	retryTime     = 2 * time.Second
)

// withWorkerAdapter adds the worker to the required adapters of the API. A deleted cluster then remains
// until its Shoot is gone.
func (c GardenConfig) withWorkerAdapter(adapters []string) []string {
	if !c.Enabled || slices.Contains(adapters, clusterworker.ReportAdapter) {
		return adapters
	}
	return append(slices.Clone(adapters), clusterworker.ReportAdapter)
}

// newClusterWorkerParts builds the parts that sync clusters to Gardener. The Gardener variables of the
// environment have the same meaning as for the cluster-worker binary.
func newClusterWorkerParts(
	ctx context.Context,
	p *process.Process,
	cfg Config,
	overrides clusterworkerapp.Overrides,
	env func(string) (string, bool),
) (parts []lifecycle.Part, live func() error, err error) {
	all := clusterworkerapp.OverriddenDefaults()
	if _, err := settings.Load(&all.Part, settings.Source{Env: env}); err != nil {
		return nil, nil, err
	}
	part := all.Part
	role := part.Database.Role
	part.Database = cfg.API.Database
	part.Database.Role = role // the worker uses a separate role
	if part.Mode == clusterworkerapp.Mock {
		o := cfg.Garden.memoryOptions(cfg.Demo.Enabled)
		o.Versions = part.Mock.Versions
		overrides.Garden = memory.New(o)
	}
	return clusterworkerapp.BuildParts(ctx, p, part, cfg.StopTimeout, overrides)
}

func (c GardenConfig) memoryOptions(demo bool) memory.Options {
	o := memory.Options{CreateTime: c.Time, UpdateTime: c.Time / 2, DeleteTime: c.Time / 2, RetryTime: retryTime}
	if demo {
		var created atomic.Int64
		o.Breaks = func(string) int {
			if created.Add(1) == failingShoot {
				return shootFailures
			}
			return 0
		}
	}
	return o
}
