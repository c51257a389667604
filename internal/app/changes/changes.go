// Package changes sends the change events of a process to the configured sinks.
//
// A sink with invalid settings is logged as an error, shown by a metric and gets no events, so that
// reporting never stops the work of a process. A sink with files that cannot be read yet is kept,
// and its events wait. Check finds both in advance.
package changes

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fleetloop/fleetloop/changeevent"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// Sink is one receiver of change events.
type Sink struct {
	Name   string
	Format changeevent.Format
	// Client sends to the sink. Nil means that the settings of the sink are invalid.
	Client changeevent.Client
	// Wants reports whether the sink accepts an action. The client applies the same filter.
	Wants func(action string) bool
}

// Sinks are all receivers of change events. As a changeevent.Client they pass each event to every
// sink, and OnDelivery is called for each sink that has accepted one. The zero value and a nil
// pointer have no sinks.
type Sinks struct {
	list    []Sink
	invalid []InvalidSink
	log     *slog.Logger

	closeTimeout time.Duration
	close        func() error
}

// InvalidSink is a sink with an invalid configuration.
type InvalidSink struct {
	Sink  string `json:"sink"`
	Error string `json:"error"`
}

var _ changeevent.Client = (*Sinks)(nil)

// Option changes the configuration of the clients.
type Option func(*changeevent.Config)

// LeaveRetriesToSender leaves retries to the sender, as changeevent.Config.LeaveRetriesToSender does.
func LeaveRetriesToSender(c *changeevent.Config) { c.SenderRetries = true }

// New builds the sinks of a process with the given source, and serves their state at
// /debug/change-events. Each event carries its own dry-run flag, because a process without dry run
// may have recorded it. All senders must end before Part stops.
//
// It returns an error if names of sinks are invalid or duplicate, or if source is empty: the client
// would then use the component of the decision record, which is wrong here.
func New(cfg Config, source string, p *process.Process, options ...Option) (*Sinks, error) {
	if source == "" {
		return nil, errNoSource
	}
	if err := cfg.validateSinkNames(); err != nil {
		return nil, err
	}

	// What all sinks share.
	s := &Sinks{
		log:          p.Log,
		closeTimeout: closeTimeoutWithinStopTimeout(cfg.ShutdownTimeout, p.StopTimeout()),
	}
	common := changeevent.Config{
		Enabled:         true,
		ClusterName:     cfg.ClusterName,
		Source:          source,
		AllowHosts:      slices.Clone(cfg.AllowHosts),
		Product:         cmp.Or(cfg.Product, changeevent.ProductFleetloop),
		ShutdownTimeout: s.closeTimeout,
		Registerer:      p.Metrics,
		Logger:          p.Log,
	}
	for _, option := range options {
		option(&common)
	}

	// A sink that cannot be built is recorded as invalid, and the others are kept.
	all := cfg.sinksIfEnabled()
	if cfg.Enabled && len(all) == 0 {
		p.Log.Error("no sink configured for change events", "err", errNoSink)
		s.recordInvalidSink(SinkConfig{Name: DefaultSink, Target: Target(cfg.Default)}, errNoSink)
	}
	for _, sink := range all {
		client, err := changeevent.NewClient(sink.toClientConfig(common))
		if err != nil {
			p.Log.Error("change event sink disabled, invalid configuration", "sink", sink.Name, "err", err)
			s.recordInvalidSink(sink, err)
			continue
		}
		s.list = append(s.list, Sink{Name: sink.Name, Format: sink.Format, Client: client, Wants: sink.acceptsAction})
	}

	if err := p.Metrics.Register(sinkConfigValid{s}); err != nil {
		return nil, errors.Join(fmt.Errorf("register metrics of change event sinks: %w", err), s.closeAll())
	}
	s.close = sync.OnceValue(s.closeAll)
	p.HandleOnMetricsServer(debugPath, s)
	return s, nil
}

// recordInvalidSink records a sink with invalid settings.
func (s *Sinks) recordInvalidSink(c SinkConfig, why error) {
	s.invalid = append(s.invalid, InvalidSink{c.Name, why.Error()})
	s.list = append(s.list, Sink{Name: c.Name, Format: c.Format, Wants: c.acceptsAction})
}

// stopShare is the share of the stop timeout that a part may spend waiting for sinks. It is below
// 1, so that a part is never abandoned while it waits.
const stopShare = 0.9

// closeTimeoutWithinStopTimeout limits the wait for sinks at shutdown by the stop timeout.
func closeTimeoutWithinStopTimeout(wanted, stopTimeout time.Duration) time.Duration {
	if stopTimeout <= 0 {
		stopTimeout = lifecycle.DefaultStopTimeout
	}
	longest := time.Duration(float64(stopTimeout) * stopShare)
	return min(cmp.Or(wanted, changeevent.DefaultShutdownTimeout), longest)
}

