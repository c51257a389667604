// Package status derives the status of a cluster in Gardener.
//
// Derive turns the state of a Shoot and the row of its cluster into a status and a
// message for the cluster's owner. It is a list of pure rules in the order of their
// priority; the first one that matches decides, and one always does. A Shoot that has
// not picked up its last change is never ready. A cluster is never deleted before its
// Shoot is confirmed gone.
//
// Next and NextSync return the states that may follow a state of a Shoot or of a sync;
// docs/states draws them.
package status

import (
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Known is the knowledge in the row of a cluster beyond the observed Shoot.
type Known struct {
	// DeletionWanted is whether the cluster is being deleted. DeletionSent is whether
	// Gardener accepted the deletion.
	DeletionWanted, DeletionSent bool
	// EverSeen is whether a Shoot ever existed, and EverReady whether it was ever
	// ready.
	EverSeen, EverReady bool
	// Confirmed is whether a live read confirmed the absence of a Shoot, or a list that
	// is newer than the deletion. A cache does not count.
	Confirmed bool
}

// A Verdict is the derived status of a cluster.
type Verdict struct {
	Status v1.ShootStatus
	Reason Reason
	// Message has details for the cluster's owner, empty if there are none. It can be
	// stored as it is.
	Message string

	// Missing is whether a Shoot that should exist is absent.
	Missing bool
	// Retrying is whether Gardener retries after an error.
	Retrying bool
	// Degraded is whether the health of a ready Shoot is unknown.
	Degraded bool
	// ForceDeletable is whether Gardener would allow a forced deletion after it has
	// given up.
	ForceDeletable bool
}

// A Reason is the rule that decided. The set is closed, so that it can be a metric
// label.
type Reason string

// Reasons for an absent Shoot, in the order of the rules.
const (
	ReasonGone        Reason = "gone"
	ReasonUnconfirmed Reason = "deletion_unconfirmed"
	ReasonNotSeen     Reason = "not_visible_yet"
	ReasonMissing     Reason = "shoot_missing"
)

// Reasons for an existing Shoot, in the order of the rules.
const (
	ReasonDeletionFailed Reason = "deletion_failed"
	ReasonDeleting       Reason = "deleting"
	ReasonUnscheduled    Reason = "unscheduled"
	ReasonOutdated       Reason = "change_not_picked_up"
	ReasonOperating      Reason = "operating"
	ReasonRetrying       Reason = "retrying"
	ReasonFailed         Reason = "failed"
	ReasonMigrated       Reason = "migrated"
	ReasonHibernated     Reason = "hibernated"
	ReasonUnhealthy      Reason = "unhealthy"
	ReasonUnsettled      Reason = "health_unknown"
	ReasonHealthy        Reason = "healthy"
	ReasonStrange        Reason = "unknown_state"
)

// Reasons returns all reasons, in the order of the rules.
func Reasons() []Reason {
	return []Reason{
		ReasonGone, ReasonUnconfirmed, ReasonNotSeen, ReasonMissing,
		ReasonDeletionFailed, ReasonDeleting, ReasonUnscheduled, ReasonOutdated, ReasonOperating, ReasonRetrying, ReasonFailed,
		ReasonMigrated, ReasonHibernated, ReasonUnhealthy, ReasonUnsettled, ReasonHealthy, ReasonStrange,
	}
}

// Derive returns the status of a cluster whose Shoot is o, nil if absent.
func Derive(o *shoot.Observed, k Known) Verdict {
	if o == nil {
		return firstMatch(absentRules(), &shoot.Observed{}, k)
	}
	return firstMatch(presentRules(), o, k)
}

// A rule returns a verdict if it matches.
type rule func(o *shoot.Observed, k Known) (Verdict, bool)

func firstMatch(rules []rule, o *shoot.Observed, k Known) Verdict {
	for _, match := range rules {
		if v, ok := match(o, k); ok {
			v.Message = sanitizeMessage(v.Message)
			return v
		}
	}
	return Verdict{} // unreachable: the last rule of either list always matches
}
