package pgstore_test

import (
	"encoding/json"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi"
	"github.com/fleetloop/fleetloop/internal/fleetapi/pgstore"
	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
	"github.com/fleetloop/fleetloop/internal/selector"
)

// fleet inserts rows that differ in all filtered fields.
func fleet(t *testing.T, s *pgstore.Store) []fleetapi.Record {
	t.Helper()
	labels := []string{
		`{}`, `{"a": ""}`, `{"a": "x"}`, `{"a": "y", "b": "x"}`, `{"a": "x", "example.com/b-c": "y"}`, `{"b": "Z"}`,
	}
	conditions := []string{
		`[]`,
		`[{"type": "Ready", "status": "True", "reason": "x", "observed_generation": 2, "last_updated_time": "2026-03-01T12:00:00.5Z", "last_transition_time": "2026-03-01T12:00:00Z"}]`,
		`[{"type": "Other", "status": "False"}, {"type": "Ready", "status": "Unknown"}]`,
	}
	var records []*fleetapi.Record
	for i, l := range labels {
		for j, c := range conditions {
			r := newRecord("a", v1.KindCluster, fmt.Sprintf("c_%d%c", i, 'A'+rune(j)*20))
			r.Labels, r.Status.Conditions = json.RawMessage(l), json.RawMessage(c)
			r.Generation = int64(i%3 + 1)
			r.Status.ObservedGeneration = int64(j)
			r.CreatedTime = r.CreatedTime.Add(time.Duration(i%2) * time.Second)
			r.CreatedBy = []string{"", "x", "é"}[j]
			r.UpdatedBy = []string{"x", "", "y"}[j]
			r.Spec = json.RawMessage([]string{
				`{}`, `{"a": "x", "b": {"c": true}}`, `{"a": 5}`, `{"a": "5.0", "b": {"c": -1.5}}`, `{"a": null, "b": "x"}`, `{"a": {"b": "\u00e9"}}`,
				`{"a": "\u0000", "b": {"c": 5}}`, `{"a": 1e999999}`, `{"a": 10, "b": [1]}`,
			}[(3*i+j)%9])
			r.Status.Phase = []v1.Phase{v1.PhaseReady, v1.PhasePending}[i%2]
			if j == 1 {
				r.DeletedTime, r.DeletedBy = r.CreatedTime, []string{"", "x"}[i%2]
			}
			records = append(records, r)
		}
	}
	insert(t, s, records...)
	return list(t, s, all(), fleetapi.Query{Kind: v1.KindCluster})
}

func ids(records []fleetapi.Record) []string {
	out := []string{}
	for _, r := range records {
		out = append(out, r.ID)
	}
	return out
}

func TestSelectorsSelectAsTheyMatch(t *testing.T) {
	s := newStore(t)
	rows := fleet(t, s)
	key := rapid.SampledFrom([]string{"a", "b", "example.com/b-c", "missing"})
	value := rapid.SampledFrom([]string{"", "x", "y", "Z"})
	requirement := rapid.Custom(func(t *rapid.T) selector.Requirement {
		r := selector.Requirement{Key: key.Draw(t, "key")}
		r.Op = rapid.SampledFrom([]selector.Op{
			selector.Equals, selector.NotEquals, selector.In, selector.NotIn, selector.Exists, selector.NotExists,
		}).Draw(t, "op")
		switch r.Op {
		case selector.Equals, selector.NotEquals:
			r.Values = []string{value.Draw(t, "value")}
		case selector.In, selector.NotIn:
			r.Values = rapid.SliceOfN(value, 1, 3).Draw(t, "values")
		case selector.Exists, selector.NotExists:
		}
		return r
	})
	rapid.Check(t, func(rt *rapid.T) {
		sel, err := selector.New(rapid.SliceOfN(requirement, 0, 3).Draw(rt, "requirements")...)
		if err != nil {
			rt.Fatal(err)
		}
		want := slices.DeleteFunc(slices.Clone(rows), func(r fleetapi.Record) bool {
			m := selector.Map{}
			if err := json.Unmarshal(r.Labels, &m); err != nil {
				rt.Fatal(err)
			}
			return !sel.Matches(m)
		})
		got := list(t, s, all(), fleetapi.Query{Kind: v1.KindCluster, Labels: sel})
		if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
			rt.Fatalf("%q (-want +got):\n%s", sel, diff)
		}
	})
}

func TestSearchesFindWhatTheySay(t *testing.T) {
	s := newStore(t)
	rows := fleet(t, s)
	rapid.Check(t, func(rt *rapid.T) {
		e := expressions(3, rows).Draw(rt, "expression")
		want := slices.DeleteFunc(slices.Clone(rows), func(r fleetapi.Record) bool { return !holds(e, &r) })
		got := list(t, s, all(), fleetapi.Query{Kind: v1.KindCluster, Search: e})
		if diff := cmp.Diff(ids(want), ids(got)); diff != "" {
			rt.Fatalf("%+v (-want +got):\n%s", e, diff)
		}
	})
}

