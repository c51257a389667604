package clusterworkerapp

import (
	"context"
	"log/slog"
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// logged tells the log what was done to Shoots.
type logged struct{ log *slog.Logger }

// Record writes one line.
func (l logged) Record(ctx context.Context, c clusterworker.Change) {
	l.log.InfoContext(ctx, "change", "by", changeevent.SourceClusterWorker, "action", string(c.Action), "cluster", c.Cluster, "cluster_id", c.ClusterID,
		"tenant", c.Tenant, "shoot", c.Shoot, "generation", c.Generation, "message", c.Message)
}

// sent tells the sinks of change events what was done to Shoots.
type sent struct{ sinks changeevent.Client }

// Record hands an event over.
func (s sent) Record(ctx context.Context, c clusterworker.Change) {
	s.sinks.SendChangeEvent(ctx, eventOf(c))
}

// eventOf is a change as sinks are told of it. The same change has the same id.
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
		// The sync and the status poller may both see it go, which it does once. All
		// else can come again: ready, failed, and ready.
		same.Session, same.Timestamp = c.ClusterID, time.Time{}
	}
	e.ID = changeevent.ID(same)
	return e
}
