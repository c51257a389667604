package adapterapp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/fleetloop/fleetloop/adapter"
	v1 "github.com/fleetloop/fleetloop/api/fleet/v1"
	fleetclient "github.com/fleetloop/fleetloop/client"
	"github.com/fleetloop/fleetloop/internal/app/process"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/kube"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
	"github.com/fleetloop/fleetloop/internal/settings"
)

const binary = "adapter-runner"

// Process embeds its settings in Config under a distinct name.
type Process = process.Config

// Config is the configuration of the adapter-runner binary: the adapter, and its process.
type Config struct {
	File
	Process

	Kube kube.Config `key:"kubernetes"`
}

// OverriddenDefaults returns the defaults that differ from those of the parts.
func OverriddenDefaults() Config {
	var cfg Config
	cfg.MetricsAddr = ":9090"
	cfg.HealthAddr = ":8081"
	return cfg
}

// An app is one call of the program.
type app struct {
	cfg            Config
	path           string // of the file
	stdout, stderr io.Writer
	env            func(string) (string, bool)
}

// NewCommand returns the command line of adapter-runner.
func NewCommand(stdout, stderr io.Writer, env func(string) (string, bool)) *cobra.Command {
	a := &app{cfg: OverriddenDefaults(), stdout: stdout, stderr: stderr, env: env}
	root := &cobra.Command{
		Use:   binary,
		Short: "Run an adapter that a file describes",
		Long: `Run an adapter that a file describes. For each event about a resource, the adapter evaluates
a condition, sends a request, runs a command, applies a Kubernetes object or runs a Job, and
reports the result to the fleet API.`,
		Example: `  adapter-runner -f dns.yaml
  adapter-runner validate -f dns.yaml
  adapter-runner run --dry-run cluster us-east-01 -f dns.yaml`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, _ []string) error { return a.runAdapter(cmd) },
	}
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.PersistentFlags().StringVarP(&a.path, "file", "f", "", "`file` of the adapter (YAML)")
	settings.AddFlags(root.PersistentFlags(), &a.cfg)
	loadReports := func(cmd *cobra.Command) ([]*settings.Report, error) {
		report, err := a.loadSettings(cmd)
		return []*settings.Report{report}, err
	}
	root.AddCommand(
		a.newRunCommand(),
		a.newValidateCommand(),
		process.NewConfigCommands(binary, stdout, loadReports, &a.cfg),
	)
	terminal.AddVersionCommandAndFlag(root)
	return root
}

func (a *app) newValidateCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "validate",
		Short: "Check the file without starting anything",
		Long:  "Check the file and compile its expressions, without starting anything.",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if _, err := a.newRunner(cmd, nil); err != nil {
				return err
			}
			_, err := fmt.Fprintf(a.stdout, "%s is valid\n", a.path)
			return err
		},
	}
}

func (a *app) newRunCommand() *cobra.Command {
	var dryRun bool
	run := &cobra.Command{
		Use:   "run [KIND NAME]",
		Short: "Run the adapter, or show what it would do",
		Long: `Run the adapter. With --dry-run, print the value of the condition for one resource of the
fleet API and what the action would do, with secrets redacted, and do nothing.`,
		Args: func(cmd *cobra.Command, args []string) error {
			if !dryRun {
				return cobra.NoArgs(cmd, args)
			}
			return cobra.ExactArgs(2)(cmd, args)
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if !dryRun {
				return a.runAdapter(cmd)
			}
			runner, err := a.newRunner(cmd, nil)
			if err != nil {
				return err
			}
			resource, err := a.fetchResourceWithReports(cmd.Context(), args[0], args[1])
			if err != nil {
				return err
			}
			return runner.DryRun(a.stdout, resource)
		},
	}
	run.Flags().BoolVar(&dryRun, "dry-run", false, "show what the adapter would do for the resource KIND NAME")
	return run
}

var errNoFile = errors.New("no file is given: set -f")

