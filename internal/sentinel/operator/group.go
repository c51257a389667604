package operator

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/sentinel/shard"
)

// A group divides the resources among the replicas that run an object.
type group struct {
	*shard.Group
	done func() // releases its leases
}

// newShardGroup returns a group of the replicas that run the object with a name.
func (r *memberSet) newShardGroup(
	name string, log *slog.Logger, registerer prometheus.Registerer,
) (ReplicaGroup, error) {
	leases, done, err := r.deps.Leases(name)
	if err != nil {
		return nil, err
	}
	if r.cfg.Name != "" && registerer != nil {
		// The metrics of a group have no other label that distinguishes groups.
		registerer = prometheus.WrapRegistererWith(prometheus.Labels{LabelConfig: name}, registerer)
	}
	cfg := shard.GroupConfig{Name: name, Identity: r.cfg.Identity}
	g, err := shard.NewGroup(cfg, shard.Deps{Leases: leases, Log: log, Registerer: registerer})
	if err != nil {
		done()
		return nil, fmt.Errorf("join the shard group of spec.sharding: %w", err)
	}
	return &group{Group: g, done: done}, nil
}

// Run takes part in the group until ctx ends.
func (g *group) Run(ctx context.Context) error {
	defer g.done()
	return g.Group.Run(ctx)
}
