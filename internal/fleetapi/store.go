package fleetapi

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/fleetapi/timeline"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// Errors of a store on which callers branch. Any other error is a failure of the store itself.
var (
	// ErrNotFound means that no such row is visible in the scope.
	ErrNotFound = errors.New("not found")
	// ErrNameTaken means that another row of the same tenant, kind and parent has the name. Rows
	// whose deletion was requested do not count.
	ErrNameTaken = errors.New("name taken")
	// ErrUnavailable means that the store is unreachable. The caller may retry; a change that
	// failed with this error may still have been committed.
	ErrUnavailable = errors.New("store unavailable")
	// ErrStatementTimeout means that a statement took too long. It is also that of the timeline's store.
	ErrStatementTimeout = timeline.ErrStatementTimeout
	// ErrRollback rolls back a transaction that would succeed.
	ErrRollback = errors.New("rolled back as requested")
)

// A Scope selects the rows that a call may read and change. The zero value sees nothing, so a
// missing scope gives an empty answer and not a leak.
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

// Content is what the owner of a resource gives.
type Content struct {
	Name        string
	DisplayName string
	// Labels is a JSON object of strings, `{}` when there are none.
	Labels json.RawMessage
	// Annotations is a JSON object of strings. Nil means none.
	Annotations json.RawMessage
	// Spec is kept byte for byte: it may hold numbers and strings that jsonb cannot.
	Spec json.RawMessage
}

// A Record is one resource as the store keeps it. JSON columns stay text, so that a page is served
// without decoding them. All times are UTC, in whole microseconds.
type Record struct {
	Key
	Content

	Tenant string
	// ParentID is the owner's id, "" for a top-level resource. The owner's kind follows from Kind.
	ParentID string

	Generation int64
	// Revision differs after every change of the row. The store assigns it.
	Revision    int64
	CreatedTime time.Time
	UpdatedTime time.Time
	// DeletedTime is the time of the deletion request, zero before it.
	DeletedTime time.Time

	CreatedBy string
	UpdatedBy string
	DeletedBy string

	Status Status
}

// IsBeingDeleted reports whether deletion was requested.
func (r *Record) IsBeingDeleted() bool { return !r.DeletedTime.IsZero() }

// sortValue returns the value of a column by which a list can be sorted.
func (r *Record) sortValue(column search.Field) search.Value {
	switch column { //nolint:exhaustive // the others are not sorted by
	case search.Name:
		return newTextValue(r.Name)
	case search.CreatedBy:
		return newTextValue(r.CreatedBy)
	case search.UpdatedBy:
		return newTextValue(r.UpdatedBy)
	case search.Generation:
		return search.Value{Type: search.Integer, Int: r.Generation}
	case search.Phase:
		return newTextValue(string(r.Status.Phase))
	case search.LastTransitionTime:
		return newTimeValue(r.Status.LastTransitionTime)
	case search.CreatedTime:
		return newTimeValue(r.CreatedTime)
	case search.UpdatedTime:
		return newTimeValue(r.UpdatedTime)
	case search.DeletedTime:
		if r.IsBeingDeleted() {
			return newTimeValue(r.DeletedTime)
		}
	case search.DeletedBy:
		if r.DeletedBy != "" {
			return newTextValue(r.DeletedBy)
		}
	case search.OwnerID:
		if r.ParentID != "" {
			return newTextValue(r.ParentID)
		}
	}
	return search.Value{Type: search.Absent}
}

func newTextValue(text string) search.Value { return search.Value{Type: search.Text, Text: text} }

func newTimeValue(at time.Time) search.Value { return search.Value{Type: search.Time, Time: at} }

// Status is the aggregated status as the store keeps it.
type Status struct {
	Phase              v1.Phase
	ObservedGeneration int64
	LastUpdatedTime    time.Time
	LastTransitionTime time.Time
	// Conditions is a JSON array of v1.Condition, `[]` when there are none.
	Conditions json.RawMessage

	// ShootStatus, ShootMessage and SyncError belong to the cluster's sync and not to the row. They
	// are read with the row and never saved.
	ShootStatus  v1.ShootStatus
	ShootMessage string
	SyncError    string
}

// A Locked is a locked row. All of its data was read after the lock was acquired: a snapshot from
// before the wait would miss the changes of the previous holder.
type Locked struct {
	Record Record

	// Reports are the last reports of all adapters, by adapter name. Data
	// and Metadata are left out.
	Reports []v1.AdapterStatus

	// Children is the number of rows that name this one as their parent, including those being deleted.
	Children int

	// Shoot is the recorded state of a cluster's Shoot.
	Shoot ShootState

	// Now is the time of the store's clock after the lock was acquired. The times written by
	// successive writers of a row are therefore in order.
	Now time.Time
}

