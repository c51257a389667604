package fleetapi

import (
	"context"
	"errors"

	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// ErrCursorExpired means that the changes after a cursor are not known. They are no longer retained, or the cursor
// belongs to another epoch or to the future. The follower has to list everything again.
var ErrCursorExpired = errors.New("cursor expired")

// A Change is a row that changed.
type Change struct {
	// At is the position of the row's last change among the changes that were read.
	At     watch.Position
	Key    Key
	Tenant string

	// Relabelled reports whether the labels changed, so that a selector may have matched the row before.
	Relabelled bool

	// Record is the current row, nil if it no longer exists. In a stepwise query it is also nil if
	// the row no longer belongs to the tenant. The current row may be later than the change.
	Record *Record
}

// A ChangeQuery selects changes.
type ChangeQuery struct {
	// Kind limits the changes to one kind; "" is all kinds.
	Kind string
	// After is the cursor after which the changes begin.
	After watch.Cursor
	// Limit is the maximum number of changes read.
	Limit int
	// Stepwise also visits a row at its last relabelling if it changed again after that. The caller
	// can then resume from every visited change, and not only from the end of the call; without it,
	// a caller that resumes between the two would miss the relabelling. A row that moved from one
	// tenant to another is visited for each of them.
	Stepwise bool
	// Expected skips the check whether there are changes. Set it after a notification of a change.
	Expected bool
}

// A Feed reads the changes of resources.
type Feed interface {
	// VisitChanges calls visit for the settled changes after a cursor, in order. Each row is visited once, in its
	// current state. The change and the data it points to are valid only until visit returns; an error of visit ends
	// the call and is returned. It returns the cursor to resume from, and whether the limit was reached, so that there
	// may be more; otherwise it has come to the horizon. It returns ErrCursorExpired, without a visit, if it does not
	// know all changes after the cursor.
	VisitChanges(ctx context.Context, scope Scope, q ChangeQuery, visit func(*Change) error) (next watch.Cursor, hasMore bool, err error)

	// ReadLatestCursor returns the cursor after all changes that are settled now. Later commits are after it.
	ReadLatestCursor(ctx context.Context) (watch.Cursor, error)

	// ReadFeedState returns the visible state of the changes of a kind, across all tenants.
	ReadFeedState(ctx context.Context, kind string) (watch.FeedState, error)
}
