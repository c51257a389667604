package clusterworkerapp

import (
	"context"
	"log/slog"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// outboxWakingLogger logs the changes of Shoots and wakes the outbox.
type outboxWakingLogger struct {
	log        *slog.Logger
	wakeOutbox func()
}

// Record writes one line and wakes the outbox, which sends the change.
func (l outboxWakingLogger) Record(ctx context.Context, c clusterworker.Change) {
	l.log.InfoContext(ctx, "change",
		"by", changeevent.SourceClusterWorker,
		"action", string(c.Action),
		"cluster", c.Cluster,
		"cluster_id", c.ClusterID,
		"tenant", c.Tenant,
		"shoot", c.Shoot,
		"generation", c.Generation,
		"message", c.Message,
	)
	l.wakeOutbox()
}

// newChangeOutbox builds the outbox that sends changes to the sinks.
func newChangeOutbox(
	store clusterworker.OutboxStore, sinks *changes.Sinks, log *slog.Logger, reg prometheus.Registerer,
) (*clusterworker.Outbox, error) {
	return clusterworker.NewOutbox(clusterworker.OutboxDeps{
		Store:      store,
		Sinks:      toEventSinks(sinks),
		Closing:    sinks.CloseTimeout(),
		Log:        log,
		Registerer: reg,
	})
}

// toEventSinks returns the sinks for which changes are kept. It includes sinks with invalid
// settings, so that they receive missed changes after a fix.
func toEventSinks(sinks *changes.Sinks) []clusterworker.EventSink {
	var list []clusterworker.EventSink
	for _, s := range sinks.List() {
		list = append(list, clusterworker.EventSink{Name: s.Name, Type: string(s.Format), Client: s.Client})
	}
	return list
}
