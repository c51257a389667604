package fleetapi

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

// A SyncAction is a manual action on the sync of a cluster.
type SyncAction string

// The actions.
const (
	// SyncRetry makes the sync due at once.
	SyncRetry SyncAction = "retry"
	// SyncPause prevents workers from syncing the cluster.
	SyncPause SyncAction = "pause"
	// SyncResume ends a pause.
	SyncResume SyncAction = "resume"
)

// A SyncChange is a manual action with its author.
type SyncChange struct {
	Action SyncAction
	By     string
	// Reason is why, "" if unknown.
	Reason string
	// Until is the time at which a pause ends automatically; zero means never.
	Until time.Time
}

// A SyncQuery selects one page of syncs. Syncs with work since a known time come first, the longest
// wait first; the others follow by id.
type SyncQuery struct {
	// States restricts the query to syncs in these states; empty means all.
	States []v1.SyncState
	// After is the position of the sync after which the page begins. The zero value starts at the beginning.
	After SyncPosition
	Limit int
}

// A SyncPosition is the place of a sync in the order. The zero value comes before every sync.
type SyncPosition struct {
	// Since is the time since which the sync has work. It is zero if the sync has none or the time is unknown.
	Since time.Time
	ID    string
}

func newSyncPosition(of *v1.ClusterSync) SyncPosition {
	p := SyncPosition{ID: of.ClusterID}
	if of.Synced == nil && of.UnsyncedSince != nil {
		p.Since = *of.UnsyncedSince
	}
	return p
}

// Syncs reads and controls the sync of clusters to Gardener. The rows belong to the cluster-worker.
type Syncs interface {
	// GetClusterSync returns the sync of one cluster. It returns ErrNotFound if the sync does not exist.
	GetClusterSync(ctx context.Context, scope Scope, clusterID string) (v1.ClusterSync, error)

	// ListClusterSyncs returns a page of syncs.
	ListClusterSyncs(ctx context.Context, scope Scope, q SyncQuery) ([]v1.ClusterSync, error)

	// ApplySyncAction applies an action and returns the resulting sync. Pauses and their ends are
	// recorded in the timeline. applied is false if the action changed nothing. For a retry this is
	// so if a worker is syncing the cluster, or if the sync is paused or done; the state of the sync
	// shows which. It returns ErrNotFound if the sync does not exist.
	ApplySyncAction(ctx context.Context, scope Scope, clusterID string, change SyncChange) (sync v1.ClusterSync, applied bool, err error)

	// HasClusterWorker reports whether a cluster-worker is registered.
	HasClusterWorker(ctx context.Context) (registered bool, err error)

	// ListClustersWithUnsavedSync returns the ids of up to limit clusters of all tenants whose sync changed
	// after their status was saved. The ids are sorted and follow afterID; "" starts at the first.
	ListClustersWithUnsavedSync(ctx context.Context, afterID string, limit int) (ids []string, err error)
}

// syncRoutes serve the syncs of clusters to Gardener.
type syncRoutes struct {
	api  *API
	kind *kind
}

func (sy syncRoutes) registerRoutes(mux *http.ServeMux, basePath string) {
	// Other methods on the list are not refused: its path is also that of an id.
	list := basePath + "/sync"
	sy.api.registerMethod(mux, http.MethodGet, list, sy.serveSyncList)
	one := basePath + "/{id}/sync"
	sy.api.registerRoute(mux, one, route{http.MethodGet: sy.serveSync})
	for _, action := range []SyncAction{SyncRetry, SyncPause, SyncResume} {
		actions := syncActionRoutes{sy, action}
		sy.api.registerRoute(mux, list+"/"+string(action), route{http.MethodPost: actions.handleForIDs})
		sy.api.registerRoute(mux, one+"/"+string(action), route{http.MethodPost: actions.handleForOne})
	}
}

func (sy syncRoutes) serveSync(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	by, err := authorizeVerb(principal, v1.VerbGet)
	if err != nil {
		return err
	}
	id, err := parseResourceID(sy.kind, r.PathValue("id"))
	if err != nil {
		return err
	}
	sync, err := sy.api.store.GetClusterSync(r.Context(), by.scope, id)
	if errors.Is(err, ErrNotFound) {
		return newNotFoundError(sy.kind, id)
	}
	if err != nil {
		return err
	}
	return rest.WriteJSONValue(w, http.StatusOK, sync)
}

func (sy syncRoutes) serveSyncList(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeList(principal)
	if err != nil {
		return err
	}
	q, query, err := parseSyncQuery(scope, r.URL.Query())
	if err != nil {
		return err
	}
	limit := q.Limit
	q.Limit++ // the extra row shows whether there is another page
	syncs, err := sy.api.store.ListClusterSyncs(r.Context(), scope, q)
	if err != nil {
		return err
	}
	page := v1.ClusterSyncList{Items: append([]v1.ClusterSync{}, syncs[:min(limit, len(syncs))]...)}
	if len(syncs) > limit {
		last := newSyncPosition(&page.Items[limit-1])
		if page.Continue, err = rest.NewTimeAndIDPageToken(query, last.Since, last.ID); err != nil {
			return err
		}
	}
	return rest.WriteJSONValue(w, http.StatusOK, page)
}

// parseSyncQuery parses the parameters of a list of syncs. The digest identifies the query.
func parseSyncQuery(scope Scope, parameters url.Values) (q SyncQuery, digest rest.QueryDigest, err error) {
	if err = checkQueryParameters(parameters, "state", "limit", "continue"); err != nil {
		return q, digest, err
	}
	if q.Limit, err = parsePositiveNumber(parameters, "limit", maxSize, defaultSize); err != nil {
		return q, digest, err
	}
	if parameters.Has("state") {
		for name := range strings.SplitSeq(parameters.Get("state"), ",") {
			state := v1.SyncState(name)
			if !slices.Contains(v1.SyncStates(), state) {
				return q, digest, rest.NewQueryError("state", "enum", name, "has the unknown value %q; use one of %s", name, joinWithCommas(v1.SyncStates()))
			}
			if !slices.Contains(q.States, state) {
				q.States = append(q.States, state)
			}
		}
	}
	slices.Sort(q.States)
	digestedParts := []string{"syncs", scope.Tenant}
	for _, state := range q.States {
		digestedParts = append(digestedParts, string(state))
	}
	digest = rest.DigestQuery(digestedParts...)
	if !parameters.Has("continue") {
		return q, digest, nil
	}
	q.After.Since, q.After.ID, err = rest.ParseTimeAndIDPageToken(digest, parameters.Get("continue"))
	return q, digest, toTokenProblem(parameters.Get("continue"), err)
}

func joinWithCommas[T ~string](words []T) string {
	names := make([]string, len(words))
	for i, s := range words {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
