// Package health serves /healthz and /readyz.
//
// Liveness and readiness are different questions. /healthz asks whether the
// process should be restarted, and is about nothing but the process itself: a
// database that is away is no reason. /readyz asks whether it can do its work
// now, and names every part that can not. Both print as the Kubernetes API
// server does, so that what people know to read there they can read here.
package health

import (
	"fmt"
	"net/http"
	"strings"
)

// A Check is one thing that has to be in order for a process to do its work.
type Check struct {
	// Name is how the check is listed, and its path below /readyz.
	Name string

	// Ready says why the thing is not in order, or nil. It is called for
	// every request and must not block; nil is a check that always passes.
	Ready func() error

	// Warning says what is not in order and no reason to be unready, empty if
	// nothing is. It is called like Ready; nil is a check without warnings.
	Warning func() string
}

// Handler serves /healthz from live, where nil is always alive, and /readyz
// from all of checks, in their order; /readyz/<name> is one check alone. The
// answer is 200 and "ok", or 503; every check is listed if one fails or warns,
// and with ?verbose.
func Handler(live func() error, checks ...Check) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /healthz", serveChecks("healthz", []Check{{Name: "ping", Ready: live}}))
	mux.Handle("GET /readyz", serveChecks("readyz", checks))
	mux.HandleFunc("GET /readyz/{name}", func(w http.ResponseWriter, r *http.Request) {
		for _, c := range checks {
			if c.Name == r.PathValue("name") {
				serveChecks("readyz", []Check{c}).ServeHTTP(w, r)
				return
			}
		}
		http.NotFound(w, r)
	})
	return mux
}

func serveChecks(endpoint string, checks []Check) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		var list strings.Builder
		failed, warned := false, false
		for _, c := range checks {
			warning, err := c.runCheck()
			switch {
			case err != nil:
				failed = true
				fmt.Fprintf(&list, "[-]%s failed: %s\n", c.Name, oneLine(err.Error()))
			case warning != "":
				warned = true
				fmt.Fprintf(&list, "[+]%s ok, with a warning: %s\n", c.Name, oneLine(warning))
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
}

// runCheck is the check's verdict; a panic is one.
func (c Check) runCheck() (warning string, err error) {
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

// oneLine keeps a text of several lines within the line of its check.
func oneLine(text string) string { return strings.ReplaceAll(text, "\n", "; ") }
