package decision_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

const cluster = `{"id":"cls-123","kind":"Cluster","generation":2,"labels":{"region":"us-east"},
	"spec":{"nodes":3,"load":0.5,"big":18446744073709551616},
	"status":{"phase":"Ready","observed_generation":1,"last_updated_time":"2025-10-21T11:59:50Z",
		"conditions":[{"type":"Reconciled","status":"True","observed_generation":2,"last_updated_time":"2025-10-21T11:00:00Z"},{"type":"Odd"},7]}}`

// publicRules returns the decision rules in the public sentinel's documentation.
func publicRules() []decision.ExpressionParam {
	return []decision.ExpressionParam{
		{Name: "ref_time", Expr: `condition("Reconciled").last_updated_time`},
		{Name: "is_ready", Expr: `condition("Reconciled").status == "True"`},
		{Name: "has_ref_time", Expr: `ref_time != ""`},
		{Name: "is_new_resource", Expr: `!is_ready && resource.generation == 1`},
		{Name: "generation_mismatch", Expr: `resource.generation > condition("Reconciled").observed_generation`},
		{Name: "ready_and_stale", Expr: `is_ready && has_ref_time && now - timestamp(ref_time) > duration("30m")`},
		{Name: "not_ready_and_debounced", Expr: `!is_ready && has_ref_time && now - timestamp(ref_time) > duration("10s")`},
	}
}

const publicResult = `is_new_resource || generation_mismatch || ready_and_stale || not_ready_and_debounced`

func TestExpressionProfile(t *testing.T) {
	const slack = time.Minute // of half an hour, see SubtractClockSkew
	updated := now.Add(-10 * time.Second)
	cases := map[string]struct {
		reason  string
		params  []decision.ExpressionParam
		result  string
		raw     string
		updated time.Time
		created time.Time
		want    decision.Verdict
		wantErr string
	}{
		"PublicRules": {
			reason: "ready and an hour old",
			params: publicRules(), result: publicResult, raw: cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionTrue,
				Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
		},
		"PublicRulesWithoutStatus": {
			reason: "a new resource has no conditions, and needs no guards",
			params: publicRules(), result: publicResult, raw: `{"id":"a","generation":1}`, created: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionTrue, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
		},
		"False": {
			reason: "not due, and nobody can say when",
			result: `resource.generation > 2`, raw: cluster, updated: updated,
			want: decision.Verdict{Reason: decision.ReasonExpressionFalse, Since: updated, Interval: 30 * time.Minute},
		},
		"TimeAheadOfTheClock": {
			reason: "clocks differ a little",
			result: `true`, raw: cluster, updated: now.Add(slack),
			want: decision.Verdict{ShouldPublish: true, Reason: decision.ReasonExpressionTrue, Since: now.Add(slack), Next: now, Interval: 30 * time.Minute},
		},
		"TimeFromTheFuture": {
			reason: "is nothing to count from",
			result: `true`, raw: cluster, updated: now.Add(slack + 1),
			want: decision.Verdict{ShouldPublish: true, Reason: decision.ReasonExpressionTrue, Interval: 30 * time.Minute},
		},
		"MissingField": {
			reason: "a rule that fails must not hide the resource",
			result: `resource.spec.missing == 1`, raw: cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionFailed, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
			wantErr: `evaluate result: no such key: missing`,
		},
		"ParamFails": {
			reason: "the error names the param",
			params: []decision.ExpressionParam{{Name: "t", Expr: `timestamp(resource.kind)`}},
			result: `t < now`, raw: cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionFailed, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
			wantErr: `evaluate param "t"`,
		},
		"ParamFailsUnneeded": {
			reason: "what is not needed does no harm",
			params: []decision.ExpressionParam{{Name: "t", Expr: `timestamp(resource.kind)`}},
			result: `resource.generation == 9 && t < now`, raw: cluster, updated: updated,
			want: decision.Verdict{Reason: decision.ReasonExpressionFalse, Since: updated, Interval: 30 * time.Minute},
		},
		"NotABool": {
			reason: "seen only when the field is there",
			result: `resource.kind`, raw: cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionFailed, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
			wantErr: "the value has type string, want bool",
		},
		"TooExpensive": {
			reason: "no expression holds the loop up",
			params: []decision.ExpressionParam{{Name: "l", Expr: `[1,2,3,4,5,6,7,8,9,10]`}},
			result: `l.all(a, l.all(b, l.all(c, l.all(d, l.all(e, l.all(f, a+b+c+d+e+f > 0))))))`, raw: cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionFailed, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
			wantErr: "cost limit exceeded",
		},
		"NotJSON": {
			reason: "can not happen after the scan, and is not hidden if it does",
			result: `true`, raw: `{`, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionFailed, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
			wantErr: "parse resource",
		},
		"OtherConditionShapes": {
			reason: "a condition without fields has them empty",
			result: `condition("Odd").status == "" && condition("Odd").observed_generation == 0 && condition("None").last_updated_time == ""`,
			raw:    cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionTrue, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
		},
		"Numbers": {
			reason: "fractions are doubles, strings have their functions",
			result: `resource.spec.load + 0.25 == 0.75 && resource.spec.nodes * 2 == 6 && resource.kind.lowerAscii() == "cluster"`,
			raw:    cluster, updated: updated,
			want: decision.Verdict{
				ShouldPublish: true, Reason: decision.ReasonExpressionTrue, Since: updated, Next: updated.Add(-slack), Interval: 30 * time.Minute,
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := decision.NewExpressionProfile(tc.params, tc.result, decision.DefaultAges())
			if err != nil {
				t.Fatal(err)
			}
			got := p.Decide(&decision.Resource{Phase: "Ready", LastUpdated: tc.updated, Created: tc.created, Raw: []byte(tc.raw)}, now)
			if diff := cmp.Diff(tc.want, got, cmpopts.IgnoreFields(decision.Verdict{}, "Err")); diff != "" {
				t.Errorf("%s: -want +got\n%s", tc.reason, diff)
			}
			switch {
			case tc.wantErr == "" && got.Err != nil, tc.wantErr != "" && (got.Err == nil || !strings.Contains(got.Err.Error(), tc.wantErr)):
				t.Errorf("%s: err %v, want %q", tc.reason, got.Err, tc.wantErr)
			}
		})
	}
}

