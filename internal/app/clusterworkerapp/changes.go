package clusterworkerapp

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/changes"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// changeLogger logs the changes of Shoots and wakes the outbox.
type changeLogger struct {
	log   *slog.Logger
	nudge func()
}

// Record writes one line.
func (l changeLogger) Record(ctx context.Context, c clusterworker.Change) {
	l.log.InfoContext(ctx, "change", "by", changeevent.SourceClusterWorker, "action", string(c.Action), "cluster", c.Cluster, "cluster_id", c.ClusterID,
		"tenant", c.Tenant, "shoot", c.Shoot, "generation", c.Generation, "message", c.Message)
	l.nudge()
}

// newOutbox builds the outbox that sends changes to the sinks.
func newOutbox(store clusterworker.OutboxStore, sinks *changes.Sinks, log *slog.Logger, reg prometheus.Registerer) (*clusterworker.Outbox, error) {
	deps := clusterworker.OutboxDeps{Store: store, Event: eventOf, Closing: sinks.CloseTimeout(), Log: log, Registerer: reg}
	for _, s := range sinks.List() {
		deps.Sinks = append(deps.Sinks, clusterworker.EventSink{Name: s.Name, Client: s.Client})
	}
	return clusterworker.NewOutbox(deps)
}

// namesOf returns the names of the sinks for which changes are kept. It includes sinks with invalid
// settings, so that they receive missed changes after a fix.
func namesOf(sinks *changes.Sinks) []string {
	var names []string
	for _, s := range sinks.List() {
		names = append(names, s.Name)
	}
	return names
}

// eventOf converts a change to a change event. The same change has the same ID.
func eventOf(c clusterworker.Change) changeevent.ChangeEvent {
	generation := strconv.FormatInt(c.Generation, 10)
	e := changeevent.ChangeEvent{
		Action: string(c.Action), Source: changeevent.SourceClusterWorker, Cluster: c.Cluster, Subject: "shoots/" + c.Shoot,
		Reason: c.Message, Outcome: changeevent.OutcomeSucceeded, Timestamp: c.At,
		Session: c.ClusterID + "." + generation,
		Details: map[string]string{"cluster_id": c.ClusterID, "tenant": c.Tenant, "generation": generation},
	}
	if c.Action == clusterworker.ShootFailed {
		e.Outcome = changeevent.OutcomeFailed
	}
	same := e
	if c.Action == clusterworker.ShootDeleted {
		// The sync and the status poller may both see the deletion, which happens once.
		// All other changes can repeat: ready, failed, and ready.
		same.Session, same.Timestamp = c.ClusterID, time.Time{}
	}
	e.ID = changeevent.ID(same)
	return e
}
