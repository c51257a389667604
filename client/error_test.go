package client

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
)

func TestErrors(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		reason string
		status int
		kind   string
		body   string
		want   string
	}{
		"Problem": {
			"what the server says is what the user reads", 422, "application/problem+json",
			`{"title":"Unprocessable","status":422,"code":"E1","detail":"name is taken","trace_id":"abc","errors":[{"field":"name","message":"must be lower case"}]}`,
			"GET /clusters/x: 422 Unprocessable: name is taken; name: must be lower case (trace abc)",
		},
		"Repeated": {
			"a detail that names the fields already is enough", 400, "application/problem+json",
			`{"title":"Bad Request","detail":"name must be short; spec must be an object","errors":[{"field":"name","message":"must be short"},{"field":"spec","message":"must be an object"}]}`,
			"GET /clusters/x: 400 Bad Request: name must be short; spec must be an object",
		},
		"NoBody":   {"the status has a name", 404, "", "", "GET /clusters/x: 404 Not Found"},
		"Text":     {"what a proxy says is shown", 502, "text/plain; charset=utf-8", "upstream\n  is down ", "GET /clusters/x: 502 Bad Gateway: upstream is down"},
		"Untyped":  {"net/http says so when it is asked for HTTP and speaks TLS", 400, "", "Client sent an HTTP request to an HTTPS server.\n", "GET /clusters/x: 400 Bad Request: Client sent an HTTP request to an HTTPS server."},
		"HTML":     {"a page is not a message", 502, "text/html", "<html><h1>502</h1>", "GET /clusters/x: 502 Bad Gateway"},
		"Broken":   {"half a problem is none", 500, "application/problem+json", `{"title":`, "GET /clusters/x: 500 Internal Server Error"},
		"NotUTF8":  {"a message is text", 500, "text/plain", "\xff\xfe", "GET /clusters/x: 500 Internal Server Error"},
		"LongText": {"a message is short", 500, "text/plain", strings.Repeat("é", 200), "GET /clusters/x: 500 Internal Server Error: " + strings.Repeat("é", 100) + "…"},
		"HugeBody": {"an error is bounded by itself", 500, "application/problem+json", `{"title":"` + strings.Repeat("x", 2*maxErrorBody) + `"}`, "GET /clusters/x: 500 Internal Server Error"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", tc.kind)
				w.WriteHeader(tc.status)
				_, _ = io.WriteString(w, tc.body)
			})
			_, err := c.Clusters().Get(t.Context(), "x")
			var e *Error
			if !errors.As(err, &e) {
				t.Fatalf("%s: got %v, want an *Error", tc.reason, err)
			}
			if e.Error() != tc.want || e.Status != tc.status || e.StatusCode() != tc.status || e.Problem.Status != tc.status {
				t.Errorf("%s:\n got %q (status %d, %d)\nwant %q (status %d)", tc.reason, e, e.Status, e.Problem.Status, tc.want, tc.status)
			}
			if !utf8.ValidString(e.Error()) {
				t.Errorf("not UTF-8: %q", e)
			}
		})
	}
}

func TestIs(t *testing.T) {
	t.Parallel()
	is := map[int]func(error) bool{404: IsNotFound, 409: IsConflict, 401: IsUnauthorized}
	for status := range is {
		err := fmt.Errorf("get cluster: %w", &Error{Status: status})
		for other, f := range is {
			if f(err) != (other == status) {
				t.Errorf("predicate of %d says %t for %d", other, f(err), status)
			}
		}
	}
	if IsNotFound(nil) || IsNotFound(errors.New("404")) {
		t.Error("what is no *Error was not found")
	}
}

func TestRetryAfter(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	cases := map[string]struct {
		reason string
		value  string
		want   time.Duration
	}{
		"None":     {"nothing was said", "", 0},
		"Seconds":  {"the common form", "7", 7 * time.Second},
		"Zero":     {"at once", "0", 0},
		"Negative": {"not allowed", "-3", 0},
		"Huge":     {"no overflow", "99999999999999999999", 0},
		"Long":     {"a year is a mistake", "31536000", 24 * time.Hour},
		"Date":     {"the other form", "Sun, 01 Mar 2026 12:00:30 GMT", 30 * time.Second},
		"Past":     {"at once", "Sun, 01 Mar 2026 11:00:00 GMT", 0},
		"FarDate":  {"a year is a mistake", "Mon, 01 Mar 2027 12:00:00 GMT", 24 * time.Hour},
		"Words":    {"nonsense counts as nothing", "soon", 0},
	}
	for name, tc := range cases {
		if got := parseRetryAfter(tc.value, now); got != tc.want {
			t.Errorf("%s: %s: got %s, want %s", name, tc.reason, got, tc.want)
		}
	}
}

func TestTooManyRequests(t *testing.T) {
	t.Parallel()
	c := newClient(t, Config{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3")
		writeJSON(w, http.StatusTooManyRequests, v1.Problem{})
	})
	buf := make([]byte, 0, 8192)
	got, err := c.Raw().ListPage(t.Context(), "clusters", nil, buf)
	var after interface{ RetryAfter() time.Duration }
	if !errors.As(err, &after) || after.RetryAfter() != 3*time.Second {
		t.Errorf("got %v, want one that says to wait 3s", err)
	}
	if len(got) != 0 || cap(got) != cap(buf) {
		t.Errorf("got a buffer of length %d and room %d, want the given one, empty", len(got), cap(got))
	}
}
