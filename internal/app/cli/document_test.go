package cli

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

func TestParseDocuments(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		text   string
		want   int
		says   string
	}{
		"YAML":           {"one", "kind: Cluster\nname: a\n", 1, ""},
		"Several":        {"with nothing between some", "---\nkind: Cluster\nname: a\n---\n---\nkind: Cluster\nname: b\n", 2, ""},
		"JSON":           {"one after the other", `{"kind":"Cluster","name":"a"}{"kind":"cluster","name":"b"}`, 2, ""},
		"JSONTabs":       {"YAML would not take tabs", "{\n\t\"kind\":\t\"Cluster\",\n\t\"name\": \"a\"\n}", 1, ""},
		"JSONList":       {"a list of them", ` [{"kind":"Cluster","name":"a"},{"kind":"Cluster","name":"b"}]`, 2, ""},
		"Items":          {"as get writes them", "items:\n- kind: Cluster\n  name: a\n- kind: Cluster\n  name: b\n", 2, ""},
		"Metadata":       {"as Kubernetes has it", "kind: Cluster\nmetadata: {name: a, labels: {x: y}}\n", 1, ""},
		"Owner":          {"as the API serves it", "kind: NodePool\nname: a\nownerResource: {id: x, kind: Cluster}\nowner_references: {id: x}\n", 1, ""},
		"OwnerByName":    {"by name", "kind: NodePool\nname: a\nownerResource: {name: c1}\n", 1, ""},
		"Anchors":        {"what is said once", "kind: Cluster\nname: a\nspec: {x: &x {a: 1}, y: {<<: *x, b: 2}}\n", 1, ""},
		"NoKind":         {"of what", "name: a\n", 0, "f:1: kind is missing"},
		"NoSuchKind":     {"of what", "kind: Pod\nname: a\n", 0, `no kind of resource "Pod"`},
		"NoName":         {"which", "kind: Cluster\n", 0, "name is missing"},
		"TwoNames":       {"which", "kind: Cluster\nname: a\nmetadata: {name: b}\n", 0, `name is given twice, as "a" and as "b"`},
		"TwoLabels":      {"which", "kind: Cluster\nname: a\nlabels: {a: b}\nmetadata: {labels: {a: c}}\n", 0, "labels and metadata.labels differ"},
		"TwoOwners":      {"whose", "kind: NodePool\nname: a\ncluster: x\nownerResource: {id: y}\n", 0, "the parent is given twice"},
		"NoOwner":        {"whose", "kind: NodePool\nname: a\n", 0, "say which, as in cluster: c1"},
		"OwnerOfCluster": {"nobody's", "kind: Cluster\nname: a\ncluster: b\n", 0, "in no cluster"},
		"Unknown":        {"strict", "kind: Cluster\nname: a\nlables: {}\n", 0, `f:1: unknown field "lables"`},
		"WrongType":      {"strict", "kind: Cluster\nname: [a]\n", 0, "name"},
		"Duplicate":      {"strict", "kind: Cluster\nname: a\nname: b\n", 0, `key "name" already defined`},
		"BadYAML":        {"where", "kind: Cluster\nname: a: b\n", 0, "f: line 2"},
		"BadJSON":        {"where", "{\"kind\":\n\n!}", 0, "f: JSON after line"},
		"NaN":            {"JSON has none", "kind: Cluster\nname: a\nspec: {x: .nan}\n", 0, "not to be written as JSON"},
		"Text":           {"no document", "hello", 0, "f:1:"},
		"Bomb":           {"a page that becomes a library", bomb(), 0, "excessive aliasing"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			docs, err := parseDocuments("f", []byte(tc.text))
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Fatalf("%s: got %v, want %q", tc.reason, err, tc.says)
			}
			if err == nil && len(docs) != tc.want {
				t.Errorf("%s: %d documents, want %d", tc.reason, len(docs), tc.want)
			}
		})
	}
}

func bomb() string {
	var b strings.Builder
	b.WriteString("kind: Cluster\nname: a\nspec:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := '1'; i <= '9'; i++ {
		last := "*a" + string(i-1)
		b.WriteString("  a" + string(i) + ": &a" + string(i) + " [" + strings.Repeat(last+", ", 9) + last + "]\n")
	}
	return b.String()
}

func TestStandardInputIsBounded(t *testing.T) {
	t.Parallel()
	got := run{args: []string{"create", "-f", "-"}, stdin: strings.Repeat("#", maxFile+1)}.do(t, newFleet())
	if got.code != CodeUsage || !strings.Contains(got.stderr, "larger than") {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
	got = run{args: []string{"create", "-f", t.TempDir()}}.do(t, newFleet())
	if got.code != CodeUsage || !strings.Contains(got.stderr, "no .yaml, .yml or .json file") {
		t.Errorf("exit code %d, %q", got.code, got.stderr)
	}
}

// FuzzParseDocuments looks for texts that do more than fail.
func FuzzParseDocuments(f *testing.F) {
	f.Add([]byte(twoDocuments))
	f.Add([]byte(`{"kind":"Cluster","name":"a","spec":{"x":[1,null]}}`))
	f.Add([]byte("items:\n- kind: Cluster\n  name: a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := parseDocuments("f", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			if !json.Valid(d.Spec) || d.Name == "" || d.kind.collection == "" {
				t.Errorf("accepted as %+v", d)
			}
		}
	})
}

