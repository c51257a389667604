package poller

import (
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// StatusNone is the status of a cluster whose Shoot was not requested yet.
const StatusNone v1.ShootStatus = ""

// ListShootStatuses returns all statuses including StatusNone, in the order of a cluster's
// life.
func ListShootStatuses() []v1.ShootStatus {
	return []v1.ShootStatus{StatusNone, v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
}

// ListNextStatuses returns the statuses that may follow a status; docs/states draws them.
// Most may, as changes between two observations go unseen. But a Shoot that was seen is
// never pending again, and no status follows the deletion.
func ListNextStatuses(from v1.ShootStatus) []v1.ShootStatus {
	seen := []v1.ShootStatus{v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
	switch from {
	case StatusNone:
		return append([]v1.ShootStatus{v1.ShootPending}, seen...)
	case v1.ShootPending:
		return seen
	case v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting:
		return slices.DeleteFunc(seen, func(s v1.ShootStatus) bool { return s == from })
	case v1.ShootDeleted:
		return nil
	}
	return nil
}

// IsAllowedStatusChange reports whether a status may change to another one, or stay.
func IsAllowedStatusChange(from, to v1.ShootStatus) bool {
	return from == to || slices.Contains(ListNextStatuses(from), to)
}
