package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/app/cli/resource"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A fakeAPI answers as a fleet API does, as far as the command line asks. It
// stands in the place of the network, so that it works in a synctest bubble.
type fakeAPI struct {
	mu       sync.Mutex
	items    []v1.Resource // in the order of ids
	reports  map[string][]v1.AdapterStatus
	syncs    []v1.ClusterSync // in the order of the list
	identity *v1.Identity     // nil is a server that does not say who asks
	requests []string
	auth     string

	// before may answer in the API's place, by returning a status.
	before func(r *http.Request) (status int, body any)
	// tags gives every resource an ETag, which a change must name if it names one.
	tags map[string]int
	// down makes the server unreachable.
	down error
}

func (f *fakeAPI) wrapTransport(http.RoundTripper) http.RoundTripper { return f }

// RoundTrip answers a request.
func (f *fakeAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	if f.down != nil {
		return nil, f.down
	}
	f.auth = r.Header.Get("Authorization")
	var body []byte
	if r.Body != nil {
		body, _ = io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), v1.BasePath+"/")
	line := r.Method + " " + path
	if q := r.URL.Query().Get("search"); q != "" {
		line += " search=" + q
	}
	if len(body) > 0 {
		line += " " + string(body)
	}
	f.requests = append(f.requests, line)

	var status int
	var answer any
	if f.before != nil {
		status, answer = f.before(r)
	}
	if match := r.Header.Get("If-Match"); match != "" && status == 0 && match != f.tagOf(path[strings.LastIndex(path, "/")+1:]) {
		status, answer = http.StatusPreconditionFailed, v1.Problem{Code: "precondition_failed", Detail: "it has changed"}
	}
	if status == 0 {
		status, answer = f.handleRequest(r, strings.Split(path, "/"), body)
	}
	rec := httptest.NewRecorder()
	if one, ok := answer.(v1.Resource); ok && f.tags != nil {
		rec.Header().Set("ETag", f.tagOf(one.ID))
	}
	rec.Header().Set("Content-Type", "application/json")
	if p, ok := answer.(v1.Problem); ok {
		p.Status, p.Title = status, http.StatusText(status)
		answer = p
	}
	rec.WriteHeader(status)
	_ = json.NewEncoder(rec).Encode(answer)
	return rec.Result(), nil
}

func (f *fakeAPI) tagOf(id string) string { return fmt.Sprintf(`"%d"`, f.tags[id]) }

func (f *fakeAPI) handleRequest(r *http.Request, path []string, body []byte) (int, any) {
	switch {
	case path[0] == "whoami" && f.identity == nil:
		return http.StatusNotFound, v1.Problem{Detail: "nothing is served at this path"}
	case path[0] == "whoami":
		return http.StatusOK, *f.identity
	case path[0] == "can-i":
		if q := r.URL.Query(); q.Get("verb") == "get" && q.Get("resource") == "nodepools" {
			return http.StatusOK, v1.Permission{Allowed: true}
		}
		return http.StatusOK, v1.Permission{Reason: "\"vera\" has the role viewer\x1b[31m"}
	case path[len(path)-1] == "sync" && len(path) == 2:
		return f.listSyncs(r)
	case len(path) > 2 && path[2] == "sync":
		return f.handleSync(path[1], path[3:])
	case r.Method == http.MethodGet && len(path) == 1:
		return f.listItems(r, path[0], "")
	case r.Method == http.MethodGet && len(path) == 3 && path[2] == "revisions":
		return f.listRevisions(r)
	case r.Method == http.MethodGet && len(path) == 3 && path[2] == "statuses":
		list := f.reports[path[1]]
		return http.StatusOK, v1.AdapterStatusList{Items: list, Total: int64(len(list))}
	case r.Method == http.MethodGet && len(path) == 3:
		return f.listItems(r, path[2], path[1])
	case r.Method == http.MethodPost:
		return f.createItem(path, body)
	}
	n := slices.IndexFunc(f.items, func(i v1.Resource) bool { return i.ID == path[1] && kindNamed(path[0]) == i.Kind })
	if n < 0 {
		return http.StatusNotFound, v1.Problem{Detail: "no such resource"}
	}
	switch r.Method {
	case http.MethodPatch:
		var p v1.PatchRequest
		if err := json.Unmarshal(body, &p); err != nil {
			return http.StatusBadRequest, v1.Problem{Detail: err.Error()}
		}
		if p.Spec != nil {
			f.items[n].Spec, f.items[n].Generation = p.Spec, f.items[n].Generation+1
		}
		if p.Labels != nil {
			f.items[n].Labels = *p.Labels
		}
	case http.MethodDelete:
		at := now
		f.items[n].DeletedTime, f.items[n].Status.Phase = &at, v1.PhaseDeleting
		return http.StatusAccepted, f.items[n]
	}
	return http.StatusOK, f.items[n]
}

