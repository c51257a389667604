package fleetapi_test

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

// query returns a path with parameters.
func query(path string, pairs ...string) string {
	v := url.Values{}
	for pair := range slices.Chunk(pairs, 2) {
		v.Add(pair[0], pair[1])
	}
	return path + "?" + v.Encode()
}

func TestSelecting(t *testing.T) {
	f := newFixture(t)
	f.create("clusters", "c-east", map[string]string{"region": "us-east", "shard": "1", "cluster-type": "hypershift"})
	west := f.create("clusters", "c-west", map[string]string{"region": "us-west", "shard": "1"})
	f.create("clusters", "c-bare", nil)
	f.report("clusters/"+west.ID, "dns", 1)
	f.report("clusters/"+west.ID, "validation", 1)
	deleted := f.create("clusters", "c-gone", map[string]string{"region": "eu", "example.com/team": "a"})
	f.delete("clusters/" + deleted.ID)

	cases := map[string]struct {
		parameter, value string
		want             []string
	}{
		"All":                {"labels", "", []string{"c-bare", "c-east", "c-gone", "c-west"}},
		"Equal":              {"labels", "region=us-east", []string{"c-east"}},
		"And":                {"labels", "shard=1,region!=us-east", []string{"c-west"}},
		"NotEqual":           {"labels", "region!=us-east", []string{"c-bare", "c-gone", "c-west"}},
		"In":                 {"labels", "region in (us-east,eu)", []string{"c-east", "c-gone"}},
		"NotIn":              {"labels", "region notin (us-east,eu)", []string{"c-bare", "c-west"}},
		"Exists":             {"labels", "shard", []string{"c-east", "c-west"}},
		"NotExists":          {"labels", "!region", []string{"c-bare"}},
		"Hyphen":             {"labels", "cluster-type=hypershift", []string{"c-east"}},
		"Prefix":             {"labels", "example.com/team=a", []string{"c-gone"}},
		"Impossible":         {"labels", "region=nowhere", []string{}},
		"Contradiction":      {"labels", "region=us-east,region=us-west", []string{}},
		"Search":             {"search", "labels.region='us-east' and labels.shard='1'", []string{"c-east"}},
		"SearchHyphen":       {"search", "labels.cluster-type='hypershift'", []string{"c-east"}},
		"SearchNot":          {"search", "labels.region != 'us-east'", []string{"c-bare", "c-gone", "c-west"}},
		"SearchIn":           {"search", "labels.region in ['us-east','us-west']", []string{"c-east", "c-west"}},
		"SearchLike":         {"search", "name like 'c-%t'", []string{"c-east", "c-west"}},
		"SearchGeneration":   {"search", "generation > 1", []string{"c-gone"}},
		"SearchNull":         {"search", "deleted_time is null", []string{"c-bare", "c-east", "c-west"}},
		"SearchNotNull":      {"search", "deleted_time is not null", []string{"c-gone"}},
		"SearchCondition":    {"search", "status.conditions.Reconciled='True'", []string{"c-west"}},
		"SearchNoCondition":  {"search", "not status.conditions.Reconciled='True'", []string{"c-bare", "c-east", "c-gone"}},
		"SearchConditionAge": {"search", "status.conditions.Reconciled.last_updated_time < '2026-01-01T00:00:00Z'", []string{}},
		"SearchAge":          {"search", "status.last_updated_time > '2026-01-01T00:00:00Z' and status.phase = 'Pending'", []string{"c-bare", "c-east"}},
		"SearchPhase":        {"search", "status.phase in ['Ready', 'Deleting']", []string{"c-gone", "c-west"}},
		"SearchObserved":     {"search", "status.observed_generation = 1", []string{"c-west"}},
		"SearchKeyset":       {"search", "id > '" + west.ID + "'", []string{"c-bare", "c-gone"}},
		"SearchQuote":        {"search", "labels.region = 'o''hare'", []string{}},
		"SearchInjection":    {"search", "labels.region = ''' or 1=1 --'", []string{}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := f.under(t)
			got := f.names(query("clusters", tc.parameter, tc.value, "order", "name"))
			wantEqual(t, "by number", tc.want, got)
			got = f.names(query("clusters", tc.parameter, tc.value, "limit", "500"))
			slices.Sort(got)
			wantEqual(t, "by keyset", tc.want, got)
		})
	}
	wantEqual(t, "both", []string{"c-west"}, f.names(query("clusters", "labels", "shard=1", "search", "status.phase='Ready'")))
}

