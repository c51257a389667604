package body_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/body"
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
)

func read(t *testing.T, method, contentType, content string, v any) *problem.Error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(content))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return body.Read(httptest.NewRecorder(), r, 1000, v)
}

func TestRead(t *testing.T) {
	var got v1.CreateRequest
	err := read(t, http.MethodPost, "application/json; charset=utf-8", ` {"name":"a","labels":{"k":"v"},"spec":{"n":1.50, "x": [] }} `, &got)
	if err != nil {
		t.Fatal(err)
	}
	want := v1.CreateRequest{Name: "a", Labels: map[string]string{"k": "v"}, Spec: []byte(`{"n":1.50, "x": [] }`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadRefuses(t *testing.T) {
	nested := func(n int) string {
		return `{"name":"a","spec":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	const js = "application/json"
	cases := map[string]struct {
		reason  string
		method  string
		media   string
		content string
		code    problem.Code
		says    string
	}{
		"Empty":          {"nothing at all", "POST", js, "", problem.InvalidBody, "empty"},
		"Blank":          {"next to nothing", "POST", js, " \n", problem.InvalidBody, "empty"},
		"Cut":            {"it ends too early", "POST", js, `{"name":"a"`, problem.InvalidBody, "not valid JSON"},
		"Trailing":       {"one value is all", "POST", js, `{"name":"a"} {}`, problem.InvalidBody, "not valid JSON"},
		"UnknownField":   {"a slip would be lost without a word", "PATCH", js, `{"name":"a","lables":{}}`, problem.InvalidBody, "/lables is not a known field"},
		"UnknownNested":  {"in nested objects, too", "PATCH", js, `{"metadata":{"color":"red"}}`, problem.InvalidBody, "/metadata/color is not"},
		"WrongCase":      {"names are exact", "PATCH", js, `{"Name":"a"}`, problem.InvalidBody, "/Name is not a known field"},
		"Duplicate":      {"which one would count?", "POST", js, `{"name":"a","name":"b"}`, problem.InvalidBody, "/name occurs twice"},
		"DuplicateDeep":  {"in what we keep as it is, too", "POST", js, `{"name":"a","spec":{"x":1,"x":2}}`, problem.InvalidBody, "/spec/x occurs twice"},
		"WrongType":      {"a number is no name", "POST", js, `{"name":5}`, problem.InvalidBody, "/name must not be a number"},
		"WrongTypeLabel": {"nor a label", "POST", js, `{"labels":{"a":true}}`, problem.InvalidBody, "/labels/a must not be true or false"},
		"NotAnObject":    {"a list of one", "POST", js, `[]`, problem.InvalidBody, "the body must not be a list"},
		"BadUTF8":        {"it would be mangled", "POST", js, "{\"name\":\"\xff\"}", problem.InvalidBody, "UTF-8"},
		"LoneSurrogate":  {"it has no form in UTF-8", "POST", js, `{"name":"\ud800"}`, problem.InvalidBody, "not valid JSON"},
		"TooDeep":        {"the bound protects every reader", "POST", js, nested(body.MaxDepth), problem.InvalidBody, "nested deeper than 64"},
		"TooLarge":       {"the bound protects us", "POST", js, `{"name":"` + strings.Repeat("a", 1000) + `"}`, problem.BodyTooLarge, "larger than 1000 bytes"},
		"Form":           {"curl's default", "POST", "application/x-www-form-urlencoded", `{"name":"a"}`, problem.UnsupportedMediaType, "send application/json"},
		"PatchOnPost":    {"there is nothing to patch", "POST", "application/merge-patch+json", `{"name":"a"}`, problem.UnsupportedMediaType, "send application/json"},
		"JSONPatch":      {"another language", "PATCH", "application/json-patch+json", `[]`, problem.UnsupportedMediaType, "send application/json"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var v v1.CreateRequest
			err := read(t, tc.method, tc.media, tc.content, &v)
			if err == nil || err.Code != tc.code || !strings.Contains(err.Detail, tc.says) {
				t.Errorf("%s: got %+v, want %s that says %q", tc.reason, err, tc.code, tc.says)
			}
		})
	}
}

func TestReadAllows(t *testing.T) {
	deepest := `{"name":"a","spec":` + strings.Repeat("[", body.MaxDepth-1) + strings.Repeat("]", body.MaxDepth-1) + `}`
	var v v1.CreateRequest
	if err := read(t, http.MethodPost, "application/json", deepest, &v); err != nil {
		t.Errorf("at the depth that is allowed: %v", err)
	}
	var p v1.PatchRequest
	if err := read(t, http.MethodPatch, "application/merge-patch+json", `{"spec":{}}`, &p); err != nil {
		t.Errorf("a merge patch: %v", err)
	}
}

// TestReadWithoutAType checks that a body without a type is JSON. A page of another site can make a
// browser send one, which is refused.
func TestReadWithoutAType(t *testing.T) {
	for name, tc := range map[string]struct {
		header, value string
		refused       bool
	}{
		"Program":   {"User-Agent", "curl", false},
		"SamePage":  {"Sec-Fetch-Site", "same-origin", false},
		"OtherSite": {"Sec-Fetch-Site", "cross-site", true},
		"Origin":    {"Origin", "https://elsewhere.example", true},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(`{"name":"a"}`))
			r.Header.Set(tc.header, tc.value)
			err := body.Read(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{})
			if (err != nil) != tc.refused || err != nil && err.Code != problem.UnsupportedMediaType {
				t.Errorf("got %v, want refused %t", err, tc.refused)
			}
		})
	}
}

func TestReadIgnoresWhatItDoesNotKnow(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		var got v1.CreateRequest
		err := read(t, method, "application/json", `{"id":"x","name":"a","metadata":{"color":"red"}}`, &got)
		if err != nil || got.Name != "a" {
			t.Errorf("%s: got %+v, %v", method, got, err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?strict=true", strings.NewReader(`{"colour":"red"}`))
	r.Header.Set("Content-Type", "application/json")
	if err := body.Read(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != problem.InvalidBody {
		t.Errorf("strict: got %v", err)
	}
}

func TestReadCompressed(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	if err := body.Read(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != problem.UnsupportedMediaType {
		t.Errorf("got %v", err)
	}
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, http.ErrAbortHandler }

func TestReadBroken(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", broken{})
	r.Header.Set("Content-Type", "application/json")
	if err := body.Read(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != problem.InvalidBody {
		t.Errorf("got %v", err)
	}
}

// FuzzRead checks that an accepted body is one JSON value and that nothing panics.
func FuzzRead(f *testing.F) {
	f.Add(`{"name":"a","spec":{}}`)
	f.Add(`{"name":"a","name":"b"}`)
	f.Add(`[[[[`)
	f.Fuzz(func(t *testing.T, content string) {
		var v v1.CreateRequest
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(content))
		r.Header.Set("Content-Type", "application/json")
		if err := body.Read(httptest.NewRecorder(), r, 1<<20, &v); err != nil && err.Detail == "" {
			t.Errorf("%q is refused without a word", content)
		}
	})
}
