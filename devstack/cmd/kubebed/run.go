package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/fleetloop/fleetloop/devstack/gardenbed"
	"github.com/fleetloop/fleetloop/devstack/kubebed"
	"github.com/fleetloop/fleetloop/devstack/processnode"
	"github.com/fleetloop/fleetloop/devstack/realnode"
	"github.com/fleetloop/fleetloop/internal/lifecycle"
)

// A run is one run of the command.
type run struct {
	controllers []string
	scheduler   bool
	crds        []string
	dir         string
	node        string
	images      map[string]string
	garden      bool
	step        time.Duration

	stdout, stderr io.Writer
	log            *slog.Logger
}

// Kinds of nodes.
const (
	noNode      = ""
	processNode = "process"
	realNode    = "real"
)

func (r *run) isolateIfNeededAndServe(ctx context.Context, userCommand []string) error {
	if r.garden { // before this process enters its own network, in which nothing can be built
		if _, err := gardenbed.EnsureAssets(ctx, r.log); err != nil {
			return err
		}
	}
	switch r.node {
	case noNode, processNode:
		return r.serveUntilDone(ctx, userCommand)
	case realNode:
		inside, code, err := realnode.Isolate(ctx, r.log)
		switch {
		case err != nil:
			return err
		case inside:
			return r.serveUntilDone(ctx, userCommand)
		case code != 0:
			return exitError(code)
		}
		return nil
	}
	return fmt.Errorf("unknown node %q: use process or real", r.node)
}

// An exitError is the exit code of a program that has reported its error.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// ExitCode returns the code.
func (e exitError) ExitCode() int { return int(e) }

