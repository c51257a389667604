// Package sentinelapp wires one sentinel from the client of the fleet API, the broker and the loop,
// or an operator that runs one sentinel per SentinelConfig. It also converts configuration files of
// the public HyperFleet sentinel (ConvertPublicConfig).
package sentinelapp

import (
	"context"
	"net/http"

	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/state"
)

// Sentinel embeds its settings in Config under a distinct name.
type Sentinel = sentinel.Config

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration file of the sentinel binary. The configuration of the broker is
// separate, see BrokerConfig.
type Config struct {
	Sentinel
	Process
	HyperFleetMetrics
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = ":8080"
	cfg.HealthAddr = ":8081"
	return cfg
}

// New returns a sentinel that reads from api and publishes to broker.
func New(
	p *process.Process, cfg sentinel.Config, api *fleetclient.Raw, broker *Broker, onPublished func(sentinel.Published),
) (*sentinel.Sentinel, error) {
	return sentinel.New(cfg, sentinel.Deps{
		API:         api,
		Publisher:   broker,
		BrokerType:  string(broker.Type),
		Log:         p.Log,
		Registerer:  p.Metrics,
		Tracer:      p.Tracing.Tracer("github.com/fleetloop/fleetloop/internal/sentinel"),
		OnPublished: onPublished,
	})
}

// DecisionsPath serves the last decisions.
const DecisionsPath = "/debug/decisions"

// userAgent is the User-Agent of requests.
const userAgent = "hyperfleet-sentinel"

// NewClient returns the API client for a sentinel configuration.
func NewClient(cfg sentinel.API) (*fleetclient.Raw, error) {
	header := http.Header{}
	for name, value := range cfg.Headers {
		header.Set(name, value.Reveal())
	}
	api, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint:  cfg.Endpoint,
		Token:     cfg.Token,
		TokenFile: cfg.TokenFile,
		CAFile:    cfg.CAFile,
		Header:    header,
		Timeout:   cfg.Timeout,
		UserAgent: userAgent,
	})
	if err != nil {
		return nil, err
	}
	return api.Raw(), nil
}

// runSentinel runs the sentinel until ctx ends.
func runSentinel(ctx context.Context, p *process.Process, cfg Config, brokerConfig *BrokerConfig) error {
	api, err := NewClient(cfg.HyperfleetAPI)
	if err != nil {
		return err
	}
	broker, err := brokerConfig.BuildBroker(p.Log)
	if err != nil {
		return err
	}
	s, err := New(p, cfg.Sentinel, api, broker, nil)
	if err != nil {
		return err
	}
	cfg.addToMetricsServerIfEnabled(p)
	decisions := map[string]*state.DecisionRecord{s.DescribeWatch(): s.Decisions()}
	p.HandleOnMetricsServer(DecisionsPath, state.NewRecordHandler(decisions))
	p.Log.InfoContext(ctx, "watching resources",
		"resource_type", cfg.ResourceType,
		"api", cfg.HyperfleetAPI.Endpoint,
		"broker", broker.Type,
		"profile", cfg.Decision.Profile,
		"poll_interval", cfg.PollInterval,
		"max_age_not_ready", cfg.MaxAgeNotReady,
		"max_age_ready", cfg.MaxAgeReady,
	)
	return p.Run(ctx, s.Live, broker.Part(), lifecycle.Part{Name: "sentinel", Run: s.Run, Ready: s.Ready})
}
