package fleetclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Summary returns the counts of the resources that the caller may read. An error for which
// IsNotFound is true means that the server does not support this.
func (c *Client) Summary(ctx context.Context) (summary v1.Summary, err error) {
	_, err = c.callJSON(ctx, request{method: http.MethodGet, root: v1.SummaryPath}, nil, &summary)
	return summary, err
}

// A StuckQuery selects stuck resources. The zero value selects all of them.
type StuckQuery struct {
	// Collection is v1.CollectionClusters or v1.CollectionNodePools; empty means both.
	Collection string
	// Causes holds the selected types of causes; none means all.
	Causes []v1.StuckCauseType
	// OlderThan is the minimum time for which a resource is not ready. Zero means the default of
	// the server.
	OlderThan time.Duration

	// PageSize is the number of resources per request. Zero means DefaultPageSize.
	PageSize int
}

func (q StuckQuery) urlValues() url.Values {
	v := url.Values{"limit": {strconv.Itoa(orDefault(q.PageSize, DefaultPageSize))}}
	if q.Collection != "" {
		v.Set("kind", q.Collection)
	}
	if len(q.Causes) > 0 {
		names := make([]string, len(q.Causes))
		for i, cause := range q.Causes {
			names[i] = string(cause)
		}
		v.Set("cause", strings.Join(names, ","))
	}
	if q.OlderThan > 0 {
		v.Set("older_than", q.OlderThan.String())
	}
	return v
}

// Stuck yields the resources that are stuck, page by page, the oldest first. It ends with the first
// error.
func (c *Client) Stuck(ctx context.Context, q StuckQuery) iter.Seq2[v1.StuckResource, error] {
	return eachItem(ctx, c, request{method: http.MethodGet, root: v1.StuckPath, query: q.urlValues()}, func(p *v1.StuckList) ([]v1.StuckResource, string) { return p.Items, p.Continue })
}
