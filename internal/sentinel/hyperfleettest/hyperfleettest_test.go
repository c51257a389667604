package hyperfleettest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	api "github.com/fleetloop/fleetloop/internal/sentinel/hyperfleettest"
)

type condition struct {
	Type               string
	Status             string
	Reason             string
	ObservedGeneration int64     `json:"observed_generation"`
	LastUpdatedTime    time.Time `json:"last_updated_time"`
	LastTransitionTime time.Time `json:"last_transition_time"`
}

type resource struct {
	ID, Kind, Name, Href string
	Generation           int64
	CreatedTime          time.Time  `json:"created_time"`
	UpdatedTime          time.Time  `json:"updated_time"`
	DeletedTime          *time.Time `json:"deleted_time"`
	Status               struct {
		Phase              string
		ObservedGeneration int64     `json:"observed_generation"`
		LastUpdatedTime    time.Time `json:"last_updated_time"`
		UpdatedAt          time.Time `json:"updated_at"`
		Conditions         []condition
	}
}

func (r resource) condition(kind string) condition {
	for _, c := range r.Status.Conditions {
		if c.Type == kind {
			return c
		}
	}
	return condition{}
}

type list struct {
	Items             []resource
	Page, Size, Total int
}

func (l list) names() (names []string) {
	for _, r := range l.Items {
		names = append(names, r.Name)
	}
	return names
}

func get[T any](t *testing.T, s *api.Server, path string) (out T) {
	t.Helper()
	status, body := s.ServeRequest(http.MethodGet, path, "")
	if status != http.StatusOK {
		t.Fatalf("GET %s: %d %s", path, status, body)
	}
	if err := json.Unmarshal(body, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// fleet creates clusters c-00 and so on, a second apart. Those with an even number are in us-east.
func fleet(s *api.Server, n int) (ids []string) {
	for i := range n {
		ids = append(ids, s.CreateResource("clusters", fmt.Sprintf("c-%02d", i), "region", []string{"us-east", "eu"}[i%2]))
		time.Sleep(time.Second)
	}
	return ids
}

func TestList(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		fleet(s, 25)
		cases := map[string]struct {
			reason            string
			query             string
			page, size, total int
			first, last       string
		}{
			"Default":     {"20, the newest first", "", 1, 20, 25, "c-24", "c-05"},
			"Second":      {"the rest", "page=2", 2, 5, 25, "c-04", "c-00"},
			"Beyond":      {"an empty page and the same total", "page=3", 3, 0, 25, "", ""},
			"Size":        {"up to 100", "size=100", 1, 25, 25, "c-24", "c-00"},
			"ByID":        {"ids ascend with creation", "order=id&size=3", 1, 3, 25, "c-00", "c-02"},
			"ByIDDown":    {"and descend", "order=id%20desc&size=3", 1, 3, 25, "c-24", "c-22"},
			"Labels":      {"never known there, and ignored", "labels=region=eu&size=1", 1, 1, 25, "c-24", "c-24"},
			"Ours":        {"parameters of another API are ignored", "limit=3&continue=x&changed_since=y&ids=z&watch=true", 1, 20, 25, "c-24", "c-05"},
			"OldSize":     {"renamed long ago", "pageSize=3", 1, 20, 25, "c-24", "c-05"},
			"Search":      {"counts what matches", "size=2&search=" + url.QueryEscape("labels.region='eu'"), 1, 2, 12, "c-23", "c-21"},
			"SearchTwo":   {"and joins", "search=" + url.QueryEscape("labels.region='eu' and name < 'c-05'"), 1, 2, 2, "c-03", "c-01"},
			"SearchIn":    {"sets", "search=" + url.QueryEscape("labels.region in ['eu','us-west'] and name <= 'c-01'"), 1, 1, 1, "c-01", "c-01"},
			"NoneMatches": {"an empty list", "search=" + url.QueryEscape("labels.region='none'"), 1, 0, 0, "", ""},
		}
		for name, tc := range cases {
			l := get[list](t, s, "/clusters?"+tc.query)
			names := append(l.names(), "")
			if l.Page != tc.page || l.Size != tc.size || l.Total != tc.total || names[0] != tc.first || names[max(0, l.Size-1)] != tc.last {
				t.Errorf("%s: %s: got page %d, size %d, total %d, %v", name, tc.reason, l.Page, l.Size, l.Total, names)
			}
		}
		if _, body := s.ServeRequest(http.MethodGet, "/clusters?page=9", ""); !strings.Contains(string(body), `"items":[]`) {
			t.Errorf("an empty page has an empty array: %s", body)
		}
	})
}

