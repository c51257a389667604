package resource

import (
	"encoding/json"
	"errors"
	"maps"
	"strings"
	"testing"
	"testing/iotest"
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
		"Flow":           {"YAML on one line", "{kind: Cluster, name: a, spec: {x: 1}}\n", 1, ""},
		"FlowList":       {"a list of them", "[{kind: Cluster, name: a}, {kind: Cluster, name: b}]", 2, ""},
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
		"NoSuchKind":     {"of what", "kind: Pod\nname: a\n", 0, `unknown resource kind "Pod"`},
		"NoName":         {"which", "kind: Cluster\n", 0, "name is missing; add, for example, name: eu-1"},
		"TwoNames":       {"which", "kind: Cluster\nname: a\nmetadata: {name: b}\n", 0, `name is given twice, as "a" and "b"`},
		"TwoLabels":      {"which", "kind: Cluster\nname: a\nlabels: {a: b}\nmetadata: {labels: {a: c}}\n", 0, "labels and metadata.labels differ"},
		"TwoOwners":      {"whose", "kind: NodePool\nname: a\ncluster: x\nownerResource: {id: y}\n", 0, "the parent is given twice"},
		"NoOwner":        {"whose", "kind: NodePool\nname: a\n", 0, "needs a cluster; add, for example, cluster: eu-1"},
		"OwnerOfCluster": {"nobody's", "kind: Cluster\nname: a\ncluster: b\n", 0, "does not belong to a cluster"},
		"Unknown":        {"strict", "kind: Cluster\nname: a\nlables: {}\n", 0, `f:1: unknown field "lables"`},
		"WrongType":      {"strict", "kind: Cluster\nname: [a]\n", 0, "f:1: name is a list, want a string"},
		"NoObject":       {"strict", "kind: Cluster\nname: a\nlabels: x\n", 0, "f:1: labels is a string, want an object"},
		"NumberAsLabel":  {"strict, in terms of the file", "kind: Cluster\nname: a\nlabels: {size: 1}\n", 0, "f:1: labels is a number, want a string; quote the value"},
		"BoolAsLabel":    {"strict, in terms of the file", "kind: Cluster\nname: a\nlabels: {on: true}\n", 0, "f:1: labels is true or false, want a string; quote the value"},
		"Duplicate":      {"strict", "kind: Cluster\nname: a\nname: b\n", 0, `key "name" already defined`},
		"BadYAML":        {"where", "kind: Cluster\nname: a: b\n", 0, "f: line 2"},
		"BadJSON":        {"where", "{\"kind\":\n\n!}", 0, "f: JSON after line"},
		"NaN":            {"JSON has none", "kind: Cluster\nname: a\nspec: {x: .nan}\n", 0, "convert to JSON"},
		"Text":           {"no document", "hello", 0, "f:1:"},
		"Bomb":           {"a page that becomes a library", yamlBomb(), 0, "excessive aliasing"},
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

func yamlBomb() string {
	var b strings.Builder
	b.WriteString("kind: Cluster\nname: a\nspec:\n  a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := '1'; i <= '9'; i++ {
		last := "*a" + string(i-1)
		b.WriteString("  a" + string(i) + ": &a" + string(i) + " [" + strings.Repeat(last+", ", 9) + last + "]\n")
	}
	return b.String()
}

func TestReadDocumentsRefuses(t *testing.T) {
	t.Parallel()
	if _, err := ReadDocuments("-", strings.NewReader(strings.Repeat("#", MaxFileSize+1))); err == nil || !strings.Contains(err.Error(), "larger than") {
		t.Errorf("a file without end: %v", err)
	}
	if _, err := ReadDocuments(t.TempDir(), nil); err == nil || !strings.Contains(err.Error(), "no .yaml, .yml or .json file") {
		t.Errorf("an empty folder: %v", err)
	}
	if _, err := ReadDocuments(t.TempDir()+"/none", nil); err == nil {
		t.Error("no such file: no error")
	}
	if _, err := ReadDocuments("-", iotest.ErrReader(errors.New("broken"))); err == nil {
		t.Error("a file that breaks off: no error")
	}
}

// FuzzParseDocuments looks for texts that do more than fail.
func FuzzParseDocuments(f *testing.F) {
	f.Add([]byte("kind: Cluster\nname: a\nspec: &s {since: 2026-03-01, ports: {80: http}}\n---\nkind: np\nmetadata: {name: b}\ncluster: a\n"))
	f.Add([]byte(`{"kind":"Cluster","name":"a","spec":{"x":[1,null]}}`))
	f.Add([]byte("items:\n- kind: Cluster\n  name: a\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		docs, err := parseDocuments("f", data)
		if err != nil {
			return
		}
		for _, d := range docs {
			if !json.Valid(d.Spec) || d.Ref.Name == "" || d.Ref.Kind.Collection == "" || d.Ref.Kind.IsChild() == (d.Ref.Parent == "") {
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
		got, err := ApplyMergePatch(json.RawMessage(tc[0]), json.RawMessage(tc[1]))
		if err != nil || string(got) != tc[2] {
			t.Errorf("%s with %s: got %s, err %v, want %s", tc[0], tc[1], got, err, tc[2])
		}
	}
	for _, broken := range [][2]string{{`{"a":`, `{"a":1}`}, {`{}`, `{"a":`}, {`{"a":{]}`, `{"a":{"b":1}}`}} {
		if got, err := ApplyMergePatch(json.RawMessage(broken[0]), json.RawMessage(broken[1])); err == nil {
			t.Errorf("%q: got %s and no error", broken, got)
		}
	}
}

func TestParseLabels(t *testing.T) {
	t.Parallel()
	set, remove, err := ParseLabelChanges([]string{"a=b", "c=", "d=e=f", "g-", "h--"})
	if err != nil || !maps.Equal(set, map[string]string{"a": "b", "c": "", "d": "e=f"}) || strings.Join(remove, " ") != "g h-" {
		t.Errorf("got %v, %v, %v", set, remove, err)
	}
	for _, wrong := range [][]string{{"a"}, {"=b"}, {"-"}, {"a=b", "a=c"}, {"a-", "a=b"}, {""}} {
		if set, remove, err := ParseLabelChanges(wrong); err == nil {
			t.Errorf("%q was read as %v, %v", wrong, set, remove)
		}
	}
}

func TestCheckPatch(t *testing.T) {
	t.Parallel()
	for patch, ok := range map[string]bool{`{}`: true, `{"a":null}`: true, `null`: false, `[]`: false, `{`: false, ``: false, `"a"`: false} {
		if err := CheckPatchIsObject(patch); (err == nil) != ok {
			t.Errorf("%q: %v", patch, err)
		}
	}
}
