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
func DecideStuckCause(r *StuckRow, required []string) v1.StuckCause {
	unsynced := r.Sync != nil && r.Sync.Synced == nil
	switch {
	case unsynced && r.Sync.Pause != nil:
		return v1.StuckCause{Type: v1.StuckOnPause, Message: describePause(r.Sync.Pause)}
	case unsynced && r.Sync.Error != "":
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: gardenerCodeOf(r.Sync.Error, r.Sync.ErrorClass), Message: r.Sync.Error}
	case r.Phase != v1.PhaseReady && r.Sync != nil && r.Sync.ShootStatus == v1.ShootError:
		return v1.StuckCause{Type: v1.StuckOnGardener, Code: gardenerCodeOf(r.Sync.ShootStatusMessage, ""), Message: r.Sync.ShootStatusMessage}
	}
	if r.Phase != v1.PhaseReady {
		if c, ok := findAdapterCause(r, required); ok {
			return c
		}
	}
	switch {
	case unsynced && r.Sync.Waiting != nil:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "Gardener does not answer: " + r.Sync.Waiting.Reason}
	case unsynced && r.Sync.State == v1.SyncRunning:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "a cluster-worker is syncing it"}
	case unsynced:
		return v1.StuckCause{Type: v1.StuckOnGardener, Message: "it waits for a cluster-worker"}
	case r.Deleting:
		return v1.StuckCause{Type: v1.StuckOnChildren, Message: "waiting for the deletion of its node pools"}
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Message: "all required adapters have reported; the next report computes the status again"}
}

// describePause says who paused a sync and why, since when and until when.
func describePause(p *v1.SyncPause) string {
	text := "paused"
	if p.By != "" {
		text += " by " + p.By
	}
	if p.Reason != "" {
		text += " (" + p.Reason + ")"
	}
	text += " since " + p.Since.UTC().Format(time.RFC3339)
	if p.Until != nil {
		text += " until " + p.Until.UTC().Format(time.RFC3339)
	}
	return text
}

func gardenerCodeOf(message, class string) string {
	if code := gardenerCode.FindString(message); code != "" {
		return code
	}
	return class
}

// findAdapterCause returns the required adapter that holds a resource up: one that reported a failure of
// the current generation before one that has not reported it.
func findAdapterCause(r *StuckRow, required []string) (v1.StuckCause, bool) {
	f := StatusFacts{Generation: r.Generation, Deleting: r.Deleting, Required: required, Reports: r.Reports}
	reports := f.requiredReports()
	reported := false
	for i, report := range reports {
		reported = reported || report != nil
		if report == nil || !f.isCurrent(report) {
			continue
		}
		if c, failed := FailedReport(report.Conditions); failed && (!r.Deleting || c.Type == v1.ConditionHealth) {
			return describeFailedReport(required[i], c), true
		}
	}
	if !reported && len(required) > 0 {
		return v1.StuckCause{Type: v1.StuckOnNoReport, Adapter: required[0], Message: "none of the required adapters has reported: " + strings.Join(required, ", ")}, true
	}
	for i, report := range reports {
		switch {
		case report == nil:
			return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: required[i], Message: "it has not reported yet"}, true
		case !f.isCurrent(report):
			return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: required[i], Message: fmt.Sprintf("it has not reported generation %d; its last report is of generation %d", r.Generation, report.ObservedGeneration)}, true
		case !f.isMet(report, f.goalCondition()):
			return describeUnmetReport(required[i], adapterCondition(report, f.goalCondition()), f.goalCondition()), true
		}
	}
	return v1.StuckCause{}, false
}

func describeFailedReport(name string, c v1.AdapterCondition) v1.StuckCause {
	message := c.Message
	if message == "" {
		message = "it reported " + c.Type + " as False"
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: name, Reason: c.Reason, Message: message}
}

func describeUnmetReport(name string, c v1.AdapterCondition, goal string) v1.StuckCause {
	message := c.Message
	if message == "" {
		message = "it has not reported " + goal + " as True"
	}
	return v1.StuckCause{Type: v1.StuckOnAdapter, Adapter: name, Reason: c.Reason, Message: message}
}

// A stuckRequest is a parsed request for what is stuck.
type stuckRequest struct {
	query  StuckQuery
	causes []v1.StuckCauseType // empty means all
	digest rest.QueryDigest
}

// stuckRoutes serve the list of what is stuck.
type stuckRoutes struct{ api *API }