func (f *fakeAPI) listItems(r *http.Request, collection, parent string) (int, any) {
	q := r.URL.Query()
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		return http.StatusBadRequest, v1.Problem{Detail: err.Error()}
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	page := v1.List{Items: []v1.Resource{}}
	if q.Has("page") { // the one page that is asked for is for the total
		var total int64
		for _, i := range f.items {
			if i.Kind == kindNamed(collection) {
				total++
			}
		}
		page.Total = &total
		return http.StatusOK, page
	}
	for _, i := range f.items {
		switch {
		case i.Kind != kindNamed(collection), parent != "" && (i.OwnerResource == nil || i.OwnerResource.ID != parent),
			!sel.Matches(selector.Map(i.Labels)), !matchesSearch(q.Get("search"), i), i.ID <= q.Get("continue"):
			continue
		}
		if len(page.Items) == limit {
			page.Continue = page.Items[limit-1].ID
			break
		}
		page.Items = append(page.Items, i)
	}
	page.Size = len(page.Items)
	return http.StatusOK, page
}

func (f *fakeAPI) listSyncs(r *http.Request) (int, any) {
	q := r.URL.Query()
	limit, _ := strconv.Atoi(q.Get("limit"))
	from, _ := strconv.Atoi(q.Get("continue"))
	page := v1.ClusterSyncList{Items: []v1.ClusterSync{}}
	for n, s := range f.syncs {
		switch {
		case n < from, q.Has("state") && !slices.Contains(strings.Split(q.Get("state"), ","), string(s.State)):
			continue
		}
		if len(page.Items) == limit {
			page.Continue = strconv.Itoa(n)
			return http.StatusOK, page
		}
		page.Items = append(page.Items, s)
	}
	return http.StatusOK, page
}

// handleSync answers for the sync of one cluster, and steers it as the API does.
func (f *fakeAPI) handleSync(id string, action []string) (int, any) {
	n := slices.IndexFunc(f.syncs, func(s v1.ClusterSync) bool { return s.ClusterID == id })
	if n < 0 {
		return http.StatusNotFound, v1.Problem{Detail: "no such cluster"}
	}
	s := &f.syncs[n]
	switch strings.Join(action, "/") {
	case "retry":
		switch s.State {
		case v1.SyncRunning:
			return http.StatusConflict, v1.Problem{Code: "sync_running", Detail: "a worker is at it"}
		case v1.SyncPaused:
			return http.StatusConflict, v1.Problem{Code: "sync_paused", Detail: "it is paused"}
		case v1.SyncPending, v1.SyncBackingOff, v1.SyncStuck:
			s.State, s.Attempts = v1.SyncPending, 0
		case v1.SyncSynced:
		}
	case "pause":
		s.State = v1.SyncPaused
	case "resume":
		s.State = v1.SyncPending
	}
	return http.StatusOK, *s
}

func kindNamed(collection string) string {
	k, err := resource.ParseKind(collection)
	if err != nil {
		panic(err)
	}
	return k.Name
}

