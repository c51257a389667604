package allinone

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/execution/job/input"
	"github.com/fleetloop/fleetloop/internal/execution/runner"
)

// The commands that stand for images on the node of the embedded host cluster.
const (
	// RunnerCommand is action-runner.
	RunnerCommand = "action-runner"
	// WebCommand is a program that serves nobody until it is told to end.
	WebCommand = "web"
)

// Programs are the commands that the node of the embedded host cluster runs as
// containers. People have no use for them.
func Programs(env Env) []*cobra.Command {
	return []*cobra.Command{
		{
			Use: RunnerCommand, Hidden: true, DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error {
				return runAction(cmd.Context(), env, args)
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

// terminationLog is where a kubelet looks.
const terminationLog = "/dev/termination-log"

func runAction(ctx context.Context, env Env, args []string) error {
	path := terminationLog
	if other, set := env.LookupEnv(input.TerminationLog); set {
		path = other
	}
	code := runner.Run(ctx, env.LookupEnv, args, env.Stdout, path)
	if code == cli.CodeOK {
		return nil
	}
	return cli.Fail(exitError(code), code, "")
}

// exitError is how a runner ended that has said why itself.
type exitError int

// Error is the code.
func (e exitError) Error() string { return "exit code " + strconv.Itoa(int(e)) }
