package clusterworker

import (
	"strconv"
	"time"

	"github.com/fleetloop/fleetloop/changeevent"
)

// ToChangeEvent returns the change event of a change. The same change has the same ID.
//
// A Shoot UID is created once and deleted once, so these events have one ID, also after a backup is restored. All other
// changes can repeat: a Shoot is ready, fails, and is ready again.
func (c Change) ToChangeEvent() changeevent.ChangeEvent {
	generation := strconv.FormatInt(c.Generation, 10)
	e := changeevent.ChangeEvent{
		Action: string(c.Action), Source: changeevent.SourceClusterWorker, Cluster: c.Cluster, Subject: "shoots/" + c.Shoot,
		Reason: c.Message, Outcome: changeevent.OutcomeSucceeded, Timestamp: c.At,
		Session: c.ClusterID + "." + generation,
		Details: map[string]string{"cluster_id": c.ClusterID, "tenant": c.Tenant, "generation": generation},
	}
	if c.Action == ShootFailed {
		e.Outcome = changeevent.OutcomeFailed
	}
	same := e
	switch {
	case c.ShootUID != "":
		same.Session, same.Timestamp = c.ClusterID+"."+c.ShootUID, time.Time{}
	case c.Action == ShootDeleted: // stored by an earlier release
		same.Session, same.Timestamp = c.ClusterID, time.Time{}
	}
	e.ID = changeevent.ID(same)
	return e
}
