package jsontemplate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"text/template"

	"github.com/fleetloop/fleetloop/internal/jsontemplate"
)

const document = `{"name":"eu-1","n":3,"f":1.5,"yes":true,"no":false,"none":null,"empty":"","odd":"<a href=\"x\">'\u0000\u2028é=",
	"list":["a",null,{"x":1}],"labels":{"b":"2","a":"1","c":null},"nested":{"a":{"b":{"c":"deep"}}},"zero":0,"emptyList":[],"emptyMap":{}}`

// cases are the templates of TestExecute and the seeds of FuzzText. An empty wantErr means that both executors succeed.
var cases = map[string]struct{ text, data, want, wantErr string }{
	"Text":              {text: `plain`, want: "plain"},
	"Empty":             {text: ``, want: ""},
	"Fields":            {text: `{{.name}} {{.nested.a.b.c}}`, want: "eu-1 deep"},
	"Values":            {text: `{{.n}} {{.f}} {{.yes}} {{.list}} {{.labels}}`, want: "3 1.5 true [a <nil> map[x:1]] map[a:1 b:2 c:<nil>]"},
	"Missing":           {text: `{{.nope}} {{.nope.nope}} {{.none}}`, want: "<no value> <no value> <no value>"},
	"FieldOfNull":       {text: `{{.none.x}}`, wantErr: "main:1:7: executing \"main\" at <.none.x>: nil pointer evaluating interface {}.x"},
	"FieldOfPipedNull":  {text: `{{(print .name | index .labels).x}}`, want: "<no value>"},
	"FieldOfText":       {text: `{{.name.x}}`, wantErr: "can't evaluate field x in type string"},
	"FieldWithArgs":     {text: `{{.name 1}}`, wantErr: "name is not a method but has arguments"},
	"NilData":           {text: `{{.}} {{.a.b}}`, data: `null`, want: "<no value> <no value>"},
	"Trim":              {text: "a \n {{- .n -}} \n b", want: "a3b"},
	"Comment":           {text: `a{{/* no */}}b{{- /* no */ -}} c`, want: "abc"},
	"Variable":          {text: `{{$x := .nested}}{{$x.a.b.c}}{{$x = 5}}{{$x}}{{$.name}}`, want: "deep5eu-1"},
	"VariableScope":     {text: `{{$x := 1}}{{if true}}{{$x := 2}}{{$x = 3}}{{$x}}{{end}}{{$x}}`, want: "31"},
	"VariableOfElse":    {text: `{{if false}}{{$y := 1}}{{else}}{{$y}}{{end}}`, wantErr: "undefined variable: $y"},
	"If":                {text: `{{if .nope}}a{{else if .zero}}b{{else if .emptyMap}}c{{else if .none}}d{{else}}e{{end}}`, want: "e"},
	"IfTrue":            {text: `{{if .name}}a{{end}}{{if .f}}b{{end}}{{if .labels}}c{{end}}{{if .list}}d{{end}}{{if .yes}}e{{end}}`, want: "abcde"},
	"With":              {text: `{{with .nested}}{{.a.b.c}}{{end}}{{with $x := .no}}{{else with .n}}{{.}}{{$x}}{{end}}`, want: "deep3false"},
	"RangeList":         {text: `{{range $i, $e := .list}}{{$i}}={{$e}};{{end}}`, want: "0=a;1=<no value>;2=map[x:1];"},
	"RangeDot":          {text: `{{range .list}}[{{.}}]{{else}}none{{end}}`, want: "[a][<no value>][map[x:1]]"},
	"RangeNullElement":  {text: `{{range $e := .list}}{{$e.x}}{{end}}`, data: `{"list":[null]}`, wantErr: "nil pointer evaluating"},
	"RangeMap":          {text: `{{range $k, $v := .labels}}{{$k}}={{$v}};{{end}}`, want: "a=1;b=2;c=<no value>;"},
	"RangeNumber":       {text: `{{range 3}}{{.}}{{end}}{{range $i := len .list}}{{$i}}{{end}}{{range -1}}x{{else}}-{{end}}`, want: "012012-"},
	"RangeTwoOfNumber":  {text: `{{range $i, $j := 3}}{{end}}`, wantErr: "can't use 3 to iterate over more than one variable"},
	"RangeScope":        {text: `{{$y := 0}}{{range 2}}{{$y}}{{$y := 5}}{{end}}`, want: "00"},
	"RangeElse":         {text: `{{range .emptyList}}x{{else}}a{{end}}{{range .nope}}x{{else}}b{{end}}{{range .emptyMap}}x{{else}}c{{end}}`, want: "abc"},
	"RangeText":         {text: `{{range .name}}{{end}}`, wantErr: "main:1:8: executing \"main\" at <.name>: range can't iterate over eu-1"},
	"RangeAssign":       {text: `{{$x := 0}}{{$y := 0}}{{range $x, $y = .list}}{{end}}{{$x}}{{$y}}`, want: "2map[x:1]"},
	"BreakContinue":     {text: `{{range $i, $e := .list}}{{if eq $i 0}}{{continue}}{{end}}{{$i}}{{if $i}}{{break}}{{end}}{{end}}!`, want: "1!"},
	"BreakInElse":       {text: `{{range 2}}{{range 0}}{{else}}a{{break}}b{{end}}c{{range 0}}{{else}}{{continue}}{{end}}d{{end}}`, want: "acac"},
	"BreakInWith":       {text: `{{range .list}}{{with $x := .}}{{break}}{{end}}{{end}}{{range 2}}{{with 1}}{{continue}}{{end}}x{{end}}!`, want: "!"},
	"Template":          {text: `{{define "t"}}<{{.}}{{$}}>{{end}}{{template "t" .n}}{{template "t"}}`, want: "<33><<no value><no value>>"},
	"TemplateVariables": {text: `{{$x := 1}}{{define "t"}}{{end}}{{template "t" $x = 2}}{{$x}}`, want: "2"},
	"Block":             {text: `{{block "b" .n}}[{{.}}]{{end}}{{template "b" 4}}`, want: "[3][4]"},
	"Recursion":         {text: `{{define "t"}}{{if .}}{{index . 0}}{{template "t" slice . 1}}{{end}}{{end}}{{template "t" "abc"}}`, want: "979899"},
	"TemplateUndefined": {text: `{{template "nope"}}`, wantErr: `template "nope" not defined`},
	"Chain":             {text: `{{(index .list 2).x}} {{(.nested).a.b.c}} {{(.nope).x}}`, want: "1 deep <no value>"},
	"Literals":          {text: "{{1}} {{-1.50}} {{1e3}} {{0x1F}} {{'a'}} {{1_000}} {{2i}} {{1+0i}} {{true}} {{\"q\\n\"}} {{`r`}}", want: "1 -1.5 1000 31 97 1000 (0+2i) (1+0i) true q\n r"},
	"Overflow":          {text: `{{9223372036854775808}}`, wantErr: "9223372036854775808 overflows int"},
	"NilCommand":        {text: `{{nil}}`, wantErr: "nil is not a command"},
	"ArgumentOfLiteral": {text: `{{"a" 1}}`, wantErr: `can't give argument to non-function "a"`},
	"PipeToVariable":    {text: `{{$x := 1}}{{2 | $x}}`, wantErr: "can't give argument to non-function $x"},
	"PipeToMissing":     {text: `{{2 | .nope.x}}`, want: "<no value>"},
	"AndOr":             {text: `{{and 1 0 (fail)}} {{or 0 "x" (fail)}} {{and .nope fail}} {{or .zero .none}} {{1 | and true}} {{not .n}} {{not .nope}}`, want: "0 x <no value> <no value> 1 false true"},
	"AndOfNothing":      {text: `{{and}}`, wantErr: "wrong number of args"},
	"Eq":                {text: `{{eq .n 3.0}} {{eq 1 2 1}} {{eq "a" "b"}} {{eq .none nil}} {{eq .nope "x"}} {{eq .yes true}} {{eq 2i 2i}} {{ne 1 2}}`, want: "true true false true false true true true"},
	"EqOtherTypes":      {text: `{{eq 1 "1"}}`, wantErr: "error calling eq: incompatible types for comparison: int and string"},
	"EqMaps":            {text: `{{eq .labels .labels}}`, wantErr: "non-comparable"},
	"EqOfOne":           {text: `{{eq 1}}`, wantErr: "error calling eq"},
	"Order":             {text: `{{lt 1 2}} {{le 2 2}} {{gt "b" "a"}} {{ge .f 1.5}} {{lt (index "a" 0) 98}} {{gt 1 (index "a" 0)}}`, want: "true true true true true false"},
	"OrderOfBools":      {text: `{{lt true false}}`, wantErr: "invalid type for comparison"},
	"OrderOfNil":        {text: `{{lt .nope 1}}`, wantErr: "invalid type for comparison"},
	"OrderOfThree":      {text: `{{lt 1 2 3}}`, wantErr: "wrong number of args"},
	"Index":             {text: `{{index .labels "a"}} {{index .list 0}} {{index .name 1}} {{index .labels "nope"}} {{index .nested "a" "b" "c"}} {{index .}}`, data: `{"labels":{"a":"1"},"list":["x"],"name":"ab","nested":{"a":{"b":{"c":1}}}}`, want: "1 x 98 <no value> 1 map[labels:map[a:1] list:[x] name:ab nested:map[a:map[b:map[c:1]]]]"},
	"IndexOutOfRange":   {text: `{{index .list 3}}`, wantErr: "main:1:2: executing \"main\" at <index .list 3>: error calling index: index out of range: 3"},
	"IndexEmptyByByte":  {text: `{{index "" (index "\x00" 0)}}`, wantErr: "index out of range"},
	"IndexOfNil":        {text: `{{index .nope 1}}`, wantErr: "index of untyped nil"},
	"IndexThroughNil":   {text: `{{index .labels "nope" "x"}}`, wantErr: "index of nil pointer"},
	"IndexByName":       {text: `{{index .list "a"}}`, wantErr: "cannot index slice/array with type string"},
	"IndexMapByNumber":  {text: `{{index .labels 1}}`, wantErr: "should be string"},
	"IndexOfNumber":     {text: `{{index .n 1}}`, wantErr: "can't index item of type float64"},
	"Slice":             {text: `{{slice .name 1 2}} {{slice .list 1}} {{slice .list 0 1 2}} {{slice .name}} {{slice .list 3}}`, want: "u [<nil> map[x:1]] [a] eu-1 []"},
	"SliceReversed":     {text: `{{slice .list 2 1}}`, wantErr: "invalid slice index: 2 > 1"},
	"SliceReversedCap":  {text: `{{slice .list 0 2 1}}`, wantErr: "invalid slice index: 2 > 1"},
	"SliceTextByThree":  {text: `{{slice .name 0 1 2}}`, wantErr: "error calling slice"},
	"SliceByFour":       {text: `{{slice .list 0 1 2 3}}`, wantErr: "too many slice indexes: 4"},
	"SliceOfMap":        {text: `{{slice .labels}}`, wantErr: "can't slice item of type map"},
	"Len":               {text: `{{len .name}} {{len .list}} {{len .labels}}`, want: "4 3 3"},
	"LenOfNumber":       {text: `{{len .n}}`, wantErr: "len of type float64"},
	"LenOfNil":          {text: `{{len .nope}}`, wantErr: "error calling len"},
	"Print":             {text: `{{print .name 1 2 .nope}} {{println .n}}{{printf "%5.1f|%q|%v" .f .name .nope}} {{.name | printf "%s"}}`, want: "eu-11 2 <nil> 3\n  1.5|\"eu-1\"|<nil> eu-1"},
	"PrintfFormat":      {text: `{{printf .n}}`, wantErr: "expected string; got float64"},
	"PrintfOfNothing":   {text: `{{printf}}`, wantErr: "wrong number of args"},
	"Escape":            {text: `{{html .odd}} {{js .odd}} {{urlquery .odd}} {{html .nope}} {{html 1 "<"}} {{html}}`, want: "&lt;a href=&#34;x&#34;&gt;&#39;\uFFFD\u2028é= \\u003Ca href\\u003D\\\"x\\\"\\u003E\\'\\u0000\\u2028é\\u003D %3Ca+href%3D%22x%22%3E%27%00%E2%80%A8%C3%A9%3D &lt;no value&gt; 1&lt; "},
	"Call":              {text: `{{call .name}}`, wantErr: "error calling call"},
	"Functions":         {text: `{{same .name}}{{same nil}}{{none}}{{none | same}}{{(none).x}}`, want: "eu-1<no value><no value><no value><no value>"},
	"FunctionError":     {text: `{{fail 1}}`, wantErr: `main:1:2: executing "main" at <fail 1>: error calling fail: function failed`},
	"FunctionChain":     {text: `{{print none.x}}`, wantErr: "nil pointer evaluating"},
	"Function":          {text: `{{nope}}`, wantErr: `function "nope" not defined`},
	"Unclosed":          {text: `{{.a`, wantErr: "unclosed action"},
	"MainTwice":         {text: `{{define "main"}}x{{end}}`, want: "x"},
	"SecondLine":        {text: "a\n  {{.name.x}}", wantErr: "main:2:9: executing"},
	"InTemplate":        {text: "{{define \"t\"}}\n{{.name.x}}{{end}}{{template \"t\" .}}", wantErr: `main:2:7: executing "t" at <.name.x>`},
}

