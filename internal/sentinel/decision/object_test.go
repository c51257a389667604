package decision_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/sentinel/decision"
)

func TestParseObject(t *testing.T) {
	got, err := decision.ParseObject([]byte(` {"a":{"b":["x",1,true,false,null,{}]},"n":-7,"a\u0062":"\u00e4\"","a":{"c":[]}} `), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": map[string]any{"c": []any{}}, "n": int64(-7), "ab": `ä"`}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	got, err = decision.ParseObject([]byte(`{"b":["x",1,true,false,null,{}]}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	want = map[string]any{"b": []any{"x", int64(1), true, false, nil, map[string]any{}}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

// TestParseObjectNotUnicode: what JSON allows and Unicode does not is replaced, as
// encoding/json does.
func TestParseObjectNotUnicode(t *testing.T) {
	raw := []byte("{\"a\\ud800\":\"\xff\",\"b\":[\"\\udc00x\"],\"c\":\"\\ud83d\\ude00\"}")
	got, err := decision.ParseObject(raw, nil)
	if err != nil {
		t.Fatal(err)
	}
	var want map[string]any
	if err := json.Unmarshal(raw, &want); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}

func TestParseObjectOnly(t *testing.T) {
	const raw = `{"a":{"b":1,"c":[2]},"c":{"a":[{}]},"d":null,"a\u0062":3}`
	got, err := decision.ParseObject([]byte(raw), map[string]bool{"a": true, "ab": true, "none": true})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]any{"a": map[string]any{"b": int64(1), "c": []any{int64(2)}}, "ab": int64(3)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	if _, err := decision.ParseObject([]byte(`{"a":1,"b":[}`), map[string]bool{"a": true}); err == nil {
		t.Error("what is passed over must be JSON too")
	}
}

func TestObjectNumbers(t *testing.T) {
	cases := map[string]struct {
		want  any
		shown string
	}{
		"0":                       {want: int64(0), shown: "0"},
		"1000000":                 {want: int64(1_000_000), shown: "1000000"},
		"9223372036854775807":     {want: int64(9223372036854775807), shown: "9223372036854775807"},
		"-9223372036854775808":    {want: int64(-9223372036854775808), shown: "-9223372036854775808"},
		"18446744073709551615":    {want: decision.Digits("18446744073709551615"), shown: "18446744073709551615"},
		"123456789012345678901":   {want: decision.Digits("123456789012345678901"), shown: "123456789012345678901"},
		"2.0":                     {want: int64(2), shown: "2"},
		"1e3":                     {want: int64(1000), shown: "1000"},
		"-0.0":                    {want: int64(0), shown: "0"},
		"1.5":                     {want: decision.Float(1.5), shown: "1.5"},
		"1e21":                    {want: decision.Float(1e21), shown: "1000000000000000000000"},
		"0.000001":                {want: decision.Float(0.000001), shown: "0.000001"},
		"1e400":                   {want: decision.Digits("1e400"), shown: "1e400"},
		"9007199254740993.0":      {want: decision.Digits("9007199254740993.0"), shown: "9007199254740993.0"},
		"100000000000000000000":   {want: decision.Float(1e20), shown: "100000000000000000000"},
		"-100000000000000000001":  {want: decision.Digits("-100000000000000000001"), shown: "-100000000000000000001"},
		"12345678901234567890.25": {want: decision.Digits("12345678901234567890.25"), shown: "12345678901234567890.25"},
	}
	for text, tc := range cases {
		got, err := decision.ParseObject([]byte(`{"n":`+text+`}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, got["n"]); diff != "" {
			t.Errorf("%s: -want +got\n%s", text, diff)
		}
		if shown := fmt.Sprint(got["n"]); shown != tc.shown {
			t.Errorf("%s: shown as %s, want %s", text, shown, tc.shown)
		}
	}
}

func TestAppendValue(t *testing.T) {
	const raw = `{"b":["x\"",1,true,false,null,{},[]],"a":{"z":1.5,"y":18446744073709551616},"n":-7}`
	v, err := decision.ParseObject([]byte(raw), nil)
	if err != nil {
		t.Fatal(err)
	}
	want := `-{"a":{"y":18446744073709551616,"z":1.5},"b":["x\"",1,true,false,null,{},[]],"n":-7}`
	if got := decision.AppendJSON([]byte("-"), v); string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestParseObjectRefuses(t *testing.T) {
	for _, raw := range []string{
		``, `[]`, `7`, `null`, `{`, `{"a"`, `{"a":`, `{"a":[`, `{"a":[1`, `{"a":[1 2]}`, `{"a":{"b":]}}`, `{} {}`, `{"a":1,}`,
		strings.Repeat(`{"a":`, 20_000),
	} {
		if _, err := decision.ParseObject([]byte(raw), nil); err == nil {
			t.Errorf("took %.40q", raw)
		}
	}
}

// FuzzParseObject holds the parser against encoding/json.
func FuzzParseObject(f *testing.F) {
	f.Add([]byte(`{"a":{"b":["x",1,true,null]},"n":1e3}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		got, err := decision.ParseObject(raw, nil)
		if err != nil {
			return
		}
		var want map[string]any
		if err := json.Unmarshal(raw, &want); err != nil {
			if strings.Contains(err.Error(), "number") { // one that float64 can not hold
				return
			}
			t.Fatalf("took %q: %v", raw, err)
		}
		if len(got) != len(want) {
			t.Fatalf("%q: got %d names, want %d", raw, len(got), len(want))
		}
	})
}
