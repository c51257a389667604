package fleetapi

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// gardenerCode is the form of the codes of Gardener's errors.
var gardenerCode = regexp.MustCompile(`\bERR_[A-Z_]+\b`)

// DecideStuckCause returns what holds a resource up: a pause, a failing sync, a required adapter, or
// a sync that waits. The first that applies decides.
func DecideStuckCause(row *StuckRow, requiredAdapters []string) v1.StuckCause {
	sync := row.Sync
	unsynced := sync != nil && sync.Synced == nil
	unready := row.Phase != v1.PhaseReady
	switch {
	case unsynced && sync.Pause != nil:
		return v1.StuckCause{Type: v1.StuckOnPause, Message: describePause(sync.Pause)}
	case unsynced && sync.Error != "":
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: findGardenerErrorCode(sync.Error, sync.ErrorClass), Message: sync.Error}
	case unready && sync != nil && sync.ShootStatus == v1.ShootError:
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: findGardenerErrorCode(sync.ShootStatusMessage, ""), Message: sync.ShootStatusMessage}
	}
	if unready {
		if cause, ok := findAdapterCause(row, requiredAdapters); ok {
			return cause
		}
	}
	switch {
	case unsynced && sync.Waiting != nil:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "Gardener does not answer: " + sync.Waiting.Reason}
	case unsynced && sync.State == v1.SyncRunning:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "a cluster-worker is syncing it"}
	case unsynced:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "it waits for a cluster-worker"}
	case row.Deleting:
		return v1.StuckCause{Type: v1.StuckOnChildren, Message: "waiting for the deletion of its node pools"}
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Message: "all required adapters have reported; the next report computes the status again"}
}

func describePause(pause *v1.SyncPause) string {
	text := "paused"
	if pause.By != "" {
		text += " by " + pause.By
	}
	if pause.Reason != "" {
		text += " (" + pause.Reason + ")"
	}
	text += " since " + pause.Since.UTC().Format(time.RFC3339)
	if pause.Until != nil {
		text += " until " + pause.Until.UTC().Format(time.RFC3339)
	}
	return text
}

func findGardenerErrorCode(message, fallback string) string {
	if code := gardenerCode.FindString(message); code != "" {
		return code
	}
	return fallback
}

// findAdapterCause returns the required adapter that holds a resource up: one that reported a failure of
// the current generation before one that has not reported it.
func findAdapterCause(row *StuckRow, requiredAdapters []string) (cause v1.StuckCause, found bool) {
	facts := StatusFacts{Generation: row.Generation, Deleting: row.Deleting, Required: requiredAdapters, Reports: row.Reports}
	reports := facts.findRequiredReports()
	anyReported := false
	for i, report := range reports {
		if report == nil {
			continue
		}
		anyReported = true
		condition, failed := FindFailedCondition(report.Conditions)
		matters := !row.Deleting || condition.Type == v1.ConditionHealth // nothing is available while it is deleted
		if facts.hasCurrentGeneration(report) && failed && matters {
			return newAdapterCause(requiredAdapters[i], condition, "it reported "+condition.Type+" as False"), true
		}
	}
	if !anyReported && len(requiredAdapters) > 0 {
		message := "none of the required adapters has reported: " + strings.Join(requiredAdapters, ", ")
		return v1.StuckCause{Type: v1.StuckOnNoReport, Adapter: requiredAdapters[0], Message: message}, true
	}
	goal := facts.goalConditionType()
	for i, report := range reports {
		switch {
		case report == nil:
			return newAdapterCause(requiredAdapters[i], v1.AdapterCondition{}, "it has not reported yet"), true
		case !facts.hasCurrentGeneration(report):
			return newAdapterCause(requiredAdapters[i], v1.AdapterCondition{}, fmt.Sprintf(
				"it has not reported generation %d; its last report is of generation %d", row.Generation, report.ObservedGeneration)), true
		case !facts.isTrueAtCurrentGeneration(report, goal):
			return newAdapterCause(requiredAdapters[i], findAdapterCondition(report, goal), "it has not reported "+goal+" as True"), true
		}
	}
	return v1.StuckCause{}, false
}

// newAdapterCause returns a cause with the reason and the message of a condition. The fallback replaces a missing message.
func newAdapterCause(adapter string, condition v1.AdapterCondition, fallback string) v1.StuckCause {
	return v1.StuckCause{
		Type: v1.StuckOnAdapter, Adapter: adapter, Reason: condition.Reason, Message: cmp.Or(condition.Message, fallback),
	}
}