func TestOrders(t *testing.T) {
	f := newFixture(t)
	var ids []string
	for _, name := range []string{"bbb", "aaa", "ccc"} {
		ids = append(ids, f.create("clusters", name, nil).ID)
	}
	f.do("PATCH", "clusters/"+ids[1], `{"spec":{"n":1}}`).want(200)
	if !slices.IsSorted(ids) {
		t.Errorf("ids do not follow the order of creation: %v", ids)
	}
	for order, want := range map[string][]string{
		"":                  {"ccc", "aaa", "bbb"},
		"created_time desc": {"ccc", "aaa", "bbb"},
		"created_time":      {"bbb", "aaa", "ccc"},
		"id":                {"bbb", "aaa", "ccc"},
		"id desc":           {"ccc", "aaa", "bbb"},
		"name":              {"aaa", "bbb", "ccc"},
		"name DESC":         {"ccc", "bbb", "aaa"},
		"generation desc":   {"aaa", "ccc", "bbb"},
		"updated_time":      {"bbb", "ccc", "aaa"},
	} {
		wantEqual(t, order, want, f.names(query("clusters", "order", order)))
	}
	wantEqual(t, "older spelling", []string{"ccc", "bbb", "aaa"}, f.names(query("clusters", "orderBy", "name", "order", "desc")))
	wantEqual(t, "older spelling, one word", []string{"aaa", "bbb", "ccc"}, f.names(query("clusters", "orderBy", "name")))
}

func TestListRefuses(t *testing.T) {
	f := newFixture(t)
	cases := map[string]struct {
		pairs      []string
		field      string
		constraint string
		says       string
	}{
		"BadSelector":      {[]string{"labels", "a=b,c in ("}, "labels", "format", "column"},
		"LongSelector":     {[]string{"labels", strings.Repeat("a", 4097)}, "labels", "max_length", "4097 characters"},
		"BadSearch":        {[]string{"search", "colour = 'red'"}, "search", "format", `column 1: unknown column "colour"`},
		"PageZero":         {[]string{"page", "0"}, "page", "min", "at least 1"},
		"PageNegative":     {[]string{"page", "-99999999999999999999"}, "page", "min", "at least 1"},
		"PageWord":         {[]string{"page", "one"}, "page", "format", "a number"},
		"PageEmpty":        {[]string{"page", ""}, "page", "format", "a number"},
		"PageFar":          {[]string{"page", "100001"}, "page", "max", "at most 100000"},
		"PageHuge":         {[]string{"page", "99999999999999999999"}, "page", "max", "at most 100000"},
		"SizeZero":         {[]string{"size", "0"}, "size", "min", "at least 1"},
		"SizeLarge":        {[]string{"size", "501"}, "size", "max", "at most 500"},
		"PageSizeLarge":    {[]string{"pageSize", "501"}, "pageSize", "max", "at most 500"},
		"SizesDiffer":      {[]string{"size", "10", "pageSize", "20"}, "pageSize", "format", "differs from size; give only one of the two"},
		"LimitLarge":       {[]string{"limit", "501"}, "limit", "max", "at most 500"},
		"LimitZero":        {[]string{"limit", "0"}, "limit", "min", "at least 1"},
		"LimitAndPage":     {[]string{"limit", "5", "page", "2"}, "page", "format", "cannot be combined with"},
		"ContinueAndSize":  {[]string{"continue", "x", "size", "2"}, "size", "format", "cannot be combined with"},
		"LimitAndOrder":    {[]string{"limit", "5", "order", "colour"}, "order", "format", "each one of"},
		"EmptyContinue":    {[]string{"continue", ""}, "continue", "format", "empty"},
		"BadContinue":      {[]string{"continue", "bogus"}, "continue", "format", "not a token"},
		"BadOrder":         {[]string{"order", "colour"}, "order", "format", "one of created_by"},
		"BadDirection":     {[]string{"order", "name up"}, "order", "format", "asc or desc"},
		"OneBadOrder":      {[]string{"order", "name asc, colour"}, "order", "format", `the invalid term "colour"`},
		"Twice":            {[]string{"page", "1", "page", "2"}, "page", "unique", "2 times"},
		"StrictUnknown":    {[]string{"strict", "true", "colour", "red"}, "colour", "enum", "use one of labels, search"},
		"StrictAmiss":      {[]string{"strict", "very"}, "strict", "format", "true or false"},
		"SearchNotInRange": {[]string{"search", "name = '" + strings.Repeat("a", 4096) + "'"}, "search", "format", "at most 4096"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p := f.under(t).do("GET", query("clusters", tc.pairs...), nil).problem(400, "invalid_query", tc.says)
			if len(p.Errors) != 1 || p.Errors[0].Field != tc.field || p.Errors[0].Constraint != tc.constraint {
				t.Errorf("got %+v, want %s %s", p.Errors, tc.field, tc.constraint)
			}
		})
	}
	f.list(query("clusters", "colour", "red")) // ignored, as the public API does
	f.list(query("clusters", "strict", "false", "colour", "red", "size", "7", "pageSize", "7"))
	f.do("GET", "clusters/"+nobody+"/nodepools", nil).problem(404, "not_found", nobody)
	f.do("GET", "clusters/x/nodepools", nil).problem(404, "not_found", `"x"`)
}

