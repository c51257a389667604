package fleetapi

import (
	"context"
	"net/http"
)

// SetPageBytes limits the size of pages.
func (a *API) SetPageBytes(n int) { a.pageBytes = n }

// RecheckAccess repeats the check of an open watch.
func (a *API) RecheckAccess(ctx context.Context, header http.Header, scope Scope) error {
	return a.newAccessRecheck(header, scope)(ctx)
}

// UpdateClusterStatuses updates the status of the clusters whose sync has changed, once.
func (a *API) UpdateClusterStatuses(ctx context.Context) error {
	return a.recomputeStatusesAfterSync(ctx)
}