// ValidateSinks validates the settings of the sinks and reads their files. It sends nothing.
func (c Config) ValidateSinks() error {
	if err := c.validateSinkNames(); err != nil {
		return err
	}
	all := c.sinksIfEnabled()
	if c.Enabled && len(all) == 0 {
		return errNoSink
	}
	common := changeevent.Config{Enabled: true, ClusterName: c.ClusterName, AllowHosts: c.AllowHosts}
	var errs []error
	for _, sink := range all {
		errs = append(errs, changeevent.Check(sink.toClientConfig(common)))
	}
	return errors.Join(errs...)
}

// toClientConfig returns the configuration of the client of a sink: common with the settings of the sink.
func (s SinkConfig) toClientConfig(common changeevent.Config) changeevent.Config {
	c := common
	c.Name = s.Name
	c.Endpoint = s.Endpoint
	c.EndpointFile = s.EndpointFile
	c.Format = s.Format
	c.Timeout = s.Timeout

	c.AuthHeader = s.AuthHeader
	c.AuthScheme = s.AuthScheme
	c.AuthToken = s.AuthToken.Reveal()
	c.AuthTokenFile = s.AuthTokenFile
	c.RoutingKeyFile = s.RoutingKeyFile
	c.SigningKeyFile = s.SigningKeyFile

	c.AllowHTTP = s.AllowHTTP
	c.AllowAddresses = slices.Clone(s.AllowAddresses)
	c.CAFile = s.CAFile
	c.ProxyURL = s.ProxyURL.Reveal()

	c.Actions = slices.Clone(s.Actions)
	c.IncludeOptionalActions = s.IncludeOptionalActions
	c.BaseFieldsOnly = s.BaseFieldsOnly
	c.AppendCluster = s.AppendCluster

	c.QueueSize = s.QueueSize
	c.MaxAge = s.MaxAge
	c.BatchWait = s.BatchWait
	c.Retry = changeevent.Retry{
		MaxAttempts:     s.Retry.MaxAttempts,
		InitialInterval: s.Retry.InitialInterval,
		MaxInterval:     s.Retry.MaxInterval,
		MaxElapsedTime:  s.Retry.MaxElapsedTime,
	}
	for _, l := range s.Links {
		c.Links = append(c.Links, changeevent.LinkTemplate{Href: l.Href, Text: l.Text, Actions: l.Actions})
	}
	return c
}

// acceptsAction reports whether a sink accepts an action.
func (s SinkConfig) acceptsAction(action string) bool {
	if len(s.Actions) > 0 {
		return slices.Contains(s.Actions, action)
	}
	isOptional := action == changeevent.ActionOverrideDetected || action == changeevent.ActionBudgetExhausted
	return s.IncludeOptionalActions || !isOptional
}

// List returns the sinks one by one, for callers that track deliveries per sink. It includes sinks
// with invalid settings, which have no client.
func (s *Sinks) List() []Sink {
	if s == nil {
		return nil
	}
	return slices.Clone(s.list)
}

// SendChangeEvent passes an event to each sink. It never blocks.
func (s *Sinks) SendChangeEvent(ctx context.Context, event changeevent.ChangeEvent) {
	if s == nil {
		return
	}
	for _, sink := range s.list {
		if sink.Client != nil {
			sink.Client.SendChangeEvent(ctx, event)
		}
	}
}

// Close rejects new events and waits for accepted ones. It waits for all sinks in parallel and no
// longer than the settings allow.
func (s *Sinks) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

// CloseTimeout returns the maximum duration of Close.
func (s *Sinks) CloseTimeout() time.Duration {
	if s == nil {
		return 0
	}
	return s.closeTimeout
}

func (s *Sinks) closeAll() error {
	errs := make([]error, len(s.list))
	var closing sync.WaitGroup
	for i, sink := range s.list {
		if sink.Client == nil {
			continue
		}
		closing.Go(func() {
			errs[i] = sink.Client.Close()
		})
	}
	closing.Wait()
	return errors.Join(errs...)
}

// Part closes the sinks when the process ends. It belongs before all parts that send and after
// those that connect to the sinks, so it stops between them. Remaining events are logged and do not
// fail the process.
func (s *Sinks) Part() lifecycle.Part {
	return lifecycle.Part{
		Name: "change events",
		Run: func(ctx context.Context) error {
			<-ctx.Done()
			if err := s.Close(); err != nil {
				s.log.WarnContext(ctx, "change events not delivered before shutdown", "err", err)
			}
			return nil
		},
		Close: s.Close,
	}
}

// RegisterMetrics registers the metrics of a sink for the metrics reference. It sends nothing.
func RegisterMetrics(reg prometheus.Registerer) error {
	client, err := changeevent.NewClient(changeevent.Config{
		Enabled:     true,
		ClusterName: "reference",
		Endpoint:    "https://localhost/changes",
		Registerer:  reg,
		Logger:      slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = reg.Register(sinkConfigValid{&Sinks{}})
	if _, registered := errors.AsType[prometheus.AlreadyRegisteredError](err); registered {
		err = nil
	}
	return errors.Join(err, client.Close())
}
