package settings

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type treeConfig struct {
	Body Tree            `key:"body" doc:"Body."`
	More map[string]Tree `key:"more" doc:"More."`
}

// TestTree checks that a tree keeps its values and positions, and that it is written as it was read.
func TestTree(t *testing.T) {
	const text = "body:\n  a: [1, 2.5, true, null, text, \"1\", 2026-01-02]\n  b: &b {c: {}}\n  d: *b\nmore: {x: [y]}\n"
	want := map[string]any{
		"a": []any{int64(1), 2.5, true, nil, "text", "1", "2026-01-02"},
		"b": map[string]any{"c": map[string]any{}}, "d": map[string]any{"c": map[string]any{}},
	}
	var cfg treeConfig
	report, err := Load(&cfg, Source{File: "f.yaml", FileData: []byte(text)})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, cfg.Body.Value); diff != "" {
		t.Error(diff)
	}
	if got := report.WrapWithOrigin("body.a[4]", errors.New("wrong")).Error(); !strings.HasPrefix(got, "f.yaml:2:27: key \"body.a[4]\": ") {
		t.Errorf("position %q", got)
	}
	var out strings.Builder
	if err := report.WriteYAML(&out, false); err != nil {
		t.Fatal(err)
	}
	var again treeConfig
	if _, err := Load(&again, Source{File: "f.yaml", FileData: []byte(out.String())}); err != nil || cmp.Diff(cfg, again) != "" {
		t.Errorf("written as %s: %v", out.String(), err)
	}
}

// TestTreeRejects checks the values that a tree cannot have.
func TestTreeRejects(t *testing.T) {
	for text, want := range map[string]string{
		"body: {a: .inf}":              "f.yaml:1:11: key \"body.a\": must be a finite number",
		"body: {a: !!binary aGk=}":     "has the tag !!binary",
		"body: {a: 1, a: 2}":           "is set twice",
		"body: {1: {<<: {a: b}}}":      "has a merge key",
		"body: 18446744073709551615":   "must be at most 9223372036854775807",
		"body: &a [*a]":                "nested more than 32 levels",
		"body: {[1]: 2}":               "must have string keys",
		"more: {a: {b: !!set {c: d}}}": "",
	} {
		var cfg treeConfig
		_, err := Load(&cfg, Source{File: "f.yaml", FileData: []byte(text)})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
