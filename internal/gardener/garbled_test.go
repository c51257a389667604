package gardener

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/fleetloop/fleetloop/internal/shoot"
)

// garbled returns text with parts of what a server may send.
func garbled() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		bits := []string{`{"kind":"Status","message":`, `"shoots \"a\" is forbidden: no"`, `,"details":`, "null", `{"name":"a","kind":"shoots"}`, "}", `"\u0000\n\u2028"`, "1e999", "[", `{"metadata":`, `"creationTimestamp":"x"`}
		parts := rapid.SliceOf(rapid.OneOf(rapid.SampledFrom(bits), rapid.String())).Draw(t, "parts")
		return strings.Join(parts, "")
	})
}

func TestWhateverIsAnsweredCanBeShown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		code := rapid.IntRange(300, 599).Draw(t, "code")
		body := garbled().Draw(t, "body")
		if rapid.Bool().Draw(t, "status") {
			text, err := json.Marshal(map[string]any{"kind": "Status", "message": strings.Repeat(body, rapid.IntRange(0, 40).Draw(t, "times"))})
			if err != nil {
				t.Fatal(err)
			}
			body = string(text)
		}
		r := newAPIError(&http.Response{StatusCode: code, Status: "n", Header: http.Header{}}, []byte(body))
		if c := classifyAPIError(r); !slices.Contains(shoot.ListClasses(), c) {
			t.Errorf("%q is no class", c)
		}
		if !utf8.ValidString(r.text) || len(r.text) > 2100 || strings.ContainsAny(r.text, "\n\x00") {
			t.Errorf("not to be shown to a user: %q", r.text)
		}
		if isObjectNotFound(r, "shoots") && code != http.StatusNotFound {
			t.Errorf("code %d is no missing Shoot", code)
		}
	})
}

func TestWhateverAWatchSaysIsAnEventOrAnError(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		kind := rapid.OneOf(rapid.SampledFrom([]string{"ADDED", "DELETED", "BOOKMARK", "ERROR"}), rapid.String()).Draw(t, "kind")
		e, err := parseWatchEvent(kind, []byte(garbled().Draw(t, "object")))
		if kind == "ERROR" && err == nil {
			t.Errorf("an error became %+v", e)
		}
	})
}
