package source_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/selector"
	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
	"github.com/fleetloop/fleetloop/internal/sentinel/source"
)

// A scannedItem is a visitor's copy of an item.
type scannedItem struct {
	ID       string
	Resource decision.Resource
	Fault    source.Fault
	Field    string
}

func scanAll(t *testing.T, page string) ([]scannedItem, source.Envelope, error) {
	t.Helper()
	var got []scannedItem
	env, err := source.NewScanner(true).ScanPage([]byte(page), func(it *source.Item) error {
		got = append(got, copyOf(it))
		return nil
	})
	return got, env, err
}

func copyOf(it *source.Item) scannedItem {
	r := it.Resource
	r.Raw = bytes.Clone(r.Raw)
	return scannedItem{ID: string(it.ID), Resource: r, Fault: it.Fault, Field: it.Field}
}

func parsedTime(s string) time.Time {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		panic(err)
	}
	return t
}

func TestItem(t *testing.T) {
	full := decision.Resource{
		Generation: 2, ObservedGeneration: 1, Phase: "Provisioning",
		Created: parsedTime("2025-10-20T10:00:00Z"), Updated: parsedTime("2025-10-21T11:00:00Z"),
		LastUpdated: parsedTime("2025-10-21T12:00:00Z"), LastTransition: parsedTime("2025-10-21T10:00:00Z"),
	}
	cases := map[string]struct {
		reason string
		item   string
		want   scannedItem
	}{
		"SnakeCase": {
			reason: "the sample of the specification, with the API's own times",
			item: `{"id":"cls-123","generation":2,"created_time":"2025-10-20T10:00:00Z","updated_time":"2025-10-21T11:00:00Z",
				"status":{"phase":"Provisioning","observed_generation":1,"last_transition_time":"2025-10-21T10:00:00Z","last_updated_time":"2025-10-21T12:00:00Z"}}`,
			want: scannedItem{ID: "cls-123", Resource: full},
		},
		"CamelCase": {
			reason: "the other spelling means the same",
			item: `{"status":{"lastUpdatedTime":"2025-10-21T12:00:00Z","lastTransitionTime":"2025-10-21T10:00:00Z","observedGeneration":1,"phase":"Provisioning"},
				"updatedTime":"2025-10-21T11:00:00Z","createdTime":"2025-10-20T10:00:00Z","generation":2,"id":"cls-123"}`,
			want: scannedItem{ID: "cls-123", Resource: full},
		},
		"EscapedNames": {
			reason: "JSON may spell any letter as an escape",
			item:   `{"\u0069d":"a\"b","gener\u0061tion":7,"status":{"ph\u0061se":"R\u0065ady"}}`,
			want:   scannedItem{ID: `a"b`, Resource: decision.Resource{Generation: 7, Phase: "Ready"}},
		},
		"Nulls": {
			reason: "null is absent",
			item: `{"id":"a","generation":null,"labels":null,"metadata":null,"created_time":null,
				"status":{"phase":null,"observed_generation":null,"last_updated_time":null}}`,
			want: scannedItem{ID: "a"},
		},
		"NullStatus": {reason: "null is absent", item: `{"id":"a","status":null}`, want: scannedItem{ID: "a"}},
		"NoStatus":   {reason: "an initial state", item: `{"id":"a","generation":1}`, want: scannedItem{ID: "a", Resource: decision.Resource{Generation: 1}}},
		"EmptyTime":  {reason: "an empty text is no time", item: `{"id":"a","status":{"last_updated_time":""}}`, want: scannedItem{ID: "a"}},
		"WholeFloat": {
			reason: "a number that is whole, however it is written",
			item:   `{"id":"a","generation":2.0,"status":{"observed_generation":1e3}}`,
			want:   scannedItem{ID: "a", Resource: decision.Resource{Generation: 2, ObservedGeneration: 1000}},
		},
		"UnknownFields": {
			reason: "whatever else stands there is passed over, nested names like ours too",
			item:   `{"spec":{"id":"no","status":{"phase":"no"}},"id":"a","x":[{"id":"no"}],"status":{"conditions":[{"phase":"no"}],"phase":"Ready"}}`,
			want:   scannedItem{ID: "a", Resource: decision.Resource{Phase: "Ready"}},
		},
		"UnreadableTime": {
			reason: "it counts as absent, and the item is judged all the same",
			item:   `{"id":"a","status":{"last_updated_time":"yesterday","phase":"Ready"}}`,
			want:   scannedItem{ID: "a", Resource: decision.Resource{Phase: "Ready"}, Fault: source.FaultTime, Field: "status.last_updated_time"},
		},
		"UnreadableCreation": {
			reason: "noticed where it would be counted from",
			item:   `{"id":"a","created_time":"long ago"}`,
			want:   scannedItem{ID: "a", Fault: source.FaultTime, Field: "created_time"},
		},
		"CreationNotNeeded": {
			reason: "not even read where there are better times",
			item: `{"id":"a","created_time":"long ago","updated_time":"2025-10-21T11:00:00Z",
				"status":{"last_updated_time":"2025-10-21T12:00:00Z","last_transition_time":"2025-10-21T10:00:00Z"}}`,
			want: scannedItem{ID: "a", Resource: decision.Resource{LastUpdated: full.LastUpdated, LastTransition: full.LastTransition}},
		},
		"HalfASurrogate": {
			reason: "is the resource's own matter, and seen as every other reader of JSON sees it",
			item:   `{"id":"a\ud800b","spec":{"x":"\udfff"},"status":{"phase":"\ud83d\ude00\ud800"}}`,
			want:   scannedItem{ID: "a\ufffdb", Resource: decision.Resource{Phase: "\U0001f600\ufffd"}},
		},
		"InvalidUTF8": {
			reason: "the same",
			item:   "{\"id\":\"a\xffb\",\"spec\":{\"\xc0\":\"\xed\xa0\x80\"}}",
			want:   scannedItem{ID: "a\ufffdb"},
		},
		"NotAnObject":  {reason: "skipped", item: `42`, want: scannedItem{Fault: source.FaultNotObject}},
		"NullItem":     {reason: "skipped", item: `null`, want: scannedItem{Fault: source.FaultNotObject}},
		"ArrayItem":    {reason: "skipped", item: `[{"id":"a"}]`, want: scannedItem{Fault: source.FaultNotObject}},
		"NoID":         {reason: "skipped", item: `{"generation":1}`, want: scannedItem{Resource: decision.Resource{Generation: 1}, Fault: source.FaultNoID, Field: "id"}},
		"EmptyID":      {reason: "skipped", item: `{"id":""}`, want: scannedItem{Fault: source.FaultNoID, Field: "id"}},
		"NullID":       {reason: "skipped", item: `{"id":null}`, want: scannedItem{Fault: source.FaultNoID, Field: "id"}},
		"NumericID":    {reason: "skipped", item: `{"id":7}`, want: scannedItem{Fault: source.FaultWrongType, Field: "id"}},
		"TextForInt":   {reason: "skipped", item: `{"id":"a","generation":"2"}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "generation"}},
		"Fraction":     {reason: "skipped", item: `{"id":"a","generation":1.5}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "generation"}},
		"TooLarge":     {reason: "skipped", item: `{"id":"a","generation":1e19}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "generation"}},
		"PhaseObject":  {reason: "skipped", item: `{"id":"a","status":{"phase":{}}}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "status.phase"}},
		"StatusText":   {reason: "skipped", item: `{"id":"a","status":"fine"}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "status"}},
		"LabelsList":   {reason: "skipped", item: `{"id":"a","labels":["x"]}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "labels"}},
		"LabelNumber":  {reason: "skipped", item: `{"id":"a","labels":{"x":1}}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "labels"}},
		"TimeNumber":   {reason: "skipped", item: `{"id":"a","status":{"last_updated_time":5}}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "status.last_updated_time"}},
		"WorstOfTwo":   {reason: "the fault that skips wins", item: `{"id":"a","status":{"last_updated_time":"x"},"generation":[]}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "generation"}},
		"FirstOfTwo":   {reason: "the first is named", item: `{"id":"a","generation":[],"labels":[]}`, want: scannedItem{ID: "a", Fault: source.FaultWrongType, Field: "generation"}},
		"DuplicateKey": {reason: "the last wins", item: `{"id":"a","id":"b"}`, want: scannedItem{ID: "b"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			// Broken or not, the neighbours are read.
			got, env, err := scanAll(t, `{"items":[{"id":"before","generation":1}, `+tc.item+` ,{"id":"after"}]}`)
			if err != nil || env.Items != 3 || len(got) != 3 {
				t.Fatalf("%s: %d items, err %v", tc.reason, env.Items, err)
			}
			if got[0].ID != "before" || got[2].ID != "after" || got[2].Resource.Generation != 0 {
				t.Errorf("neighbours: %+v, %+v", got[0], got[2])
			}
			if raw := string(got[1].Resource.Raw); strings.HasPrefix(tc.item, "{") && raw != tc.item {
				t.Errorf("raw: got %s", raw)
			}
			got[1].Resource.Raw = nil
			if diff := cmp.Diff(tc.want, got[1]); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestEnvelope(t *testing.T) {
	cases := map[string]struct {
		reason string
		page   string
		want   source.Envelope
	}{
		"Keyset":      {reason: "more to come", page: `{"items":[{"id":"a"}],"size":1,"cursor":"c\u0031","continue":"x\/y"}`, want: source.Envelope{Items: 1, Continue: "x/y", Cursor: "c1", Total: -1, First: []byte("a"), Last: []byte("a"), Sorted: true}},
		"KeysetFirst": {reason: "fields come in any order", page: ` {"continue":"xy","items":[]} `, want: source.Envelope{Continue: "xy", Total: -1, Sorted: true}},
		"Offset":      {reason: "page and size", page: `{"items":[],"page":1,"size":0,"total":12}`, want: source.Envelope{Total: 12, Sorted: true}},
		"Bare":        {reason: "an array is a list too", page: `[{"id":"a"},{"id":"b"}]`, want: source.Envelope{Items: 2, Total: -1, Bare: true, First: []byte("a"), Last: []byte("b"), Sorted: true}},
		"BareEmpty":   {reason: "nothing there", page: `[]`, want: source.Envelope{Total: -1, Bare: true, Sorted: true}},
		"NullItems":   {reason: "nothing there", page: `{"items":null,"total":0}`, want: source.Envelope{Sorted: true}},
		"OddExtras":   {reason: "what is not understood is as good as absent", page: `{"items":[],"continue":null,"cursor":7,"more":1,"removed":{},"total":"many","page":{}}`, want: source.Envelope{Total: -1, Sorted: true}},
		"NegTotal":    {reason: "no count", page: `{"items":[],"total":-3}`, want: source.Envelope{Total: -1, Sorted: true}},
		"Unsorted":    {reason: "whoever goes on behind the last must know", page: `[{"id":"b"},{"id":"a"},{"id":"c"}]`, want: source.Envelope{Items: 3, Total: -1, Bare: true, First: []byte("b"), Last: []byte("c")}},
		"Repeated":    {reason: "a repeat does not ascend", page: `[{"id":"a"},{"id":"a"}]`, want: source.Envelope{Items: 2, Total: -1, Bare: true, First: []byte("a"), Last: []byte("a")}},
		"Nameless":    {reason: "what has no id stands nowhere", page: `[{"id":"a"},{"id":"b"},7]`, want: source.Envelope{Items: 3, Total: -1, Bare: true, First: []byte("a"), Last: []byte("b"), Sorted: true}},
		"Changes": {
			reason: "what changed, what is gone, and where to go on",
			page:   `{"items":[{"id":"a"}],"removed":["x","y\u0031",null,{}],"size":1,"cursor":"c2","more":true}`,
			want: source.Envelope{
				Items: 1, Total: -1, First: []byte("a"), Last: []byte("a"), Sorted: true,
				Cursor: "c2", More: true, Removed: [][]byte{[]byte("x"), []byte("y1")},
			},
		},
		"NoChanges": {reason: "nothing changed", page: `{"items":[],"removed":[],"size":0,"cursor":"c2","more":false}`, want: source.Envelope{Total: -1, Sorted: true, Cursor: "c2"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, got, err := scanAll(t, tc.page)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
		})
	}
}

func TestBrokenPage(t *testing.T) {
	cases := map[string]string{
		"empty":             ``,
		"open":              `{`,
		"cut in an item":    `{"items":[{"id":"a"},{"id":"b","generation":`,
		"cut in a name":     `{"items":[{"id`,
		"cut in the list":   `{"items":[{"id":"a"}`,
		"cut after it":      `{"items":[]`,
		"cut in labels":     `{"items":[{"id":"a","labels":{"x":`,
		"text":              `"items"`,
		"null":              `null`,
		"an error, maybe":   `{"code":"E1","detail":"no"}`,
		"items is a text":   `{"items":"none"}`,
		"two pages":         `{"items":[]}{"items":[]}`,
		"a bad escape":      `{"items":[{"id":"\x"}]}`,
		"no comma":          `{"items":[{"id":"a"}{"id":"b"}]}`,
		"HTML":              `<html>`,
		"cut in continue":   `{"items":[],"continue":"`,
		"cut in total":      `{"items":[],"total":`,
		"cut in removed":    `{"items":[],"removed":["a"`,
		"cut in more":       `{"items":[],"more":tr`,
		"cut before status": `[{"status":`,
		"endless nesting":   `{"items":[` + strings.Repeat(`[`, 20_000),
	}
	for name, page := range cases {
		t.Run(name, func(t *testing.T) {
			if _, _, err := scanAll(t, page); err == nil {
				t.Errorf("no error for %.40q", page)
			}
		})
	}
}

func TestItemsBeforeTheBreakAreSeen(t *testing.T) {
	got, _, err := scanAll(t, `{"items":[{"id":"a"},{"id":"b"},{"id":`)
	if err == nil || len(got) != 2 {
		t.Errorf("got %d items, err %v", len(got), err)
	}
}

func TestScanOne(t *testing.T) {
	stop := errors.New("enough")
	cases := map[string]struct {
		reason  string
		object  string
		want    string // id, fault
		visited error
		wantErr bool
	}{
		"Resource":    {reason: "as a watch and a single GET have it", object: ` {"id":"a","generation":2} `, want: "a none"},
		"NotAnObject": {reason: "a fault, as on a page", object: `[1]`, want: " not_an_object"},
		"Cut":         {reason: "no JSON", object: `{"id":"a"`, wantErr: true},
		"Two":         {reason: "one is one", object: `{"id":"a"}{"id":"b"}`, wantErr: true},
		"Empty":       {reason: "no JSON", wantErr: true},
		"Stops":       {reason: "the visitor's error is returned", object: `{"id":"a"}`, want: "a none", visited: stop, wantErr: true},
	}
	s := source.NewScanner(false)
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var got string
			err := s.ScanResource([]byte(tc.object), func(it *source.Item) error {
				got = string(it.ID) + " " + it.Fault.String()
				return tc.visited
			})
			if got != tc.want || (err != nil) != tc.wantErr || tc.visited != nil && !errors.Is(err, tc.visited) {
				t.Errorf("%s: got %q, err %v", tc.reason, got, err)
			}
		})
	}
}

func TestVisitorStops(t *testing.T) {
	stop := errors.New("enough")
	visited := 0
	_, err := source.NewScanner(false).ScanPage([]byte(`[{"id":"a"},{"id":"b"}]`), func(*source.Item) error { visited++; return stop })
	if !errors.Is(err, stop) || visited != 1 {
		t.Errorf("visited %d, err %v", visited, err)
	}
}

func TestLabels(t *testing.T) {
	sel, err := selector.Parse("region=us-east,tier in (a,b),!gone")
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		reason string
		item   string
		want   bool
	}{
		"TopLevel":     {reason: "as the public API serves them", item: `{"id":"a","labels":{"region":"us-east","tier":"b"}}`, want: true},
		"Metadata":     {reason: "as the templates name them", item: `{"id":"a","metadata":{"name":"x","labels":{"tier":"a","region":"us-east"}}}`, want: true},
		"Both":         {reason: "what one lacks the other has", item: `{"id":"a","metadata":{"labels":{"tier":"a"}},"labels":{"region":"us-east"}}`, want: true},
		"TopWins":      {reason: "the resource's own labels win", item: `{"id":"a","metadata":{"labels":{"region":"us-east","tier":"a"}},"labels":{"region":"eu"}}`},
		"Escaped":      {reason: "escapes are only spelling", item: `{"id":"a","labels":{"reg\u0069on":"us\u002deast","tier":"b"}}`, want: true},
		"Absent":       {reason: "no labels at all", item: `{"id":"a"}`},
		"Forbidden":    {reason: "one that must not be there", item: `{"id":"a","labels":{"region":"us-east","tier":"b","gone":""}}`},
		"Twice":        {reason: "of two values the last counts", item: `{"id":"a","labels":{"region":"eu","tier":"b","region":"us-east"},"metadata":{"labels":{"tier":"z"}}}`, want: true},
		"NotInherited": {reason: "nothing is left over from the item before", item: `{"id":"a","labels":{"tier":"a"}}`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			page := `[{"id":"0","labels":{"region":"us-east"},"metadata":{"labels":{"region":"us-east"}}},` + tc.item + `]`
			var got bool
			if _, err := source.NewScanner(true).ScanPage([]byte(page), func(it *source.Item) error {
				got = sel.Matches(&it.Labels)
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if got != tc.want {
				t.Errorf("%s: got %t", tc.reason, got)
			}
		})
	}
}

func TestLabelsAreLeftAloneUnlessAsked(t *testing.T) {
	_, err := source.NewScanner(false).ScanPage([]byte(`[{"id":"a","labels":[1],"metadata":{"labels":7}}]`), func(it *source.Item) error {
		if it.Fault != source.FaultNone {
			t.Errorf("fault %s", it.Fault)
		}
		if _, ok := it.Labels.Get("a"); ok {
			t.Error("there is a label")
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestManyWords checks that a fleet with different labels on every resource does not grow the
// scanner without limit, and is read correctly.
func TestManyWords(t *testing.T) {
	s := source.NewScanner(true)
	for i := range 3 * 4096 {
		value := strings.Repeat("x", i%50) + string(rune('a'+i%26)) + time.Duration(i).String()
		page, err := json.Marshal([]any{map[string]any{"id": "a", "labels": map[string]string{"k": value}}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.ScanPage(page, func(it *source.Item) error {
			if got, _ := it.Labels.Get("k"); got != value {
				t.Fatalf("got %q, want %q", got, value)
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
}

func TestFaults(t *testing.T) {
	words := []string{"none", "not_an_object", "missing_id", "wrong_type", "invalid_time", "unknown_status", "unknown"}
	for i, want := range words {
		if got := source.Fault(i).String(); got != want {
			t.Errorf("fault %d: got %q, want %q", i, got, want)
		}
	}
	if len(words) != int(source.NumFaults)+1 {
		t.Errorf("there are %d faults", source.NumFaults)
	}
}

// FuzzScan holds the scanner against encoding/json: it never panics, takes no
// page that is not JSON, and sees the same items with the same raw bytes.
func FuzzScan(f *testing.F) {
	for _, seed := range []string{
		`{"items":[{"id":"a","generation":2,"status":{"phase":"Ready","observed_generation":1,"last_updated_time":"2025-10-21T12:00:00Z"}}],"continue":"x"}`,
		`[{"id":"a","labels":{"a":"b"},"metadata":{"labels":{"c":"d"}}}]`,
		`{"items":null,"total":3}`, `{"items":[1,null,{"\u0069d":"x"}]}`, `[`, ``,
		`[{"id":"a","generation":2,"status":{"conditions":[{"type":"Reconciled","status":"True","observed_generation":2,"last_updated_time":"2025-10-21T12:00:00Z"},{"type":"DnsSuccessful","observedGeneration":1},null,7]}}]`,
		`{"items":[],"removed":["a",1],"cursor":"c","more":true}`,
		`[{"id":"a","generation":2,"status":{"observed_generation":1,"conditions":[{"type":"Available","status":"False"}]}},{"id":"b","href":"x","created_by":"y","status":{"conditions":[]}}]`,
		`[{"id":"\ud800"},{"id":"\ud83d\ude00"}]`, "[{\"id\":\"\xff\",\"\xc0\":1}]",
	} {
		f.Add([]byte(seed))
	}
	s := source.NewScanner(true)
	f.Fuzz(func(t *testing.T, page []byte) {
		wantStream(t, page)
		type item struct{ raw, id string }
		var got []item
		env, err := s.ScanPage(page, func(it *source.Item) error {
			got = append(got, item{raw: string(it.Resource.Raw), id: string(it.ID)})
			return nil
		})
		if err != nil {
			return
		}
		if !json.Valid(page) {
			t.Fatalf("took %q", page)
		}
		if env.Items != len(got) {
			t.Fatalf("counted %d, saw %d", env.Items, len(got))
		}
		for _, it := range got {
			if it.raw == "" {
				continue
			}
			var want map[string]json.RawMessage
			if err := json.Unmarshal([]byte(it.raw), &want); err != nil {
				t.Fatalf("raw %q: %v", it.raw, err)
			}
			var id string
			if json.Unmarshal(want["id"], &id) == nil && id != it.id {
				t.Fatalf("id of %q: got %q, want %q", it.raw, it.id, id)
			}
		}
	})
}
