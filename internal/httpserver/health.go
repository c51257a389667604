package httpserver

import (
	"fmt"
	"net/http"
	"strings"
)

// A HealthCheck is one condition that must hold for a process to work.
type HealthCheck struct {
	// Name is the name of the check in the list, and its path below /readyz.
	Name string

	// Ready returns why the condition does not hold, or nil. It is called for every request and
	// must not block; nil is a check that always passes.
	Ready func() error

	// Warning returns a problem that does not affect readiness, or an empty text. It is called like
	// Ready; nil is a check without warnings.
	Warning func() string
}

// NewHealthHandler returns a handler that serves /healthz from live, where nil means always alive,
// and /readyz from all checks, in their order; /readyz/<name> is one check alone. The response is
// 200 and "ok", or 503. It lists every check if one fails or warns, and with ?verbose.
//
// Liveness and readiness are different questions. /healthz reports whether the process must be
// restarted, and depends only on the process itself: an unreachable database is no reason. /readyz
// reports whether it can work now, and lists every part that cannot. Both use the format of the
// Kubernetes API server, which is familiar to operators.
func NewHealthHandler(live func() error, checks ...HealthCheck) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, r *http.Request) {
		serveHealthChecks(w, r, "healthz", HealthCheck{Name: "ping", Ready: live})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, r *http.Request) {
		serveHealthChecks(w, r, "readyz", checks...)
	})
	mux.HandleFunc("GET /readyz/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, c := range checks {
			if c.Name == r.PathValue("name") {
				serveHealthChecks(w, r, "readyz", c)
				return
			}
		}
		http.NotFound(w, r)
	})
	return mux
}

func serveHealthChecks(w http.ResponseWriter, r *http.Request, endpoint string, checks ...HealthCheck) {
	var list strings.Builder
	failed, warned := false, false
	for _, c := range checks {
		warning, err := c.runRecoveringPanic()
		switch {
		case err != nil:
			failed = true
			fmt.Fprintf(&list, "[-]%s failed: %s\n", c.Name, joinLinesWithSemicolons(err.Error()))
		case warning != "":
			warned = true
			fmt.Fprintf(&list, "[+]%s ok, with a warning: %s\n", c.Name, joinLinesWithSemicolons(warning))
		default:
			fmt.Fprintf(&list, "[+]%s ok\n", c.Name)
		}
	}

	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("Cache-Control", "no-store")
	switch {
	case failed:
		w.WriteHeader(http.StatusServiceUnavailable)
		_, _ = fmt.Fprintf(w, "%s%s check failed\n", list.String(), endpoint)
	case warned, r.URL.Query().Has("verbose"):
		_, _ = fmt.Fprintf(w, "%s%s check passed\n", list.String(), endpoint)
	default:
		_, _ = fmt.Fprint(w, "ok")
	}
}

// runRecoveringPanic returns the result of the check; a panic counts as a failure.
func (c HealthCheck) runRecoveringPanic() (warning string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("check panicked: %v", p)
		}
	}()
	if c.Ready != nil {
		err = c.Ready()
	}
	if err == nil && c.Warning != nil {
		warning = c.Warning()
	}
	return warning, err
}

// joinLinesWithSemicolons joins the lines of a text to keep it within the line of its check.
func joinLinesWithSemicolons(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