func TestRefusals(t *testing.T) {
	s := api.New(api.Config{})
	id := s.CreateResource("clusters", "one")
	type problem struct {
		Code    string
		TraceID string `json:"trace_id"`
		Errors  []struct{ Field, Constraint string }
	}
	cases := map[string]struct {
		reason            string
		method, path      string
		body              string
		status            int
		field, constraint string
	}{
		"TooLarge":      {reason: "names the field and the constraint", path: "/clusters?size=101", status: 400, field: "size", constraint: "max"},
		"PageZero":      {reason: "pages count from 1", path: "/clusters?page=0", status: 400, field: "page", constraint: "min"},
		"HyphenKey":     {reason: "label keys with a hyphen can not be searched", path: "/clusters?search=" + url.QueryEscape("labels.cluster-type='x'"), status: 400},
		"SlashKey":      {reason: "nor with a slash", path: "/clusters?search=" + url.QueryEscape("labels.a/b='x'"), status: 400},
		"NotLabels":     {reason: "not knows columns alone", path: "/clusters?search=" + url.QueryEscape("not labels.a='x'"), status: 400},
		"LongSearch":    {reason: "4096 characters", path: "/clusters?search=" + url.QueryEscape("name='"+strings.Repeat("x", 4096)+"'"), status: 400},
		"UnknownField":  {reason: "of search", path: "/clusters?search=" + url.QueryEscape("size=1"), status: 400},
		"Order":         {reason: "of an unknown field", path: "/clusters?order=colour", status: 400},
		"NotFound":      {reason: "single resources", path: "/clusters/none", status: 404},
		"OtherKind":     {reason: "an id belongs to its kind", path: "/channels/" + id, status: 404},
		"Duplicate":     {reason: "names are unique", method: "POST", path: "/clusters", body: `{"kind":"Cluster","name":"one","spec":{}}`, status: 409},
		"BadName":       {reason: "DNS labels", method: "POST", path: "/clusters", body: `{"name":"No!"}`, status: 400, field: "name", constraint: "pattern"},
		"FlatChild":     {reason: "children are created under their parent", method: "POST", path: "/nodepools", body: `{"name":"np1"}`, status: 422},
		"UnknownPatch":  {reason: "unknown fields in a patch", method: "PATCH", path: "/clusters/" + id, body: `{"colour":1}`, status: 400},
		"FewConditions": {reason: "a report has three", method: "PUT", path: "/clusters/" + id + "/statuses", body: `{"adapter":"dns","observed_generation":1,"conditions":[]}`, status: 400, field: "conditions", constraint: "required"},
		"ForceTooSoon":  {reason: "only what is being deleted", method: "POST", path: "/clusters/" + id + "/force-delete", body: `{"reason":"x"}`, status: 409},
	}
	for name, tc := range cases {
		if tc.method == "" {
			tc.method = http.MethodGet
		}
		status, body := s.ServeRequest(tc.method, tc.path, tc.body)
		var p problem
		if err := json.Unmarshal(body, &p); status != tc.status || err != nil || p.TraceID == "" {
			t.Errorf("%s: %s: got %d %s", name, tc.reason, status, body)
		}
		if tc.field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != tc.field || p.Errors[0].Constraint != tc.constraint) {
			t.Errorf("%s: %s: got errors %v", name, tc.reason, p.Errors)
		}
	}
	status, body := s.ServeRequest(http.MethodPost, "/clusters/"+id+"/statuses", "{}")
	if status != http.StatusMethodNotAllowed || json.Valid(body) {
		t.Errorf("POST of a status: got %d %s, want 405 in plain text", status, body)
	}
}

func TestSearch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		ids := fleet(s, 4)
		s.CreateResource("clusters", "plain")
		s.CreateResource("clusters", "quoted", "note", "it's")
		s.PatchSpec("clusters", ids[1], `{"x":1}`)
		s.ReportAllConditionsTrue("clusters", ids[2], "validation", 1)
		s.ReportAllConditionsTrue("clusters", ids[2], "dns", 1)
		s.RequestDeletion("clusters", ids[3])
		cases := map[string]string{
			"labels.region='us-east' and name != 'c-00'":                       "c-02",
			"labels.region != 'us-east'":                                       "c-01 c-03", // not those without the label
			"labels.note = 'it''s'":                                            "quoted",
			"generation > 1":                                                   "c-01 c-03",
			"name like 'c-%' and generation <= 1":                              "c-00 c-02",
			"deleted_time is not null":                                         "c-03",
			"deleted_time is null and name like 'c-%'":                         "c-00 c-01 c-02",
			"status.conditions.Reconciled='True'":                              "c-02",
			"status.conditions.DnsSuccessful='True'":                           "c-02",
			"id > '" + ids[2] + "'":                                            "c-03 plain quoted",
			"id = '" + ids[2] + "' or id = '" + ids[0] + "'":                   "c-00 c-02",
			"(name='c-00' or name='c-01') and generation=1":                    "c-00",
			"not name in ['c-00','c-01'] and kind='Cluster'":                   "c-02 c-03 plain quoted",
			"created_time < '" + at(3) + "'":                                   "c-00 c-01 c-02",
			"status.conditions.Reconciled.last_updated_time < '" + at(1) + "'": "c-00",
		}
		for search, want := range cases {
			got := strings.Join(get[list](t, s, "/clusters?order=name&search="+url.QueryEscape(search)).names(), " ")
			if got != want {
				t.Errorf("%s: got %q, want %q", search, got, want)
			}
		}
	})
}

