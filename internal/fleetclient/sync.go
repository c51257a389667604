package fleetclient

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// A SyncQuery selects cluster syncs. The zero value selects all of them.
type SyncQuery struct {
	// States holds the selected states; none means all.
	States []v1.SyncState

	// PageSize is the number of syncs per request. Zero means DefaultPageSize.
	PageSize int
}

func (q SyncQuery) urlValues() url.Values {
	v := url.Values{"limit": {strconv.Itoa(orDefault(q.PageSize, DefaultPageSize))}}
	if len(q.States) > 0 {
		names := make([]string, len(q.States))
		for i, s := range q.States {
			names[i] = string(s)
		}
		v.Set("state", strings.Join(names, ","))
	}
	return v
}

// ClusterSync returns the state of a cluster's sync to Gardener.
func (c *Client) ClusterSync(ctx context.Context, id string) (v1.ClusterSync, error) {
	return c.callSync(ctx, http.MethodGet, id, "", nil)
}

// SyncRetry requests a sync of a cluster to Gardener at once, ahead of its schedule. An error for
// which IsConflict is true means that a worker is syncing it now, or that it is paused.
func (c *Client) SyncRetry(ctx context.Context, id string) (v1.ClusterSync, error) {
	return c.controlSync(ctx, id, "retry", v1.SyncControl{})
}

// SyncPause stops changes to the Shoot of a cluster until SyncResume, or until the time in control.
func (c *Client) SyncPause(ctx context.Context, id string, control v1.SyncControl) (v1.ClusterSync, error) {
	return c.controlSync(ctx, id, "pause", control)
}

// SyncResume ends a pause.
func (c *Client) SyncResume(ctx context.Context, id string, control v1.SyncControl) (v1.ClusterSync, error) {
	return c.controlSync(ctx, id, "resume", control)
}

// controlSync sends no body if there is nothing to say, so that an older API answers, too.
func (c *Client) controlSync(ctx context.Context, id, action string, control v1.SyncControl) (v1.ClusterSync, error) {
	if control == (v1.SyncControl{}) {
		return c.callSync(ctx, http.MethodPost, id, "/"+action, nil)
	}
	return c.callSync(ctx, http.MethodPost, id, "/"+action, control)
}

func (c *Client) callSync(ctx context.Context, method, id, action string, body any) (v1.ClusterSync, error) {
	var out v1.ClusterSync
	path, err := itemPath(v1.CollectionClusters, id)
	if err != nil {
		return out, err
	}
	_, err = c.callJSON(ctx, request{method: method, path: path + "/sync" + action}, body, &out)
	return out, err
}

// ControlSyncs retries, pauses or resumes the syncs of up to v1.MaxBulkSyncs clusters. The action is
// "retry", "pause" or "resume". The result lists the clusters that failed.
func (c *Client) ControlSyncs(ctx context.Context, action string, control v1.BulkSyncControl) (v1.BulkSyncResult, error) {
	var out v1.BulkSyncResult
	_, err := c.callJSON(ctx, request{method: http.MethodPost, path: v1.CollectionClusters + "/sync/" + action}, control, &out)
	return out, err
}

// ClusterSyncs yields the states of cluster syncs to Gardener, page by page, the longest waiting
// first. It ends with the first error.
func (c *Client) ClusterSyncs(ctx context.Context, q SyncQuery) iter.Seq2[v1.ClusterSync, error] {
	r := request{method: http.MethodGet, path: v1.CollectionClusters + "/sync", query: q.urlValues()}
	return eachItem(ctx, c, r, func(p *v1.ClusterSyncList) ([]v1.ClusterSync, string) { return p.Items, p.Continue })
}
