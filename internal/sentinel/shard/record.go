package shard

import (
	"errors"
	"time"
)

// Errors of rejected writes. Any other error leaves open whether the write took place.
var (
	// ErrConflict means that the record is not at the version of the write, or possibly
	// does not exist; nothing was changed.
	ErrConflict = errors.New("lease changed by another writer")

	// ErrGone means that the record no longer exists.
	ErrGone = errors.New("lease deleted")
)

// A State is the state of a member, as in its record.
type State string

// States of a member. Left and Lost are final for an epoch.
const (
	// Joining is a member that others know and that owns nothing yet.
	Joining State = "joining"

	// Active is a member that owns its share.
	Active State = "active"

	// Left is a member that has released everything and recorded so itself.
	Left State = "left"

	// Lost is a member whose lease expired, as another member detected and recorded.
	Lost State = "lost"
)

// Over reports whether a record in state s no longer belongs to a member.
func (s State) Over() bool { return s == Left || s == Lost }

// A Record is one member of a group. Only that member writes it, except for the one
// write that declares it lost.
type Record struct {
	// Name identifies the record, and is constant for the life of a process.
	Name string

	// Identity is the name of the member for people, such as the name of its pod.
	Identity string

	// Epoch counts how many times the member started anew, from 1. A statement about an
	// earlier epoch has no meaning for a later one.
	Epoch uint64

	State State

	// Includes are the members, by name, and their epochs, whose share this one does
	// not take. It includes them until they are over.
	Includes map[string]uint64

	// Duration is how long the record lasts without a renewal.
	Duration time.Duration

	// Since and Renewed are for people: the start of the epoch, and the member's last
	// write, by the member's clock.
	Since, Renewed time.Time

	// Version orders all writes of a group. Zero means that the record does not exist.
	// A write without a change may keep the version.
	Version uint64

	// Object distinguishes a record from earlier deleted ones of its name. The store
	// assigns it; every later write has to have it.
	Object string
}

// A LeaseChange is an update of the known records of a group. After it, all changes up to
// Version have been reported.
type LeaseChange struct {
	Version uint64

	// All is whether Records are all existing records.
	All bool

	Records []Record
	Gone    []string // names of deleted records
}
