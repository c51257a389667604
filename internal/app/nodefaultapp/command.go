package nodefaultapp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/releasecli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/nodefault"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "node-fault-controller"

// NewCommand returns the command line of node-fault-controller.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	cfg := OverriddenDefaults()
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
		process.NewConfigCommands(binary, stdout, func(cmd *cobra.Command) ([]*settings.Report, error) {
			report, err := load(cmd)
			if err == nil {
				err = cfg.validateSettings()
			}
			if err == nil {
				err = cfg.toSinksConfig().ValidateSinks()
			}
			return []*settings.Report{report}, err
		}, &cfg),
		newReleaseNodesCommand(stdout, stderr, env),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

// runController runs a controller until ctx ends.
func runController(ctx context.Context, cfg Config, stderr io.Writer, env func(string) (string, bool)) error {
	if cfg.Namespace == "" {
		pod, _ := env("POD_NAMESPACE")
		cfg.Namespace = cmp.Or(pod, nodefault.DefaultNamespace)
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

// newReleaseNodesCommand returns the command "release" for the cluster of a kubeconfig.
func newReleaseNodesCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	var where kube.Config
	cmd := releasecli.NewReleaseNodesCommand(releasecli.Env{
		Program: binary, Stdout: stdout, Stderr: stderr, Now: time.Now,
		Connect:      func() (client.Client, error) { return newNodeClientDiscardingLogs(where, env) },
		ExplainError: func(err error, doing, _ string) error { return fmt.Errorf("%s: %w", doing, err) },
		JoinErrors:   func(errs []error, _ int) error { return errors.Join(errs...) },
	})
	cmd.Flags().
		StringVar(&where.Kubeconfig, "kubeconfig", "", "kubeconfig `file` of the host cluster (env KUBECONFIG; default ~/.kube/config, in a pod its service account)")
	cmd.Flags().StringVar(&where.Context, "context", "", "`name` of the kubeconfig context")
	return cmd
}

// newNodeClientDiscardingLogs returns a client for nodes. It sends no request.
func newNodeClientDiscardingLogs(where kube.Config, env func(string) (string, bool)) (client.Client, error) {
	if where.Kubeconfig == "" {
		where.Kubeconfig, _ = env("KUBECONFIG")
	}
	cfg, err := kube.NewRESTConfig(where, userAgent)
	if err != nil {
		return nil, err
	}
	kube.RedirectLibraryLogs(slog.New(slog.DiscardHandler)) // the same messages are returned as errors
	scheme := runtime.NewScheme()
	if err := corev1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return kube.NewClient(
		cfg,
		kube.Options{Scheme: scheme, ClusterScoped: []schema.GroupVersionKind{corev1.SchemeGroupVersion.WithKind("Node")}},
	)
}
