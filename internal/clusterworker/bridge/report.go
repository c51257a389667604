package bridge

import (
	"encoding/json"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/clusterworker"
)

// Adapter is how the cluster-worker calls itself in its reports.
const Adapter = "gardener"

// maxMessage is how long a message of a report may be, in bytes: enough for
// whatever Gardener says, and far from what the fleet API refuses.
const maxMessage = 4096

// Report is what the fleet API is to hear of a cluster, as its row was read at
// some time. It is not ok while nothing was tried for the cluster: there is no
// generation yet to report on. It is pure.
//
//   - Available is whether the Shoot is ready, and what it is ready for is what
//     the cluster should be: not while that could not be sent.
//   - Applied is whether Gardener has the cluster as it should be.
//   - Health is whether nothing has failed. What is not held against a row, as
//     that Gardener was away, is no failure of it.
//   - Finalized, of a cluster that is to go, is whether its Shoot is confirmed to
//     be gone.
//
// A report never says of the availability that it is not known: the fleet API
// would not keep it.
func Report(row clusterworker.Row, now time.Time) (v1.Report, bool) {
	if row.ClusterGeneration < 1 {
		return v1.Report{}, false
	}
	now = now.UTC()
	r := v1.Report{
		Adapter: Adapter, ObservedGeneration: row.ClusterGeneration, ObservedTime: &now,
		Conditions: []v1.ReportCondition{available(&row), appliedTo(&row), healthCondition(&row)},
		Data:       reportData(&row),
	}
	if row.Deleting {
		r.Conditions = append(r.Conditions, finalized(&row))
	}
	return r, true
}

func isGone(row *clusterworker.Row) bool { return row.Deleting && row.Status == v1.ShootDeleted }

// isApplied is whether Gardener took what was last tried. What could not be sent
// again, because it was to be mended, was taken nevertheless.
func isApplied(row *clusterworker.Row) bool {
	return row.SyncedGeneration > 0 && (row.SyncError == "" || row.SyncedGeneration == row.Generation)
}

func isReady(row *clusterworker.Row) bool {
	return row.Status == v1.ShootReady && isApplied(row) && !row.Deleting
}

func condition(kind string, is bool, reason, message string) v1.ReportCondition {
	c := v1.ReportCondition{Type: kind, Status: v1.ConditionFalse, Reason: reason, Message: truncateMessage(message)}
	if is {
		c.Status = v1.ConditionTrue
	}
	return c
}

func available(row *clusterworker.Row) v1.ReportCondition {
	if !isApplied(row) && !row.Deleting {
		return condition(v1.ConditionAvailable, false, "SyncFailed", "Gardener does not have the current cluster spec: "+row.SyncError)
	}
	reason, message := conditionOf(row.Status)
	if row.StatusMessage != "" {
		message = row.StatusMessage
	}
	return condition(v1.ConditionAvailable, isReady(row), reason, message)
}

// conditionOf is a status in the words of a condition.
func conditionOf(status v1.ShootStatus) (reason, message string) {
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

func appliedTo(row *clusterworker.Row) v1.ReportCondition {
	switch {
	case isGone(row):
		return condition(v1.ConditionApplied, false, "ShootDeleted", "The cluster is deleted")
	case isApplied(row):
		return condition(v1.ConditionApplied, true, "Synced", "Gardener has the current cluster spec")
	case row.SyncError != "":
		return condition(v1.ConditionApplied, false, reasonOf(row.ErrorClass), row.SyncError)
	}
	return condition(v1.ConditionApplied, false, "Syncing", "The cluster is being synced to Gardener")
}

func healthCondition(row *clusterworker.Row) v1.ReportCondition {
	switch {
	case row.SyncError != "" && row.Attempts > 0:
		return condition(v1.ConditionHealth, false, reasonOf(row.ErrorClass), row.SyncError)
	case row.Status == v1.ShootError:
		return condition(v1.ConditionHealth, false, "ShootFailed", row.StatusMessage)
	}
	return condition(v1.ConditionHealth, true, "NoErrors", "No errors")
}

func finalized(row *clusterworker.Row) v1.ReportCondition {
	if isGone(row) {
		return condition(v1.ConditionFinalized, true, "ShootDeleted", "The deletion of the Shoot is confirmed")
	}
	return condition(v1.ConditionFinalized, false, "ShootExists", "The deletion of the Shoot is not confirmed yet")
}

// reasonOf spells a class as a condition's reason: WaitingForApproval.
func reasonOf(class clusterworker.ErrorClass) string {
	if class == "" {
		return "SyncFailed"
	}
	var b strings.Builder
	for word := range strings.SplitSeq(string(class), "_") {
		if word != "" {
			b.WriteString(strings.ToUpper(word[:1]) + word[1:])
		}
	}
	return b.String()
}

// reportData is what the conditions do not say.
func reportData(row *clusterworker.Row) json.RawMessage {
	if row.ShootName == "" {
		return nil
	}
	text, err := json.Marshal(struct {
		Name   string         `json:"shoot_name"`
		UID    string         `json:"shoot_uid,omitempty"`
		Status v1.ShootStatus `json:"shoot_status,omitempty"`
	}{row.ShootName, row.ShootUID, row.Status})
	if err != nil {
		return nil // strings can always be written
	}
	return text
}

// truncateMessage shortens what the fleet API would refuse.
func truncateMessage(message string) string {
	message = strings.ReplaceAll(strings.ToValidUTF8(message, "?"), "\x00", "")
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "") + "…"
}
