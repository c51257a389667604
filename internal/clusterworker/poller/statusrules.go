package poller

import (
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/shoot"
)

// Gardener's operations, their states and the states of conditions.
const (
	operationDelete  = "Delete"
	operationMigrate = "Migrate"

	statePending    = "Pending"
	stateProcessing = "Processing"
	stateSucceeded  = "Succeeded"
	stateError      = "Error"
	stateFailed     = "Failed"
	stateAborted    = "Aborted"

	conditionTrue  = "True"
	conditionFalse = "False"
)

// listRulesForAbsentShoot returns the rules for an absent Shoot.
func listRulesForAbsentShoot() []statusRule {
	return []statusRule{matchDeletionConfirmed, matchDeletionUnconfirmed, matchNeverSeen, matchMissing}
}

// listRulesForExistingShoot returns the rules for a Shoot that exists.
func listRulesForExistingShoot() []statusRule {
	return []statusRule{
		matchDeletionFailed, matchDeleting, matchUnscheduled, matchOutdatedGeneration, matchOperationRunning, matchOperationRetrying, matchOperationFailed,
		matchMigrating, matchHibernated, matchUnhealthy, matchHealthUnknown, matchHealthy, matchUnknownState,
	}
}

func matchDeletionConfirmed(_ *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{Status: v1.ShootDeleted, Reason: ReasonGone, Message: "Gardener has deleted the cluster."},
		facts.DeletionWanted && facts.DeletionSent && facts.Confirmed
}

// matchDeletionUnconfirmed also covers a deletion that was not sent because the Shoot had been
// deleted already. The sync finds that out when it sends the deletion.
func matchDeletionUnconfirmed(_ *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
			Status:  v1.ShootDeleting,
			Reason:  ReasonUnconfirmed,
			Message: "The Shoot is no longer visible in Gardener; its deletion is being confirmed.",
		},
		facts.DeletionWanted &&
			(facts.DeletionSent || facts.EverSeen)
}

func matchNeverSeen(_ *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{Status: v1.ShootPending, Reason: ReasonNotSeen, Message: "The Shoot is not visible in Gardener yet."}, !facts.EverSeen
}

func matchMissing(*shoot.Observed, RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
		Status:  v1.ShootError,
		Reason:  ReasonMissing,
		Missing: true,
		Message: "The Shoot disappeared from Gardener without a delete request. It is being created again.",
	}, true
}

func matchDeletionFailed(observed *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	if !observed.Deleting || observed.LastOperation == nil || observed.LastOperation.Type != operationDelete || observed.LastOperation.State != stateFailed {
		return DerivedStatus{}, false
	}
	return DerivedStatus{
		Status: v1.ShootError, Reason: ReasonDeletionFailed, ForceDeletable: hasForceDeletableErrorCode(observed.LastErrors),
		Message: unrequestedDeletionPrefix(facts) + describeFinalFailure(observed),
	}, true
}

func matchDeleting(observed *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
		Status:  v1.ShootDeleting,
		Reason:  ReasonDeleting,
		Message: unrequestedDeletionPrefix(facts) + describeDeletion(observed),
	}, observed.Deleting
}

func matchUnscheduled(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
			Status:  v1.ShootProgressing,
			Reason:  ReasonUnscheduled,
			Message: "Gardener has not scheduled the control plane yet (0 %).",
		},
		observed.LastOperation == nil
}

// matchOutdatedGeneration precedes all rules about the last operation. Until Gardener picks up the
// change, that operation concerns the earlier spec.
func matchOutdatedGeneration(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonOutdated, Message: "Gardener has not picked up the last change yet."},
		observed.Generation > observed.ObservedGeneration
}

func matchOperationRunning(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	if s := observed.LastOperation.State; s != statePending && s != stateProcessing {
		return DerivedStatus{}, false
	}
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonOperating, Message: describeRunningOperation(observed.LastOperation)}, true
}

func matchOperationRetrying(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	if observed.LastOperation.State != stateError {
		return DerivedStatus{}, false
	}
	return DerivedStatus{Status: v1.ShootError, Reason: ReasonRetrying, Retrying: true, Message: describeRetriedFailure(observed)}, true
}

