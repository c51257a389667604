package nodefaultapp

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/faultcli"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "node-fault-controller"

// Command returns the command line of node-fault-controller.
func Command(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := Defaults()
	var file string
	load := func(cmd *cobra.Command) (*settings.Report, error) {
		return settings.Load(&cfg, settings.Source{File: file, Env: env, Flags: cmd.Flags()})
	}
	root := &cobra.Command{
		Use:   binary,
		Short: "Quarantine, repair and release faulty nodes",
		Long: `Quarantine faulty nodes within a budget, drain them, reboot or replace them, verify
the repair, and release them. Manual changes to nodes are never reverted. Each step
sends a change event.

One replica at a time acts. All replicas receive reports.`,
		Example: `  node-fault-controller --kubeconfig=admin.kubeconfig --dry-run
  node-fault-controller --config=node-faults.yaml --reboot-provider=webhook --webhook-url=https://bmc.example/reboot
  node-fault-controller release --all --reason="uninstalled"`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := load(cmd); err != nil {
				return err
			}
			return runController(cmd.Context(), cfg, stderr, env)
		},
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVar(&file, "config", "", "configuration file (YAML)")
	settings.AddFlags(root.PersistentFlags(), &cfg)
	root.AddCommand(
		process.ConfigCommand(binary, stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
			report, err := load(cmd)
			if err == nil {
				err = cfg.validateSettings()
			}
			if err == nil {
				err = cfg.sinksConfig().Check()
			}
			return []*settings.Report{report}, err
		}, &cfg),
		faultcli.ReleaseCommand(cli.Env{Stdout: stdout, Stderr: stderr, LookupEnv: env}),
	)
	process.AddVersionCommandAndFlag(root)
	return root
}

// runController runs a controller until ctx ends.
func runController(ctx context.Context, cfg Config, stderr io.Writer, env func(string) (string, bool)) error {
	if cfg.Namespace == "" {
		pod, _ := env("POD_NAMESPACE")
		cfg.Namespace = cmp.Or(pod, defaultNamespace)
	}
	p, err := process.New(ctx, binary, cfg.Process, stderr)
	if err != nil {
		return err
	}
	parts, err := Parts(ctx, p, cfg.Part, Overrides{})
	if err != nil {
		return err
	}
	p.Gather(kube.Metrics())
	return p.Run(ctx, nil, parts...)
}
