package search_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/fleetapi/search"
)

const someID = "019a3f5e-7c1d-7b3e-8f00-0123456789ab"

func textValue(s string) search.Value  { return search.Value{Type: search.Text, Text: s} }
func intValue(n int64) search.Value    { return search.Value{Type: search.Integer, Int: n} }
func timeValue(s string) search.Value  { return search.Value{Type: search.Time, Time: instant(s)} }
func spec(path string) search.Column   { return search.Column{Field: search.Spec, Key: path} }
func label(key string) search.Column   { return search.Column{Field: search.Label, Key: key} }
func col(f search.Field) search.Column { return search.Column{Field: f} }

func instant(s string) time.Time {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		panic(err)
	}
	return t
}

func is(c search.Column, v search.Value) search.Expr {
	return search.Compare{Column: c, Op: search.Equal, Value: v}
}

func TestParse(t *testing.T) {
	a, b, c := is(label("a"), textValue("1")), is(label("b"), textValue("2")), is(label("c"), textValue("3"))
	reconciled := search.Column{Field: search.ConditionStatus, Key: "Reconciled"}

	cases := map[string]struct {
		query string
		want  search.Expr
	}{
		"Empty":           {"", nil},
		"Blank":           {" \t\r\n", nil},
		"Label":           {"labels.region='us-east'", is(label("region"), textValue("us-east"))},
		"Conjunction":     {"labels.a='1' and labels.b='2'", search.And{Left: a, Right: b}},
		"LeftToRight":     {"labels.a='1' and labels.b='2' and labels.c='3'", search.And{Left: search.And{Left: a, Right: b}, Right: c}},
		"AndBindsTighter": {"labels.a='1' or labels.b='2' AND labels.c='3'", search.Or{Left: a, Right: search.And{Left: b, Right: c}}},
		"Parentheses":     {"(labels.a='1' OR labels.b='2') and labels.c='3'", search.And{Left: search.Or{Left: a, Right: b}, Right: c}},
		"NotBindsTighest": {"not labels.a='1' and labels.b='2'", search.And{Left: search.Not{X: a}, Right: b}},
		"NotNot":          {"not (not labels.a = '1')", search.Not{X: search.Not{X: a}}},
		"NoSpaces":        {"labels.a='1'and labels.b='2'", search.And{Left: a, Right: b}},
		"HyphenatedLabel": {"labels.cluster-type = 'hypershift'", is(label("cluster-type"), textValue("hypershift"))},
		"PrefixedLabel":   {"labels.example.com/cluster.role='x'", is(label("example.com/cluster.role"), textValue("x"))},
		"QuotedLabel":     {"labels.'cluster-type'='x'", is(label("cluster-type"), textValue("x"))},
		"DoubleQuotes":    {`labels."a" = "it's"`, is(label("a"), textValue("it's"))},
		"DoubledQuote":    {"labels.a='it''s'", is(label("a"), textValue("it's"))},
		"OnlyAQuote":      {"labels.a=''''", is(label("a"), textValue("'"))},
		"EmptyText":       {"labels.a=''", is(label("a"), textValue(""))},
		"LabelNamedAnd":   {"labels.and='1'", is(label("and"), textValue("1"))},
		"NotEqual":        {"labels.a != '1'", search.Not{X: a}},
		"NotEqualSQL":     {"labels.a <> '1'", search.Not{X: a}},
		"In":              {"labels.region in ['a','b']", search.In{Column: label("region"), Values: []search.Value{textValue("a"), textValue("b")}}},
		"NotIn":           {"generation not in [1, -2]", search.Not{X: search.In{Column: col(search.Generation), Values: []search.Value{intValue(1), intValue(-2)}}}},
		"Like":            {`name like 'c-%'`, search.Like{Column: col(search.Name), Pattern: "c-%"}},
		"NotLike":         {`name not like 'c\_\\'`, search.Not{X: search.Like{Column: col(search.Name), Pattern: `c\_\\`}}},
		"Greater":         {"generation > 1", search.Compare{Column: col(search.Generation), Op: search.Greater, Value: intValue(1)}},
		"LessOrEqual":     {"generation<=1", search.Compare{Column: col(search.Generation), Op: search.LessOrEqual, Value: intValue(1)}},
		"GreaterOrEqual":  {"generation>=1", search.Compare{Column: col(search.Generation), Op: search.GreaterOrEqual, Value: intValue(1)}},
		"Between": {"generation between 2 and 4", search.And{
			Left:  search.Compare{Column: col(search.Generation), Op: search.GreaterOrEqual, Value: intValue(2)},
			Right: search.Compare{Column: col(search.Generation), Op: search.LessOrEqual, Value: intValue(4)},
		}},
		"IsNull":    {"deleted_time is null", search.Not{X: search.Present{Column: col(search.DeletedTime)}}},
		"IsNotNull": {"labels.a IS NOT NULL", search.Present{Column: label("a")}},
		"Condition": {"status.conditions.Reconciled='False'", is(reconciled, textValue("False"))},
		"ConditionTime": {
			"status.conditions.Reconciled.last_updated_time < '2026-01-01T01:00:00+01:00'",
			search.Compare{Column: search.Column{Field: search.ConditionLastUpdatedTime, Key: "Reconciled"}, Op: search.Less, Value: timeValue("2026-01-01T00:00:00Z")},
		},
		"ConditionGeneration": {
			"status.conditions.DnsSuccessful.observed_generation = 3",
			is(search.Column{Field: search.ConditionObservedGeneration, Key: "DnsSuccessful"}, intValue(3)),
		},
		"Date":          {"created_time = '2026-01-31'", is(col(search.CreatedTime), timeValue("2026-01-31T00:00:00Z"))},
		"Keyset":        {"id > '" + strings.ToUpper(someID) + "'", search.Compare{Column: col(search.ID), Op: search.Greater, Value: textValue(someID)}},
		"Phase":         {"status.phase != 'Ready'", search.Not{X: is(col(search.Phase), textValue("Ready"))}},
		"AnyID":         {"id = 'cls-1'", is(col(search.ID), textValue("cls-1"))},
		"LikeID":        {"id like '01%'", search.Like{Column: col(search.ID), Pattern: "01%"}},
		"Owner":         {"owner_id = '" + strings.ToUpper(someID) + "'", is(col(search.OwnerID), textValue(someID))},
		"InParentheses": {"name in ('a', 'b')", search.In{Column: col(search.Name), Values: []search.Value{textValue("a"), textValue("b")}}},
		"SpecText":      {"spec.region = 'x'", is(spec("region"), textValue("x"))},
		"SpecNumber":    {"spec.net-work.Size_1 >= -1.50", search.Compare{Column: spec("net-work.Size_1"), Op: search.GreaterOrEqual, Value: search.Value{Type: search.Number, Text: "-1.50"}}},
		"SpecBoolean":   {"spec.a = TRUE", is(spec("a"), textValue("true"))},
		"Unicode":       {"created_by = 'Zoë'", is(col(search.CreatedBy), textValue("Zoë"))},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got, err := search.ParseQuery(tc.query)
			if err != nil {
				t.Fatalf("Parse(%q): %v", tc.query, err)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("Parse(%q) (-want +got):\n%s", tc.query, diff)
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	cases := map[string]struct {
		query  string
		column int
		says   string
	}{
		"UnknownColumn":      {"labels.a='1' and colour='red'", 18, `unknown column "colour"; use one of id, name`},
		"SpecColumn":         {"spec='x'", 1, `unknown column "spec"`},
		"SpecPath":           {"spec.a..b='x'", 1, `"a..b" is not a path in the spec`},
		"SpecPathQuoted":     {"spec.'a b'='x'", 1, "is not a path in the spec"},
		"SpecValue":          {"spec.a=yes", 8, "a quoted string, a number, true or false"},
		"ManySpecColumns":    {strings.Repeat("spec.a=1 or ", search.MaxSpecColumns) + "spec.a=1", 12*search.MaxSpecColumns + 1, "at most 8 spec columns"},
		"NoColumn":           {"= 'x'", 1, "expected a column"},
		"Unfinished":         {"labels.a='1' and", 17, "found the end"},
		"NoOperator":         {"name 'x'", 6, "expected a comparison"},
		"DoubleEqual":        {"name == 'x'", 7, "compared with a quoted string"},
		"NoEndOfText":        {"name = 'x", 8, "unterminated string"},
		"NumberForText":      {"labels.shard = 1", 16, "labels.shard must be compared with a quoted string"},
		"TextForNumber":      {"generation = '1'", 14, "generation must be compared with an integer"},
		"HugeNumber":         {"generation = 99999999999999999999", 14, "64 bits"},
		"BadTime":            {"created_time < 'yesterday'", 16, "such as '2026-01-31T12:00:00Z'"},
		"NumberForTime":      {"created_time < 5", 16, "compared with a time"},
		"IDWithoutQuotes":    {"id = 5", 6, "id must be compared with a quoted string"},
		"DecimalGeneration":  {"generation = 1.5", 14, "generation must be compared with an integer"},
		"LikeNumber":         {"generation like '1'", 17, "like is not supported"},
		"LikeNothing":        {"name like 5", 11, "expected a pattern"},
		"LoneBackslash":      {`name like 'a\'`, 11, "ends in a backslash"},
		"BadLabelKey":        {"labels.-a='1'", 1, "is not a label key"},
		"NoLabelKey":         {"labels.='1'", 1, "is not a label key"},
		"QuotedBadLabel":     {"labels.'a b'='1'", 1, "is not a label key"},
		"BadConditionStatus": {"status.conditions.Ready='false'", 25, "'True', 'False' or 'Unknown'"},
		"BadConditionPart":   {"status.conditions.Ready.colour='x'", 1, "use status, reason"},
		"BadConditionType":   {"status.conditions.a/b='True'", 1, "not the type of a condition"},
		"NoCondition":        {"status.conditions.='True'", 1, "not the type of a condition"},
		"EmptyIn":            {"name in []", 10, "compared with a quoted string"},
		"OpenIn":             {"name in ['a'", 13, `"]"`},
		"InWithoutBracket":   {"name in 'a'", 9, `expected "[" or "("`},
		"InOtherBracket":     {"name in ('a']", 13, `expected "," or ")"`},
		"NotWhat":            {"name not 'a'", 10, "in, like or between"},
		"IsWhat":             {"name is 'a'", 9, `expected "null"`},
		"BetweenWhat":        {"generation between 1 or 2", 22, `expected "and"`},
		"BetweenOpen":        {"generation between 1 and", 25, "found the end"},
		"BetweenText":        {"generation between 'a' and 2", 20, "integer"},
		"Parenthesis":        {"(name = 'a'", 12, `expected ")"`},
		"EmptyParentheses":   {"()", 2, "expected a column"},
		"Rest":               {"name = 'a' name = 'b'", 12, "expected and, or, or the end"},
		"Strange":            {"name = 'a'; drop", 11, "unexpected ';'"},
		"StrangeRune":        {"näme = 'a'", 2, "unexpected 'ä'"},
		"NUL":                {"name = 'a\x00'", 10, "invalid character"},
		"NotUTF8":            {"name = 'ä\xff'", 10, "invalid character"},
		"TooLong":            {"name = '" + strings.Repeat("ä", search.MaxLength) + "'", search.MaxLength + 1, "at most 4096 characters"},
		"TooDeep":            {strings.Repeat("(", search.MaxDepth+1) + "name='a'" + strings.Repeat(")", search.MaxDepth+1), search.MaxDepth + 2, "nested deeper"},
		"TooManyNots":        {strings.Repeat("not ", search.MaxDepth+1) + "name='a'", 4*(search.MaxDepth+1) + 1, "nested deeper"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := search.ParseQuery(tc.query)
			var e *search.Error
			if !errors.As(err, &e) {
				t.Fatalf("Parse(%q) = %v, want an Error", tc.query, err)
			}
			if e.Column != tc.column || !strings.Contains(e.Error(), tc.says) {
				t.Errorf("Parse(%q) = %v, want column %d and %q", tc.query, err, tc.column, tc.says)
			}
		})
	}
}

func TestDeepestIsAllowed(t *testing.T) {
	if _, err := search.ParseQuery(strings.Repeat("(", search.MaxDepth) + "name='a'" + strings.Repeat(")", search.MaxDepth)); err != nil {
		t.Error(err)
	}
}

func TestSortable(t *testing.T) {
	for _, name := range []string{
		"id", "name", "kind", "generation", "created_time", "updated_time", "deleted_time", "created_by", "updated_by", "deleted_by", "owner_id",
		"status.phase", "status.last_transition_time",
	} {
		f, ok := search.FindSortableField(name)
		if got := (search.Column{Field: f}).String(); !ok || got != name {
			t.Errorf("Sortable(%q) = %s, %v", name, got, ok)
		}
	}
	for _, name := range []string{"status.observed_generation", "status.last_updated_time", "labels.a", "", "spec", "spec.a"} {
		if _, ok := search.FindSortableField(name); ok {
			t.Errorf("%q must not be sortable", name)
		}
	}
}

// FuzzParse checks that an error has a column within the text, or that the expression is the same
// after rendering and parsing.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		"", "labels.region='us-east' and labels.shard='1'", "labels.region in ['a','b']", "generation > 1",
		"name like 'c-%'", "deleted_time is null", "not (status.conditions.Reconciled='False' or generation between 1 and -3)",
		"status.conditions.Reconciled.last_updated_time < '2026-01-01T00:00:00.5Z'", "id > '" + someID + "'",
		`labels."a-b" not in ['it''s', "q"]`, "name <> ''''", "a.'b", "((((", "labels.x is not null",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		x, err := search.ParseQuery(query)
		if err != nil {
			var e *search.Error
			if !errors.As(err, &e) || e.Column < 1 || e.Column > utf8.RuneCountInString(query)+1 {
				t.Fatalf("Parse(%q) = %v", query, err)
			}
			return
		}
		if x == nil {
			return
		}
		out := render(x)
		if utf8.RuneCountInString(out) > search.MaxLength {
			return // rendered parentheses count, too
		}
		again, err := search.ParseQuery(out)
		if err != nil {
			if strings.Contains(err.Error(), "nested deeper") {
				return
			}
			t.Fatalf("Parse(%q): written out as %q: %v", query, out, err)
		}
		if diff := cmp.Diff(x, again); diff != "" {
			t.Fatalf("%q written out as %q (-first +second):\n%s", query, out, diff)
		}
	})
}

