package clusterworker

import (
	"encoding/json"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// ReportAdapter is the name of the cluster-worker in its reports.
const ReportAdapter = "gardener"

// maxReportMessage is the longest message of a report, in bytes. It is enough for Gardener's
// messages, and far below the limit of the fleet API.
const maxReportMessage = 4096

// BuildClusterReport returns the report on a cluster, given its row. hasReport is false while nothing was
// tried for the cluster, as there is no generation yet to report on. It is a pure
// function.
//
//   - Available is whether the Shoot is ready with the current spec of the cluster.
//     It is false while that spec could not be sent.
//   - Applied is whether Gardener has the current spec of the cluster.
//   - Health is whether nothing has failed. Errors that do not count against a row,
//     such as an outage of Gardener, are no failure.
//   - Finalized, for a cluster in deletion, is whether its Shoot is confirmed gone.
//
// Availability is never reported as unknown: the fleet API would not store that.
func BuildClusterReport(row Row, now time.Time) (report v1.Report, hasReport bool) {
	if row.ClusterGeneration < 1 {
		return v1.Report{}, false
	}
	if row.IsStatusOutdated() {
		markStatusOutdated(&row)
	}
	now = now.UTC()
	r := v1.Report{
		Adapter: ReportAdapter, ObservedGeneration: row.ClusterGeneration, ObservedTime: &now,
		Conditions: []v1.ReportCondition{buildAvailableCondition(&row), buildAppliedCondition(&row), buildHealthCondition(&row)},
		Data:       encodeShootDetails(&row),
	}
	if row.Deleting {
		r.Conditions = append(r.Conditions, buildFinalizedCondition(&row))
	}
	return r, true
}

func isShootDeleted(row *Row) bool {
	return row.Deleting && row.Status == v1.ShootDeleted
}

// isSpecApplied reports whether Gardener accepted the last tried spec. A spec that was
// accepted before counts even if sending it again, to repair a drift, failed.
func isSpecApplied(row *Row) bool {
	return row.SyncedGeneration > 0 && (row.SyncError == "" || row.SyncedGeneration == row.Generation)
}

func isShootReady(row *Row) bool {
	return row.Status == v1.ShootReady && !row.IsStatusOutdated() && isSpecApplied(row) && !row.Deleting
}

func newReportCondition(conditionType string, isTrue bool, reason, message string) v1.ReportCondition {
	c := v1.ReportCondition{Type: conditionType, Status: v1.ConditionFalse, Reason: reason, Message: sanitizeAndTruncateMessage(message)}
	if isTrue {
		c.Status = v1.ConditionTrue
	}
	return c
}

func buildAvailableCondition(row *Row) v1.ReportCondition {
	if !isSpecApplied(row) && !row.Deleting {
		return newReportCondition(v1.ConditionAvailable, false, "SyncFailed", "Gardener does not have the current cluster spec: "+row.SyncError)
	}
	reason, message := describeStatusCondition(row.Status)
	if row.StatusMessage != "" {
		message = row.StatusMessage
	}
	return newReportCondition(v1.ConditionAvailable, isShootReady(row), reason, message)
}

// describeStatusCondition returns the reason and message of a condition for a status.
func describeStatusCondition(status v1.ShootStatus) (reason, message string) {
	switch status {
	case v1.ShootPending:
		return "ShootPending", "The Shoot is not visible in Gardener yet"
	case v1.ShootProgressing:
		return "ShootProgressing", "Gardener is reconciling the cluster"
	case v1.ShootReady:
		return "ShootReady", "The cluster is fully operational"
	case v1.ShootError:
		return "ShootFailed", "Gardener failed to reconcile the cluster"
	case v1.ShootDeleting:
		return "ShootDeleting", "Gardener is deleting the cluster"
	case v1.ShootDeleted:
		return "ShootDeleted", "The cluster is deleted"
	}
	return "ShootUnknown", "The status of the Shoot is not known yet"
}

func buildAppliedCondition(row *Row) v1.ReportCondition {
	switch {
	case isShootDeleted(row):
		return newReportCondition(v1.ConditionApplied, false, "ShootDeleted", "The cluster is deleted")
	case isSpecApplied(row):
		return newReportCondition(v1.ConditionApplied, true, "Synced", "Gardener has the current cluster spec")
	case row.SyncError != "":
		return newReportCondition(v1.ConditionApplied, false, toConditionReason(row.ErrorClass), row.SyncError)
	}
	return newReportCondition(v1.ConditionApplied, false, "Syncing", "The cluster is being synced to Gardener")
}

func buildHealthCondition(row *Row) v1.ReportCondition {
	switch {
	case row.SyncError != "" && row.Attempts > 0:
		return newReportCondition(v1.ConditionHealth, false, toConditionReason(row.ErrorClass), row.SyncError)
	case row.Status == v1.ShootError:
		return newReportCondition(v1.ConditionHealth, false, "ShootFailed", row.StatusMessage)
	}
	return newReportCondition(v1.ConditionHealth, true, "NoErrors", "No errors")
}

func buildFinalizedCondition(row *Row) v1.ReportCondition {
	if isShootDeleted(row) {
		return newReportCondition(v1.ConditionFinalized, true, "ShootDeleted", "The deletion of the Shoot is confirmed")
	}
	return newReportCondition(v1.ConditionFinalized, false, "ShootExists", "The deletion of the Shoot is not confirmed yet")
}

// toConditionReason returns the condition reason for an error class, such as WaitingForApproval.
func toConditionReason(errorClass ErrorClass) string {
	if errorClass == "" {
		return "SyncFailed"
	}
	var b strings.Builder
	for word := range strings.SplitSeq(string(errorClass), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// encodeShootDetails returns the details that the conditions lack.
func encodeShootDetails(row *Row) json.RawMessage {
	if row.ShootName == "" {
		return nil
	}
	text, err := json.Marshal(struct {
		Name   string         `json:"shoot_name"`
		UID    string         `json:"shoot_uid,omitempty"`
		Status v1.ShootStatus `json:"shoot_status,omitempty"`
	}{row.ShootName, row.ShootUID, row.Status})
	if err != nil {
		return nil // strings can always be encoded
	}
	return text
}

// sanitizeAndTruncateMessage shortens a message that the fleet API would reject.
func sanitizeAndTruncateMessage(message string) string {
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", "")
	if len(message) <= maxReportMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxReportMessage], "") + "…"
}
