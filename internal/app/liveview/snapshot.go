// Package liveview shows a fleet at work on a terminal, and repaints it in
// place.
//
// Render is a pure function of a Snapshot; a View calls it a few times a
// second and leaves the terminal as it found it, also when the program
// panics underneath it. State is always a symbol and a word, colour comes on
// top. Whatever else the process writes to the terminal meanwhile spoils the
// picture until the next repaint, so logs belong elsewhere.
package liveview

import (
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A Snapshot is what there is to show at one moment.
type Snapshot struct {
	// Now and Started give the uptime, and Now the age of all else.
	Now, Started time.Time

	// APIURL is where the fleet API answers.
	APIURL string

	// Groups are the kinds of resource, side by side in this order. Two fit.
	Groups []Group

	// Shoots are the numbers of clusters by how far Gardener is with them, those
	// under "" of which it has not heard. Nil is where there is no Gardener.
	Shoots map[v1.ShootStatus]int

	// Published is how many cloud events the broker has confirmed so far.
	Published uint64

	// PerSecond is the rate of Published. A View works it out.
	PerSecond float64

	// Recent are the last cloud events, the newest first.
	Recent []CloudEvent

	// Changes are the last that was done, as change events tell it, the newest
	// first.
	Changes []Change

	// Unready are resources that are not ready, the oldest first.
	Unready []Unready

	// Adapters are the adapters in the order shown.
	Adapters []Adapter

	// Hint is a command that shows what there is to try; it may be empty.
	Hint string

	// Notice is one line of what the user should know, as an error; it may
	// be empty.
	Notice string
}

// A Group counts the resources of one kind.
type Group struct {
	// Title is the plural as people write it.
	Title string

	// Phases are the numbers by phase.
	Phases map[v1.Phase]int
}

// A CloudEvent is one nudge that went out.
type CloudEvent struct {
	Time     time.Time
	Resource string
	Reason   string
}

// A Change is something that was done.
type Change struct {
	Time    time.Time
	Summary string
	// Failed tells whether it went wrong.
	Failed bool
}

// Unready is one resource that is not ready.
type Unready struct {
	Resource string
	Phase    v1.Phase
	// Since is when it last was, or when it was created.
	Since time.Time
}

// Adapter is the state of one adapter.
type Adapter struct {
	Name   string
	Paused bool
	// Reports is how many it has made, LastReport when it made the last.
	Reports    uint64
	LastReport time.Time
}

func (g Group) totalCount() int {
	sum := 0
	for _, n := range g.Phases {
		sum += n
	}
	return sum
}
