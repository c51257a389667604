// Package timeline keeps change events: what was done to the nodes and clusters
// of a fleet, by whom and why, as the components of the fleet and others tell it.
//
// An event is taken when it is durable, and kept once: told again, by the same
// tenant, of the same cluster and source, with the same id, it changes nothing,
// whatever it says then. It stays until it is older than the retention.
//
// There are two ways to read. A list goes from the newest event to the oldest, by
// when things were done. A stream tells what comes, in the order in which it
// comes, which is another one: some events are told late. Whoever comes back to a
// stream with the id of the last event that it saw misses none and sees none
// twice.
//
// Tenants see their own events. Events of no tenant, which the installation's own
// components tell of clusters that are nobody's, are for those who see all.
package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
)

// Errors of a store that its callers branch on.
var (
	// ErrUnavailable means that the store cannot be reached just now. What was to
	// be appended may be there all the same, and may be appended again.
	ErrUnavailable = errors.New("timeline unavailable")
	// ErrCursorExpired means that a cursor is of another feed, or of the future:
	// the database was restored since it was given.
	ErrCursorExpired = errors.New("cursor expired")
)

// The names of details that mean something here.
const (
	// DetailActor is the person who did it, or had it done.
	DetailActor = changeevent.DetailActor
	// DetailTenant is the tenant whose cluster it was done to. It counts if a
	// component tells it that serves all tenants.
	DetailTenant = "tenant"
)

// A Scope says whose events a call is about. The zero value is about nobody's.
type Scope struct {
	// Tenant limits the call to one tenant.
	Tenant string
	// All lifts the limit.
	All bool
}

// An Event is a change event to be kept.
type Event struct {
	// Key is the same for the same event told again.
	Key uuid.UUID
	// Digest is that of all that it says.
	Digest uuid.UUID
	// At is when it was done.
	At time.Time
	// Tenant is whose it is, "" if nobody's.
	Tenant string
	// RecordedBy is who told it, as its token says.
	RecordedBy string

	Facts

	// Payload is all of it, a JSON object of changeevent.Payload.
	Payload json.RawMessage
}

// Facts are what events are selected by.
type Facts struct {
	Cluster string
	Node    string
	Source  string
	Actor   string // who did it, else the source
	Action  string
	Subject string
	Session string
	// Fields are the paths of the fields that were changed, and of what those are
	// within, without positions in lists.
	Fields []string
}

// A Row is an event that is kept.
type Row struct {
	// Arrival is where it stands among all that came.
	Arrival feed.Position
	// At and Seq are where it stands in a list.
	At  time.Time
	Seq int64

	RecordedAt time.Time
	RecordedBy string
	Tenant     string

	Facts

	Payload json.RawMessage
}

// A Place is where a list goes on: behind it, with what is older. The zero value
// is before the newest.
type Place struct {
	At  time.Time
	Seq int64
}

// A Query asks for a page of a list, from the newest.
type Query struct {
	Filter

	// NotBefore bounds the list by the retention.
	NotBefore time.Time
	After     Place
	Limit     int
}

// An Outcome is what became of an event that was to be appended.
type Outcome int

// The outcomes.
const (
	// Stored means that it is kept now.
	Stored Outcome = iota
	// Known means that it was kept already.
	Known
	// Different means that another event of the same key is kept, and this one is not.
	Different
)

// A Store keeps events.
type Store interface {
	// Append keeps events, whose keys differ, and says what became of each. They
	// are durable when it returns.
	Append(ctx context.Context, scope Scope, events []Event) ([]Outcome, error)

	// UnknownClusters are those of some names that no cluster in the scope has.
	UnknownClusters(ctx context.Context, scope Scope, names []string) ([]string, error)

	// List calls visit for the events of a page. The row and what it points to are
	// valid only until visit returns; an error of visit ends the list and is
	// returned. It returns where a stream begins that tells what is not in the
	// list yet.
	List(ctx context.Context, scope Scope, q Query, visit func(*Row) error) (feed.Cursor, error)

	// Changes calls visit for the settled events behind a cursor, in the order in
	// which they came, as List does. It returns where to go on, and whether there
	// may be more. It returns ErrCursorExpired, without a visit, for a cursor of
	// another feed.
	Changes(ctx context.Context, scope Scope, after feed.Cursor, limit int, visit func(*Row) error) (next feed.Cursor, more bool, err error)

	// Horizon is the place behind all events that are settled by now.
	Horizon(ctx context.Context) (feed.Cursor, error)
}
