package cli

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const templateInput = `{"items": [
  {"name": "eu-1", "labels": {"a.b/c": "x"}, "spec": {"size": 12345678901, "ratio": 1.50, "huge": 12345678901234567890, "zones": ["a", "b"], "on": true}},
  {"name": "us,\"1\"\u001b[31m", "spec": {"size": 2, "none": null, "empty": {}}}
]}`

func TestPrintWithTemplate(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		format, in, want string
		noHeaders        bool
	}{
		"JSONPath":       {format: `jsonpath={.items[*].name}`, in: `{"items":[{"name":"a"},{"name":"b"}]}`, want: "a b"},
		"Range":          {format: `jsonpath={range .items[*]}{.name}={.spec.size}{"\n"}{end}`, in: `{"items":[{"name":"a","spec":{"size":12345678901}}]}`, want: "a=12345678901\n"},
		"Filter":         {format: `jsonpath={.items[?(@.spec.size>2)].name}`, in: templateInput, want: "eu-1"},
		"NoBraces":       {format: `jsonpath=.spec.zones`, in: `{"spec":{"zones":["a"]}}`, want: `["a"]`},
		"MissingKey":     {format: `jsonpath={.nothing}`, in: `{}`, want: ""},
		"Numbers":        {format: `jsonpath={.items[0].spec.ratio} {.items[0].spec.huge}`, in: templateInput, want: "1.50 12345678901234567890"},
		"Stream":         {format: `jsonpath={.a};`, in: "{\"a\":1}\n{\"a\":2}\n", want: "1;2;"},
		"GoTemplate":     {format: `go-template={{range .items}}{{.name}} {{printf "%d" .spec.size}};{{end}}`, in: `{"items":[{"name":"a","spec":{"size":3}}]}`, want: "a 3;"},
		"GoTemplateOf":   {format: `go-template={{range .items}}{{.name}} {{.spec.ratio}} {{.spec.huge}} {{.spec.none}};{{end}}`, in: templateInput, want: "eu-1 1.50 12345678901234567890 <no value>;us,\"1\"\x1b[31m <no value> <no value> <no value>;"},
		"Functions":      {format: `go-template={{exists .a "b" 0}} {{exists .a "b" 1}} {{exists .a.x "b"}} {{exists .a "none"}} {{base64decode .c}}`, in: `{"a":{"b":[1],"none":null},"c":"aMOp"}`, want: "true false false false hé"},
		"GoTemplateFile": {format: "go-template-file=testdata/names.tmpl", in: templateInput, want: "eu-1\nus,\"1\"\x1b[31m\n"},
		"Columns":        {format: `custom-columns=NAME:.name,SIZE:spec.size,ZONES:{.spec.zones[*]},NO:.no`, in: templateInput, want: "NAME          SIZE          ZONES    NO\neu-1          12345678901   a,b      <none>\nus,\"1\"�[31m   2             <none>   <none>\n"},
		"ColumnsOfOne":   {format: `custom-columns=NAME:.name`, in: `{"name":"a"}`, want: "a\n", noHeaders: true},
		"ColumnsWatched": {format: `custom-columns=T:.type`, in: `{"type":"ADDED"}{"type":"DELETED"}`, want: "T\nADDED\nDELETED\n"},
		"CSV": {format: "csv", in: templateInput, want: "name,labels.a.b/c,spec.size,spec.ratio,spec.huge,spec.zones,spec.on,spec.none,spec.empty\n" +
			"eu-1,x,12345678901,1.50,12345678901234567890,\"[\"\"a\"\",\"\"b\"\"]\",true,,\n\"us,\"\"1\"\"\x1b[31m\",,2,,,,,,{}\n"},
		"CSVOfNone":   {format: "csv", in: `{"items":[]}`, want: ""},
		"CSVOfArray":  {format: "csv", in: `[{"a":1},{"a":2}]`, want: "a\n1\n2\n"},
		"CSVNoHeader": {format: "csv", in: `{"a":1}`, want: "1\n", noHeaders: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tmpl, err := parseOutputTemplate(c.format)
			if err != nil || tmpl == nil {
				t.Fatalf("%v, %v", tmpl, err)
			}
			var out strings.Builder
			if err := tmpl.printValues(&out, strings.NewReader(c.in), c.noHeaders); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestParseOutputTemplateRefuses(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		"jsonpath":                  "the template is missing; write jsonpath=TEMPLATE",
		"custom-columns=":           "the template is missing; write custom-columns=TEMPLATE",
		"go-template":               "the template is missing; write go-template=TEMPLATE",
		"go-template={{.a":          "unclosed action",
		"go-template={{nope}}":      `function "nope" not defined`,
		"go-template-file":          "the template is missing; write go-template-file=FILE",
		"go-template-file=nope":     "no such file",
		"jsonpath={.a":              "unclosed action",
		"custom-columns=NAME":       `"NAME" is not HEADER:PATH`,
		"custom-columns=A:.a,B:{.b": "unclosed action",
		"csv=a":                     "it takes no value",
	} {
		if _, err := parseOutputTemplate(format); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", format, err, want)
		}
	}
	if tmpl, err := parseOutputTemplate("go-templates={{.}}"); tmpl != nil || err != nil {
		t.Errorf("another format: %v, %v", tmpl, err)
	}
	if tmpl, err := parseOutputTemplate("json"); tmpl != nil || err != nil {
		t.Errorf("json: %v, %v", tmpl, err)
	}
}

func TestTemplateExecutionFails(t *testing.T) {
	t.Parallel()
	for format, want := range map[string]string{
		`go-template={{index .items 9}}`:              `template: output:1:2: executing "output" at <index .items 9>: error calling index: index out of range: 9`,
		`go-template={{base64decode 1}}`:              "the value is not a string: 1",
		`go-template={{base64decode "."}}`:            "illegal base64",
		`go-template={{base64decode}}`:                "wrong number of args",
		`go-template={{exists}}`:                      "wrong number of args",
		`go-template={{template "output" .}}`:         "nested more than 10000 deep",
		`go-template={{range .items}}{{.x.y}}{{end}}`: "can't evaluate field y in type int64",
	} {
		tmpl, err := parseOutputTemplate(format)
		if err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := tmpl.printValues(&out, strings.NewReader(`{"items":[{"x":1}]}`), false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want %q", format, out.String(), err, want)
		}
	}
}
