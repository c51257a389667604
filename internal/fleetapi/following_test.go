package fleetapi_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/google/uuid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// since reads the changes of a collection, with more pairs of parameters.
func (f *fixture) since(collection, cursor string, pairs ...string) v1.Changes {
	f.Helper()
	path := query(collection, append([]string{"changed_since", cursor}, pairs...)...)
	return read[v1.Changes](f.do("GET", path, nil).want(http.StatusOK))
}

// A told summarizes changes, by name or, for removed resources, by id.
type told struct {
	Items   []string
	Removed []string
}

func (f *fixture) told(collection, cursor string, pairs ...string) told {
	f.Helper()
	c := f.since(collection, cursor, pairs...)
	t := told{Items: []string{}, Removed: c.Removed}
	for _, r := range c.Items {
		t.Items = append(t.Items, r.Name)
	}
	if c.Size != len(c.Items) || c.Cursor == "" {
		f.Errorf("got %+v", c)
	}
	return t
}

func (f *fixture) relabel(path, labels string) {
	f.Helper()
	f.do("PATCH", path, `{"labels":`+labels+`}`).want(http.StatusOK)
}

func TestWhatChanged(t *testing.T) {
	f := newFixture(t)
	one := f.create("clusters", "c-one", map[string]string{"shard": "1"})
	two := f.create("clusters", "c-two", map[string]string{"shard": "2"})
	cursor := f.list("clusters?limit=1").Cursor
	wantEqual(t, "nothing", told{[]string{}, []string{}}, f.told("clusters", cursor))

	cases := map[string]struct {
		reason string
		act    func()
		all    told
		shard1 told // for a client that selects shard=1
	}{
		"Report": {
			act:    func() { f.report("clusters/"+one.ID, "dns", 1) },
			all:    told{[]string{"c-one"}, []string{}},
			shard1: told{[]string{"c-one"}, []string{}},
		},
		"ReportElsewhere": {
			reason: "what never matched is nobody's loss",
			act:    func() { f.report("clusters/"+two.ID, "dns", 1) },
			all:    told{[]string{"c-two"}, []string{}},
			shard1: told{[]string{}, []string{}},
		},
		"Leaves": {
			act:    func() { f.relabel("clusters/"+one.ID, `{"shard":"2"}`) },
			all:    told{[]string{"c-one"}, []string{}},
			shard1: told{[]string{}, []string{one.ID}},
		},
		"Comes": {
			act:    func() { f.relabel("clusters/"+two.ID, `{"shard":"1"}`) },
			all:    told{[]string{"c-two"}, []string{}},
			shard1: told{[]string{"c-two"}, []string{}},
		},
		"LeavesAndIsReportedOn": {
			reason: "the last change is not the one of the labels",
			act: func() {
				f.relabel("clusters/"+one.ID, `{"shard":"2"}`)
				f.report("clusters/"+one.ID, "dns", 1)
			},
			all:    told{[]string{"c-one"}, []string{}},
			shard1: told{[]string{}, []string{one.ID}},
		},
		"NothingNew": {
			reason: "a patch that changes nothing leaves no trace",
			act:    func() { f.relabel("clusters/"+one.ID, `{"shard":"1"}`) },
			all:    told{[]string{}, []string{}},
			shard1: told{[]string{}, []string{}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := f.under(t)
			f.relabel("clusters/"+one.ID, `{"shard":"1"}`)
			f.relabel("clusters/"+two.ID, `{"shard":"2"}`)
			cursor := f.since("clusters", cursor).Cursor
			tc.act()
			wantEqual(t, "all: "+tc.reason, tc.all, f.told("clusters", cursor))
			wantEqual(t, "shard 1: "+tc.reason, tc.shard1, f.told("clusters", cursor, "labels", "shard=1"))
			wantEqual(t, "another kind", told{[]string{}, []string{}}, f.told("workloads", cursor))
		})
	}

	cursor = f.since("clusters", cursor).Cursor
	f.delete("clusters/" + one.ID)
	wantEqual(t, "is being deleted", told{[]string{"c-one"}, []string{}}, f.told("clusters", cursor))
	f.finalize("clusters/"+one.ID, "validation", "dns")
	wantEqual(t, "is gone", told{[]string{}, []string{one.ID}}, f.told("clusters", cursor, "labels", "shard=7"))
}

