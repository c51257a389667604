package sentinel

import (
	"context"

	"github.com/fleetloop/fleetloop/internal/sentinel/scan"
)

// An API may select by labels and not return them. What it selected is then taken
// as it is, for there is nothing to check it by. It is such an API as long as no
// resource has the field labels, be it empty or null: in the last full list, in
// what was read of this one, and on the page. Of a page that comes in two parts its
// beginning is looked at; any other has to be readable to its end.
//
// The public API is none: it ignores ?labels=, and leaves the field out where a
// resource has no labels.

// trustsServerFilter reports whether resources without labels count as selected, on a page that
// starts with body, or equals body if whole is true. filtered says that the server selected the
// resources.
func (p *pass) trustsServerFilter(body []byte, whole, filtered bool) bool {
	return filtered && !p.selector.Empty() && !p.servesLabels.Load() && scan.HasNoLabels(body, whole)
}

// matchesSelector reports whether the sentinel watches a resource.
func (p *pass) matchesSelector(ctx context.Context, it *scan.Item) bool {
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
