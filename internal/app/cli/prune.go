package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
)

// confirmAndPruneAll deletes the applied resources of the selector that were not applied now, and returns how many.
func (a *applier) confirmAndPruneAll(ctx context.Context) (done int, err error) {
	items, err := a.findToPrune(ctx)
	if err != nil || len(items) == 0 {
		return 0, err
	}
	if !a.o.yes && !bool(a.o.dryRun) {
		for _, i := range items {
			a.printNote("%s is not in the files", i.KindAndName())
		}
		if err := a.confirmDeletion(items, "pruned"); err != nil {
			return 0, err
		}
	}
	var errs []error
	for _, i := range items {
		r, err := a.o.dryRun.collection(a.client, i.Kind.Collection).Delete(ctx, i.Resource.ID)
		if fleetclient.IsNotFound(err) {
			continue
		}
		if err == nil {
			i, err = itemOf(i.Kind, r, i.Owner)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("prune %s: %w", i.KindAndName(), err))
			continue
		}
		done++
		if err := a.printItemWithVerb(i, "pruned"); err != nil {
			return done, err
		}
	}
	return done, errors.Join(errs...)
}

// findToPrune returns children before their parents.
func (a *applier) findToPrune(ctx context.Context) ([]resource.Item, error) {
	var items []resource.Item
	for _, k := range resource.Kinds() {
		for page, err := range resource.ListPages(ctx, a.client, resource.Selection{Kind: k, Labels: a.o.selector}) {
			if err != nil {
				return nil, fmt.Errorf("prune: %w", err)
			}
			page = slices.DeleteFunc(page, func(i resource.Item) bool {
				return a.kept[i.Resource.ID] || i.Resource.DeletedTime != nil || !resource.WasApplied(i.Resource)
			})
			if k.IsChild() {
				resource.ReplaceOwnerIDsWithNames(ctx, a.client, page, map[string]string{})
			}
			items = append(items, page...)
		}
	}
	slices.SortStableFunc(items, func(x, y resource.Item) int { return depthOf(y.Kind) - depthOf(x.Kind) })
	return items, nil
}
