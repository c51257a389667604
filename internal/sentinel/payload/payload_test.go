package payload_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const cluster = `{"id":"cls-123","kind":"Cluster","generation":1000000,"deleted":false,"load":1.5,"huge":18446744073709551616,"far":1e21,
	"metadata":{"name":"one","labels":{"region":"us-east","cluster-type":"hypershift","odd":"a \"quote\"\nand <more>"}},
	"ownerResource":{"id":"own-1"},"spec":{"foo":{"bar":"deep"},"zones":["a","b",null],"empty":null},"status":{"phase":"Provisioning"}}`

func input(raw string) payload.Input {
	return payload.Input{
		Raw: []byte(raw), ID: "cls-123", Type: "clusters", Reason: "max age expired (not ready)",
		Now: time.Date(2025, 10, 21, 12, 0, 0, 0, time.UTC),
	}
}

func entry(value string) settings.OrderedMap {
	return settings.OrderedMap{{Key: "x", Value: value}}
}

func build(t *testing.T, data settings.OrderedMap) *payload.Builder {
	t.Helper()
	b, err := payload.New(data, payload.SnakeCase)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestSpecification is the example of the sentinel's specification.
func TestSpecification(t *testing.T) {
	b := build(t, settings.OrderedMap{{Key: "resource_id", Value: ".id"}, {Key: "region", Value: ".metadata.labels.region"}})
	got, problems, err := b.AppendPayload(nil, input(`{"id":"cls-123","metadata":{"labels":{"region":"us-east"}}}`))
	if err != nil || len(problems) > 0 {
		t.Fatal(err, problems)
	}
	if want := `{"resource_id":"cls-123","region":"us-east"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestValues(t *testing.T) {
	cases := map[string]struct {
		reason  string
		text    string
		want    string // as JSON
		problem string
	}{
		"Path":           {reason: "a field", text: `.id`, want: `"cls-123"`},
		"DeepPath":       {reason: "of anything that is served", text: `.spec.foo.bar`, want: `"deep"`},
		"Hyphen":         {reason: "labels have them", text: `.metadata.labels.cluster-type`, want: `"hypershift"`},
		"Number":         {reason: "texts with all digits", text: `.generation`, want: `"1000000"`},
		"HugeNumber":     {reason: "texts with all digits", text: `.huge`, want: `"18446744073709551616"`},
		"FarNumber":      {reason: "no exponents", text: `.far`, want: `"1000000000000000000000"`},
		"Fraction":       {reason: "a text", text: `.load`, want: `"1.5"`},
		"Bool":           {reason: "a text", text: `.deleted`, want: `"false"`},
		"Object":         {reason: "a text that is JSON", text: `.ownerResource`, want: `"{\"id\":\"own-1\"}"`},
		"List":           {reason: "a text that is JSON", text: `.spec.zones`, want: `"[\"a\",\"b\",null]"`},
		"Quotes":         {reason: "the payload stays JSON", text: `.metadata.labels.odd`, want: `"a \"quote\"\nand <more>"`},
		"Missing":        {reason: "noted, and empty", text: `.metadata.labels.zone`, want: `""`, problem: ".metadata.labels.zone"},
		"MissingBetween": {reason: "a step that is not there", text: `.nothing.labels.zone`, want: `""`, problem: ".nothing.labels.zone"},
		"ThroughText":    {reason: "a text has no fields", text: `.id.x`, want: `""`, problem: ".id.x"},
		"Null":           {reason: "null is not there", text: `.spec.empty`, want: `""`, problem: ".spec.empty"},
		"Literal":        {reason: "stands for itself", text: `cluster`, want: `"cluster"`},
		"EmptyLiteral":   {reason: "stands for itself", text: ``, want: `""`},
		"OddLiteral":     {reason: "stays JSON", text: "a\"b\\ \x00", want: `"a\"b\\ \u0000"`},

		"Template":         {reason: "the long form", text: `{{.id}}`, want: `"cls-123"`},
		"TemplateText":     {reason: "text around it", text: `x-{{ .id }}-{{.generation}}`, want: `"x-cls-123-1000000"`},
		"TemplateNumbers":  {reason: "digits, here too", text: `{{.far}} {{.huge}} {{.load}} {{.deleted}}`, want: `"1000000000000000000000 18446744073709551616 1.5 false"`},
		"Fallback":         {reason: "the display name of the specification; asking is no mistake", text: `{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}`, want: `"one"`},
		"TemplateMissing":  {reason: "never <no value>", text: `a{{.nope.nope}}b`, want: `"ab"`, problem: ".nope.nope"},
		"TemplateNull":     {reason: "never <no value>", text: `a{{.spec.empty}}b`, want: `"ab"`, problem: ".spec.empty"},
		"Variable":         {reason: "fields of variables", text: `{{$m := .metadata}}{{$m.name}} {{$.id}} {{$m.labels.region}}`, want: `"one cls-123 us-east"`},
		"VariableMissing":  {reason: "and what they lack", text: `{{$x := .nope}}[{{$x}}{{$x.y}}]`, want: `"[]"`, problem: ".nope, .y"},
		"Printf":           {reason: "the usual functions", text: `{{printf "%s/%d" .kind .generation}}`, want: `"Cluster/1000000"`},
		"PrintfMissing":    {reason: "an argument that is not there", text: `{{printf "[%s]" .nope}}`, want: `"[]"`, problem: ".nope"},
		"Pipe":             {reason: "piped on", text: `{{.nope | printf "[%s]"}}{{.id | html | js}}`, want: `"[]cls-123"`, problem: ".nope"},
		"Range":            {reason: "lists, nulls too", text: `{{range $i, $z := .spec.zones}}{{$i}}{{$z}},{{end}}`, want: `"0a,1b,2,"`},
		"RangeDot":         {reason: "the dot in a loop", text: `{{range .spec.zones}}[{{.}}]{{end}}`, want: `"[a][b][]"`},
		"RangeMissing":     {reason: "nothing to go around", text: `{{range .nope}}x{{else}}none{{end}}`, want: `"none"`},
		"RangeMap":         {reason: "keys in order", text: `{{range $k, $v := .metadata.labels}}{{$k}} {{end}}`, want: `"cluster-type odd region "`},
		"BreakContinue":    {reason: "loops can be left", text: `{{range .spec.zones}}{{if eq . "a"}}{{continue}}{{end}}{{.}}{{break}}{{end}}`, want: `"b"`},
		"With":             {reason: "another dot", text: `{{with .metadata}}{{.name}} {{.nope}}{{end}}{{with .nope}}x{{else with .kind}}{{.}}{{end}}`, want: `"one Cluster"`, problem: ".nope"},
		"Compare":          {reason: "quiet in conditions", text: `{{if eq .nope "x"}}1{{else if and .nope .id}}2{{else if not (gt (len .nope) 0)}}3{{end}}`, want: `"3"`},
		"CompareNumber":    {reason: "numbers are numbers", text: `{{if gt .generation 5}}many{{end}}{{if lt .load 2.0}} little{{end}}`, want: `"many little"`},
		"Index":            {reason: "names that no path can spell", text: `{{index .metadata.labels "cluster-type"}} {{index .spec.zones 1}}`, want: `"hypershift b"`},
		"IndexMissing":     {reason: "quiet, as index is how one asks", text: `[{{index .metadata.labels "x" "y"}}{{index .spec.zones 9}}{{index .id 0}}]`, want: `"[]"`},
		"IndexChain":       {reason: "a field of what a function gives", text: `{{(index . "metadata").name}}{{(index . "nope").name}}`, want: `"one"`, problem: ".name"},
		"IndexOddKey":      {reason: "can not be made", text: `{{index .metadata 1}}`, want: `""`, problem: "the key must be a string"},
		"IndexOddNumber":   {reason: "can not be made", text: `{{index .spec.zones "a"}}`, want: `""`, problem: "the index must be an integer"},
		"Reason":           {reason: "why it is due", text: `{{reason}}`, want: `"max age expired (not ready)"`},
		"Whole":            {reason: "the resource itself", text: `{{with .ownerResource}}{{.}}{{end}}`, want: `"{\"id\":\"own-1\"}"`},
		"Comment":          {reason: "nothing", text: `{{/* nothing */}}`, want: `""`},
		"Print":            {reason: "the usual functions", text: `{{print .id 1}}{{println}}{{urlquery "a b"}}`, want: `"cls-1231\na+b"`},
		"Fails":            {reason: "a failure is a problem of one value", text: `{{gt .id 5}}`, want: `""`, problem: "incompatible types"},
		"FailsHalfway":     {reason: "half a value is none", text: `half {{slice .id 900}}`, want: `""`, problem: "out of range"},
		"EndlessLoop":      {reason: "loops are bounded", text: `{{range 1000000000}}{{end}}`, want: `""`, problem: "more than 10000 loop iterations"},
		"NestedLoops":      {reason: "all of them together", text: `{{range 1000}}{{range 1000}}{{end}}{{end}}`, want: `""`, problem: "more than 10000 loop iterations"},
		"TooLong":          {reason: "what is written is bounded", text: `{{range 9000}}{{$.metadata.labels.odd}}{{end}}`, want: `""`, problem: "longer than 65536 bytes"},
		"Doubling":         {reason: "so is what is made on the way", text: `{{$x := "xxxxxxxx"}}{{range 60}}{{$x = printf "%s%s" $x $x}}{{end}}`, want: `""`, problem: "longer than 65536 bytes"},
		"Busy":             {reason: "and the sum of it", text: `{{$x := printf "%60000d" 1}}{{range 60}}{{$y := print $x}}{{end}}`, want: `""`, problem: "longer than 65536 bytes"},
		"GrowsByEscaping":  {reason: "by every function", text: `{{$x := "&&&&"}}{{range 5000}}{{$x = html $x}}{{end}}`, want: `""`, problem: "longer than 65536 bytes"},
		"CEL":              {reason: "keeps its type", text: `cel:resource.generation + 1`, want: `1000001`},
		"CELObject":        {reason: "keeps its form", text: `cel: {"zones": resource.spec.zones, "why": reason}`, want: `{"why":"max age expired (not ready)","zones":["a","b",null]}`},
		"CELMissing":       {reason: "noted, and empty", text: `cel:resource.nope`, want: `""`, problem: "no such key: nope"},
		"CELTooLong":       {reason: "bounded too", text: `cel:[1,2,3,4,5,6,7,8].map(a, [1,2,3,4,5,6,7,8].map(b, [1,2,3,4,5,6,7,8].map(c, resource)))`, want: `""`, problem: "longer than 65536 bytes"},
		"NotACELPrefix":    {reason: "cel: has a colon", text: `celery`, want: `"celery"`},
		"DefinedInLiteral": {reason: "a word is no keyword outside of braces", text: `{{.id}} define block`, want: `"cls-123 define block"`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			b := build(t, entry(tc.text))
			for range 2 { // the second rendering must not know of the first
				got, problems, err := b.AppendPayload(nil, input(cluster))
				if err != nil {
					t.Fatal(err)
				}
				if want := `{"x":` + tc.want + `}`; string(got) != want {
					t.Errorf("%s:\n got %s\nwant %s", tc.reason, got, want)
				}
				if !json.Valid(got) {
					t.Errorf("not JSON: %s", got)
				}
				switch {
				case tc.problem == "" && len(problems) > 0:
					t.Errorf("%s: problem %v", tc.reason, problems)
				case tc.problem != "" && (len(problems) != 1 || problems[0].Key != "message_data.x" || !strings.Contains(problems[0].Err.Error(), tc.problem)):
					t.Errorf("%s: problems %v, want one with %q", tc.reason, problems, tc.problem)
				}
			}
		})
	}
}

func TestNewRefuses(t *testing.T) {
	cases := map[string]struct{ text, want string }{
		"Unclosed":       {text: `{{if .id}`, want: `message_data.x: template: line 1, column 9: `},
		"NoEnd":          {text: `{{if .id}}x`, want: `line 1, column 10: unexpected EOF`},
		"SecondAction":   {text: `{{.a}} {{.b`, want: `line 1, column 11: unclosed action`},
		"SecondLine":     {text: "{{.a}}\n  {{nope .b}}", want: `line 2, column 8: function "nope" not defined`},
		"BadCharacter":   {text: `{{.a-b}}`, want: `line 1, column 5: bad character`},
		"Define":         {text: `{{define "a"}}{{template "a"}}{{end}}{{template "a"}}`, want: `line 1, column 1: define and block are not allowed`},
		"Block":          {text: `x{{- block "a" .}}{{end}}`, want: `line 1, column 2: define and block are not allowed`},
		"Template":       {text: `{{template "a"}}`, want: `line 1, column 12: template is not allowed`},
		"TemplateInside": {text: `{{if .a}}{{range .b}}{{with .c}}{{else}}{{template "template"}}{{end}}{{end}}{{end}}`, want: `line 1, column 52: template is not allowed`},
		"Method":         {text: `{{.a "x"}}`, want: `line 1, column 3: .a is a field and takes no arguments`},
		"MethodInParens": {text: `{{if (.a "x")}}{{end}}`, want: `.a is a field and takes no arguments`},
		"MethodVariable": {text: `{{$x := 1}}{{$x.y 1}}`, want: `$x.y is a field and takes no arguments`},
		"NoName":         {text: `.a..b`, want: `line 1, column 4: a field name is missing`},
		"DotAlone":       {text: `.`, want: `line 1, column 2: a field name is missing`},
		"Space":          {text: `.metadata. name`, want: `line 1, column 11: ' ' is not allowed in a field name`},
		"CEL":            {text: `cel:resource.id +`, want: `message_data.x: expression after "cel:": line 1, column `},
		"CELUndeclared":  {text: `cel:cluster.id`, want: `line 1, column 1: undeclared reference to 'cluster'`},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			_, err := payload.New(entry(tc.text), payload.SnakeCase)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v\nwant %s", err, tc.want)
			}
		})
	}
}

func TestEveryMistakeIsNamed(t *testing.T) {
	_, err := payload.New(settings.OrderedMap{
		{Key: "good", Value: ".id"},
		{Key: "display_name", Value: "{{if}}"},
		{Key: "nested", Map: settings.OrderedMap{{Key: "deep", Value: "cel:("}}},
	}, payload.SnakeCase)
	key, ok := errors.AsType[*payload.KeyError](err)
	if !ok || key.Key != "message_data.display_name" {
		t.Fatalf("got %v, want the key of the setting", err)
	}
	for _, want := range []string{"message_data.display_name: template: line 1, column 6:", "message_data.nested.deep: expression"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to contain %q", err, want)
		}
	}
}

func TestOrderAndNesting(t *testing.T) {
	b := build(t, settings.OrderedMap{
		{Key: "z", Value: ".id"},
		{Key: "a\"", Map: settings.OrderedMap{{Key: "c", Value: ".nope"}, {Key: "b", Map: settings.OrderedMap{}}}},
		{Key: "m", Value: ".kind"},
	})
	got, problems, err := b.AppendPayload([]byte("before "), input(cluster))
	if err != nil {
		t.Fatal(err)
	}
	if want := `before {"z":"cls-123","a\"":{"c":"","b":{}},"m":"Cluster"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if len(problems) != 1 || problems[0].Key != `message_data.a".c` {
		t.Errorf("problems %v", problems)
	}
}

func TestDefault(t *testing.T) {
	cases := map[payload.Keys]string{
		payload.SnakeCase: `{"resource_type":"clusters","resource_id":"a\"b","reason":"backoff-expired"}`,
		payload.CamelCase: `{"resourceType":"clusters","resourceId":"a\"b","reason":"backoff-expired"}`,
	}
	for keys, want := range cases {
		b, err := payload.New(nil, keys)
		if err != nil {
			t.Fatal(err)
		}
		got, problems, err := b.AppendPayload(nil, payload.Input{ID: `a"b`, Type: "clusters", Reason: "backoff-expired"})
		if err != nil || len(problems) > 0 || string(got) != want {
			t.Errorf("got %s, %v, %v, want %s", got, problems, err, want)
		}
	}
}

func TestBrokenResource(t *testing.T) {
	if _, _, err := build(t, entry(".id")).AppendPayload(nil, input(`{`)); err == nil {
		t.Error("no error")
	}
}

func TestConcurrent(t *testing.T) {
	b := build(t, entry(`{{range .list}}{{.}}{{end}}{{.missing}}{{reason}}`))
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			for range 100 {
				got, problems, err := b.AppendPayload(nil, payload.Input{Raw: fmt.Appendf(nil, `{"list":[%d,%d]}`, i, i), Reason: fmt.Sprint("-", i)})
				if want := fmt.Sprintf(`{"x":"%d%d-%d"}`, i, i, i); err != nil || len(problems) != 1 || string(got) != want {
					t.Errorf("got %s, %v, %v, want %s", got, problems, err, want)
				}
			}
		})
	}
	wg.Wait()
}

// TestAlwaysJSON: whatever the resource holds, the payload is JSON and a path
// gives the text that encoding/json reads from it.
func TestAlwaysJSON(t *testing.T) {
	b := build(t, settings.OrderedMap{
		{Key: "path", Value: ".a"}, {Key: "template", Value: "{{.a}}"}, {Key: "cel", Value: "cel:resource.a"},
	})
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.String().Draw(t, "a")
		raw, err := json.Marshal(map[string]string{"a": a})
		if err != nil {
			t.Fatal(err)
		}
		got, problems, err := b.AppendPayload(nil, payload.Input{Raw: raw})
		if err != nil || len(problems) > 0 {
			t.Fatal(err, problems)
		}
		var back, want map[string]string
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%s: %v", got, err)
		}
		if diff := cmp.Diff(map[string]string{"path": want["a"], "template": want["a"], "cel": want["a"]}, back); diff != "" {
			t.Fatal(diff)
		}
	})
}