// TestMergePatch has the examples of RFC 7386.
func TestMergePatch(t *testing.T) {
	t.Parallel()
	for _, tc := range [][3]string{
		{`{"a":"b"}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"b"}`, `{"b":"c"}`, `{"a":"b","b":"c"}`},
		{`{"a":"b"}`, `{"a":null}`, `{}`},
		{`{"a":"b","b":"c"}`, `{"a":null}`, `{"b":"c"}`},
		{`{"a":["b"]}`, `{"a":"c"}`, `{"a":"c"}`},
		{`{"a":"c"}`, `{"a":["b"]}`, `{"a":["b"]}`},
		{`{"a":{"b":"c"}}`, `{"a":{"b":"d","c":null}}`, `{"a":{"b":"d"}}`},
		{`{"a":[{"b":"c"}]}`, `{"a":[1]}`, `{"a":[1]}`},
		{`["a","b"]`, `["c","d"]`, `["c","d"]`},
		{`{"a":"b"}`, `["c"]`, `["c"]`},
		{`{"a":"foo"}`, `null`, `null`},
		{`{"a":"foo"}`, `"bar"`, `"bar"`},
		{`{"e":null}`, `{"a":1}`, `{"a":1,"e":null}`},
		{`[1,2]`, `{"a":"b","c":null}`, `{"a":"b"}`},
		{`{}`, `{"a":{"bb":{"ccc":null}}}`, `{"a":{"bb":{}}}`},
		{``, `{"a":1}`, `{"a":1}`},
		{`{"big":12345678901234567890,"f":1.50}`, `{"a":1}`, `{"a":1,"big":12345678901234567890,"f":1.50}`},
	} {
		got, err := mergePatch(json.RawMessage(tc[0]), json.RawMessage(tc[1]))
		if err != nil || string(got) != tc[2] {
			t.Errorf("%s with %s: got %s, err %v, want %s", tc[0], tc[1], got, err, tc[2])
		}
	}
	for _, broken := range [][2]string{{`{"a":`, `{"a":1}`}, {`{}`, `{"a":`}, {`{"a":{]}`, `{"a":{"b":1}}`}} {
		if got, err := mergePatch(json.RawMessage(broken[0]), json.RawMessage(broken[1])); err == nil {
			t.Errorf("%q: got %s and no error", broken, got)
		}
	}
}

// TestYAMLKeepsTheValue reads back what was written.
func TestYAMLKeepsTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Deferred(anyJSON).Draw(t, "value")
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := toYAML(raw)
		if err != nil {
			t.Fatalf("%s: %v", raw, err)
		}
		var got, want any
		if err := yaml.Unmarshal(text, &got); err != nil {
			t.Fatalf("%s became\n%s\nwhich does not parse: %v", raw, text, err)
		}
		again, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(raw, &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal(again, &got); err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became\n%s\nand %s", raw, text, again)
		}
	})
	for _, broken := range []string{``, `{`, `{"a"`, `[1,`, `{"a":]`, `tru`} {
		if text, err := toYAML([]byte(broken)); err == nil {
			t.Errorf("%q became %q", broken, text)
		}
	}
	text, err := toYAML([]byte(`{"z":1,"a":{},"l":[],"n":null,"t":"null","d":"2026-01-01","m":"a\nb","f":1.50,"e":1e3}`))
	want := "z: 1\na: {}\nl: []\nn: null\nt: \"null\"\nd: \"2026-01-01\"\nm: |-\n  a\n  b\nf: 1.50\ne: 1e3\n"
	if err != nil || !bytes.Equal(text, []byte(want)) {
		t.Errorf("got %v\n%s\nwant\n%s", err, text, want)
	}
}

func anyJSON() *rapid.Generator[any] {
	toAny := func(v any) any { return v }
	text := rapid.StringMatching(`[ -~äß€\n:#\-'"]{0,12}`)
	return rapid.OneOf(
		rapid.Map(text, func(s string) any { return s }),
		rapid.Map(rapid.SampledFrom([]string{"null", "yes", "on", "1e3", "0x1f", "2026-01-01", "~", "- a", "<<", "=", ".nan", "1_000", "0o7", " a", "a "}), func(s string) any { return s }),
		rapid.Map(rapid.Int64Range(-1<<53, 1<<53), func(n int64) any { return n }),
		rapid.Map(rapid.Bool(), func(b bool) any { return b }),
		rapid.Just(any(nil)),
		rapid.Map(rapid.SliceOfN(rapid.Deferred(anyJSON), 0, 3), func(l []any) any { return toAny(l) }),
		rapid.Map(rapid.MapOfN(text, rapid.Deferred(anyJSON), 0, 3), func(m map[string]any) any { return toAny(m) }),
	)
}
