package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/internal/kube/kubebed"
	"github.com/fleetloop/fleetloop/internal/kube/kubebed/processnode"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A run is one control plane of the command.
type run struct {
	controllers []string
	scheduler   bool
	crds        []string
	dir         string
	node        string
	images      map[string]string

	stdout, stderr io.Writer
	log            *slog.Logger
}

// Kinds of nodes.
const (
	noNode      = ""
	processNode = "process"
)

func (r *run) run(ctx context.Context, args []string) error {
	if r.node != noNode && r.node != processNode {
		return fmt.Errorf("unknown node %q: give process", r.node)
	}
	return r.serve(ctx, args)
}

// options say what is started.
func (r *run) options() kubebed.Options {
	var o kubebed.Options
	if r.node == processNode { // Pods need both to get there
		o = kubebed.Options{Controllers: kubebed.JobControllers(), Scheduler: true}
	}
	switch {
	case slices.Equal(r.controllers, []string{"all"}):
		o.Controllers = kubebed.AllControllers()
	case slices.Equal(r.controllers, []string{"job"}):
		o.Controllers = kubebed.JobControllers()
	case len(r.controllers) > 0:
		o.Controllers = r.controllers
	}
	o.Scheduler = o.Scheduler || r.scheduler
	o.CRDs, o.Dir, o.Log = r.crds, r.dir, r.log
	return o
}

// serve starts the control plane and its node, and runs until ctx ends, the
// command does, or one of them.
func (r *run) serve(ctx context.Context, args []string) error {
	bed, err := kubebed.Start(ctx, r.options())
	if err != nil {
		return err
	}
	parts := []lifecycle.Part{{Name: "control plane", Run: bed.Run, Close: bed.Stop}}
	if r.node != noNode {
		node, err := r.startNode(bed)
		if err != nil {
			return errors.Join(err, lifecycle.Discard(parts...))
		}
		parts = append(parts, node)
	}
	if len(args) == 0 {
		r.tell(bed)
		return lifecycle.Run(ctx, lifecycle.Options{}, parts...)
	}
	var ended error
	parts = append(parts, lifecycle.Part{Name: args[0], Run: func(ctx context.Context) error {
		ended = r.runOn(ctx, bed, args)
		return errEnded
	}})
	if err := lifecycle.Run(ctx, lifecycle.Options{}, parts...); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return ended
}

// errEnded is how the command on the control plane ends everything.
var errEnded = errors.New("the command has ended")

// startNode starts the node that was asked for.
func (r *run) startNode(bed *kubebed.Bed) (lifecycle.Part, error) {
	images := make(map[string][]string)
	for name, program := range r.images {
		images[name] = strings.Fields(program)
	}
	node, err := processnode.New(bed.Config(), processnode.Options{Images: images, Log: r.log})
	if err != nil {
		return lifecycle.Part{}, err
	}
	return lifecycle.Part{Name: "process node", Run: node.Run, Ready: node.Ready}, nil
}

// tell prints how the control plane is reached, for a shell to take over.
func (r *run) tell(bed *kubebed.Bed) {
	_, _ = fmt.Fprintf(r.stdout, "export KUBECONFIG=%s\nexport PATH=$PATH:%s\n", bed.AdminKubeconfig(), bed.Assets())
	_, _ = fmt.Fprintln(r.stderr, "kubebed: Ctrl-C ends it")
}

// commandBound is how long a command may take to end that was told to.
const commandBound = 10 * time.Second

// runOn runs a command that reaches the control plane.
func (r *run) runOn(ctx context.Context, bed *kubebed.Bed, args []string) error {
	path := os.Getenv("PATH") + ":" + bed.Assets()
	if err := os.Setenv("PATH", path); err != nil { // where the command is looked for
		return err
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...) //nolint:gosec // what the user gave
	cmd.Env = append(os.Environ(), "KUBECONFIG="+bed.AdminKubeconfig(), "KUBEBUILDER_ASSETS="+bed.Assets())
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, r.stdout, r.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandBound
	return cmd.Run()
}