// matchesSearch knows the three expressions that the command line itself writes.
func matchesSearch(expr string, i v1.Resource) bool {
	literals := regexp.MustCompile(`'((?:[^']|'')*)'`).FindAllStringSubmatch(expr, -1)
	for _, l := range literals {
		text := strings.ReplaceAll(l[1], "''", "'")
		switch {
		case strings.HasPrefix(expr, "name = ") && i.Name == text,
			strings.HasPrefix(expr, "name like ") && strings.HasPrefix(i.Name, strings.TrimSuffix(text, "%")),
			strings.HasPrefix(expr, "id in ") && i.ID == text:
			return true
		}
	}
	return expr == ""
}

func (f *fakeAPI) createItem(path []string, body []byte) (int, any) {
	var c v1.CreateRequest
	if err := json.Unmarshal(body, &c); err != nil {
		return http.StatusBadRequest, v1.Problem{Detail: err.Error()}
	}
	for _, i := range f.items {
		if i.Name == c.Name && i.Kind == c.Kind {
			return http.StatusConflict, v1.Problem{Code: "name_taken", Detail: fmt.Sprintf("the name %q is taken", c.Name)}
		}
	}
	i := newResource(c.Kind, len(f.items)+1, c.Name)
	i.Spec, i.Labels, i.Status = c.Spec, c.Labels, v1.Status{Phase: v1.PhasePending}
	if len(path) == 3 {
		i.OwnerResource = &v1.Reference{ID: path[1], Kind: v1.KindCluster}
	}
	f.items = append(f.items, i)
	return http.StatusCreated, i
}

func (f *fakeAPI) changeItem(fn func(*fakeAPI)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

// sentRequests gives the requests that are not reads.
func (f *fakeAPI) sentRequests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r string) bool { return strings.HasPrefix(r, "GET ") })
}

// answering gives the same answer to every request.
func answering(status int, body any) func(*http.Request) (int, any) {
	return func(*http.Request) (int, any) { return status, body }
}

func testID(n int) string { return fmt.Sprintf("019a0000-0000-7000-8000-%012d", n) }

func newResource(kind string, n int, name string) v1.Resource {
	return v1.Resource{
		ID: testID(n), Kind: kind, Name: name, Href: v1.BasePath + "/x/" + testID(n),
		Spec: json.RawMessage(`{"version":"1.30","replicas":3}`), Generation: 1,
		CreatedTime: now.Add(-time.Hour), UpdatedTime: now.Add(-time.Hour),
		Metadata: v1.Metadata{Name: name},
		Status: v1.Status{
			Phase: v1.PhaseReady, ObservedGeneration: 1,
			LastUpdatedTime: now.Add(-7 * time.Second), LastTransitionTime: now.Add(-30 * time.Minute),
		},
	}
}

// newFleet gives two clusters with a node pool each, both called workers.
func newFleet() *fakeAPI {
	c1, c2 := newResource(v1.KindCluster, 1, "c1"), newResource(v1.KindCluster, 2, "c2")
	c1.Labels = map[string]string{"region": "us-east", "tier": "gold"}
	c1.Metadata.DisplayName = "The first"
	c1.CreatedBy = "alice"
	c2.Generation, c2.Status.Phase = 3, v1.PhaseProvisioning
	c2.Status.Conditions = []v1.Condition{
		{Type: v1.ConditionReconciled, Status: v1.ConditionFalse, Reason: "ReconciledMissingAdapters", Message: "dns has not reported on generation 3", ObservedGeneration: 3, LastTransitionTime: now.Add(-90 * time.Second)},
		{Type: "ValidationSuccessful", Status: v1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: now.Add(-3 * time.Minute)},
	}
	p1, p2 := newResource(v1.KindNodePool, 3, "workers"), newResource(v1.KindNodePool, 4, "workers")
	p1.OwnerResource = &v1.Reference{ID: c1.ID, Kind: v1.KindCluster}
	p2.OwnerResource = &v1.Reference{ID: c2.ID, Kind: v1.KindCluster}
	p2.Status = v1.Status{Phase: v1.PhasePending}
	said := func(available v1.ConditionStatus, reason, message string) []v1.AdapterCondition {
		return []v1.AdapterCondition{
			{ReportCondition: v1.ReportCondition{Type: v1.ConditionAvailable, Status: available, Reason: reason, Message: message}},
			{ReportCondition: v1.ReportCondition{Type: v1.ConditionApplied, Status: available}},
			{ReportCondition: v1.ReportCondition{Type: v1.ConditionHealth, Status: v1.ConditionTrue}},
		}
	}
	return &fakeAPI{
		items: []v1.Resource{c1, c2, p1, p2},
		reports: map[string][]v1.AdapterStatus{c2.ID: {
			{Adapter: "validation", ObservedGeneration: 3, Conditions: said(v1.ConditionTrue, "WorkSucceeded", "validation is complete"), LastReportTime: now.Add(-7 * time.Second)},
			{Adapter: "dns", ObservedGeneration: 1, Conditions: said(v1.ConditionFalse, "PreconditionsNotMet", "Waiting for validation to complete"), LastReportTime: now.Add(-5 * time.Minute)},
		}},
	}
}

