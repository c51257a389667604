package fleetapi

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// maxReason is the maximum length of the reason of a change in characters.
const maxReason = 1024

// syncActionRoutes serve an action on syncs. It is open to callers who may change the cluster, and to the role system,
// which drives the fleet: the cluster itself does not change.
type syncActionRoutes struct {
	syncRoutes

	action SyncAction
}

func (sa syncActionRoutes) handleForOne(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.Verb(sa.action))
	if err != nil {
		return err
	}
	id, err := parseResourceID(sa.kind, r.PathValue("id"))
	if err != nil {
		return err
	}
	var req v1.SyncControl
	if r.ContentLength != 0 { // the body may be left out
		if e := rest.DecodeJSONBody(w, r, sa.api.maxBody, &req); e != nil {
			return e
		}
	}
	change, err := newValidatedSyncChange(sa.action, principal, req, time.Now())
	if err != nil {
		return err
	}
	sync, _, err := sa.applySyncAction(r.Context(), by.scope, id, change)
	if err != nil {
		return err
	}
	return rest.WriteJSONValue(w, http.StatusOK, sync)
}

// handleForIDs applies the action to several syncs, each in its own transaction.
func (sa syncActionRoutes) handleForIDs(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.Verb(sa.action))
	if err != nil {
		return err
	}
	var req v1.BulkSyncControl
	if e := rest.DecodeJSONBody(w, r, sa.api.maxBody, &req); e != nil {
		return e
	}
	change, err := newValidatedSyncChange(sa.action, principal, req.SyncControl, time.Now())
	if err != nil {
		return err
	}
	switch n := len(req.IDs); {
	case n == 0:
		return rest.NewFieldsError([]v1.FieldError{{Field: "ids", Constraint: "min", Message: "must have at least one id"}})
	case n > v1.MaxBulkSyncs:
		return rest.NewFieldsError([]v1.FieldError{{Field: "ids", Constraint: "max", Message: "must have at most 500 ids", Value: n}})
	}
	result, err := sa.applySyncActions(r.Context(), by.scope, req.IDs, change)
	if err != nil {
		return err
	}
	return rest.WriteJSONValue(w, http.StatusOK, result)
}

func newValidatedSyncChange(action SyncAction, principal auth.Principal, req v1.SyncControl, now time.Time) (SyncChange, error) {
	c := SyncChange{Action: action, By: principal.Actor(), Reason: strings.TrimSpace(req.Reason)}
	var errs []v1.FieldError
	if utf8.RuneCountInString(c.Reason) > maxReason || strings.ContainsRune(c.Reason, 0) {
		errs = append(errs, v1.FieldError{Field: "reason", Constraint: "max_length", Message: "must be at most 1024 characters without NUL"})
	}
	if req.Until != nil {
		c.Until = req.Until.UTC().Truncate(time.Microsecond)
		switch {
		case action != SyncPause:
			errs = append(errs, v1.FieldError{Field: "until", Constraint: "format", Message: "is only for a pause"})
		case !c.Until.After(now) || c.Until.Year() > 9999:
			errs = append(errs, v1.FieldError{Field: "until", Constraint: "min", Message: "must be in the future", Value: req.Until})
		}
	}
	if len(errs) > 0 {
		return SyncChange{}, rest.NewFieldsError(errs)
	}
	return c, nil
}

// applySyncAction applies a change to one sync. An error is a problem.
func (sa syncActionRoutes) applySyncAction(
	ctx context.Context, scope Scope, id string, change SyncChange,
) (after v1.ClusterSync, changed bool, err error) {
	sync, changed, err := sa.api.store.ApplySyncAction(ctx, scope, id, change)
	switch {
	case errors.Is(err, ErrNotFound):
		return sync, false, newNotFoundError(sa.kind, id)
	case err != nil:
		return sync, false, err
	case changed:
		sa.api.log.InfoContext(ctx, "sync changed by request", "action", string(change.Action), "resource_id", id, "subject", change.By)
	case change.Action == SyncRetry && sync.State == v1.SyncRunning:
		return sync, false, rest.NewError(
			rest.CodeSyncRunning,
			"worker %q is syncing %s %q now; wait for the result",
			sync.ClaimedBy,
			sa.kind.name,
			id,
		)
	case change.Action == SyncRetry && sync.State == v1.SyncPaused:
		return sync, false, rest.NewError(rest.CodeSyncPaused, "the sync of %s %q is paused; resume it first", sa.kind.name, id)
	}
	return sync, changed, nil
}

// applySyncActions applies a change to several syncs. If the store fails before the first change, it returns that
// error. A later failure of the store counts for all ids that are left.
func (sa syncActionRoutes) applySyncActions(ctx context.Context, scope Scope, ids []string, change SyncChange) (v1.BulkSyncResult, error) {
	result := v1.BulkSyncResult{Failed: []v1.BulkSyncFailure{}}
	seen := make(map[string]bool, len(ids))
	storeFailed := false
	for _, given := range ids {
		id, err := parseResourceID(sa.kind, given)
		if seen[id] {
			continue
		}
		changed := false
		if err == nil {
			seen[id] = true
			if storeFailed {
				result.Failed = append(result.Failed, newStoreFailure(given))
				continue
			}
			_, changed, err = sa.applySyncAction(ctx, scope, id, change)
		}
		if changed {
			result.Changed++
		}
		if err == nil {
			continue
		}
		if problem, ok := errors.AsType[*rest.Error](err); ok {
			result.Failed = append(result.Failed, v1.BulkSyncFailure{ID: given, Code: string(problem.Code), Detail: problem.Detail})
			continue
		}
		if result.Changed == 0 {
			return result, err
		}
		sa.api.log.ErrorContext(ctx, "bulk change of syncs ended early", "action", string(change.Action), "changed", result.Changed, "err", err)
		storeFailed = true
		result.Failed = append(result.Failed, newStoreFailure(given))
	}
	return result, nil
}

func newStoreFailure(id string) v1.BulkSyncFailure {
	return v1.BulkSyncFailure{
		ID: id, Code: string(rest.CodeUnavailable), Detail: "the fleet API could not change the sync; send the request again",
	}
}