// loadSettings reads the configuration.
func (a *app) loadSettings(cmd *cobra.Command) (*settings.Report, error) {
	if a.path == "" {
		return nil, errNoFile
	}
	return settings.Load(&a.cfg, settings.Source{File: a.path, Env: a.env, Flags: cmd.Flags()})
}

// newRunner reads and compiles the file. A nil newHostClient means that nothing is run.
func (a *app) newRunner(cmd *cobra.Command, newHostClient func() (client.Client, error)) (*Runner, error) {
	report, err := a.loadSettings(cmd)
	if err != nil {
		return nil, err
	}
	deps := RunnerDeps{Env: a.env}
	if newHostClient != nil && a.cfg.usesKubernetes() {
		if deps.Kube, err = newHostClient(); err != nil {
			return nil, err
		}
	}
	return NewRunner(a.cfg.File, report, deps)
}

// newHostClient returns a client of the host cluster. It sends no request.
func (a *app) newHostClient() (client.Client, error) {
	rest, err := kube.NewRESTConfig(a.cfg.Kube, "fleetloop-adapter/"+a.cfg.Name)
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := batchv1.AddToScheme(scheme); err != nil {
		return nil, err
	}
	return client.New(rest, client.Options{Scheme: scheme})
}

// runAdapter runs the adapter until the context ends.
func (a *app) runAdapter(cmd *cobra.Command) error {
	runner, err := a.newRunner(cmd, a.newHostClient)
	if err != nil {
		return err
	}
	p, err := process.New(cmd.Context(), binary, a.cfg.Process, a.stderr)
	if err != nil {
		return err
	}
	kube.RedirectLibraryLogs(p.Log)
	adapting, err := adapter.New(a.cfg.newKitConfig(), runner, adapter.Deps{
		Log:            p.Log,
		Registerer:     p.Metrics,
		TracerProvider: p.Tracing.Provider(),
		Env:            a.env,
	})
	if err != nil {
		return err
	}
	return p.Run(cmd.Context(), nil, lifecycle.Part{Name: "adapter", Run: adapting.Run, Ready: adapting.Ready})
}

// fetchResourceWithReports reads a resource by its name or id, with the reports on it.
func (a *app) fetchResourceWithReports(ctx context.Context, kind, nameOrID string) (r adapter.Resource, err error) {
	collection := strings.TrimSuffix(strings.ToLower(kind), "s") + "s"
	switch collection {
	case v1.CollectionClusters, v1.CollectionNodePools, v1.CollectionManifests, v1.CollectionWorkloads:
	default:
		return r, fmt.Errorf("the kind is %q: use cluster, nodepool, manifest or workload", kind)
	}
	token, _ := a.env("HYPERFLEET_API_TOKEN")
	tokenFile := a.cfg.Fleet.TokenFile
	if tokenFile != "" {
		token = "" // the kit prefers the file, too
	}
	api, err := process.NewFleetClient(process.FleetClientConfig{
		Endpoint:  a.cfg.Fleet.Endpoint,
		Token:     settings.Secret(token),
		TokenFile: tokenFile,
		CAFile:    a.cfg.Fleet.CAFile,
	})
	if err != nil {
		return r, err
	}
	quoted := "'" + strings.ReplaceAll(nameOrID, "'", "''") + "'"
	search := "name = " + quoted + " or id = " + quoted
	var found []v1.Resource
	for item, err := range api.Collection(collection).List(ctx, fleetclient.ListOptions{Search: search}) {
		if err != nil {
			return r, fmt.Errorf("find %s %q: %w", kind, nameOrID, err)
		}
		found = append(found, item)
	}
	if len(found) != 1 {
		return r, fmt.Errorf("%d resources of the kind %s have the name or id %q", len(found), kind, nameOrID)
	}
	r = adapter.Resource{Resource: found[0], Collection: collection}
	r.Reports, err = api.Reporter().Statuses(ctx, collection, r.ID)
	return r, err
}
