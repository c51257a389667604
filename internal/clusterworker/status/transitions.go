package status

import (
	"slices"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// None is the status of a cluster whose Shoot has not been asked for yet.
const None v1.ShootStatus = ""

// Statuses are all statuses, None among them, in the order of a cluster's
// life.
func Statuses() []v1.ShootStatus {
	return []v1.ShootStatus{None, v1.ShootPending, v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
}

// Next are the statuses that may follow one. What is between two looks is
// not seen, so most may; but nothing is pending that was seen, and nothing
// follows the end.
func Next(from v1.ShootStatus) []v1.ShootStatus {
	seen := []v1.ShootStatus{v1.ShootProgressing, v1.ShootReady, v1.ShootError, v1.ShootDeleting, v1.ShootDeleted}
	switch from {
	case None:
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

// MayFollow reports whether a status may become another one, or stay.
func MayFollow(from, to v1.ShootStatus) bool { return from == to || slices.Contains(Next(from), to) }
