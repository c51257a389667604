package allinone

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/terminal"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

// The commands that replace images on the node of the embedded host cluster.
const (
	// RunnerCommand runs action-runner.
	RunnerCommand = "action-runner"
	// WebCommand runs a program that serves no requests and waits for a signal.
	WebCommand = "web"
)

// NewProgramCommand returns the command line of the program fleetloop-up: the command "up", which the command of
// that name of fleetloop starts, and NewHiddenRunnerAndWebCommands.
func NewProgramCommand(env Env) *cobra.Command {
	up := NewCommand(env)
	up.Use, up.Annotations = "fleetloop-up", map[string]string{cobra.CommandDisplayNameAnnotation: "fleetloop up"}
	up.SilenceErrors, up.SilenceUsage = true, true
	up.CompletionOptions.DisableDefaultCmd = true // fleetloop completes its command up
	up.SetOut(env.Stdout)
	up.SetErr(env.Stderr)
	up.AddCommand(NewHiddenRunnerAndWebCommands(env)...)
	terminal.AddVersionCommandAndFlag(up)
	return up
}

// NewHiddenRunnerAndWebCommands returns the commands that the node of the embedded host cluster runs as containers. They
// are internal.
func NewHiddenRunnerAndWebCommands(env Env) []*cobra.Command {
	return []*cobra.Command{
		{
			Use: RunnerCommand, Hidden: true, DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				return runActionRunner(cmd.Context(), env, args)
			},
		},
		{
			Use: WebCommand, Hidden: true, Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error {
				<-cmd.Context().Done()
				return nil
			},
		},
	}
}

// terminationLog is the path from which a kubelet reads the termination message.
const terminationLog = "/dev/termination-log"

func runActionRunner(ctx context.Context, env Env, args []string) error {
	path := terminationLog
	if other, set := env.LookupEnv(runner.EnvTerminationLog); set {
		path = other
	}
	code := runner.Run(ctx, env.LookupEnv, args, env.Stdout, path)
	if code == cli.CodeOK {
		return nil
	}
	return cli.NewError(exitError(code), code, "")
}

// exitError is the exit code of a runner that has already reported its error.
type exitError int

// Error returns the exit code as a text.
func (e exitError) Error() string { return "exit code " + strconv.Itoa(int(e)) }
