package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/internal/fleetapi/auth"
	"github.com/fleetloop/fleetloop/internal/fleetapi/rest"
	"github.com/fleetloop/fleetloop/internal/fleetapi/watch"
)

// DefaultRetention is the default retention of events.
const DefaultRetention = 90 * 24 * time.Hour

// Config is the configuration of the timeline.
type Config struct {
	Retention time.Duration `key:"retention" env:"FLEET_API_TIMELINE_RETENTION" flag:"timeline-retention" default:"2160h" validate:"min=1h" doc:"Retention of change events, by their timestamp. Older events are rejected, and deleted week by week."`

	KnownClustersOnly bool `key:"known_clusters_only" env:"FLEET_API_TIMELINE_KNOWN_CLUSTERS_ONLY" flag:"timeline-known-clusters-only" doc:"Reject change events of clusters that do not exist in the fleet API with 404. By default any cluster name is accepted."`
}

// Deps holds the dependencies of a timeline.
type Deps struct {
	Store   Store
	Log     *slog.Logger
	Metrics prometheus.Registerer
	// Authenticate returns the principal of a request with the given headers. Streams repeat the check periodically.
	Authenticate func(ctx context.Context, header http.Header) (auth.Principal, error)
	// MaxBody is the maximum size of a request body in bytes.
	MaxBody int64
	// MaxStreams is the maximum number of open streams, of which one tenant may have half.
	MaxStreams int
}

// A Timeline serves and accepts change events. It is safe for concurrent use.
type Timeline struct {
	store        Store
	intake       *groupAppender
	log          *slog.Logger
	hub          *watch.Hub
	metrics      *metrics
	authenticate func(ctx context.Context, header http.Header) (auth.Principal, error)

	retention time.Duration
	knownOnly bool
	maxBody   int64
}

// New returns a timeline. It starts nothing.
func New(cfg Config, deps Deps) (*Timeline, error) {
	if deps.Store == nil || deps.Log == nil || deps.Metrics == nil || deps.Authenticate == nil || deps.MaxBody <= 0 {
		return nil, errors.New("make the timeline: a store, a log, a metrics registry, a body limit and an authenticator are required")
	}
	m, err := newMetrics(deps.Metrics)
	if err != nil {
		return nil, fmt.Errorf("make the timeline: %w", err)
	}
	hub, err := watch.New(watch.Config{MaxWatches: deps.MaxStreams, MetricPrefix: "fleetloop_timeline"}, watch.Deps{
		Source: watchSource{deps.Store}, Log: deps.Log, Metrics: deps.Metrics,
	})
	if err != nil {
		return nil, fmt.Errorf("make the timeline: %w", err)
	}
	return &Timeline{
		store: deps.Store, intake: newGroupAppender(deps.Store), log: deps.Log, hub: hub, metrics: m, authenticate: deps.Authenticate,
		retention: cmp.Or(cfg.Retention, DefaultRetention), knownOnly: cfg.KnownClustersOnly, maxBody: deps.MaxBody,
	}, nil
}

// Run reads new events for the open streams until ctx ends.
func (t *Timeline) Run(ctx context.Context) error { return t.hub.Run(ctx) }

// Stop ends the open streams and refuses new ones.
func (t *Timeline) Stop() { t.hub.Stop() }

// TriggerStreamRead signals that events were appended. It never blocks.
func (t *Timeline) TriggerStreamRead() { t.hub.TriggerRead() }

func authorizeRead(principal auth.Principal) (Scope, error) {
	switch {
	case principal.CanReadAllTenants():
		return Scope{All: true}, nil
	case principal.Tenant == "":
		return Scope{}, rest.NewError(rest.CodeForbidden, "%q has no tenant", principal.Subject)
	}
	return Scope{Tenant: principal.Tenant}, nil
}

// retryAfter is the retry delay sent to clients when a dependency is unavailable.
const retryAfter = 2 * time.Second

func toProblem(err error) error {
	switch {
	case errors.Is(err, ErrUnavailable):
		return &rest.Error{
			Code:       rest.CodeUnavailable,
			Detail:     "the fleet API cannot reach its database; retry later",
			RetryAfter: retryAfter,
			Cause:      err,
		}
	case errors.Is(err, ErrCursorExpired):
		return rest.NewError(
			rest.CodeCursorExpired,
			"the cursor is older than the last restore of the database; list again and continue from the cursor of that list",
		)
	}
	return err
}