// expressions draws expressions up to a depth.
func expressions(depth int, rows []fleetapi.Record) *rapid.Generator[search.Expr] {
	return rapid.Custom(func(t *rapid.T) search.Expr {
		kind := 3 + rapid.IntRange(0, 3).Draw(t, "leaf")
		if depth > 0 {
			kind = rapid.IntRange(0, 6).Draw(t, "kind")
		}
		sub := func(name string) search.Expr { return expressions(depth-1, rows).Draw(t, name) }
		switch kind {
		case 0:
			return search.And{Left: sub("left"), Right: sub("right")}
		case 1:
			return search.Or{Left: sub("left"), Right: sub("right")}
		case 2:
			return search.Not{X: sub("not")}
		case 3:
			c := columns().Draw(t, "column")
			return search.Compare{Column: c, Op: search.Op(rapid.IntRange(0, 4).Draw(t, "op")), Value: values(c, rows).Draw(t, "value")}
		case 4:
			c := columns().Draw(t, "column")
			return search.In{Column: c, Values: rapid.SliceOfN(values(c, rows), 1, 3).Draw(t, "values")}
		case 5:
			c := columns().Filter(func(c search.Column) bool { return c.Field.ValueType() == search.Text }).Draw(t, "column")
			return search.Like{Column: c, Pattern: rapid.SampledFrom([]string{"%", "_", "", "x", `c\_%`, "c__A", "%y", "Tr%", "%-%"}).Draw(t, "pattern")}
		default:
			return search.Present{Column: columns().Draw(t, "column")}
		}
	})
}

func columns() *rapid.Generator[search.Column] {
	return rapid.Custom(func(t *rapid.T) search.Column {
		c := search.Column{Field: search.Field(rapid.IntRange(0, int(search.ConditionLastTransitionTime)).Draw(t, "field"))}
		switch c.Field { //nolint:exhaustive // the others have no key
		case search.Label:
			c.Key = rapid.SampledFrom([]string{"a", "b", "example.com/b-c", "it's"}).Draw(t, "key")
		case search.Spec:
			c.Key = rapid.SampledFrom([]string{"a", "b", "b.c", "a.b", "c"}).Draw(t, "key")
		case search.ConditionStatus, search.ConditionReason, search.ConditionObservedGeneration,
			search.ConditionLastUpdatedTime, search.ConditionLastTransitionTime:
			c.Key = rapid.SampledFrom([]string{"Ready", "Other", "None"}).Draw(t, "key")
		}
		return c
	})
}

func values(c search.Column, rows []fleetapi.Record) *rapid.Generator[search.Value] {
	return rapid.Custom(func(t *rapid.T) search.Value {
		v := search.Value{Type: c.Field.ValueType()}
		switch v.Type {
		case search.Integer:
			v.Int = rapid.Int64Range(-1, 4).Draw(t, "int")
		case search.Time:
			v.Time = rows[0].CreatedTime.Add(time.Duration(rapid.IntRange(-1, 2).Draw(t, "seconds")) * time.Second / 2)
		case search.Text, search.Number, search.Absent:
			r := rapid.SampledFrom(rows).Draw(t, "row")
			if c.Field == search.Spec && rapid.Bool().Draw(t, "number") {
				return search.Value{Type: search.Number, Text: rapid.SampledFrom([]string{"5", "-1.5", "10", "1"}).Draw(t, "decimal")}
			}
			v.Text = rapid.SampledFrom([]string{"true", "5", "", "x", "y", "Z", "z", "é", "True", "Ready", "Pending", "it's", `"`, r.ID, strings.ToUpper(r.ID), r.ID[:9], r.Name}).Draw(t, "text")
		}
		return v
	})
}

// holds evaluates an expression in Go.
func holds(e search.Expr, r *fleetapi.Record) bool {
	switch e := e.(type) {
	case search.And:
		return holds(e.Left, r) && holds(e.Right, r)
	case search.Or:
		return holds(e.Left, r) || holds(e.Right, r)
	case search.Not:
		return !holds(e.X, r)
	case search.Compare:
		v, ok := valueAs(e.Column, e.Value.Type, r)
		if !ok {
			return false
		}
		n := compareValues(v, e.Value)
		return [5]bool{n == 0, n < 0, n <= 0, n > 0, n >= 0}[e.Op]
	case search.In:
		return slices.ContainsFunc(e.Values, func(w search.Value) bool {
			v, ok := valueAs(e.Column, w.Type, r)
			return ok && compareValues(v, w) == 0
		})
	case search.Like:
		v, ok := valueOf(e.Column, r)
		return ok && like(e.Pattern).MatchString(v.Text)
	case search.Present:
		_, ok := valueOf(e.Column, r)
		return ok
	}
	panic(fmt.Sprintf("no meaning for %T", e))
}