func TestExecute(t *testing.T) {
	t.Parallel()
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if c.data == "" {
				c.data = document
			}
			var data any
			if err := json.Unmarshal([]byte(c.data), &data); err != nil {
				t.Fatal(err)
			}
			data = clipLists(data)
			got, err := execute(t, c.text, data)
			switch {
			case c.wantErr == "" && (err != nil || got != c.want):
				t.Errorf("got %q, %v\nwant %q", got, err, c.want)
			case c.wantErr != "" && (err == nil || !strings.Contains(err.Error(), c.wantErr)):
				t.Errorf("got %q, %v\nwant an error with %q", got, err, c.wantErr)
			}
			compareWithStandard(t, c.text, data)
		})
	}
}

// TestTypes compares the executors with values that JSON does not have, but callers do.
func TestTypes(t *testing.T) {
	t.Parallel()
	values := []any{
		int64(5), 5, int64(-1), 0, uint64(math.MaxUint64), uint64(2), byte(3), 1.5, math.NaN(), math.Copysign(0, -1), floatNumber(2.5), floatNumber(0),
		digits("18446744073709551616"), digits(""), "text", true, nil,
		[]any{},
		map[string]any{},
	}
	templates := []string{
		`{{.a}}`, `{{if .a}}1{{end}}`, `{{not .a}}`, `{{len .a}}`, `{{index .a 0}}`, `{{slice .a 1}}`, `{{range .a}}.{{break}}{{else}}none{{end}}`,
		`{{print .a .b}}`, `{{printf "%v %d %s" .a .b .a}}`, `{{html .a}}`, `{{eq .a .b}}`, `{{ne .a .b}}`, `{{lt .a .b}}`, `{{le .a .b}}`, `{{gt .a .b}}`, `{{ge .a .b}}`,
		`{{eq .a 5}}`, `{{lt .a 2}}`, `{{lt 2 .a}}`, `{{gt .a 2.0}}`, `{{index "abcdefg" .a}}`, `{{.a.x}}`, `{{.a | and .b}}`, `{{printf .a}}`,
	}
	for _, a := range values {
		for _, b := range values {
			for _, text := range templates {
				compareWithStandard(t, text, map[string]any{"a": a, "b": b})
			}
		}
	}
}