// TestChangesAreResources checks that changes contain the same resources as reads.
func TestChangesAreResources(t *testing.T) {
	f := newFixture(t)
	cursor := f.list("clusters?limit=1").Cursor
	c := f.create("clusters", "c-one", map[string]string{"a": "1"})
	pool := f.create("clusters/"+c.ID+"/nodepools", "np-one", nil)
	wantEqual(t, "cluster", []v1.Resource{f.get("clusters/" + c.ID)}, f.since("clusters", cursor).Items)
	wantEqual(t, "node pool", []v1.Resource{f.get("nodepools/" + pool.ID)}, f.since("nodepools", cursor).Items)
}

func TestManyChanges(t *testing.T) {
	f := newFixture(t)
	cursor := f.list("clusters?limit=1").Cursor
	var want []string
	for _, name := range []string{"c-a", "c-b", "c-c", "c-d", "c-e"} {
		f.create("clusters", name, nil)
		want = append(want, name)
	}
	var got []string
	rounds := 0
	for more := true; more; rounds++ {
		c := f.since("clusters", cursor, "limit", "2")
		for _, r := range c.Items {
			got = append(got, r.Name)
		}
		cursor, more = c.Cursor, c.More
	}
	wantEqual(t, "names", want, got)
	if rounds != 3 {
		t.Errorf("%d rounds, want 3", rounds)
	}
}

func TestChangesOfTenants(t *testing.T) {
	red, blue, system := newTenants(t)
	cursor := blue.list("clusters?limit=1").Cursor
	c := red.create("clusters", "c-one", nil)
	red.delete("clusters/" + c.ID)
	for reason, f := range map[string]*fixture{"its own": red, "everybody's": system} {
		wantEqual(t, reason, told{[]string{"c-one"}, []string{}}, f.told("clusters", cursor))
	}
	wantEqual(t, "another's", told{[]string{}, []string{}}, blue.told("clusters", cursor))
	system.finalize("clusters/"+c.ID, "validation", "dns")
	wantEqual(t, "gone", told{[]string{}, []string{c.ID}}, red.told("clusters", cursor))
	wantEqual(t, "gone, of another", told{[]string{}, []string{}}, blue.told("clusters", cursor))
}

