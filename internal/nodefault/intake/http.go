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

// An authenticator authenticates callers. Its errors are those of an Authenticator.
type authenticator interface {
	Authenticate(ctx context.Context, header, address string) (caller string, err error)
}

// HTTPDeps are the dependencies of the handler.
type HTTPDeps struct {
	Store   Store
	Auth    authenticator
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
	mux := http.NewServeMux()
	for path, kind := range map[string]Kind{PathHealthEvents: KindHealthEvents, PathAlertmanager: KindAlertmanager} {
		mux.Handle(path, &endpoint{cfg: cfg, deps: deps, kind: kind, store: deps.Metrics.NewCountingStore(kind, deps.Store)})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, http.StatusNotFound, fmt.Sprintf("path %s not found: use %s or %s", r.URL.Path, PathHealthEvents, PathAlertmanager))
	})
	return mux, nil
}

// An endpoint is the handler of one path, which receives events of one kind.
type endpoint struct {
	cfg   HTTPConfig
	deps  HTTPDeps
	kind  Kind
	store *CountingStore
}

// ServeHTTP stores the events of a request of an accepted caller.
func (e *endpoint) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", http.MethodPost)
		writeError(w, http.StatusMethodNotAllowed, "method not allowed: use POST")
		return
	}
	caller, err := e.deps.Auth.Authenticate(r.Context(), r.Header.Get("Authorization"), r.RemoteAddr)
	if err != nil {
		e.writeAuthError(w, r, err)
		return
	}
	if !e.deps.Callers.Allow(caller, time.Now()) {
		detail := fmt.Sprintf("more than %g requests per second: send several events per request", e.deps.Callers.PerSecond())
		writeError(w, http.StatusTooManyRequests, detail)
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, e.cfg.MaxBodyBytes))
	if err != nil {
		writeReadError(w, err)
		return
	}
	events, err := e.decodeBody(r, body)
	if err != nil {
		e.store.countResult(ErrInvalid)
		writeDecodeError(w, err)
		return
	}
	e.logAndWriteResults(w, r, caller, e.store.storeEvents(r.Context(), events))
}

// decodeBody decodes the events of a request. The error concerns the whole request; each event has
// its own error.
func (e *endpoint) decodeBody(r *http.Request, body []byte) ([]eventOrError, error) {
	if e.kind == KindHealthEvents {
		return decodeEventsByContentType(r.Header, body)
	}
	if !isJSONOrUnset(r.Header.Get("Content-Type")) {
		return nil, errContentType
	}
	return e.cfg.Alerts.decodeAlertNotification(r.Context(), body, e.deps.NodeAt)
}

// writeAuthError writes the response to a caller that is not accepted.
func (e *endpoint) writeAuthError(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, ErrForbidden):
		const hint = ": bind a ClusterRole with this permission, such as fleetloop-node-fault-reporter"
		writeError(w, http.StatusForbidden, err.Error()+hint)
	case errors.Is(err, ErrNoToken), errors.Is(err, ErrInvalidToken):
		const hint = ": send the header Authorization: Bearer with a Kubernetes token or a token of the token file"
		w.Header().Set("WWW-Authenticate", "Bearer")
		writeError(w, http.StatusUnauthorized, err.Error()+hint)
	case errors.Is(err, ErrTooManyInvalidTokens):
		writeError(w, http.StatusTooManyRequests, err.Error())
	default:
		e.deps.Log.WarnContext(r.Context(), "authenticate caller failed", "err", err)
		writeError(w, http.StatusServiceUnavailable, ErrAuthUnavailable.Error())
	}
}
