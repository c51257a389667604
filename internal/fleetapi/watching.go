package fleetapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
	"github.com/fleetloop/fleetloop/internal/selector"
)

func (a *API) serveWatch(w http.ResponseWriter, r *http.Request, request *changesRequest, principal auth.Principal) error {
	return watch.ServeEvents(w, r, watch.EventStream{
		Hub: a.hub, Log: a.log, Expired: toExpiredCursorProblem,
		Request: watch.Request{
			Kind:    request.kind.name,
			Tenant:  request.scope.Tenant,
			All:     request.scope.All,
			Labels:  request.labels,
			After:   request.after,
			Until:   watch.ChooseWatchDeadline(time.Now(), principal),
			Allowed: a.newAccessRecheck(r.Header.Clone(), request.scope),
		},
	})
}

// newAccessRecheck returns a check that the headers of a watch still give the same scope: access may be
// withdrawn while a watch is open.
func (a *API) newAccessRecheck(header http.Header, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := a.auth.AuthenticateAndImpersonate(ctx, header)
		if errors.Is(err, auth.ErrUnavailable) {
			return nil // it was valid before, and is checked again later
		}
		if err != nil {
			return toAuthProblem(err)
		}
		now, err := authorizeList(who)
		if err == nil && now != scope {
			err = rest.NewError(rest.CodeForbidden, "the token's permissions have changed; watch again")
		}
		return err
	}
}

// watchSource adapts the store to package watch.
type watchSource struct {
	store Feed
	kinds map[string]*kind
}

// ReadLatestCursor returns the cursor after all settled changes.
func (s watchSource) ReadLatestCursor(ctx context.Context) (watch.Cursor, error) {
	at, err := s.store.ReadLatestCursor(ctx)
	return at, storeErrorToWatchError(err)
}

// VisitChanges reads the changes for watches.
func (s watchSource) VisitChanges(
	ctx context.Context, q watch.Query, visit func(watch.Change) error,
) (next watch.Cursor, hasMore bool, err error) {
	scope := Scope{Tenant: q.Tenant, All: q.All}
	var record []byte
	query := ChangeQuery{Kind: q.Kind, After: q.After, Limit: q.Limit, Stepwise: true, Expected: q.Expected}
	next, hasMore, err = s.store.VisitChanges(ctx, scope, query, func(c *Change) error {
		k := s.kinds[c.Key.Kind]
		if k == nil {
			return nil // a kind of another version of the program
		}
		change := watch.Change{At: c.At, Kind: c.Key.Kind, ID: c.Key.ID, Tenant: c.Tenant, Relabelled: c.Relabelled}
		if c.Record != nil {
			var labels selector.Map
			if err := json.Unmarshal(c.Record.Labels, &labels); err != nil {
				return fmt.Errorf("get the labels of %s %q: %w", c.Key.Kind, c.Key.ID, err)
			}
			record = appendRecordJSON(record[:0], c.Record, k)
			change.Labels, change.Record = labels, record
		}
		return visit(change)
	})
	return next, hasMore, storeErrorToWatchError(err)
}

func storeErrorToWatchError(err error) error {
	switch {
	case errors.Is(err, ErrCursorExpired):
		return fmt.Errorf("%w: %w", watch.ErrExpired, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", watch.ErrUnavailable, err)
	}
	return err
}

// watchNotifyingStore is a store that wakes watches after a commit.
type watchNotifyingStore struct {
	Store

	wakeWatches func()
}

// RunInTx runs a change and wakes the watches if it commits.
func (s watchNotifyingStore) RunInTx(ctx context.Context, scope Scope, change func(context.Context, Tx) error) error {
	err := s.Store.RunInTx(ctx, scope, change)
	if err == nil {
		s.wakeWatches()
	}
	return err
}

// ApplySyncAction wakes the watches if it changed a sync, which is a change event.
func (s watchNotifyingStore) ApplySyncAction(
	ctx context.Context, scope Scope, clusterID string, change SyncChange,
) (after v1.ClusterSync, applied bool, err error) {
	after, applied, err = s.Store.ApplySyncAction(ctx, scope, clusterID, change)
	if applied {
		s.wakeWatches()
	}
	return after, applied, err
}