func TestContinueBelongsToItsQuery(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", map[string]string{"a": "1", "b": "2"})
	f.create("clusters", "c-two", map[string]string{"a": "1", "b": "2"})
	first := f.list(query("clusters", "labels", "a=1,b=2", "limit", "1"))
	if first.Continue == "" || first.Page != 0 || first.Total != nil || first.Size != 1 {
		t.Fatalf("first page: %+v", first)
	}
	second := f.list(query("clusters", "labels", "b=2,a=1", "limit", "7", "continue", first.Continue)) // the same selector in another form
	if len(second.Items) != 1 || second.Items[0].Name != "c-two" || second.Continue != "" {
		t.Errorf("second page: %+v", second)
	}
	for _, other := range []string{
		query("clusters", "labels", "a=1", "continue", first.Continue),
		query("clusters", "labels", "a=1,b=2", "search", "generation=1", "continue", first.Continue),
		query("manifests", "labels", "a=1,b=2", "continue", first.Continue),
		query("clusters/"+c.ID+"/nodepools", "labels", "a=1,b=2", "continue", first.Continue),
	} {
		f.do("GET", other, nil).problem(400, "invalid_query", "belongs to another query")
	}
}

// A churn creates and removes rows while a list is read.
type churn struct {
	*fixture

	rnd    *rand.Rand
	stable map[string]bool // of the rows that exist from beginning to end
	passer []string        // of the rows that may be removed
	made   int
}

func newChurn(f *fixture, n int) *churn {
	f.Helper()
	c := &churn{fixture: f, rnd: rand.New(rand.NewPCG(1, 2)), stable: map[string]bool{}}
	for i := range n {
		r := c.make()
		if i%3 == 0 {
			c.passer = append(c.passer, r.ID)
		} else {
			c.stable[r.ID] = true
		}
	}
	return c
}

func (c *churn) make() v1.Resource {
	c.made++
	return c.create("manifests", fmt.Sprintf("m-%04d-%d", c.rnd.IntN(10_000), c.made), map[string]string{"kept": "yes"})
}

// step adds a row, removes one, and changes one so that the selector no longer matches.
func (c *churn) step() {
	c.Helper()
	for range c.rnd.IntN(3) {
		c.make()
	}
	for range c.rnd.IntN(3) {
		if len(c.passer) == 0 {
			return
		}
		i := c.rnd.IntN(len(c.passer))
		if c.rnd.IntN(2) == 0 {
			c.delete("manifests/" + c.passer[i]) // which needs no adapters
		} else {
			c.do("PATCH", "manifests/"+c.passer[i], `{"labels":{}}`).want(200)
		}
		c.passer = slices.Delete(c.passer, i, i+1)
	}
}

