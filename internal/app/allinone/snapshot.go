package allinone

import (
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// FleetSnapshot is the content of the view at one moment.
type FleetSnapshot struct {
	// Now and Started give the uptime, and Now the age of everything else.
	Now, Started time.Time

	// APIURL is the address of the fleet API.
	APIURL string

	// Groups are the kinds of resource, side by side in this order. Two fit.
	Groups []ResourceGroup

	// Shoots counts clusters by Shoot status, with "" for clusters that Gardener has not received.
	// Nil means that there is no Gardener.
	Shoots map[v1.ShootStatus]int

	// Published is the number of cloud events that the broker has confirmed.
	Published uint64

	// PerSecond is the rate of Published. A LiveView computes it.
	PerSecond float64

	// Recent holds the last cloud events, the newest first.
	Recent []PublishedEvent

	// Changes holds the latest change events, the newest first.
	Changes []RecentChange

	// Unready holds the resources that are not ready, the oldest first.
	Unready []UnreadyResource

	// Adapters holds the adapters in display order.
	Adapters []AdapterState

	// Hint is a command that lists examples. It may be empty.
	Hint string
	// Console is the URL of the web console, or empty.
	Console string

	// Notice is a one-line message for the user, such as an error. It may be empty.
	Notice string
}

// A ResourceGroup counts the resources of one kind.
type ResourceGroup struct {
	// Title is the plural for display.
	Title string

	// Phases counts the resources by phase.
	Phases map[v1.Phase]int
}

// PublishedEvent is one published event.
type PublishedEvent struct {
	Time     time.Time
	Resource string
	Reason   string
}

// RecentChange is one change event.
type RecentChange struct {
	Time    time.Time
	Summary string
	// Failed reports whether the change failed.
	Failed bool
}

// UnreadyResource is one resource that is not ready.
type UnreadyResource struct {
	Resource string
	Phase    v1.Phase
	// Since is the last time it was ready, or its creation time.
	Since time.Time
}

// AdapterState is the state of one adapter.
type AdapterState struct {
	Name   string
	Paused bool
	// Reports is the number of reports, and LastReport the time of the last one.
	Reports    uint64
	LastReport time.Time
}

func (g ResourceGroup) countResources() int {
	sum := 0
	for _, n := range g.Phases {
		sum += n
	}
	return sum
}
