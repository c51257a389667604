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

// serveWatch streams changes to the client for as long as it listens.
func (a *API) serveWatch(w http.ResponseWriter, r *http.Request, f *following, who auth.Principal) error {
	return watch.ServeEvents(w, r, watch.EventStream{
		Hub: a.hub, Log: a.log, Expired: explainExpiredCursor,
		Request: watch.Request{
			Kind: f.kind.name, Tenant: f.scope.Tenant, All: f.scope.All, Labels: f.labels, After: f.after,
			Until: watch.ChooseTimeLimit(time.Now(), who), Allowed: a.newAccessRecheck(r.Header.Get("Authorization"), f.scope),
		},
	})
}

// newAccessRecheck returns a check that the token of a watch still has the same scope: access may be
// withdrawn while a watch is open.
func (a *API) newAccessRecheck(authorization string, scope Scope) func(context.Context) error {
	return func(ctx context.Context) error {
		who, err := a.auth.Authenticate(ctx, authorization)
		if errors.Is(err, auth.ErrUnavailable) {
			return nil // it was valid before, and is checked again later
		}
		if err != nil {
			return explainAuthError(err)
		}
		now, err := listScope(who)
		if err == nil && now != scope {
			err = rest.NewError(rest.CodeForbidden, "the token's permissions have changed; watch again")
		}
		return err
	}
}

// watched adapts the store to package watch.
type watched struct {
	store Feed
	kinds map[string]*kind
}

// Now returns the cursor after all settled changes.
func (s watched) Now(ctx context.Context) (watch.Cursor, error) {
	at, err := s.store.Horizon(ctx)
	return at, toWatchError(err)
}

// Changes reads the changes for watches.
func (s watched) Changes(ctx context.Context, q watch.Query, visit func(watch.Change) error) (next watch.Cursor, more bool, err error) {
	scope := Scope{Tenant: q.Tenant, All: q.All}
	var record []byte
	next, more, err = s.store.Changes(ctx, scope, ChangeQuery{Kind: q.Kind, After: q.After, Limit: q.Limit, Stepwise: true}, func(c *Change) error {
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
			record = appendRecord(record[:0], c.Record, k)
			change.Labels, change.Record = labels, record
		}
		return visit(change)
	})
	return next, more, toWatchError(err)
}

// toWatchError converts errors of the store into those of package watch.
func toWatchError(err error) error {
	switch {
	case errors.Is(err, ErrCursorExpired):
		return fmt.Errorf("%w: %w", watch.ErrExpired, err)
	case errors.Is(err, ErrUnavailable):
		return fmt.Errorf("%w: %w", watch.ErrUnavailable, err)
	}
	return err
}

// nudging is a store that wakes watches after a commit.
type nudging struct {
	Store

	nudge func()
}

// Update runs a change and wakes the watches if it commits.
func (s nudging) Update(ctx context.Context, scope Scope, change func(context.Context, Tx, time.Time) error) error {
	err := s.Store.Update(ctx, scope, change)
	if err == nil {
		s.nudge()
	}
	return err
}

// ApplySyncAction wakes the watches if it changed a sync, which is a change event.
func (s nudging) ApplySyncAction(ctx context.Context, scope Scope, cluster string, c SyncChange) (v1.ClusterSync, bool, error) {
	sync, taken, err := s.Store.ApplySyncAction(ctx, scope, cluster, c)
	if taken {
		s.nudge()
	}
	return sync, taken, err
}
