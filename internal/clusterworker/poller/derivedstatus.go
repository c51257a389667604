package poller

import (
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// RowFacts are the facts in the row of a cluster from which its status is derived,
// beside the observed Shoot.
type RowFacts struct {
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

// A DerivedStatus is the status of a cluster, derived from its Shoot and its row.
type DerivedStatus struct {
	Status v1.ShootStatus
	Reason StatusReason
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

// A StatusReason is the rule that decided. The set is closed, so that it can be a metric
// label.
type StatusReason string

// Reasons for an absent Shoot, in the order of the rules.
const (
	ReasonGone        StatusReason = "gone"
	ReasonUnconfirmed StatusReason = "deletion_unconfirmed"
	ReasonNotSeen     StatusReason = "not_visible_yet"
	ReasonMissing     StatusReason = "shoot_missing"
)

// Reasons for an existing Shoot, in the order of the rules.
const (
	ReasonDeletionFailed StatusReason = "deletion_failed"
	ReasonDeleting       StatusReason = "deleting"
	ReasonUnscheduled    StatusReason = "unscheduled"
	ReasonOutdated       StatusReason = "change_not_picked_up"
	ReasonOperating      StatusReason = "operating"
	ReasonRetrying       StatusReason = "retrying"
	ReasonFailed         StatusReason = "failed"
	ReasonMigrated       StatusReason = "migrated"
	ReasonHibernated     StatusReason = "hibernated"
	ReasonUnhealthy      StatusReason = "unhealthy"
	ReasonUnsettled      StatusReason = "health_unknown"
	ReasonHealthy        StatusReason = "healthy"
	ReasonStrange        StatusReason = "unknown_state"
)

// DeriveStatus returns the status of a cluster whose Shoot was observed, nil if absent. It has a
// message for the cluster's owner.
//
// It is a list of pure rules in the order of their priority; the first one that matches
// decides, and one always does. A Shoot that has not picked up its last change is never
// ready. A cluster is never deleted before its Shoot is confirmed gone.
func DeriveStatus(observed *shoot.Observed, facts RowFacts) DerivedStatus {
	if observed == nil {
		return applyFirstMatchingRule(listRulesForAbsentShoot(), &shoot.Observed{}, facts)
	}
	return applyFirstMatchingRule(listRulesForExistingShoot(), observed, facts)
}

// A statusRule returns a status if it matches.
type statusRule func(o *shoot.Observed, k RowFacts) (DerivedStatus, bool)

func applyFirstMatchingRule(rules []statusRule, observed *shoot.Observed, facts RowFacts) DerivedStatus {
	for _, match := range rules {
		if v, ok := match(observed, facts); ok {
			v.Message = sanitizeAndTruncateMessage(v.Message)
			return v
		}
	}
	return DerivedStatus{} // unreachable: the last rule of either list always matches
}
