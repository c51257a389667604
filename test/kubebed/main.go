// Command kubebed starts a Kubernetes control plane on this machine, to try
// things out on: the one that the tests run on. With a command behind "--" it
// runs that on it, and ends with it.
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

	"github.com/fleetloop/fleetloop/internal/gardener/gardenbed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := command(os.Stdout, os.Stderr).ExecuteContext(ctx)
	stop()
	var exit interface { // *exec.ExitError, of the command that was run on it, or exitError
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

func command(stdout, stderr io.Writer) *cobra.Command {
	r := &run{stdout: stdout, stderr: stderr, log: slog.New(slog.NewTextHandler(stderr, nil))}
	root := &cobra.Command{
		Use:   "kubebed [flags] [-- COMMAND [ARG...]]",
		Short: "Start a Kubernetes control plane on this machine",
		Long: `Start etcd and kube-apiserver on the loopback address, and what else is asked
for, and print how kubectl reaches them. Ctrl-C ends it. With a command it runs
that, with KUBECONFIG set, and ends when it ends.

With --garden it is a Gardener's garden, too: its real API server with a project,
and somebody who takes Shoots through their operations, without making clusters.
The annotation gardenbed.fleetloop.io/fault on a Shoot makes something go wrong:
Error, Failed, Stuck or Unhealthy.

The programs come from KUBEBUILDER_ASSETS, else from a cache folder
(FLEETLOOP_KUBEBED_DIR), which is filled at the first start: by a download, or by
a build from Go modules that takes minutes.`,
		Example: `  go run ./test/kubebed
  go run ./test/kubebed --controllers job --node process --image demo=/bin/true
  go run ./test/kubebed --node real -- kubectl get nodes
  go run ./test/kubebed --garden -- kubectl get cloudprofiles`,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE:          func(cmd *cobra.Command, args []string) error { return r.run(cmd.Context(), args) },
	}
	flags := root.Flags()
	flags.StringSliceVar(&r.controllers, "controllers", nil, `controllers to run: "all", "job" for those of Jobs and their Pods, or names`)
	flags.BoolVar(&r.scheduler, "scheduler", false, "bind Pods to Nodes")
	flags.StringSliceVar(&r.crds, "crds", nil, "files of CustomResourceDefinitions, or folders with such files")
	flags.StringVar(&r.dir, "dir", "", "folder of the state, used again if it has some (default: one that is removed at the end)")
	flags.StringVar(&r.node, "node", "", `node to run Pods on: "process" (their commands as processes of this machine) or "real" (kubelet and containerd, for root, in a network of its own)`)
	flags.StringToStringVar(&r.images, "image", nil, `for --node process, the program that stands for an image: NAME=PROGRAM; for --node real, an archive: NAME=FILE`)
	flags.BoolVar(&r.garden, "garden", false, "start the API server of Gardener behind it, and take Shoots through their operations")
	flags.DurationVar(&r.step, "garden-step", time.Second, "how long each of the seven steps of an operation takes")
	root.AddCommand(r.assetsCommand(), pinCommand(stderr))
	return root
}

// assetsCommand fills the cache.
func (r *run) assetsCommand() *cobra.Command {
	var garden bool
	cmd := &cobra.Command{
		Use:   "assets",
		Short: "Print the folder with the programs, and fill it first where it is empty",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			folders := []func(context.Context, *slog.Logger) (string, error){kubebed.Assets}
			if garden {
				folders = append(folders, gardenbed.Assets)
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
	cmd.Flags().BoolVar(&garden, "garden", false, "that of the API server of Gardener, too")
	return cmd
}