func (st stuckRoutes) list(w http.ResponseWriter, r *http.Request, who auth.Principal) error {
	scope, err := readScope(who)
	if err != nil {
		return err
	}
	req, err := parseStuckRequest(scope, r.URL.Query())
	if err != nil {
		return err
	}
	items, next, err := st.read(r.Context(), scope, req)
	if err != nil {
		return err
	}
	list := v1.StuckList{Items: items}
	if next != nil {
		if list.Continue, err = rest.NewTimedPageToken(req.digest, next.Since, next.ID); err != nil {
			return err
		}
	}
	return writeValue(w, http.StatusOK, list)
}

// read reads pages of the store until the page of the API is full. next is the position at which
// to continue, nil at the end.
func (st stuckRoutes) read(ctx context.Context, scope Scope, req stuckRequest) (items []v1.StuckResource, next *StuckPosition, err error) {
	items = []v1.StuckResource{}
	limit := req.query.Limit
	req.query.Limit++ // the extra row shows whether there is another page
	for range maxStuckRounds {
		page, err := st.api.store.Stuck(ctx, scope, req.query)
		if err != nil {
			return nil, nil, err
		}
		for i := range page.Rows {
			item, wanted := st.describe(&page.Rows[i], req.causes)
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
		req.query.After = *next
	}
	return items, next, nil
}

// describe returns a row with its cause. ok means that the cause is one of the wanted.
func (st stuckRoutes) describe(r *StuckRow, wanted []v1.StuckCauseType) (item v1.StuckResource, ok bool) {
	item = v1.StuckResource{
		Kind: r.Kind, ID: r.ID, Name: r.Name, ClusterID: r.OwnerID, ClusterName: r.OwnerName, Phase: r.Phase, Since: r.Since,
		Generation: r.Generation, ObservedGeneration: r.ObservedGeneration,
		Cause: DecideStuckCause(r, st.api.kinds[r.Kind].required),
	}
	if r.Sync != nil && r.Sync.Synced == nil {
		item.Attempts, item.NextAttempt = r.Sync.Attempts, r.Sync.NextAttempt
	}
	return item, len(wanted) == 0 || slices.Contains(wanted, item.Cause.Type)
}

// parseStuckRequest parses the parameters of a list of what is stuck.
func parseStuckRequest(scope Scope, v url.Values) (req stuckRequest, err error) {
	if err = checkParameters(v, "kind", "cause", "older_than", "limit", "continue"); err != nil {
		return req, err
	}
	switch kind := v.Get("kind"); {
	case !v.Has("kind"):
		req.query.Kinds = []string{v1.KindCluster, v1.KindNodePool}
	case kind == v1.CollectionClusters:
		req.query.Kinds = []string{v1.KindCluster}
	case kind == v1.CollectionNodePools:
		req.query.Kinds = []string{v1.KindNodePool}
	default:
		return req, rest.NewQueryError("kind", "enum", kind, "must be %s or %s", v1.CollectionClusters, v1.CollectionNodePools)
	}
	if req.causes, err = parseCauses(v); err != nil {
		return req, err
	}
	req.query.OlderThan = defaultStuckAge
	if v.Has("older_than") {
		age, err := time.ParseDuration(v.Get("older_than"))
		if err != nil || age < 0 || age > maxStuckAge {
			return req, rest.NewQueryError("older_than", "format", v.Get("older_than"), "must be a duration such as 90s, 5m or 2h")
		}
		req.query.OlderThan = age
	}
	if req.query.Limit, err = parseNumber(v, "limit", maxSize, defaultSize); err != nil {
		return req, err
	}
	parts := []string{"stuck", scope.Tenant, strconv.FormatBool(scope.All), req.query.OlderThan.String()}
	for _, c := range req.causes {
		parts = append(parts, string(c))
	}
	req.digest = rest.DigestQuery(append(parts, req.query.Kinds...)...)
	if v.Has("continue") {
		req.query.After.Since, req.query.After.ID, err = rest.ParseTimedPageToken(req.digest, v.Get("continue"))
	}
	return req, explainTokenError(v.Get("continue"), err)
}

func parseCauses(v url.Values) (causes []v1.StuckCauseType, err error) {
	if !v.Has("cause") {
		return nil, nil
	}
	all := v1.StuckCauseTypes()
	for name := range strings.SplitSeq(v.Get("cause"), ",") {
		cause := v1.StuckCauseType(name)
		if !slices.Contains(all, cause) {
			return nil, rest.NewQueryError("cause", "enum", name, "has the unknown value %q; use one of %s", name, joinWords(all))
		}
		if !slices.Contains(causes, cause) {
			causes = append(causes, cause)
		}
	}
	slices.Sort(causes)
	return causes, nil
}
