// Package timeline stores change events. They record the changes of the nodes and clusters of a
// fleet, with actor and reason, as sent by the components of the fleet and others.
//
// An event is accepted when it is durable, and stored once. A repeated event, from the same tenant,
// for the same cluster and source, with the same id, has no effect, whatever its content. Events
// are kept until they are older than the retention.
//
// There are two ways to read. A list goes from the newest event to the oldest, by the time of the change. A stream
// sends new events in the order of arrival, which differs because some events arrive late. A client that resumes a
// stream with the id of its last event misses none and receives none twice.
//
// Tenants see their own events. Events without a tenant come from the installation's components,
// for clusters that belong to no tenant; only principals who see all tenants see them.
package timeline

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// Errors of a store on which callers branch.
var (
	// ErrUnavailable means that the store is unreachable. The events of a failed append may still
	// have been stored, and may be appended again.
	ErrUnavailable = errors.New("timeline unavailable")
	// ErrStatementTimeout means that a statement of the store took too long. The same request may take as long again.
	ErrStatementTimeout = errors.New("statement timeout")
	// ErrCursorExpired means that a cursor is of another feed, or of the future: the database was
	// restored since the cursor was issued.
	ErrCursorExpired = errors.New("cursor expired")
)

// Names of details with a meaning in this package.
const (
	// DetailActor is the person who made the change or requested it.
	DetailActor = changeevent.DetailActor
	// DetailTenant is the tenant of the cluster. It counts if the sender is a component that serves all tenants.
	DetailTenant = "tenant"
)

// A Scope selects the tenants of a call. The zero value selects none.
type Scope struct {
	// Tenant limits the call to one tenant.
	Tenant string
	// All lifts the limit.
	All bool
}

// An Event is a change event to store.
type Event struct {
	// Key identifies the event; repeated events have the same key.
	Key uuid.UUID
	// Digest is the hash of the whole content.
	Digest uuid.UUID
	// At is the time of the change.
	At time.Time
	// Tenant is the owner of the event, "" for none.
	Tenant string
	// RecordedBy is the sender, by its token.
	RecordedBy string

	Facts

	// Payload is the complete event, a JSON object of changeevent.Payload.
	Payload json.RawMessage
}

// Facts are the properties by which events are selected.
type Facts struct {
	Cluster string
	Node    string
	Source  string
	Actor   string // the actor, else the source
	Action  string
	Subject string
	Session string
	Failed  bool
	DryRun  bool
	// Message is the summary and the reason, each on its line. Rows that a store returns do not
	// have it, because it is part of the payload.
	Message string
	// Fields are the paths of the changed fields and of the fields around them, without list positions.
	Fields []string
}

// A Row is a stored event.
type Row struct {
	// Arrival is the position of the event in the order of arrival.
	Arrival watch.Position
	// At and Seq are the position of the event in a list.
	At  time.Time
	Seq int64

	RecordedAt time.Time
	RecordedBy string
	Tenant     string

	Facts

	Payload json.RawMessage
}

// A Place is the position in a list after which the older events follow. The zero value is before the newest.
type Place struct {
	At  time.Time
	Seq int64
}

// A Query selects a page of a list, from the newest event.
type Query struct {
	Filter

	// NotBefore limits the list to the retention.
	NotBefore time.Time
	After     Place
	Limit     int
}

// An Outcome is the result of appending an event.
type Outcome int

// The outcomes.
const (
	// Stored means that the event was stored.
	Stored Outcome = iota
	// Known means that the event was already stored.
	Known
	// Different means that another event with the same key is stored, and this one is not.
	Different
)

// A Reader reads stored events.
type Reader interface {
	// List calls visit for the events of a page. The row and the data it points to are valid only
	// until visit returns; an error of visit ends the list and is returned. It returns the cursor
	// of a stream of the events that are not yet in the list.
	List(ctx context.Context, scope Scope, q Query, visit func(*Row) error) (watch.Cursor, error)

	// CountEventsInBuckets counts the events of a query by lane and time step.
	CountEventsInBuckets(ctx context.Context, scope Scope, q BucketQuery) (Buckets, error)

	// VisitEventsAfter calls visit for the settled events after a cursor, in the order of arrival, like
	// List. It returns the cursor to resume from, and whether there may be more. It returns
	// ErrCursorExpired, without a visit, for a cursor of another feed.
	VisitEventsAfter(
		ctx context.Context,
		scope Scope,
		cursor watch.Cursor,
		limit int,
		visit func(*Row) error,
	) (next watch.Cursor, hasMore bool, err error)

	// ReadLatestCursor returns the cursor after all events that are settled now.
	ReadLatestCursor(ctx context.Context) (watch.Cursor, error)
}

// A Store stores events.
type Store interface {
	Reader
	DeliveryStore

	// AppendEvents stores events, whose keys differ, and returns the outcome of each. They are durable when it returns.
	AppendEvents(ctx context.Context, scope Scope, events []Event) ([]Outcome, error)

	// FindUnknownClusters returns the names that no cluster in the scope has.
	FindUnknownClusters(ctx context.Context, scope Scope, names []string) ([]string, error)
}
