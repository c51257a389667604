package fleetapi

import (
	"context"
	"errors"

	"github.com/fleetloop/fleetloop/internal/fleetapi/feed"
)

// ErrCursorExpired means that the changes behind a cursor are not known: they
// are kept no longer, or the cursor is of another epoch, or from the future.
// Who followed it has to list everything anew.
var ErrCursorExpired = errors.New("cursor expired")

// A Change is a row that changed.
type Change struct {
	// At is where the last of its changes stands among those that were read.
	At     feed.Position
	Key    Key
	Tenant string

	// Relabelled says that the labels changed, so that a selector may have
	// matched the row before.
	Relabelled bool

	// Record is the row as it is now, nil if it is gone; stepwise, also if it is
	// not the tenant's any more. Now may be later than the change.
	Record *Record
}

// A ChangeQuery asks for changes.
type ChangeQuery struct {
	// Kind limits the changes to one kind; "" is all kinds.
	Kind string
	// After is where to begin: behind it.
	After feed.Cursor
	// Limit bounds how many changes are read.
	Limit int
	// Stepwise also visits a row where it was relabelled last, if it changed
	// again behind that. Every change that was visited is then a place to go on
	// from, and not only where the call ended: without it, who goes on from
	// between the two would not be told that the row was relabelled. And a row
	// that moved from one tenant to another is visited for each of them.
	Stepwise bool
}

// A Feed tells what changed.
type Feed interface {
	// Changes calls visit for the settled changes behind a cursor, in order,
	// each row once and as it is now. The change and what it points to are
	// valid only until visit returns; an error of visit ends the call and is
	// returned. It returns where to go on, and whether the limit was reached, so that
	// there may be more. Otherwise it has come to the horizon. It returns ErrCursorExpired,
	// without a visit, if it does not know all that is behind the cursor.
	Changes(ctx context.Context, scope Scope, q ChangeQuery, visit func(*Change) error) (next feed.Cursor, more bool, err error)

	// Horizon is the place behind all changes that are settled by now. What
	// is committed later is behind it.
	Horizon(ctx context.Context) (feed.Cursor, error)

	// State is what is visible just now of the changes of a kind, whoever's
	// they are.
	State(ctx context.Context, kind string) (feed.State, error)
}
