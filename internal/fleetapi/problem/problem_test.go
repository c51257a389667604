package problem_test

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
	"github.com/fleetloop/fleetloop/internal/fleetapi/problem"
)

func TestCodes(t *testing.T) {
	statuses := map[problem.Code]int{
		problem.InvalidBody: 400, problem.InvalidFields: 400, problem.InvalidQuery: 400,
		problem.Unauthenticated: 401, problem.Forbidden: 403, problem.NotFound: 404, problem.MethodNotAllowed: 405,
		problem.NameTaken: 409, problem.BeingDeleted: 409, problem.NotBeingDeleted: 409, problem.HasChildren: 409, problem.TooManyAdapters: 409,
		problem.SyncRunning: 409, problem.SyncPaused: 409, problem.ShootNotDeleted: 409,
		problem.CursorExpired: 410, problem.PreconditionFailed: 412, problem.BodyTooLarge: 413, problem.UnsupportedMediaType: 415, problem.ParentRequired: 422, problem.TimestampOutOfRange: 422,
		problem.Internal: 500, problem.Unavailable: 503,
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
		if got := code.Status(); got != status {
			t.Errorf("%s is answered with %d, want %d", code, got, status)
		}
	}
	slices.Sort(documented)
	slices.Sort(known)
	if diff := cmp.Diff(documented, known); diff != "" {
		t.Errorf("codes (-documented +known):\n%s", diff)
	}
}

func write(t *testing.T, e *problem.Error) (*httptest.ResponseRecorder, v1.Problem) {
	t.Helper()
	w := httptest.NewRecorder()
	problem.Write(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/a%20b?c=d", nil), e, "t-1")
	var p v1.Problem
	if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
		t.Fatal(err)
	}
	return w, p
}

func TestWrite(t *testing.T) {
	cause := errors.New("the disk is full")
	e := &problem.Error{Code: problem.Unavailable, Detail: "not now", RetryAfter: 1500 * time.Millisecond, Cause: cause}
	r, p := write(t, e)
	if diff := cmp.Diff(v1.Problem{
		Type: "about:blank", Title: "Service Unavailable", Status: 503, Detail: "not now", Instance: "/a%20b", Code: "unavailable", TraceID: "t-1",
	}, p); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if r.Code != http.StatusServiceUnavailable || r.Header().Get("Retry-After") != "2" || r.Header().Get("Content-Type") != problem.ContentType {
		t.Errorf("answered %d %v", r.Code, r.Header())
	}
	if !errors.Is(e, cause) || e.Error() != "not now: the disk is full" {
		t.Errorf("the log would say %v", e)
	}
}

func TestWriteWhatHasNoJSON(t *testing.T) {
	r, p := write(t, problem.Invalid([]v1.FieldError{{Field: "a", Message: "b", Value: func() {}}}))
	if r.Code != http.StatusInternalServerError || p.Code != "internal" {
		t.Errorf("answered %d %+v", r.Code, p)
	}
}
