// Command kubebed starts a Kubernetes control plane on this machine, to try things out: the one
// that the tests use. A command after "--" is run on it, and the control plane ends with the
// command.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := newCommand(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	var exit interface { // *exec.ExitError of the command, or exitError
		error
		ExitCode() int
	}
	switch {
	case errors.As(err, &exit) && exit.ExitCode() > 0:
		os.Exit(exit.ExitCode())
	case err != nil:
		fmt.Fprintln(os.Stderr, "kubebed:", err)
		os.Exit(1)
	}
}

func newCommand(stdout, stderr io.Writer) *cobra.Command {
	r := &run{stdout: stdout, stderr: stderr, log: slog.New(slog.NewTextHandler(stderr, nil))}
	root := &cobra.Command{
		Use:   "kubebed [flags] [-- COMMAND [ARG...]]",
		Short: "Start a Kubernetes control plane on this machine",
		Long: `Start etcd, kube-apiserver and the requested components on the loopback address, and
print the environment for kubectl. Ctrl-C stops them. With a command, run the command
with KUBECONFIG set, and stop when it exits.

--garden also starts the Gardener API server with a project and a simulation that takes
Shoots through their operations without creating clusters. The annotation
gardenbed.fleetloop.io/fault on a Shoot simulates a fault: Error, Failed, Stuck or
Unhealthy.

The programs come from KUBEBUILDER_ASSETS, or from a cache directory
(FLEETLOOP_KUBEBED_DIR). The first start fills the cache by a download, or by a build
from Go modules that takes minutes.`,
		Example: `  go run ./devstack/cmd/kubebed
  go run ./devstack/cmd/kubebed --controllers job --node process --image demo=/bin/true
  go run ./devstack/cmd/kubebed --node real -- kubectl get nodes
  go run ./devstack/cmd/kubebed --garden -- kubectl get cloudprofiles`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, args []string) error { return r.isolateIfNeededAndServe(cmd.Context(), args) },
	}
	flags := root.Flags()
	flags.StringSliceVar(&r.controllers, "controllers", nil, `controllers to run: "all", "job" (for Jobs and their Pods), or controller names`)
	flags.BoolVar(&r.scheduler, "scheduler", false, "run kube-scheduler")
	flags.StringSliceVar(&r.crds, "crds", nil, "files with CustomResourceDefinitions, or directories of such files")
	flags.StringVar(&r.dir, "dir", "", "data directory; existing data is reused (default: a temporary directory)")
	flags.StringVar(&r.node, "node", "", `node for Pods: "process" (runs commands as local processes) or "real" (kubelet and containerd in a separate network; requires root)`)
	flags.StringToStringVar(&r.images, "image", nil, `image for the node, repeatable: NAME=PROGRAM for --node process, NAME=FILE (image archive) for --node real`)
	flags.BoolVar(&r.garden, "garden", false, "start the Gardener API server and simulate Shoot operations")
	flags.DurationVar(&r.step, "garden-step", time.Second, "duration of each of the seven steps of a Shoot operation")
	root.AddCommand(r.assetsCommand(), pinVersionCommand(stderr))
	return root
}

// assetsCommand fills the cache.
func (r *run) assetsCommand() *cobra.Command {
	var garden bool
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Print the directory of the Kubernetes programs; fill the cache if it is empty",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folders := []func(context.Context, *slog.Logger) (string, error){kubebed.EnsureAssets}
			if garden {
				folders = append(folders, gardenbed.EnsureAssets)
			}
			for _, folder := range folders {
				dir, err := folder(cmd.Context(), r.log)
				if err != nil {
					return err
				}
				if _, err := fmt.Fprintln(r.stdout, dir); err != nil {
					return err
				}
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&garden, "garden", false, "also the directory of the Gardener programs")
	return cmd
}
