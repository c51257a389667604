package fleetapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// dryRunStore is a store that rolls back every change that would succeed. Its transactions see all effects of the
// change, so the answer is that of the real request. The sequence of revisions advances nevertheless.
type dryRunStore struct{ Store }

// RunInTx runs a change and rolls it back.
func (s dryRunStore) RunInTx(ctx context.Context, scope Scope, change func(context.Context, Tx) error) error {
	err := s.Store.RunInTx(ctx, scope, func(ctx context.Context, tx Tx) error {
		if err := change(ctx, tx); err != nil {
			return err
		}
		return ErrRollback
	})
	if errors.Is(err, ErrRollback) {
		return nil
	}
	return err
}

// refuseDryRun refuses dry runs of a change that does not support them, because it would happen.
func refuseDryRun(next handler) handler {
	return func(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
		if q := r.URL.Query(); q.Has("dry_run") {
			return rest.NewQueryError("dry_run", "enum", q.Get("dry_run"), "is not supported by this request, which would make the change")
		}
		return next(w, r, principal)
	}
}

// chooseServiceByDryRun returns the rules by which a request changes resources: those of the API, or those of a
// dry run.
func (rs resourceRoutes) chooseServiceByDryRun(r *http.Request) (*resourceService, error) {
	q := r.URL.Query()
	if !q.Has("dry_run") {
		return &rs.api.resourceService, nil
	}
	dry, err := strconv.ParseBool(q.Get("dry_run"))
	if err != nil {
		return nil, rest.NewQueryError("dry_run", "format", q.Get("dry_run"), "must be true or false")
	}
	rules := rs.api.resourceService
	if dry {
		rules.store = dryRunStore{rules.store}
	}
	return &rules, nil
}
