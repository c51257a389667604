package client

import (
	"cmp"
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// Syncs reads and controls the syncs of clusters to Gardener.
type Syncs struct {
	caller *caller
}

// SyncOptions selects cluster syncs. The zero value selects all of them.
type SyncOptions struct {
	// States holds the selected states; none means all.
	States []v1.SyncState

	// PageSize is the number of syncs per request. Zero means DefaultPageSize.
	PageSize int
}

func (o SyncOptions) urlValues() url.Values {
	v := url.Values{"limit": {strconv.Itoa(cmp.Or(o.PageSize, DefaultPageSize))}}
	if len(o.States) > 0 {
		v.Set("state", joinWithCommas(o.States))
	}
	return v
}

func joinWithCommas[T ~string](words []T) string {
	texts := make([]string, len(words))
	for i, word := range words {
		texts[i] = string(word)
	}
	return strings.Join(texts, ",")
}

// Get returns the state of a cluster's sync to Gardener.
func (s *Syncs) Get(ctx context.Context, id string) (v1.ClusterSync, error) {
	return s.call(ctx, http.MethodGet, id, "", nil)
}

// Retry requests a sync of a cluster to Gardener at once, ahead of its schedule. An error for
// which IsConflict is true means that a worker is syncing it now, or that it is paused.
func (s *Syncs) Retry(ctx context.Context, id string) (v1.ClusterSync, error) {
	return s.control(ctx, id, "retry", v1.SyncControl{})
}

// Pause stops changes to the Shoot of a cluster until Resume, or until the time in control.
func (s *Syncs) Pause(ctx context.Context, id string, control v1.SyncControl) (v1.ClusterSync, error) {
	return s.control(ctx, id, "pause", control)
}

// Resume ends a pause.
func (s *Syncs) Resume(ctx context.Context, id string, control v1.SyncControl) (v1.ClusterSync, error) {
	return s.control(ctx, id, "resume", control)
}

// control sends no body if there is nothing to say, so that an older API answers, too.
func (s *Syncs) control(ctx context.Context, id, action string, control v1.SyncControl) (v1.ClusterSync, error) {
	if control == (v1.SyncControl{}) {
		return s.call(ctx, http.MethodPost, id, "/"+action, nil)
	}
	return s.call(ctx, http.MethodPost, id, "/"+action, control)
}

func (s *Syncs) call(ctx context.Context, method, id, action string, body any) (v1.ClusterSync, error) {
	path, err := itemPath(v1.CollectionClusters, id)
	if err != nil {
		return v1.ClusterSync{}, err
	}
	return call[v1.ClusterSync](ctx, s.caller, request{method: method, path: path + "/sync" + action}, body)
}

// ControlMany retries, pauses or resumes the syncs of up to v1.MaxBulkSyncs clusters. The action is
// "retry", "pause" or "resume". The result lists the clusters that failed.
func (s *Syncs) ControlMany(ctx context.Context, action string, control v1.BulkSyncControl) (v1.BulkSyncResult, error) {
	return call[v1.BulkSyncResult](ctx, s.caller, request{method: http.MethodPost, path: v1.CollectionClusters + "/sync/" + action}, control)
}

// List yields the states of cluster syncs to Gardener, page by page, the longest waiting
// first. It ends with the first error.
func (s *Syncs) List(ctx context.Context, o SyncOptions) iter.Seq2[v1.ClusterSync, error] {
	r := request{method: http.MethodGet, path: v1.CollectionClusters + "/sync", query: o.urlValues()}
	return eachItem(ctx, s.caller, r, func(p *v1.ClusterSyncList) ([]v1.ClusterSync, string) { return p.Items, p.Continue })
}
