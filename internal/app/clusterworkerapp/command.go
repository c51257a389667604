package clusterworkerapp

import (
	"context"
	"io"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "cluster-worker"

// NewCommand returns the command line of cluster-worker.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := OverriddenDefaults()
	var file string
	load := func(cmd *cobra.Command) (*settings.Report, error) {
		report, err := settings.Load(&cfg, settings.Source{File: file, Env: env, Flags: cmd.Flags()})
		cfg.applyHealthPortToDefaultAddrs()
		return report, err
	}
	loadConfig := func(cmd *cobra.Command) (Config, error) {
		_, err := load(cmd)
		return cfg, err
	}

	root := &cobra.Command{
		Use:   binary,
		Short: "Sync the clusters of the fleet API to Gardener",
		Long: `Sync the clusters of the fleet API to Gardener as Shoots, and report the status of
the Shoots. Any number of workers can share one database.

Unless GARDENER_MODE=real is set, it uses an in-memory mock of Gardener.`,
		Example: `  DATABASE_URL=postgres://host/fleet GARDENER_MODE=real GARDENER_KUBECONFIG=garden.kubeconfig cluster-worker
  cluster-worker preflight`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			cfg, err := loadConfig(cmd)
			if err != nil {
				return err
			}
			return runWorkerUntilDone(cmd.Context(), cfg, stderr)
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&file, "config", "", "configuration file (YAML)")
	settings.AddFlags(root.PersistentFlags(), &cfg)
	root.AddCommand(
		newPreflightCommand(stdout, loadConfig),
		newUnregisterCommand(stdout, loadConfig),
		process.NewConfigCommands(binary, stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
			report, err := load(cmd)
			return []*settings.Report{report}, err
		}, &cfg, func() error { return cfg.validateWithTrialWorker() }, func() error { return cfg.sinksConfigWithDefaults().ValidateSinks() }),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

// applyHealthPortToDefaultAddrs applies HEALTH_PORT to an address that is not set otherwise.
func (c *Config) applyHealthPortToDefaultAddrs() {
	if c.HealthPort == 0 {
		return
	}
	addr := net.JoinHostPort("", strconv.Itoa(c.HealthPort))
	if c.HealthAddr == defaultAddr {
		c.HealthAddr = addr
	}
	if c.MetricsAddr == defaultAddr {
		c.MetricsAddr = addr
	}
}

// runWorkerUntilDone runs a worker until ctx ends.
func runWorkerUntilDone(ctx context.Context, cfg Config, stderr io.Writer) error {
	p, err := process.New(ctx, binary, cfg.Process, stderr)
	if err != nil {
		return err
	}
	parts, live, err := BuildParts(ctx, p, cfg.Part, cfg.StopTimeout, Overrides{})
	if err != nil {
		return err
	}
	if cfg.API.Endpoint == "" {
		p.Log.WarnContext(ctx, "fleet API endpoint not set, no status is reported", "hint", "set HYPERFLEET_API_ENDPOINT")
	}
	return p.Run(ctx, live, parts...)
}
