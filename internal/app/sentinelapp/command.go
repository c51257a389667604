package sentinelapp

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/sentinel"
	"github.com/fleetloop/fleetloop/internal/sentinel/payload"
	"github.com/fleetloop/fleetloop/internal/sentinel/sentinelconfig"
	"github.com/fleetloop/fleetloop/internal/settings"
)

// NewCommand returns the command line of the sentinel.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	c := &command{cfg: OverriddenDefaults(), onHost: OperatorDefaults(), stdout: stdout, stderr: stderr, env: env}
	root := &cobra.Command{
		Use:   "sentinel",
		Short: "Watch the fleet API and publish a CloudEvent for every resource that is due",
		Long: `Watch one collection of the fleet API, decide which resources are due, and
publish a CloudEvent for each of them.

--config is a file or the name of a SentinelConfig. With a file, the broker is
configured by BROKER_TYPE and the other BROKER_* variables. A SentinelConfig
also contains the broker, and can change while the sentinel runs. --all runs
every SentinelConfig of the namespace.`,
		Example: `  BROKER_TYPE=rabbitmq BROKER_HOST=localhost sentinel --config ./sentinel-config.yaml
  sentinel --config=cluster-sentinel-default --namespace=hyperfleet-system
  sentinel --all --namespace=hyperfleet-system
  sentinel validate --config ./sentinel-config.yaml
  sentinel config show --origins --config ./sentinel-config.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return c.runSentinelOrOperator(cmd) },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&c.file, "config", "", "path of a configuration `file`, or the name of a SentinelConfig")
	settings.AddFlags(root.PersistentFlags(), &c.cfg)
	settings.AddFlags(root.PersistentFlags(), &c.onHost)

	root.AddCommand(
		&cobra.Command{
			Use:   "validate",
			Short: "Check the configuration without connecting to anything, including the broker if BROKER_TYPE is set",
			Args:  cobra.NoArgs,
			RunE:  func(cmd *cobra.Command, _ []string) error { return c.runValidateCommand(cmd) },
		},
		c.newPlanCommand(), c.newWhyCommand(), c.newCheckCoverageCommand(), c.newConvertCommand(),
		process.NewConfigCommands("sentinel", stdout, c.loadSettingsReports, &c.cfg),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

// command is one call of the sentinel binary.
type command struct {
	cfg            Config
	onHost         OperatorConfig
	file           string
	manifest       *manifest        // nil unless the file is one
	report         *settings.Report // of the loaded settings
	stdout, stderr io.Writer
	env            func(string) (string, bool)
}

func (c *command) loadSettings(cmd *cobra.Command) (*settings.Report, error) {
	if err := c.rejectOperatorOnlyFlags(cmd.Flags()); err != nil {
		return nil, err
	}
	var err error
	if c.manifest, err = readManifestIfSentinelConfig(c.file); err != nil {
		return nil, err
	}
	source := settings.Source{File: c.file, Env: c.env, Flags: cmd.Flags()}
	if c.manifest != nil { // its settings are read already
		c.cfg.Sentinel = c.manifest.settings.Sentinel
		source.File = ""
	}
	report, err := settings.Load(&c.cfg, source)
	if err != nil {
		return nil, err
	}
	c.report = report
	// Reject it before any output shows the endpoint, which is not treated as a secret.
	if u, err := url.Parse(c.cfg.HyperfleetAPI.Endpoint); err == nil && u.User != nil {
		return nil, report.WrapWithOrigin("hyperfleet_api.endpoint", errEndpointUser)
	}
	return report, nil
}

// errEndpointUser rejects credentials in the endpoint and names the settings for them.
var errEndpointUser = errors.New("must not contain a user name or password; set HYPERFLEET_API_TOKEN or hyperfleet_api.token_file")

// loadSettingsReports returns the settings in force: those of the file, and those of the broker if
// BROKER_TYPE is set.
func (c *command) loadSettingsReports(cmd *cobra.Command) ([]*settings.Report, error) {
	if c.runsOperator(cmd.Flags()) {
		report, err := c.loadOperatorSettings(cmd)
		return []*settings.Report{report}, err
	}
	report, err := c.loadSettings(cmd)
	if err != nil {
		return nil, err
	}
	if c.manifest != nil {
		return []*settings.Report{report}, nil
	}
	broker, err := LoadBrokerConfig(c.env)
	switch {
	case errors.Is(err, ErrNoBrokerType):
		return []*settings.Report{report}, nil
	case err != nil:
		return nil, err
	}
	return append([]*settings.Report{report}, broker.Reports()...), nil
}

// loadAndValidateConfig reads the whole configuration and compiles its expressions. The broker is
// optional.
func (c *command) loadAndValidateConfig(cmd *cobra.Command) (*BrokerConfig, error) {
	report, err := c.loadSettings(cmd)
	if err != nil {
		return nil, err
	}
	// Validate with the production constructor and unusable dependencies.
	_, err = sentinel.New(c.cfg.Sentinel, sentinel.Deps{API: discardBroker{}, Publisher: discardBroker{}})
	if err := sentinel.WrapKeyErrors(err, report.WrapWithOrigin); err != nil {
		return nil, err
	}
	if c.cfg.ShutdownTimeout >= c.cfg.StopTimeout {
		return nil, report.WrapWithOrigin("stop_timeout", newStopTimeoutError(c.cfg.StopTimeout, c.cfg.ShutdownTimeout))
	}
	if _, err := NewClient(c.cfg.HyperfleetAPI); err != nil {
		return nil, err
	}
	broker, err := c.loadBrokerConfig()
	if broker == nil || err != nil {
		return nil, err
	}
	_, err = broker.BuildBroker(slog.New(slog.DiscardHandler))
	return broker, err
}

// loadBrokerConfig reads the configuration of the broker from the manifest, or else from the environment. It is nil if
// the manifest names a Secret with it.
func (c *command) loadBrokerConfig() (*BrokerConfig, error) {
	if c.manifest != nil {
		return c.manifest.loadBrokerConfig(c.env)
	}
	return LoadBrokerConfig(c.env)
}

// newStopTimeoutError returns why the two timeouts conflict.
func newStopTimeoutError(stopTimeout, shutdownTimeout time.Duration) error {
	return fmt.Errorf("%s is invalid: must be longer than shutdown_timeout (%s), which waits for confirmations", stopTimeout, shutdownTimeout)
}

func (c *command) runSentinelOrOperator(cmd *cobra.Command) error {
	if c.runsOperator(cmd.Flags()) {
		return c.runOperator(cmd)
	}
	broker, err := c.loadAndValidateConfig(cmd)
	if err != nil {
		return err
	}
	if c.manifest != nil {
		return fmt.Errorf("%s contains a SentinelConfig: apply it to a cluster and run sentinel --config=%s there", c.file, c.manifest.name)
	}
	p, err := process.New(cmd.Context(), "sentinel", c.cfg.Process, c.stderr)
	if err != nil {
		return err
	}
	return runSentinel(cmd.Context(), p, c.cfg, broker)
}

func (c *command) runValidateCommand(cmd *cobra.Command) error {
	broker, err := c.loadAndValidateConfig(cmd)
	var brokerState string
	switch {
	case errors.Is(err, ErrNoBrokerType):
		brokerState = "broker not checked (BROKER_TYPE is not set)"
	case err != nil:
		return err
	case broker == nil:
		brokerState = "broker not checked (its URL is in a Secret)"
	default:
		brokerState = "broker " + string(broker.Type())
	}
	selector, err := c.cfg.BuildLabelSelector()
	if err != nil {
		return err
	}
	watched := selector.String()
	if selector.Empty() {
		watched = "all resources"
	}
	if _, err := fmt.Fprintf(c.stdout, "valid: watches %s (%s), %s\n", c.cfg.ResourceType, watched, brokerState); err != nil {
		return err
	}
	return c.warnOfNumbersSentAsStrings()
}

// warnOfNumbersSentAsStrings lists the values of message_data that send a number of the resource as
// a string.
func (c *command) warnOfNumbersSentAsStrings() error {
	data, err := payload.New(c.cfg.MessageData, payload.Keys(c.cfg.PayloadKeys))
	if err != nil {
		return err
	}
	for _, t := range data.ListNumberFieldsSentAsText() {
		problem := fmt.Errorf("sends %s, a %s, as a string; consumers that expect a %s reject it. To keep the type, use: %s",
			t.Field, t.Type, t.Type, t.CEL)
		if _, err := fmt.Fprintf(c.stderr, "warning: %v\n", c.wrapWithLocation(t.Key, problem)); err != nil {
			return err
		}
	}
	return nil
}

// wrapWithLocation adds to an error where its key is set: a field of the manifest, or the origin of the setting.
func (c *command) wrapWithLocation(key string, err error) error {
	if c.manifest != nil {
		return sentinelconfig.TranslateKeyErrors(&payload.KeyError{Key: key, Err: err})
	}
	return c.report.WrapWithOrigin(key, err)
}