// wantOnce checks that stable rows were listed exactly once, and the others at most once.
func (c *churn) wantOnce(seen []string) {
	c.Helper()
	count := make(map[string]int)
	for _, id := range seen {
		count[id]++
		if count[id] > 1 {
			c.Errorf("%s was listed %d times", id, count[id])
		}
	}
	for id := range c.stable {
		if count[id] == 0 {
			c.Errorf("%s was there all the time and was skipped", id)
		}
	}
}

func TestKeysetWhileRowsChange(t *testing.T) {
	f := newFixture(t)
	c := newChurn(f, 90)
	var seen []string
	token := ""
	for {
		q := query("manifests", "labels", "kept=yes", "limit", "7")
		if token != "" {
			q += "&continue=" + token
		}
		page := f.list(q)
		for _, r := range page.Items {
			seen = append(seen, r.ID)
		}
		if token = page.Continue; token == "" {
			break
		}
		c.step()
	}
	c.wantOnce(seen)
}

func TestNumberedPagesWhileRowsChange(t *testing.T) {
	for _, order := range []string{"", "id", "id desc", "name", "name desc", "created_time"} {
		t.Run(order, func(t *testing.T) {
			f := newFixture(t)
			c := newChurn(f, 90)
			var seen []string
			for n := 1; ; n++ {
				page := f.list(query("manifests", "labels", "kept=yes", "size", "7", "order", order, "page", fmt.Sprint(n)))
				for _, r := range page.Items {
					seen = append(seen, r.ID)
				}
				if page.Page != n || page.Size != len(page.Items) {
					t.Errorf("page %d says it is %d of %d", n, page.Page, page.Size)
				}
				if len(page.Items) == 0 {
					break
				}
				c.step()
				if n%4 == 0 { // a repeated page begins at the same row
					again := f.list(query("manifests", "labels", "kept=yes", "size", "7", "order", order, "page", fmt.Sprint(n)))
					if len(again.Items) > 0 && c.stable[page.Items[0].ID] && again.Items[0].ID != page.Items[0].ID {
						t.Errorf("page %d began with %s and begins with %s", n, page.Items[0].ID, again.Items[0].ID)
					}
					for _, r := range again.Items {
						if !slices.Contains(seen, r.ID) {
							seen = append(seen, r.ID)
						}
					}
				}
			}
			c.wantOnce(seen)
		})
	}
}

func TestNumberedPagesOutOfTurn(t *testing.T) {
	f := newFixture(t)
	for i := range 25 {
		f.create("manifests", fmt.Sprintf("m-%02d", i), nil)
	}
	page := f.list("manifests?order=name&page=3&size=10")
	if len(page.Items) != 5 || page.Items[0].Name != "m-20" || *page.Total != 25 || page.Page != 3 || page.Size != 5 {
		t.Errorf("the last page: %+v", page)
	}
	page = f.list("manifests?order=name&page=9&size=10")
	if len(page.Items) != 0 || *page.Total != 25 || page.Size != 0 {
		t.Errorf("a page behind the last: %+v", page)
	}
	page = f.list("manifests?order=name&page=2&pageSize=10")
	if len(page.Items) != 10 || page.Items[0].Name != "m-10" {
		t.Errorf("back to the second: %+v", page)
	}
	wantEqual(t, "the second again", page, f.list("manifests?order=name&page=2&pageSize=10"))
	wantEqual(t, "default size", 20, len(f.list("manifests").Items))
}

// TestTiesAreBroken checks that rows of the same time are neither skipped nor repeated.
func TestTiesAreBroken(t *testing.T) {
	f := newFixture(t)
	for i := range 30 {
		f.create("manifests", fmt.Sprintf("m-%02d", i), nil)
	}
	seen := make(map[string]bool)
	for n := 1; n <= 5; n++ {
		for _, r := range f.list(query("manifests", "order", "generation desc", "size", "6", "page", fmt.Sprint(n))).Items {
			if seen[r.ID] {
				t.Errorf("%s occurs twice", r.Name)
			}
			seen[r.ID] = true
		}
	}
	wantEqual(t, "rows", 30, len(seen))
}