func TestFollowingRefuses(t *testing.T) {
	f := newFixture(t)
	c := f.create("clusters", "c-one", nil)
	cursor := f.list("clusters?limit=1").Cursor
	for name, tc := range map[string]struct {
		path       string
		field      string
		constraint string
	}{
		"Search":      {query("clusters", "changed_since", cursor, "search", "name='x'"), "search", "format"},
		"Page":        {query("clusters", "changed_since", cursor, "page", "1"), "page", "format"},
		"Size":        {query("clusters", "changed_since", cursor, "size", "1"), "size", "format"},
		"Order":       {query("clusters", "changed_since", cursor, "order", "id"), "order", "format"},
		"Continue":    {query("clusters", "changed_since", cursor, "continue", "x"), "continue", "format"},
		"IDs":         {query("clusters", "changed_since", cursor, "ids", c.ID), "ids", "format"},
		"Nested":      {query("clusters/"+c.ID+"/nodepools", "changed_since", cursor), "changed_since", "format"},
		"NestedWatch": {query("clusters/"+c.ID+"/nodepools", "watch", "true"), "watch", "format"},
		"NoCursor":    {query("clusters", "changed_since", "abc"), "changed_since", "format"},
		"Empty":       {query("clusters", "changed_since", ""), "changed_since", "format"},
		"Longer":      {query("clusters", "changed_since", cursor+"AA"), "changed_since", "format"},
		"Twice":       {query("clusters", "changed_since", cursor, "changed_since", cursor), "changed_since", "unique"},
		"Limit":       {query("clusters", "changed_since", cursor, "limit", "501"), "limit", "max"},
		"Labels":      {query("clusters", "changed_since", cursor, "labels", "a in ("), "labels", "format"},
		"Watch":       {query("clusters", "watch", "maybe"), "watch", "format"},
		"Unknown":     {query("clusters", "changed_since", cursor, "colour", "red", "strict", "true"), "colour", "enum"},
	} {
		t.Run(name, func(t *testing.T) {
			p := f.under(t).do("GET", tc.path, nil).problem(400, "invalid_query", tc.field)
			if p.Errors[0].Field != tc.field || p.Errors[0].Constraint != tc.constraint {
				t.Errorf("got %+v", p.Errors)
			}
		})
	}
	f.do("GET", "clusters?watch=false", nil).want(200)

	at, err := watch.ParseCursor(cursor)
	if err != nil {
		t.Fatal(err)
	}
	future, other := at, at
	future.Xact += 1 << 40
	other.Epoch = uuid.New()
	for _, c := range []watch.Cursor{future, other} {
		f.do("GET", query("clusters", "changed_since", c.String()), nil).problem(410, "cursor_expired", "list everything again")
	}
}

func TestCertainResources(t *testing.T) {
	red, blue, system := newTenants(t)
	one, two := red.create("clusters", "c-one", nil), blue.create("clusters", "c-two", nil)
	pool := red.create("clusters/"+one.ID+"/nodepools", "np-one", nil)
	unknown := uuid.NewString()
	cases := map[string]struct {
		f    *fixture
		path string
		want []string
	}{
		"One":       {red, "clusters?ids=" + one.ID, []string{"c-one"}},
		"All":       {system, "clusters?ids=" + two.ID + "," + one.ID, []string{"c-one", "c-two"}},
		"Twice":     {red, "clusters?ids=" + one.ID + "," + one.ID, []string{"c-one"}},
		"UpperCase": {red, "clusters?ids=" + strings.ToUpper(one.ID), []string{"c-one"}},
		"Another's": {red, "clusters?ids=" + two.ID, []string{}},
		"Unknown":   {red, "clusters?ids=" + unknown, []string{}},
		"Malformed": {red, "clusters?ids=x,,{" + one.ID + "}", []string{}},
		"OtherKind": {red, "clusters?ids=" + pool.ID, []string{}},
		"Nested":    {red, "clusters/" + one.ID + "/nodepools?ids=" + pool.ID, []string{"np-one"}},
		"Strict":    {red, "clusters?strict=true&ids=" + one.ID, []string{"c-one"}},
		"AHundred":  {red, "clusters?ids=" + strings.Repeat(unknown+",", 99) + one.ID, []string{"c-one"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			f := tc.f.under(t)
			wantEqual(t, "names", tc.want, f.names(tc.path))
			l := f.list(tc.path)
			if l.Size != len(tc.want) || l.Cursor != "" || l.Continue != "" || l.Total != nil || l.Page != 0 {
				t.Errorf("got %+v", l)
			}
		})
	}
	for path, field := range map[string]string{
		"clusters?ids=": "ids",
		"clusters?ids=" + strings.Repeat(unknown+",", 100) + unknown: "ids",
		"clusters?limit=5&ids=" + one.ID:                             "limit",
		"clusters?labels=a&ids=" + one.ID:                            "labels",
	} {
		if p := red.do("GET", path, nil).problem(400, "invalid_query", field); p.Errors[0].Field != field {
			t.Errorf("got %+v", p.Errors)
		}
	}
}