// syncOf is the sync of a cluster of newSyncs.
func syncOf(n int, name string, state v1.SyncState, change func(*v1.ClusterSync)) v1.ClusterSync {
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	s := v1.ClusterSync{ClusterID: testID(n), Name: name, State: state, Generation: 3, SyncedGeneration: 2}
	if state == v1.SyncSynced {
		s.Synced, s.SyncedGeneration = at(-time.Hour), 3
	} else {
		s.UnsyncedSince = at(-time.Duration(20-n) * time.Minute)
	}
	if state != v1.SyncSynced && state != v1.SyncPaused {
		s.NextAttempt = at(-time.Second)
	}
	if change != nil {
		change(&s)
	}
	return s
}

// newSyncs gives clusters whose syncs are in all states.
func newSyncs() *fakeAPI {
	f := &fakeAPI{}
	for n, name := range []string{"c-stuck", "c-backing-off", "c-running", "c-paused", "c-pending", "c-synced", "c-broken"} {
		f.items = append(f.items, newResource(v1.KindCluster, n+1, name))
		f.items[n].Labels = map[string]string{"odd": strconv.Itoa((n + 1) % 2)}
	}
	at := func(d time.Duration) *time.Time { t := now.Add(d); return &t }
	f.syncs = []v1.ClusterSync{
		syncOf(1, "c-stuck", v1.SyncStuck, func(s *v1.ClusterSync) {
			s.Attempts, s.LastAttempt, s.NextAttempt = 9, at(-10*time.Minute), at(5*time.Minute)
			s.Error = "apply shoot \"c-stuck-1\": the version 1.99 of Kubernetes is not in the cloud profile \"local\";\nthere are 1.33.1 and 1.34.0"
			s.ErrorClass, s.ShootName = "invalid", "c-stuck-1"
		}),
		syncOf(2, "c-backing-off", v1.SyncBackingOff, func(s *v1.ClusterSync) {
			s.Deleting, s.Attempts, s.LastAttempt, s.NextAttempt = true, 1, at(-15*time.Second), at(45*time.Second)
			s.Error, s.ErrorClass, s.ShootName, s.ShootStatus = "no right to delete", "forbidden", "c-backing-2", v1.ShootReady
		}),
		syncOf(3, "c-running", v1.SyncRunning, func(s *v1.ClusterSync) {
			s.ClaimedBy, s.LastAttempt, s.NextAttempt = "worker-7", at(-2*time.Second), at(58*time.Second)
		}),
		syncOf(4, "c-paused", v1.SyncPaused, func(s *v1.ClusterSync) {
			s.PausedAt = at(-3 * time.Hour)
			s.Pause = &v1.SyncPause{By: "alice", Reason: "network\nmaintenance", Since: *s.PausedAt, Until: at(2 * time.Hour)}
		}),
		syncOf(5, "c-pending", v1.SyncPending, nil),
		syncOf(6, "c-synced", v1.SyncSynced, func(s *v1.ClusterSync) { s.ShootName, s.ShootStatus = "c-synced-6", v1.ShootReady }),
		syncOf(7, "c-broken", v1.SyncSynced, func(s *v1.ClusterSync) {
			s.ShootName, s.ShootStatus, s.ShootStatusMessage = "c-broken-7", v1.ShootError, "Create failed: no quota"
		}),
	}
	return f
}
