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

// maxReason is the maximum length of a reason in characters.
const maxReason = 1024

// newSyncActionHandler returns the handler of an action on one sync. It is open to callers who
// may change the cluster, and to the role system, which drives the fleet: the cluster itself
// does not change.
func (sy syncRoutes) newSyncActionHandler(k *kind, action SyncAction) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.Verb(action))
		if err != nil {
			return err
		}
		id, err := parseResourceID(k, r.PathValue("id"))
		if err != nil {
			return err
		}
		var req v1.SyncControl
		if r.ContentLength != 0 { // the body may be left out
			if e := rest.DecodeJSONBody(w, r, sy.api.maxBody, &req); e != nil {
				return e
			}
		}
		change, err := newValidatedSyncChange(action, who, req, time.Now())
		if err != nil {
			return err
		}
		sync, _, err := sy.applySyncAction(r.Context(), by.scope, k, id, change)
		if err != nil {
			return err
		}
		return writeJSONValue(w, http.StatusOK, sync)
	}
}

// newBulkSyncActionHandler returns the handler that applies an action to several syncs, each in its own transaction.
func (sy syncRoutes) newBulkSyncActionHandler(k *kind, action SyncAction) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorizeVerb(who, v1.Verb(action))
		if err != nil {
			return err
		}
		var req v1.BulkSyncControl
		if e := rest.DecodeJSONBody(w, r, sy.api.maxBody, &req); e != nil {
			return e
		}
		change, err := newValidatedSyncChange(action, who, req.SyncControl, time.Now())
		if err != nil {
			return err
		}
		switch n := len(req.IDs); {
		case n == 0:
			return rest.NewFieldsError([]v1.FieldError{{Field: "ids", Constraint: "min", Message: "must have at least one id"}})
		case n > v1.MaxBulkSyncs:
			return rest.NewFieldsError([]v1.FieldError{{Field: "ids", Constraint: "max", Message: "must have at most 500 ids", Value: n}})
		}
		result, err := sy.applySyncActions(r.Context(), by.scope, k, req.IDs, change)
		if err != nil {
			return err
		}
		return writeJSONValue(w, http.StatusOK, result)
	}
}

// newValidatedSyncChange validates a request and returns its change.
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
func (sy syncRoutes) applySyncAction(
	ctx context.Context, scope Scope, k *kind, id string, change SyncChange,
) (after v1.ClusterSync, changed bool, err error) {
	sync, changed, err := sy.api.store.ApplySyncAction(ctx, scope, id, change)
	switch {
	case errors.Is(err, ErrNotFound):
		return sync, false, newNotFoundError(k, id)
	case err != nil:
		return sync, false, err
	case changed:
		sy.api.log.InfoContext(ctx, "sync changed by request", "action", string(change.Action), "resource_id", id, "subject", change.By)
	case change.Action == SyncRetry && sync.State == v1.SyncRunning:
		return sync, false, rest.NewError(rest.CodeSyncRunning, "worker %q is syncing %s %q now; wait for the result", sync.ClaimedBy, k.name, id)
	case change.Action == SyncRetry && sync.State == v1.SyncPaused:
		return sync, false, rest.NewError(rest.CodeSyncPaused, "the sync of %s %q is paused; resume it first", k.name, id)
	}
	return sync, changed, nil
}

// applySyncActions applies a change to several syncs. It fails if the first failure is one of the
// store; a later one counts for all ids that are left.
func (sy syncRoutes) applySyncActions(
	ctx context.Context, scope Scope, k *kind, ids []string, change SyncChange,
) (v1.BulkSyncResult, error) {
	result := v1.BulkSyncResult{Failed: []v1.BulkSyncFailure{}}
	seen := make(map[string]bool, len(ids))
	var down error
	for _, given := range ids {
		id, err := parseResourceID(k, given)
		if seen[id] {
			continue
		}
		changed := false
		if err == nil {
			seen[id] = true
			if err = down; err == nil {
				_, changed, err = sy.applySyncAction(ctx, scope, k, id, change)
			}
		}
		problem, ok := errors.AsType[*rest.Error](err)
		switch {
		case err == nil && changed:
			result.Changed++
		case err == nil:
		case ok:
			result.Failed = append(result.Failed, v1.BulkSyncFailure{ID: given, Code: string(problem.Code), Detail: problem.Detail})
		case down == nil && result.Changed == 0:
			return result, err
		default:
			if down == nil {
				sy.api.log.ErrorContext(ctx, "bulk change of syncs ended early", "action", string(change.Action), "changed", result.Changed, "err", err)
			}
			down = err
			result.Failed = append(result.Failed, v1.BulkSyncFailure{
				ID: given, Code: string(rest.CodeUnavailable), Detail: "the fleet API could not change the sync; send the request again",
			})
		}
	}
	return result, nil
}
