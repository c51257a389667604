// Command fleetloop is the command line of the fleet API. Its command up starts
// fleetloop-up, which runs all of Fleetloop in one process.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/fleetloop/fleetloop/internal/app/cli"
	"github.com/fleetloop/fleetloop/internal/app/execcli"
	"github.com/fleetloop/fleetloop/internal/app/faultcli"
	"github.com/fleetloop/fleetloop/internal/app/mcp"
	"github.com/fleetloop/fleetloop/internal/settings"
)

func main() {
	signals := []os.Signal{os.Interrupt, syscall.SIGTERM}
	if !signal.Ignored(syscall.SIGHUP) { // nohup ignores it
		signals = append(signals, syscall.SIGHUP) // the terminal was closed
	}
	ctx, stop := signal.NotifyContext(context.Background(), signals...)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	program, args := cli.ProgramArgs(os.Args)
	env := cli.Env{
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		LookupEnv: settings.OSEnv, Program: program, OpenBrowser: cli.OpenBrowser, ExecPlugin: cli.ExecPlugin,
		Interactive: term.IsTerminal(int(os.Stdin.Fd())),
		Terminal:    term.IsTerminal(int(os.Stdout.Fd())),
		TerminalHeight: func() int {
			_, height, _ := term.GetSize(int(os.Stdout.Fd())) // 0 if it is unknown
			return height
		},
		Progress: term.IsTerminal(int(os.Stderr.Fd())),
	}
	root := newRoot(env)
	root.AddCommand(cli.UpCommand(), mcp.Command(env, newRoot))
	code := cli.Run(ctx, env, root, args)
	stop()
	os.Exit(code)
}

// newRoot returns the commands on the fleet API and on host clusters.
func newRoot(env cli.Env) *cobra.Command {
	env.Stdout = cli.NewOutput(env.Stdout)
	root := cli.Command(env)
	root.AddCommand(execcli.Commands(env)...)
	root.AddCommand(faultcli.Commands(env)...)
	root.AddCommand(cli.NewSentinelCommand(env))
	cli.AddChangesSubcommands(root, faultcli.DeliveriesCommand(env))
	return root
}