// A Query selects one page of a kind. The order is total: the id breaks ties, in the direction of the last term.
type Query struct {
	Kind     string
	ParentID string // "" is any parent
	// IDs restricts the query to the rows with these ids. Nil means all rows, and empty means none.
	IDs []string

	Labels selector.Selector
	Search search.Expr // nil selects everything

	// Order holds the terms to sort by, the most significant first. If empty, rows are sorted by
	// ascending id, which is the order of creation.
	Order []Order
	// After is the position of the row after which the page begins. The zero value starts at the beginning.
	After Position
	// Offset is the number of rows skipped, counted from After.
	Offset int64
	Limit  int

	// Count requests the number of all matches, regardless of After, Offset and Limit.
	Count bool
}

// OrderTermsWithID returns the terms of the order followed by the id, which makes the order total.
func (q *Query) OrderTermsWithID() []Order {
	n := len(q.Order)
	switch {
	case n == 0:
		return []Order{{Column: search.ID}}
	case q.Order[n-1].Column == search.ID:
		return q.Order
	}
	return append(slices.Clone(q.Order), Order{Column: search.ID, Desc: q.Order[n-1].Desc})
}

// An Order sorts by one column. Rows without a value come last, and first in descending order.
type Order struct {
	// Column is a column that search.FindSortableField returns.
	Column search.Field
	Desc   bool
}

// A Position is the place of a row in an order: its value for each term, and its id. The zero value
// comes before every row.
type Position struct {
	// Values holds one value for each term except the id. Its types are those of the terms' columns, or search.Absent.
	Values []search.Value
	ID     string
}

// A Page describes the snapshot from which a page was read.
type Page struct {
	// Count is the number of matching rows, if the query requests it.
	Count int64
	// State is the visible state of the kind's changes. It is of the same snapshot as the count and the rows.
	State watch.FeedState
}

// A Reader reads resources and the reports on them.
type Reader interface {
	// Get returns one row. It returns ErrNotFound if the row does not exist.
	Get(ctx context.Context, scope Scope, key Key) (Record, error)

	// List calls visit for the rows of a page, in order. The record and the data it points to are
	// valid only until visit returns; an error of visit ends the list and is returned with the page.
	List(ctx context.Context, scope Scope, q Query, visit func(*Record) error) (Page, error)

	// ListReports returns all reports on one row, ordered by adapter. It returns ErrNotFound if the row does not exist.
	ListReports(ctx context.Context, scope Scope, key Key) ([]v1.AdapterStatus, error)
}

// A History has the changes of resources.
type History interface {
	Feed
	Revisions
}

// An Overview has the sync states of clusters, and the counts of everything.
type Overview interface {
	Syncs
	Rollups
}

// A Store keeps resources and the adapters' reports on them. It also reads their changes and the
// sync state of clusters. Every method answers within the scope as if other rows did not exist.
type Store interface {
	Reader
	History
	Overview
	Schemas

	// RunInTx runs change in one transaction and commits if it returns nil. If it returns ErrRollback, RunInTx runs
	// what the commit would run, and rolls back. A transaction that the database aborts (serialization, deadlock) is run
	// again from the start, so change must keep no state between runs.
	RunInTx(ctx context.Context, scope Scope, change func(ctx context.Context, tx Tx) error) error
}

// A Tx is a transaction that changes rows. Locks are taken from parent to child, never the other way round. Writes may
// run, and fail, with the next call or the commit.
type Tx interface {
	RowLocker

	// ReadBeginTime returns the time of the store's clock when the transaction began.
	ReadBeginTime(ctx context.Context) (time.Time, error)

	// InsertAndRecordResource adds a row and sets its revision in r. It returns ErrNameTaken if its name is in use.
	InsertAndRecordResource(ctx context.Context, record *Record) error

	// SaveLockedResource writes the mutable parts of a locked row: display name, labels, spec, generation, times,
	// authors and status. A report that is not nil replaces that adapter's last one. The commit sets the new revision
	// in r. A new generation of a cluster or a node pool is kept; see VisitRevisions. The saved status counts as
	// including the sync state at the time of the lock.
	SaveLockedResource(ctx context.Context, record *Record, newReport *v1.AdapterStatus) error

	// DeleteAndRecordResource permanently deletes a locked row and its reports. The row has no children. It returns
	// ErrShootExists if the database keeps the row because of its Shoot.
	DeleteAndRecordResource(ctx context.Context, key Key) error
}

// A RowLocker locks rows. Other transactions cannot lock them until this one ends.
type RowLocker interface {
	// LockAndReadResource locks and returns one row. It returns ErrNotFound if the row does not exist.
	LockAndReadResource(ctx context.Context, key Key) (locked *Locked, err error)

	// LockAndReadChildren locks all rows whose parent is given, ordered by id. Their kinds may differ.
	LockAndReadChildren(ctx context.Context, parent Key) (children []Locked, err error)
}