func TestNewExpressionProfileRefuses(t *testing.T) {
	cases := map[string]struct {
		params []decision.ExpressionParam
		result string
		want   []string
	}{
		"Syntax":        {result: `resource.generation >`, want: []string{"compile result: line 1, column "}},
		"SecondLine":    {result: "true &&\n  nope", want: []string{"compile result: line 2, column 3: undeclared reference to 'nope'"}},
		"Undeclared":    {params: []decision.ExpressionParam{{Name: "a", Expr: `b == 1`}, {Name: "b", Expr: `1`}}, result: `true`, want: []string{`compile param "a": line 1, column 1: undeclared reference to 'b'`}},
		"TwoMistakes":   {result: `x && y`, want: []string{"column 1: undeclared reference to 'x'", "column 6: undeclared reference to 'y'"}},
		"NotBool":       {result: `resource.id + "x"`, want: []string{"want bool"}},
		"Type":          {params: []decision.ExpressionParam{{Name: "a", Expr: `"x"`}}, result: `a > 1`, want: []string{"compile result: line 1, column 3: found no matching overload"}},
		"Twice":         {params: []decision.ExpressionParam{{Name: "a", Expr: `1`}, {Name: "a", Expr: `2`}}, result: `true`, want: []string{`compile param "a": the name is already in use`}},
		"Shadow":        {params: []decision.ExpressionParam{{Name: "now", Expr: `1`}}, result: `true`, want: []string{`"now": the name is already in use`}},
		"NotAName":      {params: []decision.ExpressionParam{{Name: "a-b", Expr: `1`}}, result: `true`, want: []string{`"a-b": the name is not a CEL identifier`}},
		"ReasonIsLater": {result: `reason == "x"`, want: []string{"undeclared reference to 'reason'"}},
		"Hidden":        {result: `@condition(resource, "x").status == ""`, want: []string{"Syntax error"}},
		"Empty":         {result: ``, want: []string{"compile result"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := decision.NewExpressionProfile(tc.params, tc.result, decision.Ages{})
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range tc.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("got %q, want it to contain %q", err, want)
				}
			}
		})
	}
}

