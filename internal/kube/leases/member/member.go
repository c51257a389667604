// Package member is what members of a group say of themselves in Leases, and
// what others are told of it. It is the language between those who divide
// something among replicas and package leases, which keeps it in Kubernetes.
package member

import (
	"errors"
	"time"
)

// What becomes of a write that is refused. Any other error leaves open whether
// it took place.
var (
	// ErrConflict says that the record is not at the version that the write
	// was for, or perhaps that there is none; nothing was changed.
	ErrConflict = errors.New("lease changed by another writer")

	// ErrGone says that there is no such record any more.
	ErrGone = errors.New("lease deleted")
)

// A State is what a member does, as it stands in its record.
type State string

// The states. Left and Lost are final for an epoch.
const (
	// Joining: others know of it, it owns nothing yet.
	Joining State = "joining"

	// Active: it owns its share.
	Active State = "active"

	// Left: it has let go of everything and says so itself.
	Left State = "left"

	// Lost: another member found that its time has run out, and wrote so.
	Lost State = "lost"
)

// Over reports whether a record of state s belongs to nobody any more.
func (s State) Over() bool { return s == Left || s == Lost }

// A Record is one member of a group. Only its own member writes it, but for
// the one write that declares it lost.
type Record struct {
	// Name is the record's own, and the same for as long as a process lives.
	Name string

	// Identity is how people call the member, such as the name of its pod.
	Identity string

	// Epoch counts how often the member began anew, from 1. What was said of
	// an earlier epoch says nothing of a later one.
	Epoch uint64

	State State

	// Includes are the members, by name, and their epochs, that this one
	// leaves their share to. It goes on to do so until they are over.
	Includes map[string]uint64

	// Duration is how long the record lives without a change.
	Duration time.Duration

	// Since and Renewed are for people: when the epoch began, and the last
	// write of its member, by that one's clock.
	Since, Renewed time.Time

	// Version orders all writes of a group. Zero is that of a record that is
	// not there. A write that changes nothing may leave it as it is.
	Version uint64

	// Object tells a record from others of its name that were deleted before.
	// The store gives it; every later write has to name it.
	Object string
}

// A Change is a step in what is known of a group: after it, everything up to
// Version has been told.
type Change struct {
	Version uint64

	// All says that Records are all that there are.
	All bool

	Records []Record
	Gone    []string // names of records that were deleted
}
