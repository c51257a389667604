package fleetclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Revisions yields the kept generations of a cluster or a node pool, the newest first. It ends with
// the first error.
func (c *Client) Revisions(ctx context.Context, collection, id string) iter.Seq2[v1.Revision, error] {
	return func(yield func(v1.Revision, error) bool) {
		path, err := itemPath(collection, id)
		if err != nil {
			yield(v1.Revision{}, err)
			return
		}
		r := request{method: http.MethodGet, path: path + "/revisions", query: url.Values{}}
		for {
			var page v1.RevisionList
			if _, err := c.callJSON(ctx, r, nil, &page); err != nil {
				yield(v1.Revision{}, err)
				return
			}
			for _, item := range page.Items {
				if !yield(item, nil) {
					return
				}
			}
			if page.Continue == "" {
				return
			}
			r.query.Set("continue", page.Continue)
		}
	}
}
