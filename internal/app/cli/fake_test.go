package cli

import (
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
	"github.com/fleetloop/fleetloop/internal/app/cli/lookup"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// A fakeAPI answers as a fleet API does, as far as the command line asks. It
// stands in the place of the network, so that it works in a synctest bubble.
type fakeAPI struct {
	mu       sync.Mutex
	items    []v1.Resource // in the order of ids
	reports  map[string][]v1.AdapterStatus
	requests []string
	auth     string

	// before may answer in the API's place, by returning a status.
	before func(r *http.Request) (status int, body any)
	// tags gives every resource an ETag, which a change must name if it names one.
	tags map[string]int
	// down makes the server unreachable.
	down error
}

func (f *fakeAPI) wrap(http.RoundTripper) http.RoundTripper { return f }

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
	if match := r.Header.Get("If-Match"); match != "" && status == 0 && match != f.tag(path[strings.LastIndex(path, "/")+1:]) {
		status, answer = http.StatusPreconditionFailed, v1.Problem{Code: "precondition_failed", Detail: "it has changed"}
	}
	if status == 0 {
		status, answer = f.answer(r, strings.Split(path, "/"), body)
	}
	rec := httptest.NewRecorder()
	if one, ok := answer.(v1.Resource); ok && f.tags != nil {
		rec.Header().Set("ETag", f.tag(one.ID))
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

func (f *fakeAPI) tag(id string) string { return fmt.Sprintf(`"%d"`, f.tags[id]) }

func (f *fakeAPI) answer(r *http.Request, path []string, body []byte) (int, any) {
	switch {
	case r.Method == http.MethodGet && len(path) == 1:
		return f.list(r, path[0], "")
	case r.Method == http.MethodGet && len(path) == 3 && path[2] == "statuses":
		list := f.reports[path[1]]
		return http.StatusOK, v1.AdapterStatusList{Items: list, Total: int64(len(list))}
	case r.Method == http.MethodGet && len(path) == 3:
		return f.list(r, path[2], path[1])
	case r.Method == http.MethodPost:
		return f.create(path, body)
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

func (f *fakeAPI) list(r *http.Request, collection, parent string) (int, any) {
	q := r.URL.Query()
	sel, err := selector.Parse(q.Get("labels"))
	if err != nil {
		return http.StatusBadRequest, v1.Problem{Detail: err.Error()}
	}
	limit, _ := strconv.Atoi(q.Get("limit"))
	page := v1.List{Items: []v1.Resource{}}
	for _, i := range f.items {
		switch {
		case i.Kind != kindNamed(collection), parent != "" && (i.OwnerResource == nil || i.OwnerResource.ID != parent),
			!sel.Matches(selector.Map(i.Labels)), !searches(q.Get("search"), i), i.ID <= q.Get("continue"):
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

func kindNamed(collection string) string {
	k, err := lookup.ParseKind(collection)
	if err != nil {
		panic(err)
	}
	return k.Name
}

// searches knows the three expressions that the command line itself writes.
func searches(expr string, i v1.Resource) bool {
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

func (f *fakeAPI) create(path []string, body []byte) (int, any) {
	var c v1.CreateRequest
	if err := json.Unmarshal(body, &c); err != nil {
		return http.StatusBadRequest, v1.Problem{Detail: err.Error()}
	}
	for _, i := range f.items {
		if i.Name == c.Name && i.Kind == c.Kind {
			return http.StatusConflict, v1.Problem{Code: "name_taken", Detail: fmt.Sprintf("the name %q is taken", c.Name)}
		}
	}
	i := resource(c.Kind, len(f.items)+1, c.Name)
	i.Spec, i.Labels, i.Status = c.Spec, c.Labels, v1.Status{Phase: v1.PhasePending}
	if len(path) == 3 {
		i.OwnerResource = &v1.Reference{ID: path[1], Kind: v1.KindCluster}
	}
	f.items = append(f.items, i)
	return http.StatusCreated, i
}

func (f *fakeAPI) change(fn func(*fakeAPI)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	fn(f)
}

// sent gives the requests that are not reads.
func (f *fakeAPI) sent() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.requests), func(r string) bool { return strings.HasPrefix(r, "GET ") })
}

// answering gives the same answer to every request.
func answering(status int, body any) func(*http.Request) (int, any) {
	return func(*http.Request) (int, any) { return status, body }
}

func id(n int) string { return fmt.Sprintf("019a0000-0000-7000-8000-%012d", n) }

func resource(kind string, n int, name string) v1.Resource {
	return v1.Resource{
		ID: id(n), Kind: kind, Name: name, Href: v1.BasePath + "/x/" + id(n),
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
	c1, c2 := resource(v1.KindCluster, 1, "c1"), resource(v1.KindCluster, 2, "c2")
	c1.Labels = map[string]string{"region": "us-east", "tier": "gold"}
	c1.Metadata.DisplayName = "The first"
	c1.CreatedBy = "alice"
	c2.Generation, c2.Status.Phase = 3, v1.PhaseProvisioning
	c2.Status.Conditions = []v1.Condition{
		{Type: v1.ConditionReconciled, Status: v1.ConditionFalse, Reason: "ReconciledMissingAdapters", Message: "dns has not reported on generation 3", ObservedGeneration: 3, LastTransitionTime: now.Add(-90 * time.Second)},
		{Type: "ValidationSuccessful", Status: v1.ConditionTrue, ObservedGeneration: 3, LastTransitionTime: now.Add(-3 * time.Minute)},
	}
	p1, p2 := resource(v1.KindNodePool, 3, "workers"), resource(v1.KindNodePool, 4, "workers")
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
