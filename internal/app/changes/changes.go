// Package changes tells the sinks that the settings name what a process does,
// by change events.
//
// A sink whose settings cannot work is logged as an error, shown by a metric, and
// told nothing: to be seen must never keep a process from its work. One whose
// files cannot be read yet is there, and its events wait. Check finds both
// beforehand.
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

// A Sink is one that is told of changes.
type Sink struct {
	Name string
	// Client sends to it. Nil is that its settings cannot work.
	Client changeevent.Client
	// Wants says whether it is told of an action. The client says so, too.
	Wants func(action string) bool
}

// Sinks are all that are told of changes. As a changeevent.Client they are told
// of the same events, and OnDelivery is called for each that has taken one.
// None, and a nil pointer, is told nothing.
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

// An Option changes the clients of sinks.
type Option func(*changeevent.Config)

// SenderRetries has whoever sends keep events and send them again, as
// changeevent.Config.SenderRetries has it.
func SenderRetries(c *changeevent.Config) { c.SenderRetries = true }

// New makes the sinks of a process, which says of itself that it is source, and
// has them shown at /debug/change-events. Each event says itself whether it is of
// a dry run: it may have been recorded by a process that was none. Whatever sends
// must have ended before Part does.
//
// An error is one of names that cannot be told apart, or that source is empty:
// the client would name the component of the decision record, which this is not.
func New(cfg Config, source string, p *process.Process, options ...Option) (*Sinks, error) {
	if source == "" {
		return nil, errNoSource
	}
	if err := cfg.validateNames(); err != nil {
		return nil, err
	}
	s := &Sinks{log: p.Log, closeTimeout: limitWait(cfg.ShutdownTimeout, p.StopTimeout())}
	common := changeevent.Config{
		Enabled: true, ClusterName: cfg.ClusterName, Source: source, AllowHosts: slices.Clone(cfg.AllowHosts),
		Product:         cmp.Or(cfg.Product, changeevent.ProductFleetloop),
		ShutdownTimeout: s.closeTimeout,
		Registerer:      p.Metrics, Logger: p.Log,
	}
	for _, option := range options {
		option(&common)
	}
	all := cfg.listSinks()
	if cfg.Enabled && len(all) == 0 {
		p.Log.Error("no sink configured for change events", "err", errNoSink)
		s.leaveOut(SinkConfig{Name: DefaultSink, Target: Target(cfg.Default)}, errNoSink)
	}
	for _, c := range all {
		client, err := changeevent.NewClient(c.clientConfig(common))
		if err != nil {
			p.Log.Error("change event sink disabled, invalid configuration", "sink", c.Name, "err", err)
			s.leaveOut(c, err)
			continue
		}
		s.list = append(s.list, Sink{c.Name, client, c.acceptsAction})
	}
	if err := p.Metrics.Register(sinkConfigValid{s}); err != nil {
		return nil, errors.Join(fmt.Errorf("register metrics of change event sinks: %w", err), s.closeAll())
	}
	s.close = sync.OnceValue(s.closeAll)
	p.HandleDebug(debugPath, s)
	return s, nil
}

// leaveOut keeps in mind a sink that cannot work.
func (s *Sinks) leaveOut(c SinkConfig, why error) {
	s.invalid = append(s.invalid, InvalidSink{c.Name, why.Error()})
	s.list = append(s.list, Sink{Name: c.Name, Wants: c.acceptsAction})
}

// stopShare is the part of the time to stop that may be spent on waiting for
// sinks, so that a part is never given up on while it waits.
const stopShare = 0.9

// limitWait is how long to wait for sinks at the end.
func limitWait(wanted, stop time.Duration) time.Duration {
	if stop <= 0 {
		stop = lifecycle.DefaultStopTimeout
	}
	return min(cmp.Or(wanted, changeevent.DefaultShutdownTimeout), time.Duration(float64(stop)*stopShare))
}

