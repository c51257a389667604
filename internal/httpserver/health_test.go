package httpserver_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fleetloop/fleetloop/internal/httpserver"
)

func TestHealthHandler(t *testing.T) {
	ok := httpserver.HealthCheck{Name: "postgres", Ready: func() error { return nil }}
	always := httpserver.HealthCheck{Name: "always"}
	bad := httpserver.HealthCheck{Name: "broker", Ready: func() error { return errors.Join(errors.New("not connected"), errors.New("refused")) }}
	warns := httpserver.HealthCheck{Name: "garden", Warning: func() string { return "it does not answer\nsince noon" }}
	broken := httpserver.HealthCheck{Name: "broken", Ready: func() error { panic("nil map") }}

	cases := map[string]struct {
		reason string
		live   func() error
		checks []httpserver.HealthCheck
		method string
		path   string
		code   int
		body   string
	}{
		"Alive":          {reason: "nothing to check is alive", path: "/healthz", code: 200, body: "ok"},
		"AliveVerbose":   {reason: "and says so", path: "/healthz?verbose", code: 200, body: "[+]ping ok\nhealthz check passed\n"},
		"Stuck":          {reason: "a loop that does not move", live: func() error { return errors.New("no round for 5m") }, path: "/healthz", code: 503, body: "[-]ping failed: no round for 5m\nhealthz check failed\n"},
		"NotItsFault":    {reason: "liveness is not about dependencies", checks: []httpserver.HealthCheck{bad}, path: "/healthz", code: 200, body: "ok"},
		"Ready":          {reason: "all is in order", checks: []httpserver.HealthCheck{ok, always}, path: "/readyz", code: 200, body: "ok"},
		"ReadyVerbose":   {reason: "each by name", checks: []httpserver.HealthCheck{ok, always}, path: "/readyz?verbose", code: 200, body: "[+]postgres ok\n[+]always ok\nreadyz check passed\n"},
		"NotReady":       {reason: "the broker is away", checks: []httpserver.HealthCheck{ok, bad}, path: "/readyz", code: 503, body: "[+]postgres ok\n[-]broker failed: not connected; refused\nreadyz check failed\n"},
		"Warning":        {reason: "a warning is shown, and is no failure", checks: []httpserver.HealthCheck{ok, warns}, path: "/readyz", code: 200, body: "[+]postgres ok\n[+]garden ok, with a warning: it does not answer; since noon\nreadyz check passed\n"},
		"Panic":          {reason: "a check that panics has failed", checks: []httpserver.HealthCheck{broken}, path: "/readyz", code: 503, body: "[-]broken failed: check panicked: nil map\nreadyz check failed\n"},
		"OneAlone":       {reason: "one check by its name", checks: []httpserver.HealthCheck{ok, bad}, path: "/readyz/postgres", code: 200, body: "ok"},
		"OneAloneFailed": {reason: "and the other", checks: []httpserver.HealthCheck{ok, bad}, path: "/readyz/broker", code: 503, body: "[-]broker failed: not connected; refused\nreadyz check failed\n"},
		"NoSuchCheck":    {reason: "a check that there is not", checks: []httpserver.HealthCheck{ok}, path: "/readyz/nats", code: 404, body: "404 page not found\n"},
		"Post":           {reason: "only reading", method: http.MethodPost, path: "/readyz", code: 405, body: "Method Not Allowed\n"},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			method := tc.method
			if method == "" {
				method = http.MethodGet
			}
			w := httptest.NewRecorder()
			httpserver.NewHealthHandler(tc.live, tc.checks...).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, tc.path, http.NoBody))
			if w.Code != tc.code {
				t.Errorf("%s: status %d, want %d", tc.reason, w.Code, tc.code)
			}
			if diff := cmp.Diff(tc.body, w.Body.String()); diff != "" {
				t.Errorf("%s: body (-want +got):\n%s", tc.reason, diff)
			}
		})
	}
}
