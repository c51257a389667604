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

// absentRules returns the rules for an absent Shoot.
func absentRules() []statusRule {
	return []statusRule{goneRule, unconfirmedRule, notSeenRule, missingRule}
}

// presentRules returns the rules for a Shoot that exists.
func presentRules() []statusRule {
	return []statusRule{
		deletionFailedRule, deletingRule, unscheduledRule, outdatedRule, operatingRule, retryingRule, failedRule,
		migratedRule, hibernatedRule, unhealthyRule, unsettledRule, healthyRule, unknownRule,
	}
}

func goneRule(_ *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootDeleted, Reason: ReasonGone, Message: "Gardener has deleted the cluster."},
		k.DeletionWanted && k.DeletionSent && k.Confirmed
}

// unconfirmedRule also covers a deletion that was not sent because the Shoot had been
// deleted already. The sync finds that out when it sends the deletion.
func unconfirmedRule(_ *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootDeleting, Reason: ReasonUnconfirmed, Message: "The Shoot is no longer visible in Gardener; its deletion is being confirmed."},
		k.DeletionWanted && (k.DeletionSent || k.EverSeen)
}

func notSeenRule(_ *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootPending, Reason: ReasonNotSeen, Message: "The Shoot is not visible in Gardener yet."}, !k.EverSeen
}

func missingRule(*shoot.Observed, RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootError, Reason: ReasonMissing, Missing: true, Message: "The Shoot disappeared from Gardener without a delete request. It is being created again."}, true
}

func deletionFailedRule(o *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	if !o.Deleting || o.LastOperation == nil || o.LastOperation.Type != operationDelete || o.LastOperation.State != stateFailed {
		return DerivedStatus{}, false
	}
	return DerivedStatus{
		Status: v1.ShootError, Reason: ReasonDeletionFailed, ForceDeletable: isForceDeletable(o.LastErrors),
		Message: unrequestedPrefix(k) + describeFailure(o),
	}, true
}

func deletingRule(o *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootDeleting, Reason: ReasonDeleting, Message: unrequestedPrefix(k) + deletionText(o)}, o.Deleting
}

func unscheduledRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonUnscheduled, Message: "Gardener has not scheduled the control plane yet (0 %)."},
		o.LastOperation == nil
}

// outdatedRule precedes all rules about the last operation. Until Gardener picks up the
// change, that operation concerns the earlier spec.
func outdatedRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonOutdated, Message: "Gardener has not picked up the last change yet."},
		o.Generation > o.ObservedGeneration
}

func operatingRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	if s := o.LastOperation.State; s != statePending && s != stateProcessing {
		return DerivedStatus{}, false
	}
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonOperating, Message: describeOperation(o.LastOperation)}, true
}

func retryingRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	if o.LastOperation.State != stateError {
		return DerivedStatus{}, false
	}
	return DerivedStatus{Status: v1.ShootError, Reason: ReasonRetrying, Retrying: true, Message: describeRetry(o)}, true
}

func failedRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	if s := o.LastOperation.State; s != stateFailed && s != stateAborted {
		return DerivedStatus{}, false
	}
	return DerivedStatus{Status: v1.ShootError, Reason: ReasonFailed, Message: describeFailure(o) + " Change the cluster to trigger a retry."}, true
}

// migratedRule matches a control plane that has left one seed and is not restored on
// the other yet.
func migratedRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonMigrated, Message: "Gardener is migrating the control plane; it is not restored on the new seed yet."},
		operationSucceeded(o) && o.LastOperation.Type == operationMigrate
}

// hibernatedRule precedes the rules about conditions. The conditions of a hibernated
// Shoot are outdated until Gardener updates them.
func hibernatedRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootReady, Reason: ReasonHibernated, Message: "The cluster is hibernated."}, operationSucceeded(o) && o.Hibernated
}

func unhealthyRule(o *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	bad := conditionsWith(o, func(status string) bool { return status == conditionFalse })
	if !operationSucceeded(o) || len(bad) == 0 {
		return DerivedStatus{}, false
	}
	if !k.EverReady {
		return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonUnhealthy, Message: "The cluster is created but not healthy yet: " + describeConditions(bad)}, true
	}
	return DerivedStatus{Status: v1.ShootError, Reason: ReasonUnhealthy, Message: "The cluster is not healthy: " + describeConditions(bad)}, true
}

// unsettledRule matches conditions that Gardener keeps open for a while before it sets
// them to False. A ready Shoot stays ready meanwhile.
func unsettledRule(o *shoot.Observed, k RowFacts) (DerivedStatus, bool) {
	open := conditionsWith(o, func(status string) bool { return status != conditionTrue && status != conditionFalse })
	if !operationSucceeded(o) || len(open) == 0 {
		return DerivedStatus{}, false
	}
	if !k.EverReady {
		return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonUnsettled, Message: "The cluster is created; its health is not known yet: " + describeConditions(open)}, true
	}
	return DerivedStatus{Status: v1.ShootReady, Reason: ReasonUnsettled, Degraded: true, Message: "The health of the cluster is not known: " + describeConditions(open)}, true
}

func healthyRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootReady, Reason: ReasonHealthy}, operationSucceeded(o)
}

// unknownRule matches states that no known version of Gardener has.
func unknownRule(o *shoot.Observed, _ RowFacts) (DerivedStatus, bool) {
	return DerivedStatus{Status: v1.ShootProgressing, Reason: ReasonStrange, Message: "Gardener reports an unknown state, " + quoteText(o.LastOperation.State) + ": " + describeOperation(o.LastOperation)}, true
}

func operationSucceeded(o *shoot.Observed) bool { return o.LastOperation.State == stateSucceeded }

// conditionsWith returns the conditions of a Shoot with a matching status. A Shoot
// without workers has fewer conditions; an absent condition means nothing.
func conditionsWith(o *shoot.Observed, status func(string) bool) []shoot.Condition {
	return slices.DeleteFunc(slices.Clone(o.Conditions), func(c shoot.Condition) bool { return !status(c.Status) })
}

// isForceDeletable reports whether an error has one of the codes that allow a forced
// deletion. Gardener allows it because the leftover resources are not Gardener's fault.
func isForceDeletable(errs []shoot.LastError) bool {
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
