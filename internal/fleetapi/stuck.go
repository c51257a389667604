package fleetapi

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
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
	// After is the position of the resource after which the page begins. The zero value starts at
	// the beginning.
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

// A StuckPage is what a store read for one page. It may have fewer rows than the limit although
// others follow.
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

// gardenerCode is the form of the codes of Gardener's errors.
var gardenerCode = regexp.MustCompile(`\bERR_[A-Z_]+\b`)

// DecideStuckCause returns what holds a resource up: a pause, a failing sync, a required adapter, or
// a sync that waits. The first that applies decides.
func DecideStuckCause(row *StuckRow, requiredAdapters []string) v1.StuckCause {
	unsynced := row.Sync != nil && row.Sync.Synced == nil
	switch {
	case unsynced && row.Sync.Pause != nil:
		return v1.StuckCause{Type: v1.StuckOnPause, Message: describePause(row.Sync.Pause)}
	case unsynced && row.Sync.Error != "":
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: findGardenerErrorCode(row.Sync.Error, row.Sync.ErrorClass), Message: row.Sync.Error}
	case row.Phase != v1.PhaseReady && row.Sync != nil && row.Sync.ShootStatus == v1.ShootError:
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: findGardenerErrorCode(row.Sync.ShootStatusMessage, ""), Message: row.Sync.ShootStatusMessage}
	}
	if row.Phase != v1.PhaseReady {
		if c, ok := findAdapterCause(row, requiredAdapters); ok {
			return c
		}
	}
	switch {
	case unsynced && row.Sync.Waiting != nil:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "Gardener does not answer: " + row.Sync.Waiting.Reason}
	case unsynced && row.Sync.State == v1.SyncRunning:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "a cluster-worker is syncing it"}
	case unsynced:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "it waits for a cluster-worker"}
	case row.Deleting:
		return v1.StuckCause{Type: v1.StuckOnChildren, Message: "waiting for the deletion of its node pools"}
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Message: "all required adapters have reported; the next report computes the status again"}
}

// describePause says who paused a sync and why, since when and until when.
func describePause(pause *v1.SyncPause) string {
	text := "paused"
	if pause.By != "" {
		text += " by " + pause.By
	}
	if pause.Reason != "" {
		text += " (" + pause.Reason + ")"
	}
	text += " since " + pause.Since.UTC().Format(time.RFC3339)
	if pause.Until != nil {
		text += " until " + pause.Until.UTC().Format(time.RFC3339)
	}
	return text
}

func findGardenerErrorCode(message, fallback string) string {
	if code := gardenerCode.FindString(message); code != "" {
		return code
	}
	return fallback
}

// findAdapterCause returns the required adapter that holds a resource up: one that reported a failure of
// the current generation before one that has not reported it.
func findAdapterCause(row *StuckRow, requiredAdapters []string) (cause v1.StuckCause, found bool) {
	f := StatusFacts{Generation: row.Generation, Deleting: row.Deleting, Required: requiredAdapters, Reports: row.Reports}
	reports := f.findRequiredReports()
	reported := false
	for i, report := range reports {
		reported = reported || report != nil
		if report == nil || !f.hasCurrentGeneration(report) {
			continue
		}
		if c, failed := FindFailedCondition(report.Conditions); failed && (!row.Deleting || c.Type == v1.ConditionHealth) {
			return newFailedReportCause(requiredAdapters[i], c), true
		}
	}
	if !reported && len(requiredAdapters) > 0 {
		return v1.StuckCause{Type: v1.StuckOnNoReport, Adapter: requiredAdapters[0], Message: "none of the required adapters has reported: " + strings.Join(requiredAdapters, ", ")}, true
	}
	for i, report := range reports {
		switch {
		case report == nil:
			return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: requiredAdapters[i], Message: "it has not reported yet"}, true
		case !f.hasCurrentGeneration(report):
			return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: requiredAdapters[i], Message: fmt.Sprintf("it has not reported generation %d; its last report is of generation %d", row.Generation, report.ObservedGeneration)}, true
		case !f.isTrueAtCurrentGeneration(report, f.goalConditionType()):
			return newUnmetReportCause(requiredAdapters[i], findAdapterCondition(report, f.goalConditionType()), f.goalConditionType()), true
		}
	}
	return v1.StuckCause{}, false
}

func newFailedReportCause(adapter string, failed v1.AdapterCondition) v1.StuckCause {
	message := failed.Message
	if message == "" {
		message = "it reported " + failed.Type + " as False"
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: adapter, Reason: failed.Reason, Message: message}
}

func newUnmetReportCause(adapter string, unmet v1.AdapterCondition, goalType string) v1.StuckCause {
	message := unmet.Message
	if message == "" {
		message = "it has not reported " + goalType + " as True"
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: adapter, Reason: unmet.Reason, Message: message}
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
	return writeJSONValue(w, http.StatusOK, list)
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
			item, wanted := st.newStuckResource(&page.Rows[i], request.causes)
			if wanted && len(items) == limit {
				last := &items[limit-1]
				return items, &StuckPosition{Since: last.Since, ID: last.ID}, nil
			}
			if wanted {
				items = append(items, item)
			}
		}
		if next = page.Next; next == nil || len(items) == limit {
			break
		}
		request.query.After = *next
	}
	return items, next, nil
}

// newStuckResource returns a row with its cause. isWanted means that the cause is one of the wanted.
func (st stuckRoutes) newStuckResource(row *StuckRow, wantedCauses []v1.StuckCauseType) (item v1.StuckResource, isWanted bool) {
	item = v1.StuckResource{
		Kind: row.Kind, ID: row.ID, Name: row.Name, ClusterID: row.OwnerID, ClusterName: row.OwnerName, Phase: row.Phase, Since: row.Since,
		Generation: row.Generation, ObservedGeneration: row.ObservedGeneration,
		Cause: DecideStuckCause(row, st.api.kinds[row.Kind].required),
	}
	if row.Sync != nil && row.Sync.Synced == nil {
		item.Attempts, item.NextAttempt = row.Sync.Attempts, row.Sync.NextAttempt
	}
	return item, len(wantedCauses) == 0 || slices.Contains(wantedCauses, item.Cause.Type)
}

// parseStuckRequest parses the parameters of a list of what is stuck.
func parseStuckRequest(scope Scope, query url.Values) (req stuckRequest, err error) {
	if err = checkQueryParameters(query, "kind", "cause", "older_than", "limit", "continue"); err != nil {
		return req, err
	}
	switch kind := query.Get("kind"); {
	case !query.Has("kind"):
		req.query.Kinds = []string{v1.KindCluster, v1.KindNodePool}
	case kind == v1.CollectionClusters:
		req.query.Kinds = []string{v1.KindCluster}
	case kind == v1.CollectionNodePools:
		req.query.Kinds = []string{v1.KindNodePool}
	default:
		return req, rest.NewQueryError("kind", "enum", kind, "must be %s or %s", v1.CollectionClusters, v1.CollectionNodePools)
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

func parseCausesParameter(query url.Values) (causes []v1.StuckCauseType, err error) {
	if !query.Has("cause") {
		return nil, nil
	}
	all := v1.StuckCauseTypes()
	for name := range strings.SplitSeq(query.Get("cause"), ",") {
		cause := v1.StuckCauseType(name)
		if !slices.Contains(all, cause) {
			return nil, rest.NewQueryError("cause", "enum", name, "has the unknown value %q; use one of %s", name, joinWithCommas(all))
		}
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	return causes, nil
}
