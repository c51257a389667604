package resource

import (
	"bytes"
	"encoding/json"
	"reflect"
	"testing"

	"go.yaml.in/yaml/v3"
	"pgregory.net/rapid"
)

// TestYAMLKeepsTheValue parses its own output.
func TestYAMLKeepsTheValue(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.Deferred(anyJSON).Draw(t, "value")
		raw, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		text, err := JSONToYAML(raw)
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
		if text, err := JSONToYAML([]byte(broken)); err == nil {
			t.Errorf("%q became %q", broken, text)
		}
	}
	text, err := JSONToYAML([]byte(`{"z":1,"a":{},"l":[],"n":null,"t":"null","d":"2026-01-01","m":"a\nb","f":1.50,"e":1e3}`))
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