func like(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("(?s)^")
	for i := 0; i < len(pattern); i++ {
		switch pattern[i] {
		case '%':
			b.WriteString(".*")
		case '_':
			b.WriteString(".")
		case '\\':
			i++
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		default:
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	b.WriteString("$")
	return regexp.MustCompile(b.String())
}

func compareValues(a, b search.Value) int {
	switch a.Type {
	case search.Integer:
		return int(a.Int - b.Int)
	case search.Time:
		return a.Time.Compare(b.Time)
	case search.Number:
		x, _ := new(big.Rat).SetString(a.Text)
		y, _ := new(big.Rat).SetString(b.Text)
		return x.Cmp(y)
	case search.Text, search.Absent:
	}
	return strings.Compare(a.Text, b.Text)
}

// valueAs returns the value of a column for a comparison with a type.
func valueAs(c search.Column, as search.Type, r *fleetapi.Record) (search.Value, bool) {
	v, ok := valueOf(c, r)
	if ok && as == search.Number {
		v.Type = as
		ok = regexp.MustCompile(`^-?[0-9]+(\.[0-9]+)?$`).MatchString(v.Text) // the other large number is out of range
	}
	return v, ok
}

// specValue returns the value at a path of the spec as text.
func specValue(path string, r *fleetapi.Record) (search.Value, bool) {
	if strings.Contains(string(r.Spec), `\u0000`) {
		return search.Value{}, false
	}
	at := r.Spec
	for part := range strings.SplitSeq(path, ".") {
		var object map[string]json.RawMessage
		if json.Unmarshal(at, &object) != nil {
			return search.Value{}, false
		}
		at = object[part]
	}
	var text string
	if json.Unmarshal(at, &text) != nil {
		text = string(at)
	}
	return search.Value{Text: text}, len(at) > 0 && string(at) != "null"
}

func valueOf(c search.Column, r *fleetapi.Record) (search.Value, bool) {
	text := func(s string) (search.Value, bool) { return search.Value{Text: s}, true }
	integer := func(n int64) (search.Value, bool) { return search.Value{Type: search.Integer, Int: n}, true }
	at := func(t time.Time) (search.Value, bool) {
		return search.Value{Type: search.Time, Time: t}, !t.IsZero()
	}
	switch c.Field {
	case search.ID:
		return text(r.ID)
	case search.Name:
		return text(r.Name)
	case search.CreatedBy:
		return text(r.CreatedBy)
	case search.UpdatedBy:
		return text(r.UpdatedBy)
	case search.DeletedBy:
		return search.Value{Text: r.DeletedBy}, r.DeletedBy != ""
	case search.Kind:
		return text(r.Kind)
	case search.OwnerID:
		return search.Value{Text: r.ParentID}, r.ParentID != ""
	case search.Spec:
		return specValue(c.Key, r)
	case search.Phase:
		return text(string(r.Status.Phase))
	case search.Generation:
		return integer(r.Generation)
	case search.ObservedGeneration:
		return integer(r.Status.ObservedGeneration)
	case search.CreatedTime:
		return at(r.CreatedTime)
	case search.UpdatedTime:
		return at(r.UpdatedTime)
	case search.DeletedTime:
		return at(r.DeletedTime)
	case search.LastUpdatedTime:
		return at(r.Status.LastUpdatedTime)
	case search.LastTransitionTime:
		return at(r.Status.LastTransitionTime)
	case search.Label:
		var m map[string]string
		if err := json.Unmarshal(r.Labels, &m); err != nil {
			panic(err)
		}
		v, ok := m[c.Key]
		return search.Value{Text: v}, ok
	case search.ConditionStatus, search.ConditionReason, search.ConditionObservedGeneration,
		search.ConditionLastUpdatedTime, search.ConditionLastTransitionTime:
		return conditionValue(c, r)
	}
	panic("no such field")
}

func conditionValue(c search.Column, r *fleetapi.Record) (search.Value, bool) {
	var list []map[string]any
	if err := json.Unmarshal(r.Status.Conditions, &list); err != nil {
		panic(err)
	}
	member := map[search.Field]string{
		search.ConditionStatus: "status", search.ConditionReason: "reason", search.ConditionObservedGeneration: "observed_generation",
		search.ConditionLastUpdatedTime: "last_updated_time", search.ConditionLastTransitionTime: "last_transition_time",
	}[c.Field]
	for _, cond := range list {
		if cond["type"] != c.Key {
			continue
		}
		switch v := cond[member].(type) {
		case float64:
			return search.Value{Type: search.Integer, Int: int64(v)}, true
		case string:
			if c.Field.ValueType() != search.Time {
				return search.Value{Text: v}, true
			}
			at, err := time.Parse(time.RFC3339, v)
			if err != nil {
				panic(err)
			}
			return search.Value{Type: search.Time, Time: at}, true
		}
	}
	return search.Value{}, false
}