// TestDifferences shows the differences from text/template that the package documents.
func TestDifferences(t *testing.T) {
	t.Parallel()
	list := make([]any, 1, 4)
	list[0] = "a"
	recursion := `{{define "t"}}{{if lt (len .) %d}}{{template "t" (printf "%%s-" .)}}{{end}}{{end}}{{template "t" ""}}`
	for name, c := range map[string]struct {
		text    string
		data    any
		want    string
		wantErr string
	}{
		"Methods":  {text: `{{.String}}`, data: floatNumber(1), wantErr: "can't evaluate field String in type jsontemplate_test.floatNumber"},
		"Capacity": {text: `{{slice . 0 2}}`, data: list, wantErr: "index out of range: 2"},
		"Depth":    {text: fmt.Sprintf(recursion, 6_000), wantErr: "nested more than 10000 deep"},
	} {
		var out strings.Builder
		tmpl, err := jsontemplate.Parse(c.text, jsontemplate.Config{Name: "main"})
		if err == nil {
			err = tmpl.Execute(&out, c.data)
		}
		if err == nil || !strings.Contains(err.Error(), c.wantErr) {
			t.Errorf("%s: got %q, %v, want an error with %q", name, out.String(), err, c.wantErr)
		}
		if _, err := executeStandard(c.text, c.data); err != nil {
			t.Errorf("%s: text/template fails, too: %v", name, err)
		}
	}
}

