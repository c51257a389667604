package sentinel

import (
	"context"

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

// trustsServerFilter reports whether resources without labels on a page count as selected. The page
// starts with body, or equals body if whole is true. filtered says that the server selected the
// resources.
func (p *pass) trustsServerFilter(body []byte, whole, filtered bool) bool {
	return filtered && !p.selector.Empty() && !p.servesLabels.Load() && source.HasNoLabels(body, whole)
}

// matchesSelector reports whether the sentinel watches a resource.
func (p *pass) matchesSelector(ctx context.Context, it *source.Item) bool {
	if p.selector.Empty() || p.selector.Matches(&it.Labels) {
		return true
	}
	if it.HasLabels || it.Public || !p.trustFilter || p.servesLabels.Load() {
		return false
	}
	if !p.trustNoted.Swap(true) {
		p.log.WarnContext(ctx, "api filters by labels but does not return them, trusting its filter",
			"resource_id", string(it.ID))
	}
	return true
}

// noteLabels records, at the end of a full list, whether the API returns labels.
func (p *pass) noteLabels() {
	if p.served > 0 {
		p.servesLabels.Store(p.labelled)
	}
}
