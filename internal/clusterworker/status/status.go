// Package status says how far Gardener is with a cluster.
//
// Derive turns what a Shoot says of itself, and what our row knows, into a
// status and a message for the cluster's owner. It is a list of pure rules in
// the order of their priority; the first one that matches decides, and one always does.
// A Shoot that has not taken notice of its last change is never ready, and no
// cluster is deleted whose Shoot was not confirmed to be gone.
//
// Next and NextSync are the states that may follow one another, of a Shoot and of
// a sync; docs/states draws them.
package status

import (
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Known is what our row knows of a Shoot beside what can be observed.
type Known struct {
	// DeletionWanted is whether the cluster is to go, and DeletionSent whether
	// Gardener was told so and took it.
	DeletionWanted, DeletionSent bool
	// EverSeen is whether there was a Shoot at some time, EverReady whether it
	// was ready.
	EverSeen, EverReady bool
	// Confirmed is whether the absence of a Shoot was seen by a live look, or in
	// a list that is newer than the deletion: not in anything cached.
	Confirmed bool
}

// A Verdict is how far Gardener is.
type Verdict struct {
	Status v1.ShootStatus
	Reason Reason
	// Message says more to the cluster's owner; empty if there is no more to
	// say. It can be stored as it is.
	Message string

	// Missing is whether the Shoot is gone that should be there.
	Missing bool
	// Retrying is whether Gardener goes on trying after an error.
	Retrying bool
	// Degraded is whether it is not known of a Shoot that is ready that it is
	// healthy.
	Degraded bool
	// ForceDeletable is whether Gardener would let the deletion be forced that
	// it has given up.
	ForceDeletable bool
}

// A Reason is which rule decided. The set is closed, so that it can be a
// metric's label.
type Reason string

// The reasons if there is no Shoot, in the order of the rules.
const (
	ReasonGone        Reason = "gone"
	ReasonUnconfirmed Reason = "deletion_unconfirmed"
	ReasonNotSeen     Reason = "not_visible_yet"
	ReasonMissing     Reason = "shoot_missing"
)

// The reasons if there is one, in the order of the rules.
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

// Reasons are all reasons, in the order of the rules.
func Reasons() []Reason {
	return []Reason{
		ReasonGone, ReasonUnconfirmed, ReasonNotSeen, ReasonMissing,
		ReasonDeletionFailed, ReasonDeleting, ReasonUnscheduled, ReasonOutdated, ReasonOperating, ReasonRetrying, ReasonFailed,
		ReasonMigrated, ReasonHibernated, ReasonUnhealthy, ReasonUnsettled, ReasonHealthy, ReasonStrange,
	}
}

// Derive says how far Gardener is with a cluster whose Shoot is o, nil if there
// is none.
func Derive(o *shoot.Observed, k Known) Verdict {
	if o == nil {
		return firstMatch(absentRules(), &shoot.Observed{}, k)
	}
	return firstMatch(presentRules(), o, k)
}

// A rule gives a verdict if it matches.
type rule func(o *shoot.Observed, k Known) (Verdict, bool)

func firstMatch(rules []rule, o *shoot.Observed, k Known) Verdict {
	for _, match := range rules {
		if v, ok := match(o, k); ok {
			v.Message = sanitizeMessage(v.Message)
			return v
		}
	}
	return Verdict{} // the last rule of either list matches always
}