// TestFieldAsIndex shows the difference in which only text/template fails.
func TestFieldAsIndex(t *testing.T) {
	t.Parallel()
	const text = `{{slice "text" .n}}`
	data := map[string]any{"n": int64(2)}
	if got, err := execute(t, text, data); got != "xt" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if _, err := executeStandard(text, data); err == nil || !strings.Contains(err.Error(), fieldAsIndex) {
		t.Errorf("text/template: %v", err)
	}
}

// TestRunsForever checks the ends of templates that never end.
func TestRunsForever(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		`{{range 1000000000}}{{end}}`:                                                                    "main:1:8: executing \"main\" at <1000000000>: more than 1000 loop iterations",
		`{{range 100}}{{range 100}}{{end}}{{end}}`:                                                       "more than 1000 loop iterations",
		`{{define "t"}}{{template "t"}}{{template "t"}}{{end}}{{template "t"}}`:                          "more than 1000 loop iterations",
		`{{define "t"}}{{if true}}{{range 1}}x{{end}}{{end}}{{end}}{{range 999}}{{template "t"}}{{end}}`: "more than 1000 loop iterations",
	} {
		tmpl, err := jsontemplate.Parse(text, jsontemplate.Config{Name: "main", MaxIterations: 1000})
		if err != nil {
			t.Fatal(err)
		}
		if err := tmpl.Execute(&strings.Builder{}, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", text, err, want)
		}
	}
	tmpl, err := jsontemplate.Parse(`{{template "main"}}`, jsontemplate.Config{Name: "main"})
	if err != nil {
		t.Fatal(err)
	}
	if err := tmpl.Execute(&strings.Builder{}, nil); err == nil || !strings.Contains(err.Error(), "nested more than 10000 deep") {
		t.Errorf("got %v", err)
	}
}

