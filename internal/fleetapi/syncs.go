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
	// After is the position of the sync after which the page begins. The zero value starts at the
	// beginning.
	After SyncPosition
	Limit int
}

// A SyncPosition is the place of a sync in the order. The zero value comes before every sync.
type SyncPosition struct {
	// Since is the time since which the sync has work. It is zero if the sync has none or the time
	// is unknown.
	Since time.Time
	ID    string
}

// positionOf returns the position of a sync in the order.
func positionOf(s *v1.ClusterSync) SyncPosition {
	p := SyncPosition{ID: s.ClusterID}
	if s.Synced == nil && s.UnsyncedSince != nil {
		p.Since = *s.UnsyncedSince
	}
	return p
}

// Syncs reads and controls the sync of clusters to Gardener. The rows belong to the cluster-worker.
type Syncs interface {
	// Sync returns the sync of one cluster. It returns ErrNotFound if the sync does not exist.
	Sync(ctx context.Context, scope Scope, cluster string) (v1.ClusterSync, error)

	// ListSyncs returns a page of syncs.
	ListSyncs(ctx context.Context, scope Scope, q SyncQuery) ([]v1.ClusterSync, error)

	// ApplySyncAction applies an action and returns the resulting sync. Pauses and their ends are
	// recorded in the timeline. taken is false if the action changed nothing. For a retry this is
	// so if a worker is syncing the cluster, or if the sync is paused or done; the state of the sync
	// shows which. It returns ErrNotFound if the sync does not exist.
	ApplySyncAction(ctx context.Context, scope Scope, cluster string, c SyncChange) (sync v1.ClusterSync, taken bool, err error)

	// HasClusterWorker reports whether a cluster-worker is registered.
	HasClusterWorker(ctx context.Context) (bool, error)

	// ClustersWithUnsettledSync returns the ids of up to limit clusters of all tenants whose sync changed
	// after their status was saved. The ids are sorted and follow after; "" starts at the first.
	ClustersWithUnsettledSync(ctx context.Context, after string, limit int) ([]string, error)
}

// syncRoutes serve the syncs of clusters to Gardener.
type syncRoutes struct{ api *API }

// addRoutes serves the syncs of a kind. Other methods on the list are not refused: its path is
// also that of an id.
func (sy syncRoutes) addRoutes(mux *http.ServeMux, base string, k *kind) {
	mux.Handle("GET "+base+"/sync", sy.api.observeRequest(base+"/sync", http.MethodGet, sy.api.authenticated(sy.list)))
	for _, action := range []SyncAction{SyncRetry, SyncPause, SyncResume} {
		sy.api.handleRoute(mux, base+"/sync/"+string(action), route{http.MethodPost: sy.controlMany(k, action)})
	}
	one := base + "/{id}/sync"
	sy.api.handleRoute(mux, one, route{http.MethodGet: sy.get(k)})
	for _, action := range []SyncAction{SyncRetry, SyncPause, SyncResume} {
		sy.api.handleRoute(mux, one+"/"+string(action), route{http.MethodPost: sy.controlOne(k, action)})
	}
}

func (sy syncRoutes) get(k *kind) handler {
	return func(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
		by, err := authorize(who, v1.VerbGet)
		if err != nil {
			return err
		}
		id, err := parseID(k, r.PathValue("id"))
		if err != nil {
			return err
		}
		sync, err := sy.api.store.Sync(r.Context(), by.scope, id)
		if errors.Is(err, ErrNotFound) {
			return notFound(k, id)
		}
		if err != nil {
			return err
		}
		return writeValue(w, http.StatusOK, sync)
	}
}

func (sy syncRoutes) list(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
	scope, err := listScope(who)
	if err != nil {
		return err
	}
	q, query, err := parseSyncQuery(scope, r.URL.Query())
	if err != nil {
		return err
	}
	limit := q.Limit
	q.Limit++ // the extra row shows whether there is another page
	syncs, err := sy.api.store.ListSyncs(r.Context(), scope, q)
	if err != nil {
		return err
	}
	page := v1.ClusterSyncList{Items: append([]v1.ClusterSync{}, syncs[:min(limit, len(syncs))]...)}
	if len(syncs) > limit {
		last := positionOf(&page.Items[limit-1])
		if page.Continue, err = rest.NewTimedPageToken(query, last.Since, last.ID); err != nil {
			return err
		}
	}
	return writeValue(w, http.StatusOK, page)
}

// parseSyncQuery parses the parameters of a list of syncs. The digest identifies the query.
func parseSyncQuery(scope Scope, v url.Values) (q SyncQuery, query rest.QueryDigest, err error) {
	if err = checkParameters(v, "state", "limit", "continue"); err != nil {
		return q, query, err
	}
	if q.Limit, err = parseNumber(v, "limit", maxSize, defaultSize); err != nil {
		return q, query, err
	}
	all := v1.SyncStates()
	names := []string{"syncs", scope.Tenant}
	for name := range strings.SplitSeq(v.Get("state"), ",") {
		state := v1.SyncState(name)
		switch {
		case !v.Has("state"):
		case !slices.Contains(all, state):
			return q, query, rest.NewQueryError("state", "enum", name, "has the unknown value %q; use one of %s", name, joinWords(all))
		case !slices.Contains(q.States, state):
			q.States = append(q.States, state)
		}
	}
	slices.Sort(q.States)
	for _, s := range q.States {
		names = append(names, string(s))
	}
	query = rest.DigestQuery(names...)
	if !v.Has("continue") {
		return q, query, nil
	}
	q.After.Since, q.After.ID, err = rest.ParseTimedPageToken(query, v.Get("continue"))
	return q, query, explainTokenError(v.Get("continue"), err)
}

func joinWords[T ~string](words []T) string {
	names := make([]string, len(words))
	for i, s := range words {
		names[i] = string(s)
	}
	return strings.Join(names, ", ")
}
