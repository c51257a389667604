package rest_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

func readBody(t *testing.T, method, contentType, content string, v any) *rest.Error {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, "/", strings.NewReader(content))
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	return rest.DecodeJSONBody(httptest.NewRecorder(), r, 1000, v)
}

func TestReadBody(t *testing.T) {
	var got v1.CreateRequest
	err := readBody(t, http.MethodPost, "application/json; charset=utf-8", ` {"name":"a","labels":{"k":"v"},"spec":{"n":1.50, "x": [] }} `, &got)
	if err != nil {
		t.Fatal(err)
	}
	want := v1.CreateRequest{Name: "a", Labels: map[string]string{"k": "v"}, Spec: []byte(`{"n":1.50, "x": [] }`)}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReadBodyRefuses(t *testing.T) {
	nested := func(n int) string {
		return `{"name":"a","spec":` + strings.Repeat("[", n) + strings.Repeat("]", n) + `}`
	}
	const js = "application/json"
	cases := map[string]struct {
		reason  string
		method  string
		media   string
		content string
		code    rest.Code
		says    string
	}{
		"Empty":          {"nothing at all", "POST", js, "", rest.CodeInvalidBody, "empty"},
		"Blank":          {"next to nothing", "POST", js, " \n", rest.CodeInvalidBody, "empty"},
		"Cut":            {"it ends too early", "POST", js, `{"name":"a"`, rest.CodeInvalidBody, "not valid JSON"},
		"Trailing":       {"one value is all", "POST", js, `{"name":"a"} {}`, rest.CodeInvalidBody, "not valid JSON"},
		"UnknownField":   {"a slip would be lost without a word", "PATCH", js, `{"name":"a","lables":{}}`, rest.CodeInvalidBody, "/lables is not a known field"},
		"UnknownNested":  {"in nested objects, too", "PATCH", js, `{"metadata":{"color":"red"}}`, rest.CodeInvalidBody, "/metadata/color is not"},
		"WrongCase":      {"names are exact", "PATCH", js, `{"Name":"a"}`, rest.CodeInvalidBody, "/Name is not a known field"},
		"Duplicate":      {"which one would count?", "POST", js, `{"name":"a","name":"b"}`, rest.CodeInvalidBody, "/name occurs twice"},
		"DuplicateDeep":  {"in what we keep as it is, too", "POST", js, `{"name":"a","spec":{"x":1,"x":2}}`, rest.CodeInvalidBody, "/spec/x occurs twice"},
		"WrongType":      {"a number is no name", "POST", js, `{"name":5}`, rest.CodeInvalidBody, "/name must not be a number"},
		"WrongTypeLabel": {"nor a label", "POST", js, `{"labels":{"a":true}}`, rest.CodeInvalidBody, "/labels/a must not be true or false"},
		"NotAnObject":    {"a list of one", "POST", js, `[]`, rest.CodeInvalidBody, "the body must not be a list"},
		"BadUTF8":        {"it would be mangled", "POST", js, "{\"name\":\"\xff\"}", rest.CodeInvalidBody, "UTF-8"},
		"LoneSurrogate":  {"it has no form in UTF-8", "POST", js, `{"name":"\ud800"}`, rest.CodeInvalidBody, "not valid JSON"},
		"TooDeep":        {"the bound protects every reader", "POST", js, nested(rest.MaxBodyDepth), rest.CodeInvalidBody, "nested deeper than 64"},
		"TooLarge":       {"the bound protects us", "POST", js, `{"name":"` + strings.Repeat("a", 1000) + `"}`, rest.CodeBodyTooLarge, "larger than 1000 bytes"},
		"Form":           {"curl's default", "POST", "application/x-www-form-urlencoded", `{"name":"a"}`, rest.CodeUnsupportedMediaType, "send application/json"},
		"PatchOnPost":    {"there is nothing to patch", "POST", "application/merge-patch+json", `{"name":"a"}`, rest.CodeUnsupportedMediaType, "send application/json"},
		"JSONPatch":      {"another language", "PATCH", "application/json-patch+json", `[]`, rest.CodeUnsupportedMediaType, "send application/json"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var v v1.CreateRequest
			err := readBody(t, tc.method, tc.media, tc.content, &v)
			if err == nil || err.Code != tc.code || !strings.Contains(err.Detail, tc.says) {
				t.Errorf("%s: got %+v, want %s that says %q", tc.reason, err, tc.code, tc.says)
			}
		})
	}
}

func TestReadBodyAllows(t *testing.T) {
	deepest := `{"name":"a","spec":` + strings.Repeat("[", rest.MaxBodyDepth-1) + strings.Repeat("]", rest.MaxBodyDepth-1) + `}`
	var v v1.CreateRequest
	if err := readBody(t, http.MethodPost, "application/json", deepest, &v); err != nil {
		t.Errorf("at the depth that is allowed: %v", err)
	}
	var p v1.PatchRequest
	if err := readBody(t, http.MethodPatch, "application/merge-patch+json", `{"spec":{}}`, &p); err != nil {
		t.Errorf("a merge patch: %v", err)
	}
}

// TestReadBodyWithoutContentType checks that a body without a type is JSON. A page of another site can make a
// browser send one, which is refused.
func TestReadBodyWithoutContentType(t *testing.T) {
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
			err := rest.DecodeJSONBody(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{})
			if (err != nil) != tc.refused || err != nil && err.Code != rest.CodeUnsupportedMediaType {
				t.Errorf("got %v, want refused %t", err, tc.refused)
			}
		})
	}
}

func TestReadBodyIgnoresUnknownMembers(t *testing.T) {
	for _, method := range []string{http.MethodPost, http.MethodPut} {
		var got v1.CreateRequest
		err := readBody(t, method, "application/json", `{"id":"x","name":"a","metadata":{"color":"red"}}`, &got)
		if err != nil || got.Name != "a" {
			t.Errorf("%s: got %+v, %v", method, got, err)
		}
	}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/?strict=true", strings.NewReader(`{"colour":"red"}`))
	r.Header.Set("Content-Type", "application/json")
	if err := rest.DecodeJSONBody(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != rest.CodeInvalidBody {
		t.Errorf("strict: got %v", err)
	}
}

func TestReadBodyCompressed(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader("{}"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Content-Encoding", "gzip")
	if err := rest.DecodeJSONBody(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != rest.CodeUnsupportedMediaType {
		t.Errorf("got %v", err)
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, http.ErrAbortHandler }

func TestReadBodyBroken(t *testing.T) {
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", brokenBody{})
	r.Header.Set("Content-Type", "application/json")
	if err := rest.DecodeJSONBody(httptest.NewRecorder(), r, 1000, &v1.CreateRequest{}); err == nil || err.Code != rest.CodeInvalidBody {
		t.Errorf("got %v", err)
	}
}

// FuzzReadBody checks that an accepted body is one JSON value and that nothing panics.
func FuzzReadBody(f *testing.F) {
	f.Add(`{"name":"a","spec":{}}`)
	f.Add(`{"name":"a","name":"b"}`)
	f.Add(`[[[[`)
	f.Fuzz(func(t *testing.T, content string) {
		var v v1.CreateRequest
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(content))
		r.Header.Set("Content-Type", "application/json")
		if err := rest.DecodeJSONBody(httptest.NewRecorder(), r, 1<<20, &v); err != nil && err.Detail == "" {
			t.Errorf("%q is refused without a word", content)
		}
	})
}
