package fleetapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// Errors of a store that its callers branch on. Any other error is a failure
// of the store itself.
var (
	// ErrNotFound means that no such row is visible in the scope.
	ErrNotFound = errors.New("not found")
	// ErrNameTaken means that a row of the same tenant, kind and parent, whose
	// deletion was not asked for, already bears the name.
	ErrNameTaken = errors.New("name taken")
	// ErrUnavailable means that the store cannot be reached just now. What was
	// asked may be asked again; a change that fails so may yet have happened.
	ErrUnavailable = errors.New("store unavailable")
)

// A Scope says whose rows a call may see and touch. The zero value sees
// nothing, so that a forgotten scope is an empty answer and not a leak.
type Scope struct {
	// Tenant limits the call to the rows of one tenant.
	Tenant string
	// All lifts the limit, for callers that serve every tenant.
	All bool
}

// A Key names one row.
type Key struct {
	Kind string
	ID   string
}

// A Record is one resource as the store keeps it. JSON columns stay text, so
// that a page is served without being decoded. All times are UTC and whole
// microseconds.
type Record struct {
	Key

	Tenant      string
	Name        string
	DisplayName string
	// ParentID is the owner's id, "" for a top-level resource. The owner's
	// kind follows from Kind.
	ParentID string

	// Labels is a JSON object of strings, `{}` when there are none.
	Labels json.RawMessage
	// Spec is kept byte for byte: it may hold numbers and strings that
	// jsonb cannot.
	Spec json.RawMessage

	Generation int64
	// Revision is another one after every change of the row. The store gives it.
	Revision    int64
	CreatedTime time.Time
	UpdatedTime time.Time
	// DeletedTime is zero until deletion is asked for.
	DeletedTime time.Time

	CreatedBy string
	UpdatedBy string
	DeletedBy string

	Status Status
}

// Deleting reports whether deletion was asked for.
func (r *Record) Deleting() bool { return !r.DeletedTime.IsZero() }

// Status is the aggregated status as the store keeps it.
type Status struct {
	Phase              v1.Phase
	ObservedGeneration int64
	LastUpdatedTime    time.Time
	LastTransitionTime time.Time
	// Conditions is a JSON array of v1.Condition, `[]` when there are none.
	Conditions json.RawMessage

	// ShootStatus, ShootMessage and SyncError are of the cluster's sync and not
	// of the row itself: they are read with it and never saved.
	ShootStatus  v1.ShootStatus
	ShootMessage string
	SyncError    string
}

// A Locked is a row under its lock. All of it is what was committed when the
// lock was held: a snapshot from before the wait for the lock would miss what
// the one before us did.
type Locked struct {
	Record Record

	// Reports are the last reports of all adapters, by adapter name. Data
	// and Metadata are left out.
	Reports []v1.AdapterStatus

	// Children counts the rows that name this one as their parent, those
	// being deleted included.
	Children int

	// Shoot is what is known of a cluster's Shoot.
	Shoot ShootState

	// Now is the store's clock, read after the lock was held, so that what
	// two writers of one row write is never out of order.
	Now time.Time
}

// A Query selects one page of a kind. The order is total: the id, in the
// direction of the last term of the order, breaks ties.
type Query struct {
	Kind     string
	ParentID string // "" is any parent
	// IDs are the rows that are wanted. Nil is any, and empty is none.
	IDs []string

	Labels selector.Selector
	Search search.Expr // nil selects everything

	// Order are the terms to sort by, the first of which counts most. None is by
	// id, ascending, which is the order of creation.
	Order []Order
	// After starts the page behind a row; the zero value starts at the
	// beginning.
	After Position
	// Offset skips rows, counted from After.
	Offset int64
	Limit  int

	// Count asks for the number of all matches, whatever After, Offset and
	// Limit say.
	Count bool
}

// Terms are the terms of the order with the id behind them, which makes it total.
func (q *Query) Terms() []Order {
	n := len(q.Order)
	switch {
	case n == 0:
		return []Order{{Column: search.ID}}
	case q.Order[n-1].Column == search.ID:
		return q.Order
	}
	return append(slices.Clone(q.Order), Order{Column: search.ID, Desc: q.Order[n-1].Desc})
}

// An Order sorts by one column. Rows that do not have it stand behind the
// others, and before them in descending order.
type Order struct {
	// Column is one that search.Sortable gives.
	Column search.Field
	Desc   bool
}

// A Position is where a row stands in an order: its value for each term and its
// id. The zero value stands before every row.
type Position struct {
	// Values are of the types of the terms' columns, or search.Absent. There is
	// one for each term but the id.
	Values []search.Value
	ID     string
}

// A Page says what a page was read from.
type Page struct {
	// Count is how many rows match, if the query asks for it.
	Count int64
	// State is what was visible of the kind's changes. It, the count and the
	// rows are one snapshot.
	State feed.State
}

// A Reader reads resources and the reports on them.
type Reader interface {
	// Get reads one row. It returns ErrNotFound if there is none.
	Get(ctx context.Context, scope Scope, key Key) (Record, error)

	// List calls visit for the rows of a page, in order. The record and what
	// it points to are valid only until visit returns; an error of visit ends
	// the list and is returned.
	List(ctx context.Context, scope Scope, q Query, visit func(*Record) error) (Page, error)

	// Reports reads all reports on one row, ordered by adapter. It returns
	// ErrNotFound if there is no such row.
	Reports(ctx context.Context, scope Scope, key Key) ([]v1.AdapterStatus, error)
}

// A Store keeps resources and the adapters' reports on them, and tells what
// changed and how the sync of clusters stands. Every method answers within the
// scope as if other rows did not exist.
type Store interface {
	Reader
	Feed
	Syncs
	Schemas

	// Update runs change in one transaction and commits if it returns nil.
	// now is the store's clock when the transaction began. A transaction that
	// the database gave up for reasons of its own (serialization, deadlock)
	// is run again from the start, so change must hold no state of its own.
	Update(ctx context.Context, scope Scope, change func(ctx context.Context, tx Tx, now time.Time) error) error
}

// A Tx is a transaction in which rows change. Locks are taken from parent to
// child, never the other way round.
type Tx interface {
	// Insert adds a row and notes its revision in r. It returns ErrNameTaken if
	// its name is in use.
	Insert(ctx context.Context, r *Record) error

	// Lock reads one row for changing it; nobody else locks it until the
	// transaction ends. It returns ErrNotFound if there is none.
	Lock(ctx context.Context, key Key) (*Locked, error)

	// LockChildren locks all rows whose parent is key, ordered by id. Their
	// kinds may differ.
	LockChildren(ctx context.Context, key Key) ([]Locked, error)

	// Save writes what may change of a locked row: display name, labels,
	// spec, generation, times, authors and status. A report that is not nil
	// replaces that adapter's last one. The new revision is noted in r. The status
	// counts as including the sync as it was when the row was locked.
	Save(ctx context.Context, r *Record, report *v1.AdapterStatus) error

	// Remove deletes a locked row and its reports for good. The row has no
	// children. It returns ErrShootExists if the database keeps the row for the sake
	// of its Shoot.
	Remove(ctx context.Context, key Key) error
}