// FuzzTemplate checks that no template panics, hangs or produces invalid JSON.
func FuzzTemplate(f *testing.F) {
	for _, seed := range []string{
		`{{.a.b}}`, `{{range .l}}{{.}}{{end}}`, `{{if .a}}{{else}}{{.b | printf "%v"}}{{end}}`, `{{with $x := .a}}{{$x.b}}{{end}}`,
		`{{(index .l 0).x}}`, `{{range $i, $e := .l}}{{break}}{{end}}`, `.a.b`, `cel:resource.a`, `{{define "x"}}{{end}}`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		b, err := payload.New(entry(text), payload.SnakeCase)
		if err != nil {
			return
		}
		got, _, err := b.AppendPayload(nil, input(`{"a":{"b":1},"l":[{"x":1},null,"s"]}`))
		if err != nil || !json.Valid(got) {
			t.Fatalf("%q gives %s, %v", text, got, err)
		}
	})
}

func BenchmarkAppendData(b *testing.B) {
	builder, err := payload.New(settings.OrderedMap{
		{Key: "resource_id", Value: ".id"},
		{Key: "resource_type", Value: ".kind"},
		{Key: "region", Value: ".metadata.labels.region"},
		{Key: "display_name", Value: `{{if .metadata.displayName}}{{.metadata.displayName}}{{else}}{{.metadata.name}}{{end}}`},
	}, payload.SnakeCase)
	if err != nil {
		b.Fatal(err)
	}
	in := input(cluster)
	buf := make([]byte, 0, 1024)
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := builder.AppendPayload(buf, in); err != nil {
			b.Fatal(err)
		}
	}
}