func TestMaxText(t *testing.T) {
	t.Parallel()
	const limit = 100
	for text, long := range map[string]bool{
		`{{printf "%100d" 1}}`:                                      false,
		`{{printf "%101d" 1}}`:                                      true,
		`{{$x := printf "%100d" 1}}{{println $x}}`:                  true,
		`{{range 16}}{{$x := printf "%100d" 1}}{{end}}`:             false,
		`{{range 16}}{{$x := printf "%100d" 1}}{{end}}{{print 1}}`:  true,
		`{{range 101}}{{$x := same "aaaaaaaaaaaaaaaaaaaa"}}{{end}}`: false,
		`{{html "&&&&&&&&&&&&&&&&&&&&&"}}`:                          true,
		`{{js "&&&&&&&&&&&&&&&&&&&&&"}}`:                            true,
		`{{urlquery "&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&&"}}`:         true,
	} {
		tmpl, err := jsontemplate.Parse(text, jsontemplate.Config{Name: "main", Funcs: funcs, MaxText: limit})
		if err != nil {
			t.Fatal(err)
		}
		if err := tmpl.Execute(&strings.Builder{}, nil); errors.Is(err, jsontemplate.ErrTextTooLong) != long {
			t.Errorf("%s: %v, want ErrTextTooLong: %v", text, err, long)
		}
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, errFull }

func TestWriteErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{`text`, `{{"text"}}`, `{{1}}`, `{{print nil}}`, `{{.x}}`} {
		tmpl, err := jsontemplate.Parse(text, jsontemplate.Config{Name: "main"})
		if err != nil {
			t.Fatal(err)
		}
		if err := tmpl.Execute(failingWriter{}, nil); err != errFull { //nolint:errorlint // unchanged
			t.Errorf("%s: got %v, want the error of the writer", text, err)
		}
	}
}

