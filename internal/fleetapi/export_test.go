package fleetapi

import (
	"context"
	"net/http"
)

// RecheckAccess repeats the check of an open watch.
func (a *API) RecheckAccess(ctx context.Context, header http.Header, scope Scope) error {
	return a.newAccessRecheck(header, scope)(ctx)
}

// RecomputeStatusesAfterSync computes the status of all clusters whose sync has changed.
func (a *API) RecomputeStatusesAfterSync(ctx context.Context) error {
	return a.recomputeStatusesAfterSync(ctx)
}
