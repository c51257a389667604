package executionapp

import (
	"cmp"
	"context"
	"io"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/guard"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "execution-controller"

// NewCommand returns the command line of execution-controller.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := OverriddenDefaults()
	var file string
	load := func(cmd *cobra.Command) (*settings.Report, error) {
		return settings.Load(&cfg, settings.Source{File: file, Env: env, Flags: cmd.Flags()})
	}
	root := &cobra.Command{
		Use:   binary,
		Short: "Run KubernetesExecutions",
		Long: `Run the KubernetesExecutions of one namespace: check and dry-run them, evaluate the
policies, wait for approval, run each action in a Job with its own service account,
evaluate postconditions, and record how to roll back.

Of several replicas, one is active at a time (leader election).`,
		Example: `  DATABASE_URL=postgres://host/fleet execution-controller --runner-image=registry.example/fleetloop/action-runner@sha256:…
  execution-controller --kubeconfig=admin.kubeconfig --namespace=kubernaut-executor --audit=off --runner-image=…`,
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
		process.NewConfigCommands(binary, stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
			report, err := load(cmd)
			return []*settings.Report{report}, err
		}, &cfg, func() error { return cfg.validateSettings() }, func() error { return cfg.toSinksConfig().ValidateSinks() }),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

// runController runs a controller until ctx ends.
func runController(ctx context.Context, cfg Config, stderr io.Writer, env func(string) (string, bool)) error {
	if cfg.Namespace == "" {
		pod, _ := env("POD_NAMESPACE")
		cfg.Namespace = cmp.Or(pod, guard.DefaultNamespace)
	}
	p, err := process.New(ctx, binary, cfg.Process, stderr)
	if err != nil {
		return err
	}
	parts, err := BuildParts(ctx, p, cfg.Part, Overrides{})
	if err != nil {
		return err
	}
	p.AddMetricsGatherer(kube.LibraryMetricsGatherer())
	return p.Run(ctx, nil, parts...)
}
