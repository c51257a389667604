// Package httpapi takes reports about nodes over HTTP: health events and the
// notifications of Alertmanager.
//
// POST /v1/health-events takes one health event or a list, as JSON with the names
// that NVSentinel gives the fields, or as CloudEvents in any of the three modes.
// POST /v1/alertmanager is a webhook for Alertmanager.
//
// An answer of 202 means that all is stored in the API server. Elements stand for
// themselves: where some are refused for good and others are stored, the answer is
// 207 and says which. 503 has the sender try again, with all of it: what is stored
// already is not stored twice.
package httpapi

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/auth"
	"github.com/fleetloop/fleetloop/internal/nodefault/intake/callers"
)

// The paths.
const (
	PathHealthEvents = "/v1/health-events"
	PathAlertmanager = "/v1/alertmanager"
)

// Config bounds what is taken.
type Config struct {
	MaxBodyBytes int64 `key:"max_body_bytes" env:"NODE_FAULT_INTAKE_MAX_BODY_BYTES" default:"1048576" validate:"gt=0" doc:"Maximum size of a request body, in bytes."`

	// Rate and Burst are of each caller, if Deps.Callers says nothing else.
	Rate  float64 `key:"rate" env:"NODE_FAULT_INTAKE_RATE" default:"50" validate:"gt=0" doc:"Maximum number of requests per second and caller, over HTTP and gRPC together."`
	Burst int     `key:"burst" env:"NODE_FAULT_INTAKE_BURST" default:"200" validate:"gt=0" doc:"Maximum number of requests that a caller may send at once."`

	Alerts AlertConfig `key:"alertmanager" doc:"Mapping of alerts to faults."`
}

// DefaultMaxBody is what the zero MaxBody of a Config means.
const DefaultMaxBody = 1 << 20

// An authenticator tells who callers are. Its errors are those of package auth.
type authenticator interface {
	Authenticate(ctx context.Context, header, address string) (caller string, err error)
}

// Deps are what the handler works with.
type Deps struct {
	Store   intake.Store
	Auth    authenticator
	Metrics *intake.Metrics
	// Callers bound what each caller sends, by whatever ways. Nil are those of the
	// Config, for this one.
	Callers *callers.Limits
	// NodeAt finds the node that has an address: its error is one of package
	// intake. Nil finds none.
	NodeAt func(ctx context.Context, address string) (name string, err error)
	Log    *slog.Logger
}

// New makes a handler of both paths.
func New(cfg Config, deps Deps) (http.Handler, error) {
	if deps.Store == nil || deps.Auth == nil || deps.Metrics == nil || deps.Log == nil {
		return nil, errors.New("create HTTP intake: store, authentication, metrics or logger missing")
	}
	cfg.MaxBodyBytes = cmp.Or(cfg.MaxBodyBytes, DefaultMaxBody)
	if deps.Callers == nil {
		deps.Callers = callers.New(cfg.Rate, cfg.Burst)
	}
	if cfg.Alerts.Source == "" {
		cfg.Alerts = DefaultAlerts()
	}
	h := &handler{cfg: cfg, deps: deps}
	mux := http.NewServeMux()
	mux.HandleFunc(PathHealthEvents, h.handlePath(intake.KindHealthEvents, func(r *http.Request, body []byte) ([]element, error) {
		return decodeEvents(r.Header, body)
	}))
	mux.HandleFunc(PathAlertmanager, h.handlePath(intake.KindAlertmanager, func(r *http.Request, body []byte) ([]element, error) {
		if !isJSON(r.Header.Get("Content-Type")) {
			return nil, errMedia
		}
		return cfg.Alerts.toElements(r.Context(), body, deps.NodeAt)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("path %s not found: use %s or %s", r.URL.Path, PathHealthEvents, PathAlertmanager)})
	})
	return mux, nil
}

type handler struct {
	cfg  Config
	deps Deps
}

// handlePath handles one path.
func (h *handler) handlePath(kind intake.Kind, decode func(*http.Request, []byte) ([]element, error)) http.HandlerFunc {
	store := h.deps.Metrics.Counted(kind, h.deps.Store)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeProblem(w, problem{Status: http.StatusMethodNotAllowed, Detail: "method not allowed: use POST"})
			return
		}
		caller, err := h.deps.Auth.Authenticate(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr)
		if err != nil {
			h.refuseRequest(w, r, err)
			return
		}
		if !h.deps.Callers.Allow(caller, time.Now()) {
			w.Header().Set("Retry-After", retryAfter)
			writeProblem(w, problem{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf("more than %g requests per second: send several events per request", h.deps.Callers.PerSecond())})
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBodyBytes))
		if err != nil {
			unreadable(w, err)
			return
		}
		elements, err := decode(r, body)
		if err != nil {
			h.deps.Metrics.Refused(kind, intake.ErrInvalid)
			undecodable(w, err)
			return
		}
		h.writeResult(w, r, kind, storeElements(r.Context(), store, elements), caller)
	}
}

// storeElements stores what can be stored, and says what became of each element. Those
// that never came to the store are marked so.
func storeElements(ctx context.Context, store intake.Store, elements []element) []verdict {
	now := time.Now()
	out := make([]verdict, len(elements))
	var reports []nodefault.Report
	var places []int
	for i, e := range elements {
		if e.err != nil {
			out[i] = verdict{err: e.err, early: true}
			continue
		}
		r, err := e.event.Report(now)
		if err != nil {
			out[i] = verdict{err: err, early: true}
			continue
		}
		reports, places = append(reports, r), append(places, i)
	}
	if len(reports) == 0 {
		return out
	}
	for n, err := range intake.Each(store.Apply(ctx, reports), len(reports)) {
		out[places[n]].err = err
	}
	return out
}

// A verdict is what became of an element.
type verdict struct {
	err   error
	early bool // it never came to the store
}

// refuseRequest answers one that may not come in.
func (h *handler) refuseRequest(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, auth.ErrForbidden):
		writeProblem(w, problem{Status: http.StatusForbidden, Detail: err.Error() + ": bind a ClusterRole with this permission, such as fleetloop-node-fault-reporter"})
	case errors.Is(err, auth.ErrNoToken), errors.Is(err, auth.ErrInvalidToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, problem{Status: http.StatusUnauthorized, Detail: err.Error() + ": send the header Authorization: Bearer with a Kubernetes token or a token of the token file"})
	case errors.Is(err, auth.ErrTooMany):
		w.Header().Set("Retry-After", retryAfter)
		writeProblem(w, problem{Status: http.StatusTooManyRequests, Detail: err.Error()})
	default:
		h.deps.Log.WarnContext(r.Context(), "authenticate caller failed", "err", err)
		w.Header().Set("Retry-After", retryAfter)
		writeProblem(w, problem{Status: http.StatusServiceUnavailable, Detail: auth.ErrUnavailable.Error()})
	}
}
