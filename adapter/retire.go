package adapter

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A deletingLister lists the resources of a collection that are being deleted.
type deletingLister interface {
	ListDeleting(ctx context.Context, collection string) iter.Seq2[v1.Resource, error]
}

// Retire reports Finalized for each resource of the adapter's collections that is being deleted, so
// that no deletion waits for an adapter that is removed. It returns the number of reports that were
// stored. It does not call Reconcile: what the adapter created outside the fleet stays.
//
// To remove an adapter:
//
//  1. Remove its name from the required adapters of the fleet API
//     (FLEET_API_REQUIRED_ADAPTERS_CLUSTERS and the others). New deletions no longer wait for it.
//  2. Let it run until the deletions in progress are finished, then stop it.
//  3. Call Retire once, for the deletions that it could not finish.
func (a *Adapter) Retire(ctx context.Context) (finalized int, err error) {
	lister, ok := a.fleet.(deletingLister)
	if !ok {
		return 0, fmt.Errorf("retire adapter %q: its Fleet has no method ListDeleting", a.cfg.Name)
	}
	var errs []error
	for _, collection := range a.cfg.Collections {
		for r, err := range lister.ListDeleting(ctx, collection) {
			if err != nil {
				errs = append(errs, fmt.Errorf("list %s: %w", collection, err))
				break
			}
			report := Finalized("Adapter " + a.cfg.Name + " was removed; it did not clean up")
			stored, err := a.fleet.Report(ctx, collection, r.ID, newWireReportWithDefaultHealth(a.cfg.Name, r.Generation, time.Now(), report))
			switch {
			case httpStatusOf(err) == http.StatusNotFound: // the deletion ended meanwhile
			case err != nil:
				errs = append(errs, fmt.Errorf("report on %s %q: %w", collection, r.ID, err))
			case stored:
				finalized++
			}
		}
	}
	return finalized, errors.Join(errs...)
}