// render returns an expression as a query.
func render(x search.Expr) string {
	switch x := x.(type) {
	case search.And:
		return "(" + render(x.Left) + " and " + render(x.Right) + ")"
	case search.Or:
		return "(" + render(x.Left) + " or " + render(x.Right) + ")"
	case search.Not:
		return "not " + render(x.X)
	case search.Compare:
		return fmt.Sprintf("%s %s %s", x.Column, []string{"=", "<", "<=", ">", ">="}[x.Op], literal(x.Value))
	case search.In:
		var list []string
		for _, v := range x.Values {
			list = append(list, literal(v))
		}
		return fmt.Sprintf("%s in [%s]", x.Column, strings.Join(list, ", "))
	case search.Like:
		return fmt.Sprintf("%s like %s", x.Column, literal(textValue(x.Pattern)))
	case search.Present:
		return fmt.Sprintf("%s is not null", x.Column)
	}
	panic(fmt.Sprintf("no such expression: %T", x))
}

func literal(v search.Value) string {
	switch v.Type {
	case search.Integer:
		return fmt.Sprint(v.Int)
	case search.Time:
		return "'" + v.Time.Format(time.RFC3339Nano) + "'"
	case search.Number:
		return v.Text
	case search.Text, search.Absent:
	}
	return "'" + strings.ReplaceAll(v.Text, "'", "''") + "'"
}