func matchOperationFailed(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	if s := observed.LastOperation.State; s != stateFailed && s != stateAborted {
		return DerivedStatus{}, false
	}
	return DerivedStatus{
		Status:  v1.ShootError,
		Reason:  ReasonFailed,
		Message: describeFinalFailure(observed) + " Change the cluster to trigger a retry.",
	}, true
}

// matchMigrating matches a control plane that has left one seed and is not restored on
// the other yet.
func matchMigrating(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
			Status:  v1.ShootProgressing,
			Reason:  ReasonMigrated,
			Message: "Gardener is migrating the control plane; it is not restored on the new seed yet.",
		},
		lastOperationSucceeded(observed) &&
			observed.LastOperation.Type == operationMigrate
}

// matchHibernated precedes the rules about conditions. The conditions of a hibernated
// Shoot are outdated until Gardener updates them.
func matchHibernated(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{
			Status:  v1.ShootReady,
			Reason:  ReasonHibernated,
			Message: "The cluster is hibernated.",
		}, lastOperationSucceeded(observed) &&
			observed.Hibernated
}

func matchUnhealthy(observed *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	bad := filterConditionsByStatus(observed, func(status string) bool { return status == conditionFalse })
	if !lastOperationSucceeded(observed) || len(bad) == 0 {
		return DerivedStatus{}, false
	}
	if !facts.EverReady {
		return DerivedStatus{
			Status:  v1.ShootProgressing,
			Reason:  ReasonUnhealthy,
			Message: "The cluster is created but not healthy yet: " + describeConditions(bad),
		}, true
	}
	return DerivedStatus{
		Status:  v1.ShootError,
		Reason:  ReasonUnhealthy,
		Message: "The cluster is not healthy: " + describeConditions(bad),
	}, true
}

// matchHealthUnknown matches conditions that Gardener keeps open for a while before it sets
// them to False. A ready Shoot stays ready meanwhile.
func matchHealthUnknown(observed *shoot.Observed, facts RowFacts) (status DerivedStatus, matches bool) {
	open := filterConditionsByStatus(observed, func(status string) bool { return status != conditionTrue && status != conditionFalse })
	if !lastOperationSucceeded(observed) || len(open) == 0 {
		return DerivedStatus{}, false
	}
	if !facts.EverReady {
		return DerivedStatus{
			Status:  v1.ShootProgressing,
			Reason:  ReasonUnsettled,
			Message: "The cluster is created; its health is not known yet: " + describeConditions(open),
		}, true
	}
	return DerivedStatus{
		Status:   v1.ShootReady,
		Reason:   ReasonUnsettled,
		Degraded: true,
		Message:  "The health of the cluster is not known: " + describeConditions(open),
	}, true
}

func matchHealthy(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{Status: v1.ShootReady, Reason: ReasonHealthy}, lastOperationSucceeded(observed)
}

// matchUnknownState matches states that no known version of Gardener has.
func matchUnknownState(observed *shoot.Observed, _ RowFacts) (status DerivedStatus, matches bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonStrange, Message: "Gardener reports an unknown state, " + quoteTruncatedText(observed.LastOperation.State) + ": " + describeRunningOperation(observed.LastOperation)}, true
}

func lastOperationSucceeded(observed *shoot.Observed) bool {
	return observed.LastOperation.State == stateSucceeded
}

// filterConditionsByStatus returns the conditions of a Shoot with a matching status. A Shoot
// without workers has fewer conditions; an absent condition means nothing.
func filterConditionsByStatus(observed *shoot.Observed, matchStatus func(string) bool) []shoot.Condition {
	return slices.DeleteFunc(slices.Clone(observed.Conditions), func(c shoot.Condition) bool { return !matchStatus(c.Status) })
}

// hasForceDeletableErrorCode reports whether an error has one of the codes that allow a forced
// deletion. Gardener allows it because the leftover resources are not Gardener's fault.
func hasForceDeletableErrorCode(errs []shoot.LastError) bool {
	return slices.ContainsFunc(errs, func(e shoot.LastError) bool {
		return slices.ContainsFunc(e.Codes, func(code string) bool {
			switch code {
			case "ERR_INFRA_UNAUTHENTICATED", "ERR_INFRA_UNAUTHORIZED", "ERR_INFRA_DEPENDENCIES", "ERR_CLEANUP_CLUSTER_RESOURCES", "ERR_CONFIGURATION_PROBLEM":
				return true
			}
			return false
		})
	})
}