// Check says what is wrong with the settings of the sinks, and which of their
// files cannot be read. It sends nothing.
func (c Config) Check() error {
	if err := c.validateNames(); err != nil {
		return err
	}
	all := c.listSinks()
	if c.Enabled && len(all) == 0 {
		return errNoSink
	}
	var errs []error
	for _, s := range all {
		errs = append(errs, changeevent.Check(s.clientConfig(changeevent.Config{Enabled: true, ClusterName: c.ClusterName, AllowHosts: c.AllowHosts})))
	}
	return errors.Join(errs...)
}

// clientConfig is the configuration of the client of a sink.
func (s SinkConfig) clientConfig(common changeevent.Config) changeevent.Config {
	c := common
	c.Name = s.Name
	c.Endpoint, c.EndpointFile, c.Format, c.Timeout = s.Endpoint, s.EndpointFile, s.Format, s.Timeout
	c.AuthHeader, c.AuthScheme, c.AuthToken, c.AuthTokenFile = s.AuthHeader, s.AuthScheme, s.AuthToken.Reveal(), s.AuthTokenFile
	c.RoutingKeyFile, c.SigningKeyFile = s.RoutingKeyFile, s.SigningKeyFile
	c.Actions, c.IncludeOptionalActions = slices.Clone(s.Actions), s.IncludeOptionalActions
	c.AllowHTTP, c.AllowAddresses, c.CAFile, c.ProxyURL = s.AllowHTTP, slices.Clone(s.AllowAddresses), s.CAFile, s.ProxyURL
	c.BaseFieldsOnly = s.BaseFieldsOnly
	c.AppendCluster, c.QueueSize, c.MaxAge, c.BatchWait = s.AppendCluster, s.QueueSize, s.MaxAge, s.BatchWait
	c.Retry = changeevent.Retry{
		MaxAttempts: s.Retry.MaxAttempts, InitialInterval: s.Retry.InitialInterval,
		MaxInterval: s.Retry.MaxInterval, MaxElapsedTime: s.Retry.MaxElapsedTime,
	}
	for _, l := range s.Links {
		c.Links = append(c.Links, changeevent.LinkTemplate{Href: l.Href, Text: l.Text, Actions: l.Actions})
	}
	return c
}

// acceptsAction says whether a sink is told of an action.
func (s SinkConfig) acceptsAction(action string) bool {
	if len(s.Actions) > 0 {
		return slices.Contains(s.Actions, action)
	}
	extension := action == changeevent.ActionOverrideDetected || action == changeevent.ActionBudgetExhausted
	return s.IncludeOptionalActions || !extension
}

// Each are the sinks one by one, for who keeps account of what each has taken:
// also those that cannot work, which have no client.
func (s *Sinks) Each() []Sink {
	if s == nil {
		return nil
	}
	return slices.Clone(s.list)
}

// SendChangeEvent hands an event to each sink. It never blocks.
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

// Close takes no more events and waits for those that were taken, as long as the
// settings allow, for all sinks at the same time.
func (s *Sinks) Close() error {
	if s == nil {
		return nil
	}
	return s.close()
}

// CloseTimeout is how long Close waits at most.
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

// Part closes the sinks when the process ends. It stands before all parts that
// send, and after those that sinks are reached through: so it stops when the
// first have, and the others have not. Events that are left over then are logged;
// they are no failure of the process.
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

// Describe registers the metrics of a sink and sends nothing: for the reference
// of metrics.
func Describe(reg prometheus.Registerer) error {
	client, err := changeevent.NewClient(changeevent.Config{
		Enabled: true, ClusterName: "reference", Endpoint: "https://localhost/changes", Registerer: reg, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	err = reg.Register(sinkConfigValid{&Sinks{}})
	if _, there := errors.AsType[prometheus.AlreadyRegisteredError](err); there {
		err = nil
	}
	return errors.Join(err, client.Close())
}