// bedOptions returns the options of the control plane.
func (r *run) bedOptions() kubebed.Options {
	var o kubebed.Options
	switch r.node {
	case realNode:
		o = realnode.BedOptions()
	case processNode: // Pods need both to be assigned to it
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

// serveUntilDone starts the control plane and its node, and runs until ctx ends, the command ends,
// or one of them ends.
func (r *run) serveUntilDone(ctx context.Context, userCommand []string) error {
	bed, err := kubebed.Start(ctx, r.bedOptions())
	if err != nil {
		return err
	}
	parts := []lifecycle.Part{{Name: "control plane", Run: bed.Run, Close: bed.Stop}}
	if r.node != noNode {
		node, err := r.startProcessOrRealNode(ctx, bed)
		if err != nil {
			return errors.Join(err, lifecycle.CloseAll(parts...))
		}
		parts = append(parts, node)
	}
	if r.garden {
		garden, err := r.startGarden(ctx, bed)
		if err != nil {
			return errors.Join(err, lifecycle.CloseAll(parts...))
		}
		parts = append(parts, garden...)
	}
	if r.node == realNode && len(userCommand) == 0 { // it is not reachable from outside
		userCommand = []string{"sh"}
	}
	if len(userCommand) == 0 {
		r.printShellExports(bed)
		return lifecycle.Run(ctx, lifecycle.Options{}, parts...)
	}
	var ended error
	parts = append(parts, lifecycle.Part{Name: userCommand[0], Run: func(ctx context.Context) error {
		ended = r.runUserCommand(ctx, bed, userCommand)
		return errEnded
	}})
	if err := lifecycle.Run(ctx, lifecycle.Options{}, parts...); err != nil && !errors.Is(err, errEnded) {
		return err
	}
	return ended
}

// errEnded is the result when the command on the control plane ends.
var errEnded = errors.New("command exited")

// startProcessOrRealNode starts the configured node.
func (r *run) startProcessOrRealNode(ctx context.Context, bed *kubebed.Bed) (lifecycle.Part, error) {
	if r.node == realNode {
		node, err := realnode.Start(ctx, bed, realnode.Options{Images: slices.Sorted(maps.Values(r.images))})
		if err != nil {
			return lifecycle.Part{}, err
		}
		return lifecycle.Part{Name: "real node", Close: node.Stop, Run: func(ctx context.Context) error {
			<-ctx.Done()
			return node.Stop()
		}}, nil
	}
	images := make(map[string][]string)
	for name, program := range r.images {
		var err error
		if images[name], err = absoluteCommand(name, program); err != nil {
			return lifecycle.Part{}, err
		}
	}
	node, err := processnode.New(bed.Config(), processnode.Options{Images: images, Log: r.log})
	if err != nil {
		return lifecycle.Part{}, err
	}
	return lifecycle.Part{Name: "process node", Run: node.Run, Ready: node.Ready}, nil
}

// absoluteCommand returns a program and its arguments with absolute paths, because containers have
// another working directory than the user.
func absoluteCommand(forImage, commandLine string) (words []string, err error) {
	words = strings.Fields(commandLine)
	if len(words) == 0 {
		return nil, fmt.Errorf("--image %s has no program: use %s=PROGRAM", forImage, forImage)
	}
	path, err := exec.LookPath(words[0])
	if err != nil {
		return nil, fmt.Errorf("find program of --image %s: %w", forImage, err)
	}
	if words[0], err = filepath.Abs(path); err != nil {
		return nil, fmt.Errorf("find program of --image %s: %w", forImage, err)
	}
	return words, nil
}

// startGarden starts a garden with the control plane.
func (r *run) startGarden(ctx context.Context, bed *kubebed.Bed) ([]lifecycle.Part, error) {
	garden, err := gardenbed.Start(ctx, gardenbed.Options{On: bed, Kube: kubebed.Options{Log: r.log}})
	if err != nil {
		return nil, err
	}
	g, err := gardenbed.NewGardenlet(garden.Config(), gardenbed.GardenletOptions{Step: r.step})
	if err != nil {
		return nil, errors.Join(err, garden.Stop())
	}
	return []lifecycle.Part{
		{Name: "garden", Run: garden.Run, Ready: garden.Ready, Close: garden.Stop},
		{Name: "gardenlet", Run: g.Run},
	}, nil
}

// gardenVariables returns the variables by which the cluster-worker reaches the garden.
func (r *run) gardenVariables(bed *kubebed.Bed) []string {
	if !r.garden {
		return nil
	}
	return []string{"GARDENER_KUBECONFIG=" + bed.AdminKubeconfig(), "GARDENER_NAMESPACE=" + gardenbed.NamespaceOf(gardenbed.DefaultProject)}
}

// printShellExports prints how to reach the control plane, as shell variables.
func (r *run) printShellExports(bed *kubebed.Bed) {
	_, _ = fmt.Fprintf(r.stdout, "export KUBECONFIG=%s\nexport PATH=$PATH:%s\n", bed.AdminKubeconfig(), bed.Assets())
	for _, v := range r.gardenVariables(bed) {
		_, _ = fmt.Fprintln(r.stdout, "export "+v)
	}
	_, _ = fmt.Fprintln(r.stderr, "kubebed: press Ctrl-C to stop")
}

// commandBound limits how long a stopped command may take to end.
const commandBound = 10 * time.Second

// runUserCommand runs a command with access to the control plane.
func (r *run) runUserCommand(ctx context.Context, bed *kubebed.Bed, args []string) error {
	program := args[0]
	if _, err := exec.LookPath(program); err != nil && filepath.Base(program) == program {
		program = filepath.Join(bed.Assets(), program)
	}
	cmd := exec.CommandContext(ctx, program, args[1:]...) //nolint:gosec // what the user gave
	cmd.Env = append(
		os.Environ(),
		"PATH="+os.Getenv("PATH")+":"+bed.Assets(),
		"KUBECONFIG="+bed.AdminKubeconfig(),
		"KUBEBUILDER_ASSETS="+bed.Assets(),
	)
	cmd.Env = append(cmd.Env, r.gardenVariables(bed)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, r.stdout, r.stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = commandBound
	return cmd.Run()
}
