package execcli_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/execution/action"
)

func testSchema() []action.Parameter {
	return []action.Parameter{
		{Name: "name", Type: "string"},
		{Name: "replicas", Type: "integer"},
		{Name: "force", Type: "boolean"},
		{Name: "cpu", Type: "quantity"},
		{Name: "data", Type: "object"},
		{Name: "kinds", Type: "array"},
	}
}

func TestReadParameters(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	object := file("object.yaml", "replicas: 3\nname: web\ndata: {a: b}\n")
	two := file("two.yaml", "a: 1\n---\n# nothing\n---\nb: [2]\n")
	list := file("list.json", "[1, 2]")
	empty := file("empty", "\n")
	cases := map[string]struct {
		reason string
		file   string
		words  []string
		stdin  string
		want   string // or
		err    []string
	}{
		"Nothing":       {reason: "no parameters are an empty object", want: `{}`},
		"Typed":         {reason: "the schema says what a word is", words: []string{"name=5", "replicas=5", "force=true", "cpu=500m"}, want: `{"name":"5","replicas":5,"force":true,"cpu":"500m"}`},
		"Big":           {reason: "digits are kept", words: []string{"replicas=9007199254740993"}, want: `{"replicas":9007199254740993}`},
		"Sign":          {reason: "JSON knows no plus and no zeros before", words: []string{"replicas=+007"}, want: `{"replicas":7}`},
		"Below":         {reason: "bounds are the catalogue's", words: []string{"replicas=-1"}, want: `{"replicas":-1}`},
		"Empty":         {reason: "an empty text is a text", words: []string{"name="}, want: `{"name":""}`},
		"Equals":        {reason: "the first sign parts them", words: []string{"name=a=b"}, want: `{"name":"a=b"}`},
		"Shell":         {reason: "a text is a text", words: []string{"name=web;kubectl delete ns x"}, want: `{"name":"web;kubectl delete ns x"}`},
		"Object":        {reason: "as JSON", words: []string{`data={"a":{"b":1}}`}, want: `{"data":{"a":{"b":1}}}`},
		"Entries":       {reason: "one by one, and keys may have dots", words: []string{"data.app.properties=x=1", "data.n=5", "data.old-"}, want: `{"data":{"app.properties":"x=1","n":"5","old":null}}`},
		"List":          {reason: "as JSON", words: []string{`kinds=["a",1]`}, want: `{"kinds":["a",1]}`},
		"Elements":      {reason: "one by one", words: []string{"kinds=a", "kinds=b", `kinds={"c":1}`}, want: `{"kinds":["a","b",{"c":1}]}`},
		"NoElements":    {reason: "and more", words: []string{"kinds=[]", "kinds=a"}, want: `{"kinds":["a"]}`},
		"File":          {reason: "the whole of them", file: object, want: `{"data":{"a":"b"},"name":"web","replicas":3}`},
		"WordsWin":      {reason: "over the file", file: object, words: []string{"replicas=5", "data.c=d"}, want: `{"data":{"a":"b","c":"d"},"name":"web","replicas":5}`},
		"Stdin":         {reason: "as a file", file: "-", stdin: `{"replicas": 1}`, want: `{"replicas":1}`},
		"TextOfFile":    {reason: "the content as it is", words: []string{"name=@" + list}, want: `{"name":"[1, 2]"}`},
		"EntryOfFile":   {reason: "a key of a ConfigMap", words: []string{"data.x=@" + list}, want: `{"data":{"x":"[1, 2]"}}`},
		"ListOfFile":    {reason: "as it is", words: []string{"kinds=@" + list}, want: `{"kinds":[1,2]}`},
		"Documents":     {reason: "several are a list", words: []string{"kinds=@" + two}, want: `{"kinds":[{"a":1},{"b":[2]}]}`},
		"OneDocument":   {reason: "one alone is the only element", words: []string{"kinds=@" + object}, want: `{"kinds":[{"data":{"a":"b"},"name":"web","replicas":3}]}`},
		"ValueOfStdin":  {reason: "as a file", words: []string{"name=@-"}, stdin: "hello", want: `{"name":"hello"}`},
		"At":            {reason: "a value can begin with @", words: []string{"name=@@bob"}, want: `{"name":"@bob"}`},
		"Unknown":       {reason: "those that there are are named", words: []string{"replica=5"}, err: []string{`"replica"`, "replicas", "name"}},
		"NoWorkload":    {reason: "a kind is no parameter where there is none", words: []string{"deployment=web"}, err: []string{`"deployment"`, "replicas"}},
		"NoValue":       {reason: "how it is written is said", words: []string{"replicas"}, err: []string{"name=value"}},
		"NoInteger":     {reason: "what is wrong is named", words: []string{"replicas=five"}, err: []string{"replicas", "five", "integer"}},
		"Fraction":      {reason: "an integer has none", words: []string{"replicas=1.5"}, err: []string{"replicas"}},
		"NoBoolean":     {reason: "only two words", words: []string{"force=yes"}, err: []string{"force", "true nor false"}},
		"NoObject":      {reason: "JSON is wanted", words: []string{"data=x"}, err: []string{"data", "JSON"}},
		"EntryOfText":   {reason: "only objects have any", words: []string{"name.x=y"}, err: []string{"name", "not an object"}},
		"Twice":         {reason: "which is meant is not clear", words: []string{"name=a", "name=b"}, err: []string{"name is given twice"}},
		"EntryTwice":    {reason: "likewise", words: []string{"data.a=1", "data.a-"}, err: []string{"data.a is given twice"}},
		"EntryAndWhole": {reason: "likewise", words: []string{"data={}", "data.a=1"}, err: []string{"data.a is given twice"}},
		"All":           {reason: "all mistakes at once", words: []string{"replicas=x", "force=y"}, err: []string{"replicas", "force"}},
		"NoFile":        {reason: "the file is named", words: []string{"name=@" + dir + "/nope"}, err: []string{"nope"}},
		"EmptyFile":     {reason: "nothing is no object", words: []string{"data=@" + empty}, err: []string{"the file is empty"}},
		"TwoObjects":    {reason: "one object is one document", words: []string{"data=@" + two}, err: []string{"one document"}},
		"NoParameters":  {reason: "a list is no object", file: list, err: []string{"one object"}},
		"Broken":        {reason: "the file is named", file: file("broken.json", `{"a": `), err: []string{"broken.json"}},
		"Huge":          {reason: "no larger than an object of the API server", words: []string{"name=@-"}, stdin: strings.Repeat("x", execcli.MaxParameterFile+1), err: []string{"larger"}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := execcli.ParameterReader{Stdin: strings.NewReader(tc.stdin)}.Read(testSchema(), tc.file, tc.words)
			if len(tc.err) > 0 {
				if err == nil {
					t.Fatalf("%s: got %s, want an error", tc.reason, got)
				}
				for _, text := range tc.err {
					if !strings.Contains(err.Error(), text) {
						t.Errorf("%s: the error %q lacks %q", tc.reason, err, text)
					}
				}
				return
			}
			if err != nil {
				t.Fatalf("%s: %v", tc.reason, err)
			}
			var have, want any
			if err := json.Unmarshal(got, &have); err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, have); diff != "" {
				t.Errorf("%s (-want +got):\n%s", tc.reason, diff)
			}
			if strings.Contains(tc.want, "9007199254740993") && !strings.Contains(string(got), "9007199254740993") {
				t.Errorf("%s: %s", tc.reason, got)
			}
		})
	}
}

// FuzzReadParameters verifies that any words give one JSON object with known names, or an error.
func FuzzReadParameters(f *testing.F) {
	for _, w := range []string{"replicas=5", "data.a=1", "data.a-", "kinds=[", `data={"a":1}`, "name=@@x", "force=true", "=", ".", "data.-", "data.=x"} {
		f.Add(w, "kinds=a")
	}
	f.Fuzz(func(t *testing.T, one, other string) {
		if strings.Contains(one, "=@") || strings.Contains(other, "=@") {
			t.Skip("a file of this machine")
		}
		raw, err := execcli.ParameterReader{}.Read(testSchema(), "", []string{one, other})
		if err != nil {
			return
		}
		var object map[string]json.RawMessage
		if err := json.Unmarshal(raw, &object); err != nil {
			t.Fatalf("%q %q gave %q: %v", one, other, raw, err)
		}
		for name := range object {
			if !strings.HasPrefix(one, name) && !strings.HasPrefix(other, name) {
				t.Errorf("%q %q gave the parameter %q", one, other, name)
			}
		}
	})
}
