// Package httpapi receives reports about nodes over HTTP: health events and notifications
// of Alertmanager.
//
// POST /v1/health-events accepts one health event or a list, as JSON with the field names
// of NVSentinel, or as CloudEvents in any of the three modes. POST /v1/alertmanager is a
// webhook for Alertmanager.
//
// Status 202 means that all events are stored in the API server. Events are independent
// of each other: if some are rejected permanently and others are stored, the status is
// 207 and the response lists the rejected ones. On 503, the sender must send the whole
// request again. Events that are already stored are not stored twice.
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

// The paths of the API.
const (
	PathHealthEvents = "/v1/health-events"
	PathAlertmanager = "/v1/alertmanager"
)

// Config configures the limits of requests and the mapping of alerts.
type Config struct {
	MaxBodyBytes int64 `key:"max_body_bytes" env:"NODE_FAULT_INTAKE_MAX_BODY_BYTES" default:"1048576" validate:"gt=0" doc:"Maximum size of a request body, in bytes."`

	// Rate and Burst are the limits of each caller, unless Deps.Callers is set.
	Rate  float64 `key:"rate" env:"NODE_FAULT_INTAKE_RATE" default:"50" validate:"gt=0" doc:"Maximum number of requests per second and caller, over HTTP and gRPC together."`
	Burst int     `key:"burst" env:"NODE_FAULT_INTAKE_BURST" default:"200" validate:"gt=0" doc:"Maximum number of requests that a caller may send at once."`

	Alerts AlertConfig `key:"alertmanager" doc:"Mapping of alerts to faults."`
}

// DefaultMaxBody is the default of Config.MaxBodyBytes.
const DefaultMaxBody = 1 << 20

// An authenticator authenticates callers. Its errors are those of package auth.
type authenticator interface {
	Authenticate(ctx context.Context, header, address string) (caller string, err error)
}

// Deps are the dependencies of the handler.
type Deps struct {
	Store   intake.Store
	Auth    authenticator
	Metrics *intake.Metrics
	// Callers limits each caller, over all protocols. Nil means the limits of Config for
	// this handler.
	Callers *callers.Limits
	// NodeAt returns the node with an address. Its errors are those of package intake. If
	// it is nil, addresses are not mapped to nodes.
	NodeAt func(ctx context.Context, address string) (name string, err error)
	Log    *slog.Logger
}

// New creates a handler for both paths.
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

// handlePath returns the handler of one path.
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

// storeElements stores the valid elements, and returns the verdict of each element.
// Elements that were rejected before the store are marked as early.
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

// A verdict is the result of one element.
type verdict struct {
	err   error
	early bool // rejected before the store
}

// refuseRequest writes the response to a caller that is not accepted.
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
