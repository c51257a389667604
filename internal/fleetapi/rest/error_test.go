package rest_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/google/go-cmp/cmp"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
)

func TestCodes(t *testing.T) {
	statuses := map[rest.Code]int{
		rest.CodeInvalidBody: 400, rest.CodeInvalidFields: 400, rest.CodeInvalidQuery: 400,
		rest.CodeUnauthenticated: 401, rest.CodeForbidden: 403, rest.CodeNotFound: 404, rest.CodeMethodNotAllowed: 405,
		rest.CodeNameTaken: 409, rest.CodeBeingDeleted: 409, rest.CodeNotBeingDeleted: 409, rest.CodeHasChildren: 409, rest.CodeTooManyAdapters: 409,
		rest.CodeSyncRunning: 409, rest.CodeSyncPaused: 409, rest.CodeShootNotDeleted: 409,
		rest.CodeCursorExpired: 410, rest.CodePreconditionFailed: 412, rest.CodeBodyTooLarge: 413, rest.CodeUnsupportedMediaType: 415, rest.CodeParentRequired: 422, rest.CodeTimestampOutOfRange: 422,
		rest.CodeInternal: 500, rest.CodeUnavailable: 503,
	}
	doc, err := openapi3.NewLoader().LoadFromData([]byte(v1.OpenAPIYAML()))
	if err != nil {
		t.Fatal(err)
	}
	var documented, known []string
	for _, c := range doc.Components.Schemas["Problem"].Value.Properties["code"].Value.Enum {
		documented = append(documented, fmt.Sprint(c))
	}
	for code, status := range statuses {
		known = append(known, string(code))
		if got := code.HTTPStatus(); got != status {
			t.Errorf("%s is answered with %d, want %d", code, got, status)
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if diff := cmp.Diff(documented, known); diff != "" {
		t.Errorf("codes (-documented +known):\n%s", diff)
	}
}

func writeError(t *testing.T, e *rest.Error) (*httptest.ResponseRecorder, v1.Problem) {
	t.Helper()
	w := httptest.NewRecorder()
	rest.WriteProblem(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a%20b?c=d", nil), e, "t-1")
	var p v1.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return w, p
}

func TestWriteError(t *testing.T) {
	cause := errors.New("the disk is full")
	e := &rest.Error{Code: rest.CodeUnavailable, Detail: "not now", RetryAfter: 1500 * time.Millisecond, Cause: cause}
	r, p := writeError(t, e)
	if diff := cmp.Diff(v1.Problem{
		Type: "about:blank", Title: "Service Unavailable", Status: 503, Detail: "not now", Instance: "/a%20b", Code: "unavailable", TraceID: "t-1",
	}, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Code != http.StatusServiceUnavailable || r.Header().Get("Retry-After") != "2" || r.Header().Get("Content-Type") != rest.ErrorContentType {
		t.Errorf("answered %d %v", r.Code, r.Header())
	}
	if !errors.Is(e, cause) || e.Error() != "not now: the disk is full" {
		t.Errorf("the log would say %v", e)
	}
}

func TestWriteErrorWithoutJSON(t *testing.T) {
	r, p := writeError(t, rest.NewFieldsError([]v1.FieldError{{Field: "a", Message: "b", Value: func() {}}}))
	if r.Code != http.StatusInternalServerError || p.Code != "internal" {
		t.Errorf("answered %d %+v", r.Code, p)
	}
}
