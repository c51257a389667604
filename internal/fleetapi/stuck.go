package fleetapi

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

const (
	// defaultStuckAge is the minimum time for which a resource is not ready before it is stuck.
	defaultStuckAge = 5 * time.Minute
	maxStuckAge     = 10 * 365 * 24 * time.Hour
	// maxStuckRounds is the maximum number of store pages that are read for one page of the API. If
	// a filter leaves less than a page of them, the page is short.
	maxStuckRounds = 8
)

// A StuckQuery selects a page of the resources that are not ready or not synced, the oldest first.
type StuckQuery struct {
	// Kinds are the kinds of resources, v1.KindCluster, v1.KindNodePool or both.
	Kinds     []string
	OlderThan time.Duration
	// After is the position of the resource after which the page begins. The zero value starts at the beginning.
	After StuckPosition
	Limit int
}

// A StuckPosition is the place of a resource in the order by time and id.
type StuckPosition struct {
	Since time.Time
	ID    string
}

// Compare compares two positions.
func (p StuckPosition) Compare(other StuckPosition) int {
	if c := p.Since.Compare(other.Since); c != 0 {
		return c
	}
	return strings.Compare(p.ID, other.ID)
}

// A StuckPage is what a store read for one page. It may have fewer rows than the limit although others follow.
type StuckPage struct {
	Rows []StuckRow
	// Next is the position at which to continue, nil at the end.
	Next *StuckPosition
}

// A StuckRow is a resource that is not ready or not synced, with everything that can hold it up.
type StuckRow struct {
	// Key to OwnerName identify the resource and its owner.
	Key

	Name, OwnerID, OwnerName string

	Phase                          v1.Phase
	Generation, ObservedGeneration int64
	Deleting                       bool
	Since                          time.Time
	// Reports are the last reports of all adapters.
	Reports []v1.AdapterStatus
	// Sync is the sync of a cluster, nil for other kinds.
	Sync *v1.ClusterSync
}

// A stuckRequest is a parsed request for what is stuck.
type stuckRequest struct {
	query  StuckQuery
	causes []v1.StuckCauseType // empty means all
	digest rest.QueryDigest
}

// stuckRoutes serve the list of what is stuck.
type stuckRoutes struct{ api *API }

func (st stuckRoutes) serveStuckList(w http.ResponseWriter, r *http.Request, principal auth.Principal) error {
	scope, err := authorizeRead(principal)
	if err != nil {
		return err
	}
	req, err := parseStuckRequest(scope, r.URL.Query())
	if err != nil {
		return err
	}
	items, next, err := st.readStuckPage(r.Context(), scope, req)
	if err != nil {
		return err
	}
	list := v1.StuckList{Items: items}
	if next != nil {
		if list.Continue, err = rest.NewTimeAndIDPageToken(req.digest, next.Since, next.ID); err != nil {
			return err
		}
	}
	return rest.WriteJSONValue(w, http.StatusOK, list)
}

// readStuckPage reads pages of the store until the page of the API is full. next is the position at which
// to continue, nil at the end.
func (st stuckRoutes) readStuckPage(
	ctx context.Context, scope Scope, request stuckRequest,
) (items []v1.StuckResource, next *StuckPosition, err error) {
	items = []v1.StuckResource{}
	limit := request.query.Limit
	request.query.Limit++ // the extra row shows whether there is another page
	for range maxStuckRounds {
		page, err := st.api.store.ListStuckResources(ctx, scope, request.query)
		if err != nil {
			return nil, nil, err
		}
		for i := range page.Rows {
			item := st.newStuckResource(&page.Rows[i])
			if len(request.causes) > 0 && !slices.Contains(request.causes, item.Cause.Type) {
				continue
			}
			if len(items) == limit {
				last := &items[limit-1]
				return items, &StuckPosition{Since: last.Since, ID: last.ID}, nil
			}
			items = append(items, item)
		}
		next = page.Next
		if next == nil || len(items) == limit {
			break
		}
		request.query.After = *next
	}
	return items, next, nil
}

func (st stuckRoutes) newStuckResource(row *StuckRow) v1.StuckResource {
	resource := v1.StuckResource{
		Kind:               row.Kind,
		ID:                 row.ID,
		Name:               row.Name,
		ClusterID:          row.OwnerID,
		ClusterName:        row.OwnerName,
		Phase:              row.Phase,
		Since:              row.Since,
		Generation:         row.Generation,
		ObservedGeneration: row.ObservedGeneration,
		Cause:              DecideStuckCause(row, st.api.kinds[row.Kind].required),
	}
	if row.Sync != nil && row.Sync.Synced == nil {
		resource.Attempts, resource.NextAttempt = row.Sync.Attempts, row.Sync.NextAttempt
	}
	return resource
}

func parseStuckRequest(scope Scope, query url.Values) (req stuckRequest, err error) {
	if err = checkQueryParameters(query, "kind", "cause", "older_than", "limit", "continue"); err != nil {
		return req, err
	}
	if req.query.Kinds, err = parseStuckResourceKinds(query); err != nil {
		return req, err
	}
	if req.causes, err = parseCausesParameter(query); err != nil {
		return req, err
	}
	req.query.OlderThan = defaultStuckAge
	if query.Has("older_than") {
		age, err := time.ParseDuration(query.Get("older_than"))
		if err != nil || age < 0 || age > maxStuckAge {
			return req, rest.NewQueryError("older_than", "format", query.Get("older_than"), "must be a duration such as 90s, 5m or 2h")
		}
		req.query.OlderThan = age
	}
	if req.query.Limit, err = parsePositiveNumber(query, "limit", maxSize, defaultSize); err != nil {
		return req, err
	}
	parts := []string{"stuck", scope.Tenant, strconv.FormatBool(scope.All), req.query.OlderThan.String()}
	for _, c := range req.causes {
		parts = append(parts, string(c))
	}
	req.digest = rest.DigestQuery(append(parts, req.query.Kinds...)...)
	if query.Has("continue") {
		req.query.After.Since, req.query.After.ID, err = rest.ParseTimeAndIDPageToken(req.digest, query.Get("continue"))
	}
	return req, toTokenProblem(query.Get("continue"), err)
}

func parseStuckResourceKinds(query url.Values) ([]string, error) {
	if !query.Has("kind") {
		return []string{v1.KindCluster, v1.KindNodePool}, nil
	}
	switch collection := query.Get("kind"); collection {
	case v1.CollectionClusters:
		return []string{v1.KindCluster}, nil
	case v1.CollectionNodePools:
		return []string{v1.KindNodePool}, nil
	default:
		return nil, rest.NewQueryError("kind", "enum", collection, "must be %s or %s", v1.CollectionClusters, v1.CollectionNodePools)
	}
}

func parseCausesParameter(query url.Values) (causes []v1.StuckCauseType, err error) {
	if !query.Has("cause") {
		return nil, nil
	}
	for name := range strings.SplitSeq(query.Get("cause"), ",") {
		cause := v1.StuckCauseType(name)
		if !slices.Contains(v1.StuckCauseTypes(), cause) {
			return nil, rest.NewQueryError("cause", "enum", name, "has the unknown value %q; use one of %s", name, joinWithCommas(v1.StuckCauseTypes()))
		}
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	return causes, nil
}
