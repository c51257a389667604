package clusterworkerapp

import (
	"context"
	"log/slog"

	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// by is how the worker calls itself where it says what it did.
const by = "fleetloop/cluster-worker"

// logged tells the log what was done to Shoots.
type logged struct{ log *slog.Logger }

// Record writes one line.
func (l logged) Record(ctx context.Context, c clusterworker.Change) {
	l.log.InfoContext(ctx, "change", "by", by, "action", string(c.Action), "cluster", c.Cluster, "cluster_id", c.ClusterID,
		"tenant", c.Tenant, "shoot", c.Shoot, "generation", c.Generation, "message", c.Message)
}
