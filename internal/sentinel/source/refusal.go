package source

import (
	"context"
	"errors"
)

// adaptToRefusal finds another way to request a page that was refused. It returns false if there is
// none, or if the error has another cause.
func (w *pageWalk) adaptToRefusal(ctx context.Context, page fetchedPage) (retryAt Place, retry bool, err error) {
	if !isRequestRefused(page.err) || ctx.Err() != nil {
		return Place{}, false, page.err
	}
	way := w.server.traits.way
	if way == byToken {
		return w.probeAndRestartAfterRefusal(ctx, page)
	}
	if w.server.shrinkPageSizeToStatedLimit(page.cause) {
		if way == byID {
			return page.At, true, nil // an id is the same place in pages of any size
		}
		return w.server.firstPlace(), true, nil
	}
	if !w.server.dropRefusedFeature(ctx) {
		return Place{}, false, page.err
	}
	return w.server.firstPlace(), true, nil
}

// probeAndRestartAfterRefusal detects the features of a server that refused its first request with a limit. A
// server that is known to have tokens refused it for another reason.
func (w *pageWalk) probeAndRestartAfterRefusal(ctx context.Context, page fetchedPage) (retryAt Place, retry bool, err error) {
	hasTokens := w.server.cfg.Flavour != FlavourAuto || *w.server.flavour.Load() == FlavourFleetloop
	if hasTokens || page.At.Later() {
		return Place{}, false, page.err
	}
	if err := w.server.probePagingAndFilters(ctx); err != nil {
		return Place{}, false, errors.Join(page.err, err)
	}
	return w.server.firstPlace(), true, nil
}

// dropRefusedFeature stops using the feature that the server has most likely refused: first paging by
// id, then filters, then the order, and then the page size. It returns false if nothing is left to
// drop.
func (v *server) dropRefusedFeature(ctx context.Context) (dropped bool) {
	traits := v.traits
	switch {
	case traits.way == byID:
		v.fallBackToPageNumbers(ctx, "it rejects a search for greater ids")
	case traits.search != "" || traits.labels != "":
		traits.search, traits.labels, traits.searchIsPartial = "", "", false
		v.setTraitsAndForgetPages(traits)
		v.logCapabilitiesIfChanged(ctx)
	case traits.supportsOrder:
		traits.supportsOrder = false
		v.setTraitsAndForgetPages(traits)
	default:
		return v.shrinkPageSize(0)
	}
	return true
}
