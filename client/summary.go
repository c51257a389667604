package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Summary returns the counts of the resources that the caller may read. An error for which
// IsNotFound is true means that the server does not support this.
func (c *Client) Summary(ctx context.Context) (v1.Summary, error) {
	return call[v1.Summary](ctx, c.caller, request{method: http.MethodGet, root: v1.SummaryPath}, nil)
}

// StuckOptions selects stuck resources. The zero value selects all of them.
type StuckOptions struct {
	// Collection is v1.CollectionClusters or v1.CollectionNodePools; empty means both.
	Collection string
	// Causes holds the selected types of causes; none means all.
	Causes []v1.StuckCauseType
	// OlderThan is the minimum time for which a resource is not ready. Zero means the default of the server.
	OlderThan time.Duration

	// PageSize is the number of resources per request. Zero means DefaultPageSize.
	PageSize int
}

func (o StuckOptions) urlValues() url.Values {
	v := url.Values{"limit": {strconv.Itoa(cmp.Or(o.PageSize, DefaultPageSize))}}
	if o.Collection != "" {
		v.Set("kind", o.Collection)
	}
	if len(o.Causes) > 0 {
		v.Set("cause", joinWithCommas(o.Causes))
	}
	if o.OlderThan > 0 {
		v.Set("older_than", o.OlderThan.String())
	}
	return v
}

// Stuck yields the resources that are stuck, page by page, the oldest first. It ends with the first error.
func (c *Client) Stuck(ctx context.Context, o StuckOptions) iter.Seq2[v1.StuckResource, error] {
	r := request{method: http.MethodGet, root: v1.StuckPath, query: o.urlValues()}
	return eachItem(ctx, c.caller, r, func(p *v1.StuckList) ([]v1.StuckResource, string) { return p.Items, p.Continue })
}