// at returns the time that many seconds after the start of the bubble.
func at(seconds int) string {
	return time.Date(2000, 1, 1, 0, 0, seconds, 0, time.UTC).Format(time.RFC3339)
}

// TestDrift: without a tie-breaker, pages of a list that does not change skip
// some resources and repeat others; sorted by id they do not.
func TestDrift(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{Shuffle: true})
		const n = 301
		for i := range n {
			s.CreateResource("clusters", fmt.Sprintf("c-%03d", i)) // all within an instant
		}
		count := func(query string) int {
			seen := map[string]bool{}
			for p := 1; p <= 4; p++ {
				for _, r := range get[list](t, s, fmt.Sprintf("/clusters?size=100&page=%d%s", p, query)).Items {
					seen[r.ID] = true
				}
			}
			return len(seen)
		}
		if got := count(""); got == n {
			t.Error("no drift")
		}
		if got := count("&order=id"); got != n {
			t.Errorf("sorted by id: %d of %d", got, n)
		}
	})
}

// TestAggregation checks the content of the conditions, and its limits: the generation of
// Reconciled is always the resource's.
func TestAggregation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		id := s.CreateResource("clusters", "one")
		want := func(when string, reconciled string, reason string, observed map[string]int64) {
			t.Helper()
			r := get[resource](t, s, "/clusters/"+id)
			c := r.condition("Reconciled")
			if c.Status != reconciled || c.Reason != reason || c.ObservedGeneration != r.Generation {
				t.Errorf("%s: %+v", when, c)
			}
			got := map[string]int64{}
			for _, c := range r.Status.Conditions {
				if name, ok := strings.CutSuffix(c.Type, "Successful"); ok {
					got[name] = c.ObservedGeneration
				}
			}
			if diff := cmp.Diff(observed, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", when, diff)
			}
			if r.Status.Phase != "" {
				t.Errorf("%s: there is a phase", when)
			}
		}
		want("created", "False", "ReconciledMissingAdapters", map[string]int64{})
		time.Sleep(time.Second)
		s.ReportAllConditionsTrue("clusters", id, "validation", 1)
		want("one report", "False", "ReconciledMissingAdapters", map[string]int64{"Validation": 1})
		time.Sleep(time.Second)
		s.ReportAllConditionsTrue("clusters", id, "dns", 1)
		s.ReportAllConditionsTrue("clusters", id, "stranger", 1)
		want("all reports", "True", "ReconciledAll", map[string]int64{"Validation": 1, "Dns": 1})
		r := get[resource](t, s, "/clusters/"+id)
		if c := r.condition("Reconciled"); c.LastUpdatedTime.Format(time.RFC3339) != at(1) || c.LastTransitionTime.Format(time.RFC3339) != at(2) {
			t.Errorf("the oldest report, and the change: %+v", c)
		}

		time.Sleep(time.Second)
		s.PatchSpec("clusters", id, `{"x":1}`)
		want("patched", "False", "ReconciledMissingAdapters", map[string]int64{"Validation": 1, "Dns": 1})
		r = get[resource](t, s, "/clusters/"+id)
		if c := r.condition("Reconciled"); !c.LastUpdatedTime.Equal(r.UpdatedTime) || !c.LastTransitionTime.Equal(r.UpdatedTime) {
			t.Errorf("times follow the patch: %+v, updated %s", c, r.UpdatedTime)
		}
		if c := r.condition("LastKnownReconciled"); c.Status != "True" || c.ObservedGeneration != 1 {
			t.Errorf("what was known stays: %+v", c)
		}
		s.PatchSpec("clusters", id, `{"x":1}`)
		if again := get[resource](t, s, "/clusters/"+id); again.Generation != 2 {
			t.Errorf("the same value made generation %d", again.Generation)
		}
	})
}

func TestReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		id := s.CreateResource("clusters", "one")
		put := func(generation int64, ago time.Duration, available string) int {
			status, _ := s.ServeRequest(http.MethodPut, "/clusters/"+id+"/statuses", fmt.Sprintf(
				`{"adapter":"dns","observed_generation":%d,"observed_time":%q,"conditions":[{"type":"Available","status":%q},{"type":"Applied","status":"True"},{"type":"Health","status":"True"}]}`,
				generation, time.Now().Add(-ago).Format(time.RFC3339Nano), available))
			return status
		}
		s.PatchSpec("clusters", id, `{"x":1}`)
		time.Sleep(time.Minute)
		steps := []struct {
			reason     string
			generation int64
			ago        time.Duration
			available  string
			want       int
		}{
			{"above the resource's generation", 3, 0, "True", 204},
			{"below 1", 0, 0, "True", 400},
			{"from the future", 2, -6 * time.Minute, "True", 400},
			{"too old", 2, 31 * time.Minute, "True", 400},
			{"the first may be unknown", 2, 30 * time.Second, "Unknown", 201},
			{"later ones may not", 2, 0, "Unknown", 204},
			{"a generation that is over", 1, 0, "True", 204},
			{"older than the last", 2, 40 * time.Second, "True", 204},
			{"news", 2, 0, "True", 201},
			{"no such status", 2, 0, "Maybe", 400},
		}
		for _, step := range steps {
			if got := put(step.generation, step.ago, step.available); got != step.want {
				t.Errorf("%s: got %d, want %d", step.reason, got, step.want)
			}
		}
		if l := get[struct{ Items []struct{ Adapter string } }](t, s, "/clusters/"+id+"/statuses"); len(l.Items) != 1 || l.Items[0].Adapter != "dns" {
			t.Errorf("reports: %v", l)
		}
	})
}

// TestDeletion checks that a resource in deletion stays listed until its adapters have finalized
// it. Its parent stays until one of its adapters reports after that.
func TestDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := api.New(api.Config{})
		id := s.CreateResource("clusters", "one")
		child := s.CreateResource("clusters/"+id+"/nodepools", "np1")
		s.RequestDeletion("clusters", id)
		if status, _ := s.ServeRequest(http.MethodPatch, "/clusters/"+id, `{"spec":{"x":1}}`); status != http.StatusConflict {
			t.Errorf("patch of what is being deleted: %d", status)
		}
		l := get[list](t, s, "/clusters")
		if l.Total != 1 || l.Items[0].DeletedTime == nil || l.Items[0].Generation != 2 {
			t.Errorf("listed: %+v", l)
		}
		s.ReportAllConditionsTrue("clusters", id, "validation", 2)
		s.ReportAllConditionsTrue("clusters", id, "dns", 2)
		if c := get[resource](t, s, "/clusters/"+id).condition("Reconciled"); c.Reason != "ReconciledWaitingForChildren" {
			t.Errorf("with a child: %+v", c)
		}
		s.ReportAllConditionsTrue("nodepools", child, "validation", 2)
		if status, _ := s.ServeRequest(http.MethodGet, "/nodepools/"+child, ""); status != http.StatusNotFound {
			t.Errorf("the child: %d", status)
		}
		if status, _ := s.ServeRequest(http.MethodGet, "/clusters/"+id, ""); status != http.StatusOK {
			t.Errorf("the parent, whose adapters have nothing more to say: %d", status)
		}
		s.ReportAllConditionsTrue("clusters", id, "dns", 2)
		if l := get[list](t, s, "/clusters"); l.Total != 0 {
			t.Errorf("left: %+v", l)
		}

		forced := s.CreateResource("channels", "two")
		_ = s.CreateResource("clusters", "three")
		s.RequestDeletion("channels", forced) // no adapters: gone at once
		if status, _ := s.ServeRequest(http.MethodGet, "/channels/"+forced, ""); status != http.StatusNotFound {
			t.Errorf("without adapters: %d", status)
		}
	})
}

func TestChildren(t *testing.T) {
	s := api.New(api.Config{})
	a, b := s.CreateResource("clusters", "one"), s.CreateResource("clusters", "two")
	s.CreateResource("clusters/"+a+"/nodepools", "np1")
	np2 := s.CreateResource("clusters/"+b+"/nodepools", "np2")
	if got := get[list](t, s, "/nodepools?order=name").names(); !slices.Equal(got, []string{"np1", "np2"}) {
		t.Errorf("flat: %v", got)
	}
	if got := get[list](t, s, "/clusters/"+b+"/nodepools").names(); !slices.Equal(got, []string{"np2"}) {
		t.Errorf("nested: %v", got)
	}
	r := get[resource](t, s, "/nodepools/"+np2)
	if want := "/api/hyperfleet/v1/clusters/" + b + "/nodepools/" + np2; r.Href != want || r.Kind != "NodePool" {
		t.Errorf("got %+v, want href %s", r, want)
	}
}
