package fleetapi

import (
	"context"
	"errors"
	"fmt"

	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// A lockedTarget is a locked row. If the row is being deleted, parent is its locked parent, because the
// removal of the row may allow that of the parent.
type lockedTarget struct {
	*Locked

	parent *Locked
}

// parentFirstError means that a parent must be locked before its child.
type parentFirstError struct{ parentID string }

func (parentFirstError) Error() string { return "the parent is locked first" }

// A rowTarget names a row to lock.
type rowTarget struct {
	scope Scope
	kind  *kind
	id    string
	// checksSpec means that the change checks a spec. The schema is then read together with the row.
	checksSpec bool
}

// runWithRowLocked runs change with a row locked. It returns a problem if the row does not exist.
func (rs *resourceService) runWithRowLocked(
	ctx context.Context, row rowTarget, change func(context.Context, Tx, *lockedTarget) error,
) error {
	parentID := "" // of the parent to lock
	lockAndChange := func(ctx context.Context, tx Tx) error {
		if row.checksSpec {
			rs.schemas.queueSchemaRead(tx, row.kind.name)
		}
		target, err := lockRowAfterParent(ctx, tx, row.kind, row.id, parentID)
		if err != nil {
			return err
		}
		return change(ctx, tx, target)
	}
	err := rs.store.RunInTx(ctx, row.scope, lockAndChange)
	// Only the locked row shows whether its parent is needed, too. Then all begins again with the parent.
	if first, ok := errors.AsType[parentFirstError](err); ok {
		parentID = first.parentID
		err = rs.store.RunInTx(ctx, row.scope, lockAndChange)
	}
	switch {
	case errors.Is(err, ErrNotFound):
		return newNotFoundError(row.kind, row.id)
	case errors.Is(err, ErrShootExists):
		return &rest.Error{
			Code:  rest.CodeShootNotDeleted,
			Cause: err,
			Detail: fmt.Sprintf("%s %q cannot be removed until a cluster-worker has confirmed that its Shoot is deleted; "+
				"run a cluster-worker, or run 'cluster-worker unregister' if none will run any more", row.kind.name, row.id),
		}
	}
	return err
}

// lockRowAfterParent locks a row and, before it, its parent if an id is given. It returns a parentFirstError if
// the row needs its parent and none is given.
func lockRowAfterParent(ctx context.Context, tx Tx, k *kind, id, parentID string) (*lockedTarget, error) {
	var target lockedTarget
	var err error
	if parentID != "" {
		if target.parent, err = tx.LockAndReadResource(ctx, Key{k.parent.name, parentID}); err != nil {
			return nil, err
		}
	}
	if target.Locked, err = tx.LockAndReadResource(ctx, Key{k.name, id}); err != nil {
		return nil, err
	}
	isDeletedChild := target.Record.IsBeingDeleted() && target.Record.ParentID != ""
	if isDeletedChild && parentID == "" {
		return nil, parentFirstError{target.Record.ParentID}
	}
	return &target, nil
}

func newNotFoundError(k *kind, id string) error {
	return rest.NewError(rest.CodeNotFound, "no %s %q", k.name, id)
}
