package status

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
func absentRules() []rule { return []rule{goneRule, unconfirmed, notSeen, missingRule} }

// presentRules returns the rules for a Shoot that exists.
func presentRules() []rule {
	return []rule{
		deletionFailed, deletingRule, unscheduled, outdatedRule, operating, retryingRule, failedRule,
		migratedRule, hibernated, unhealthy, unsettled, healthyRule, unknownRule,
	}
}

func goneRule(_ *shoot.Observed, k Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootDeleted, Reason: ReasonGone, Message: "Gardener has deleted the cluster."},
		k.DeletionWanted && k.DeletionSent && k.Confirmed
}

// unconfirmed also covers a deletion that was not sent because the Shoot had been
// deleted already. The sync finds that out when it sends the deletion.
func unconfirmed(_ *shoot.Observed, k Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootDeleting, Reason: ReasonUnconfirmed, Message: "The Shoot is no longer visible in Gardener; its deletion is being confirmed."},
		k.DeletionWanted && (k.DeletionSent || k.EverSeen)
}

func notSeen(_ *shoot.Observed, k Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootPending, Reason: ReasonNotSeen, Message: "The Shoot is not visible in Gardener yet."}, !k.EverSeen
}

func missingRule(*shoot.Observed, Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootError, Reason: ReasonMissing, Missing: true, Message: "The Shoot disappeared from Gardener without a delete request. It is being created again."}, true
}

func deletionFailed(o *shoot.Observed, k Known) (Verdict, bool) {
	if !o.Deleting || o.LastOperation == nil || o.LastOperation.Type != operationDelete || o.LastOperation.State != stateFailed {
		return Verdict{}, false
	}
	return Verdict{
		Status: v1.ShootError, Reason: ReasonDeletionFailed, ForceDeletable: forceDeletable(o.LastErrors),
		Message: unrequestedPrefix(k) + gaveUp(o),
	}, true
}

func deletingRule(o *shoot.Observed, k Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootDeleting, Reason: ReasonDeleting, Message: unrequestedPrefix(k) + deletionText(o)}, o.Deleting
}

func unscheduled(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootProgressing, Reason: ReasonUnscheduled, Message: "Gardener has not scheduled the control plane yet (0 %)."},
		o.LastOperation == nil
}

// outdatedRule precedes all rules about the last operation. Until Gardener picks up the
// change, that operation concerns the earlier spec.
func outdatedRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootProgressing, Reason: ReasonOutdated, Message: "Gardener has not picked up the last change yet."},
		o.Generation > o.ObservedGeneration
}

func operating(o *shoot.Observed, _ Known) (Verdict, bool) {
	if s := o.LastOperation.State; s != statePending && s != stateProcessing {
		return Verdict{}, false
	}
	return Verdict{Status: v1.ShootProgressing, Reason: ReasonOperating, Message: atWork(o.LastOperation)}, true
}

func retryingRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	if o.LastOperation.State != stateError {
		return Verdict{}, false
	}
	return Verdict{Status: v1.ShootError, Reason: ReasonRetrying, Retrying: true, Message: triesAgain(o)}, true
}

func failedRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	if s := o.LastOperation.State; s != stateFailed && s != stateAborted {
		return Verdict{}, false
	}
	return Verdict{Status: v1.ShootError, Reason: ReasonFailed, Message: gaveUp(o) + " Change the cluster to trigger a retry."}, true
}

// migratedRule matches a control plane that has left one seed and is not restored on
// the other yet.
func migratedRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootProgressing, Reason: ReasonMigrated, Message: "Gardener is migrating the control plane; it is not restored on the new seed yet."},
		succeeded(o) && o.LastOperation.Type == operationMigrate
}

// hibernated precedes the rules about conditions. The conditions of a hibernated Shoot
// are outdated until Gardener updates them.
func hibernated(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootReady, Reason: ReasonHibernated, Message: "The cluster is hibernated."}, succeeded(o) && o.Hibernated
}

func unhealthy(o *shoot.Observed, k Known) (Verdict, bool) {
	bad := conditionsWith(o, func(status string) bool { return status == conditionFalse })
	if !succeeded(o) || len(bad) == 0 {
		return Verdict{}, false
	}
	if !k.EverReady {
		return Verdict{Status: v1.ShootProgressing, Reason: ReasonUnhealthy, Message: "The cluster is created but not healthy yet: " + conditions(bad)}, true
	}
	return Verdict{Status: v1.ShootError, Reason: ReasonUnhealthy, Message: "The cluster is not healthy: " + conditions(bad)}, true
}

// unsettled matches conditions that Gardener keeps open for a while before it sets them
// to False. A ready Shoot stays ready meanwhile.
func unsettled(o *shoot.Observed, k Known) (Verdict, bool) {
	open := conditionsWith(o, func(status string) bool { return status != conditionTrue && status != conditionFalse })
	if !succeeded(o) || len(open) == 0 {
		return Verdict{}, false
	}
	if !k.EverReady {
		return Verdict{Status: v1.ShootProgressing, Reason: ReasonUnsettled, Message: "The cluster is created; its health is not known yet: " + conditions(open)}, true
	}
	return Verdict{Status: v1.ShootReady, Reason: ReasonUnsettled, Degraded: true, Message: "The health of the cluster is not known: " + conditions(open)}, true
}

func healthyRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootReady, Reason: ReasonHealthy}, succeeded(o)
}

// unknownRule matches states that no known version of Gardener has.
func unknownRule(o *shoot.Observed, _ Known) (Verdict, bool) {
	return Verdict{Status: v1.ShootProgressing, Reason: ReasonStrange, Message: "Gardener reports an unknown state, " + quoteText(o.LastOperation.State) + ": " + atWork(o.LastOperation)}, true
}

func succeeded(o *shoot.Observed) bool { return o.LastOperation.State == stateSucceeded }

// conditionsWith returns the conditions of a Shoot with a matching status. A Shoot
// without workers has fewer conditions; an absent condition means nothing.
func conditionsWith(o *shoot.Observed, status func(string) bool) []shoot.Condition {
	return slices.DeleteFunc(slices.Clone(o.Conditions), func(c shoot.Condition) bool { return !status(c.Status) })
}

// forceDeletable reports whether an error has one of the codes that allow a forced
// deletion. Gardener allows it because the leftover resources are not Gardener's fault.
func forceDeletable(errs []shoot.LastError) bool {
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
