package sentinel

import (
	"context"
	"log/slog"
	"sync/atomic"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// Some APIs select by labels and do not return them. Their selection is accepted as it is, because
// it cannot be checked. An API counts as one of these as long as no resource has the field labels,
// even empty or null: in the last full list, in the part of this list that was read, and on the
// page. For a page that comes in two parts only the beginning is checked; any other page must be
// readable to its end.
//
// The public API is different: it ignores ?labels=, and omits the field for a resource without
// labels.

// A labelFilter selects resources by their labels. It is safe for concurrent use.
type labelFilter struct {
	selector selector.Selector
	log      *slog.Logger

	served     atomic.Bool // the API returns labels
	trustNoted atomic.Bool // a missing labels field has been logged
}

// trustsServerFilter reports whether resources without labels on a page count as selected. The page
// starts with body, or equals body if isWholePage is true. serverFiltered says that the server
// selected the resources.
func (f *labelFilter) trustsServerFilter(body []byte, isWholePage, serverFiltered bool) bool {
	return serverFiltered && !f.selector.Empty() && !f.served.Load() && source.HasNoLabels(body, isWholePage)
}

// matchesOrTrusted reports whether a resource is selected. trustServer is the result of
// trustsServerFilter for its page.
func (f *labelFilter) matchesOrTrusted(ctx context.Context, it *source.Item, trustServer bool) bool {
	if f.selector.Empty() || f.selector.Matches(&it.Labels) {
		return true
	}
	if it.HasLabels || it.Public || !trustServer || f.served.Load() {
		return false
	}
	if !f.trustNoted.Swap(true) {
		f.log.WarnContext(ctx, "api filters by labels but does not return them, trusting its filter",
			"resource_id", string(it.ID))
	}
	return true
}