func TestWithFuncs(t *testing.T) {
	t.Parallel()
	returns := func(v any) jsontemplate.Func { return func([]any) (any, error) { return v, nil } }
	first, err := jsontemplate.Parse(`{{f}} {{print 1}} {{and 0}}`, jsontemplate.Config{Name: "main", Funcs: map[string]jsontemplate.Func{"f": returns("a"), "print": returns("p"), "and": returns("b")}})
	if err != nil {
		t.Fatal(err)
	}
	second := first.WithFuncs(map[string]jsontemplate.Func{"f": returns("c")})
	for tmpl, want := range map[*jsontemplate.Template]string{first: "a p b", second: "c 1 0"} {
		var out strings.Builder
		if err := tmpl.Execute(&out, nil); err != nil || out.String() != want {
			t.Errorf("got %q, %v, want %q", out.String(), err, want)
		}
	}
	if err := first.WithFuncs(nil).Execute(&strings.Builder{}, nil); err == nil || !strings.Contains(err.Error(), `"f" is not a defined function`) {
		t.Errorf("got %v", err)
	}
}

const benchmarkText = `{{range $i, $e := .items}}{{if gt .spec.size 2}}{{.name}} {{printf "%d" .spec.size}} {{index .labels "a.b/c"}};{{end}}{{end}}`

func benchmarkData() any {
	var items []any
	for i := range 100 {
		items = append(items, map[string]any{"name": "eu-1", "spec": map[string]any{"size": int64(i)}, "labels": map[string]any{"a.b/c": "x"}})
	}
	return map[string]any{"items": items}
}

func BenchmarkExecute(b *testing.B) {
	data := benchmarkData()
	b.Run("jsontemplate", func(b *testing.B) {
		tmpl, err := jsontemplate.Parse(benchmarkText, jsontemplate.Config{Name: "main"})
		if err != nil {
			b.Fatal(err)
		}
		b.ReportAllocs()
		for b.Loop() {
			if err := tmpl.Execute(&strings.Builder{}, data); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("text-template", func(b *testing.B) {
		tmpl := template.Must(template.New("main").Parse(benchmarkText))
		b.ReportAllocs()
		for b.Loop() {
			if err := tmpl.Execute(&strings.Builder{}, data); err != nil {
				b.Fatal(err)
			}
		}
	})
}
