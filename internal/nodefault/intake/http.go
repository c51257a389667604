package intake

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
)

// The paths of the API.
const (
	PathHealthEvents = "/v1/health-events"
	PathAlertmanager = "/v1/alertmanager"
)

// HTTPConfig configures the limits of requests and the mapping of alerts.
type HTTPConfig struct {
	MaxBodyBytes int64 `key:"max_body_bytes" env:"NODE_FAULT_INTAKE_MAX_BODY_BYTES" default:"1048576" validate:"gt=0" doc:"Maximum size of a request body, in bytes."`

	// Rate and Burst are the limits of each caller, unless HTTPDeps.Callers is set.
	Rate  float64 `key:"rate" env:"NODE_FAULT_INTAKE_RATE" default:"50" validate:"gt=0" doc:"Maximum number of requests per second and caller, over HTTP and gRPC together."`
	Burst int     `key:"burst" env:"NODE_FAULT_INTAKE_BURST" default:"200" validate:"gt=0" doc:"Maximum number of requests that a caller may send at once."`

	Alerts AlertConfig `key:"alertmanager" doc:"Mapping of alerts to faults."`
}

// DefaultMaxBodyBytes is the default of HTTPConfig.MaxBodyBytes.
const DefaultMaxBodyBytes = 1 << 20

// A callerAuthenticator authenticates callers. Its errors are those of an Authenticator.
type callerAuthenticator interface {
	Authenticate(ctx context.Context, header, address string) (caller string, err error)
}

// HTTPDeps are the dependencies of the handler.
type HTTPDeps struct {
	Store   Store
	Auth    callerAuthenticator
	Metrics *Metrics
	// Callers limits each caller, over all protocols. Nil means the limits of HTTPConfig for
	// this handler.
	Callers *CallerLimits
	// NodeAt returns the node with an address. Its errors are those of a report. If it
	// is nil, addresses are not mapped to nodes.
	NodeAt func(ctx context.Context, address string) (name string, err error)
	Log    *slog.Logger
}

// NewHTTPHandler creates a handler that receives reports about nodes over HTTP: health
// events and notifications of Alertmanager.
//
// POST /v1/health-events accepts one health event or a list, as JSON with the field names
// of NVSentinel, or as CloudEvents in any of the three modes. POST /v1/alertmanager is a
// webhook for Alertmanager.
//
// Status 202 means that all events are stored in the API server. Events are independent
// of each other: if some are rejected permanently and others are stored, the status is
// 207 and the response lists the rejected ones. On 503, the sender must send the whole
// request again. Events that are already stored are not stored twice.
func NewHTTPHandler(cfg HTTPConfig, deps HTTPDeps) (http.Handler, error) {
	if deps.Store == nil || deps.Auth == nil || deps.Metrics == nil || deps.Log == nil {
		return nil, errors.New("create HTTP intake: store, authentication, metrics or logger missing")
	}
	cfg.MaxBodyBytes = cmp.Or(cfg.MaxBodyBytes, DefaultMaxBodyBytes)
	if deps.Callers == nil {
		deps.Callers = NewCallerLimits(cfg.Rate, cfg.Burst)
	}
	if cfg.Alerts.Source == "" {
		cfg.Alerts = DefaultAlertConfig()
	}
	h := &httpHandler{cfg: cfg, deps: deps}
	mux := http.NewServeMux()
	mux.HandleFunc(PathHealthEvents, h.newPostHandler(KindHealthEvents, func(r *http.Request, body []byte) ([]requestEvent, error) {
		return decodeEventsByContentType(r.Header, body)
	}))
	mux.HandleFunc(PathAlertmanager, h.newPostHandler(KindAlertmanager, func(r *http.Request, body []byte) ([]requestEvent, error) {
		if !isJSONOrUnset(r.Header.Get("Content-Type")) {
			return nil, errContentType
		}
		return cfg.Alerts.decodeAlertNotification(r.Context(), body, deps.NodeAt)
	}))
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeProblem(w, problem{Status: http.StatusNotFound, Detail: fmt.Sprintf("path %s not found: use %s or %s", r.URL.Path, PathHealthEvents, PathAlertmanager)})
	})
	return mux, nil
}

type httpHandler struct {
	cfg  HTTPConfig
	deps HTTPDeps
}

// newPostHandler returns the handler of one path.
func (h *httpHandler) newPostHandler(
	sourceKind Kind, decode func(*http.Request, []byte) ([]requestEvent, error),
) http.HandlerFunc {
	store := h.deps.Metrics.NewCountingStore(sourceKind, h.deps.Store)
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost {
			w.Header().Set("Allow", http.MethodPost)
			writeProblem(w, problem{Status: http.StatusMethodNotAllowed, Detail: "method not allowed: use POST"})
			return
		}
		caller, err := h.deps.Auth.Authenticate(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr)
		if err != nil {
			h.writeAuthError(w, r, err)
			return
		}
		if !h.deps.Callers.Allow(caller, time.Now()) {
			w.Header().Set("Retry-After", retryAfterSeconds)
			writeProblem(w, problem{Status: http.StatusTooManyRequests, Detail: fmt.Sprintf("more than %g requests per second: send several events per request", h.deps.Callers.PerSecond())})
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, h.cfg.MaxBodyBytes))
		if err != nil {
			writeReadError(w, err)
			return
		}
		elements, err := decode(r, body)
		if err != nil {
			h.deps.Metrics.CountRejected(sourceKind, ErrInvalid)
			writeDecodeError(w, err)
			return
		}
		h.countRejectedAndWriteResponse(w, r, sourceKind, validateAndStoreEvents(r.Context(), store, elements), caller)
	}
}

// validateAndStoreEvents stores the valid events, and returns the result of each event. Events that
// were rejected before the store are marked as early.
func validateAndStoreEvents(ctx context.Context, store Store, elements []requestEvent) []eventResult {
	now := time.Now()
	out := make([]eventResult, len(elements))
	var reports []nodefault.Report
	var places []int
	for i, e := range elements {
		if e.err != nil {
			out[i] = eventResult{err: e.err, early: true}
			continue
		}
		r, err := e.event.ToReport(now)
		if err != nil {
			out[i] = eventResult{err: err, early: true}
			continue
		}
		reports, places = append(reports, r), append(places, i)
	}
	if len(reports) == 0 {
		return out
	}
	for n, err := range SplitReportErrors(store.Apply(ctx, reports), len(reports)) {
		out[places[n]].err = err
	}
	return out
}

// An eventResult is the result of one event.
type eventResult struct {
	err   error
	early bool // rejected before the store
}

// writeAuthError writes the response to a caller that is not accepted.
func (h *httpHandler) writeAuthError(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrForbidden):
		writeProblem(w, problem{Status: http.StatusForbidden, Detail: err.Error() + ": bind a ClusterRole with this permission, such as fleetloop-node-fault-reporter"})
	case errors.Is(err, ErrNoToken), errors.Is(err, ErrInvalidToken):
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeProblem(w, problem{Status: http.StatusUnauthorized, Detail: err.Error() + ": send the header Authorization: Bearer with a Kubernetes token or a token of the token file"})
	case errors.Is(err, ErrTooManyInvalidTokens):
		w.Header().Set("Retry-After", retryAfterSeconds)
		writeProblem(w, problem{Status: http.StatusTooManyRequests, Detail: err.Error()})
	default:
		h.deps.Log.WarnContext(r.Context(), "authenticate caller failed", "err", err)
		w.Header().Set("Retry-After", retryAfterSeconds)
		writeProblem(w, problem{Status: http.StatusServiceUnavailable, Detail: ErrAuthUnavailable.Error()})
	}
}