func TestExpressionAppendJSON(t *testing.T) {
	resource, err := decision.ParseObject([]byte(cluster), nil)
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct{ expr, want, wantErr string }{
		"Text":      {expr: `resource.labels.region`, want: `"us-east"`},
		"Escapes":   {expr: `"a\"b\n" + reason`, want: `"a\"b\nwhy"`},
		"Int":       {expr: `resource.generation * 1000000`, want: `2000000`},
		"Uint":      {expr: `18446744073709551615u`, want: `18446744073709551615`},
		"Double":    {expr: `1e21`, want: `1000000000000000000000`},
		"Digits":    {expr: `resource.spec.big`, want: `"18446744073709551616"`},
		"Bool":      {expr: `resource.generation == 2`, want: `true`},
		"Null":      {expr: `null`, want: `null`},
		"Bytes":     {expr: `b"hi"`, want: `"aGk="`},
		"Time":      {expr: `now`, want: `"2025-10-21T12:00:00Z"`},
		"Duration":  {expr: `duration("90s")`, want: `"1m30s"`},
		"List":      {expr: `[1, "a", [true], {}]`, want: `[1,"a",[true],{}]`},
		"Map":       {expr: `{"b": 1, "a": {"c": resource.labels}}`, want: `{"a":{"c":{"region":"us-east"}},"b":1}`},
		"Condition": {expr: `condition("Reconciled").observed_generation`, want: `2`},
		"Resource":  {expr: `resource.status.conditions[1]`, want: `{"type":"Odd"}`},
		"Missing":   {expr: `resource.labels.zone`, wantErr: "no such key: zone"},
		"Infinite":  {expr: `1.0 / 0.0`, wantErr: "cannot be represented in JSON"},
		"OddKeys":   {expr: `{1: 2}`, wantErr: "cannot be represented in JSON"},
		"InList":    {expr: `[{1: 2}]`, wantErr: "cannot be represented in JSON"},
		"TooLong":   {expr: `[1,2,3].map(a, [1,2,3].map(b, resource))`, wantErr: "too long"},
		"InMap":     {expr: `{"a": type(1)}`, wantErr: "cannot be represented in JSON"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			p, err := decision.CompileExpression(tc.expr)
			if err != nil {
				t.Fatal(err)
			}
			got, err := p.AppendResultJSON(nil, decision.ExpressionInput{Resource: resource, Now: now, Reason: "why"}, 1000)
			if tc.wantErr != "" {
				if err == nil || !strings.Contains(err.Error(), tc.wantErr) {
					t.Fatalf("err %v, want %q", err, tc.wantErr)
				}
				return
			}
			if err != nil || string(got) != tc.want || !json.Valid(got) {
				t.Errorf("got %s, err %v, want %s", got, err, tc.want)
			}
		})
	}
	if _, err := decision.CompileExpression(`resource.`); err == nil || !strings.Contains(err.Error(), "line 1, column ") {
		t.Errorf("err %v", err)
	}
}

func BenchmarkExpressionProfile(b *testing.B) {
	p, err := decision.NewExpressionProfile(publicRules(), publicResult, decision.Ages{})
	if err != nil {
		b.Fatal(err)
	}
	r := decision.Resource{Raw: []byte(cluster)}
	b.ReportAllocs()
	for b.Loop() {
		p.Decide(&r, now)
	}
}
